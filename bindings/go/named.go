package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"runtime"
	"time"
)

// SnapshotInfo is what is known of a named snapshot.
type SnapshotInfo struct {
	// Name it was made with.
	Name string `json:"name"`
	// CreatedNanos is when it was made, in nanoseconds since 1970 UTC.
	CreatedNanos int64 `json:"created_ns"`
	// EndsNanos is when it ends by itself; nil = never.
	EndsNanos *int64 `json:"ends_ns"`
	// Sequence is that of the newest record in it.
	Sequence uint64 `json:"sequence"`
	// Tables, Streams and Events that it had when it was made.
	Tables  uint64 `json:"tables"`
	Streams uint64 `json:"streams"`
	Events  uint64 `json:"events"`
	// Bytes of the files that it names. KeptBytes of them are there for snapshots only, for this one or for several; OwnBytes its end
	// alone would free.
	Bytes     uint64 `json:"bytes"`
	KeptBytes uint64 `json:"kept_bytes"`
	OwnBytes  uint64 `json:"own_bytes"`
}

// Created gives when it was made.
func (s SnapshotInfo) Created() time.Time { return time.Unix(0, s.CreatedNanos) }

// EndedSnapshot is a named snapshot that ended by itself.
type EndedSnapshot struct {
	Name         string `json:"name"`
	CreatedNanos int64  `json:"created_ns"`
	EndedNanos   int64  `json:"ended_ns"`
	// Reason in words.
	Reason string `json:"reason"`
}

// CreateSnapshot stores what memory holds and keeps the state of now under a name: SnapshotNamed reads it, also after the database was
// closed and opened again, until DropSnapshot or until it ends by itself: when it is too old (SnapshotAgeMax), when what snapshots keep
// is too much (SnapshotBytesMax), or when the disk is full. A bad name, one that is taken, "now", and more than 64 snapshots are
// ErrInvalid.
func (db *DB) CreateSnapshot(ctx context.Context, name string) (SnapshotInfo, error) {
	return call(ctx, db, func() (SnapshotInfo, error) {
		var made SnapshotInfo
		err := db.report(&made, func(t *C.hw_text, e *C.hw_error) C.int32_t {
			return C.hw_snapshot_create(db.handle, text(name), t, e)
		})
		return made, err
	})
}

// DropSnapshot drops a named snapshot. Its files go when nobody reads them any more. ErrNotFound without it.
func (db *DB) DropSnapshot(ctx context.Context, name string) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_snapshot_drop(db.handle, text(name), &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

type snapshotList struct {
	Snapshots []SnapshotInfo  `json:"snapshots"`
	Ended     []EndedSnapshot `json:"ended"`
}

func (db *DB) snapshotList() (snapshotList, error) {
	var list snapshotList
	err := db.report(&list, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_snapshots(db.handle, t, e) })
	return list, err
}

// Snapshots gives the named snapshots, the oldest first.
func (db *DB) Snapshots() ([]SnapshotInfo, error) {
	list, err := db.snapshotList()
	return list.Snapshots, err
}

// EndedSnapshots gives the newest of those that ended by themselves, the oldest first.
func (db *DB) EndedSnapshots() ([]EndedSnapshot, error) {
	list, err := db.snapshotList()
	return list.Ended, err
}

// SnapshotNamed gives the state that a named snapshot keeps, to be read as any other. Closing it does not drop it. ErrNotFound without
// it, ErrGone for one that ended by itself.
func (db *DB) SnapshotNamed(name string) (*Snapshot, error) {
	var e C.hw_error
	var view C.hw_snapshot
	code := C.hw_snapshot_named(db.handle, text(name), &view, &e)
	runtime.KeepAlive(db)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	return db.viewed(view), nil
}

// viewed is a snapshot of a handle.
func (db *DB) viewed(view C.hw_snapshot) *Snapshot {
	s := &Snapshot{reader: reader{db: db, view: view}}
	// Only a net below those who forget to close.
	s.cleanup = runtime.AddCleanup(s, release, view)
	return s
}
