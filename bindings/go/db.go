package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// DB is an open database. Any number of goroutines may use it; their writes share syncs.
type DB struct {
	reader
	dir     string
	handle  C.hw_db
	owned   *owned
	cleanup runtime.Cleanup
}

// owned are the objects of the library that belong to a database and end with it: streams and their queries.
type owned struct {
	mutex   sync.Mutex
	handles map[C.uint64_t]struct{}
	closed  bool
}

// add takes an object; false when the database is closed.
func (o *owned) add(handle C.uint64_t) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.closed {
		return false
	}
	o.handles[handle] = struct{}{}
	return true
}

// release ends one object.
func (o *owned) release(handle C.uint64_t) {
	o.mutex.Lock()
	delete(o.handles, handle)
	o.mutex.Unlock()
	release(handle)
}

// end ends all of them, once; false for a second time.
func (o *owned) end() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.closed {
		return false
	}
	o.closed = true
	for handle := range o.handles {
		release(handle)
	}
	o.handles = nil
	return true
}

// Open opens the database in a folder, or makes it; recovers it if it was not closed. One process owns a database; others may open it
// with ReadOnly. It fails with ErrLocked, ErrCorrupt, ErrInvalid for a wrong option, ErrFull, ErrIO, and with MustExist with
// ErrNotFound.
func Open(dir string, options ...Option) (*DB, error) {
	var c config
	for _, set := range options {
		set(&c)
	}
	handle, err := c.open(dir)
	if err != nil {
		return nil, err
	}
	db := &DB{dir: dir, handle: handle, owned: &owned{handles: make(map[C.uint64_t]struct{})}}
	db.reader.db = db
	// Only a net below those who forget to close.
	db.cleanup = runtime.AddCleanup(db, func(o *owned) {
		if o.end() {
			C.hw_close(handle, nil)
		}
	}, db.owned)
	return db, nil
}

// Close stores what is in memory and closes the database. When it fails, what was acknowledged is in the log and comes back at the
// next opening. Snapshots and running scans stay readable, and the folder stays locked until the last of them is closed. A second
// call does nothing.
func (db *DB) Close() error {
	if !db.owned.end() {
		return nil
	}
	db.cleanup.Stop()
	var e C.hw_error
	if C.hw_close(db.handle, &e) != C.HW_OK {
		return take(&e)
	}
	return nil
}

// Dir gives the folder of the database.
func (db *DB) Dir() string { return db.dir }

// call makes a call with the database that may take long. When the context ends first, the call goes on by itself and its result is
// dropped.
func call[T any](ctx context.Context, db *DB, work func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		result, err := work()
		runtime.KeepAlive(db)
		return result, err
	}
	type outcome struct {
		result T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := work()
		runtime.KeepAlive(db)
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// do is call for work without a result.
func (db *DB) do(ctx context.Context, work func() error) error {
	_, err := call(ctx, db, func() (struct{}, error) { return struct{}{}, work() })
	return err
}

// Written says what became of a batch.
type Written struct {
	// Accepted is the number of rows stored.
	Accepted int
	// Replaced is how many of these put a value where another row of the batch, before them, had put one.
	Replaced int
	// Repeated is true when the batch was numbered by its producer and had been stored before: nothing was stored again.
	Repeated bool
}

// Write stores a batch and returns when it is as durable as the database was opened for. Rows that do not fit are refused one by one
// and the others stored: then Written says how many, and the error is a *RefusedError (errors.Is ErrRefused).
//
// It waits for memory at most as long as BusyTimeout says; ErrBusy, ErrFull, ErrClosed and ErrInvalid mean that nothing of the batch is
// stored, ErrIO that it may be there after the next opening or not. When the context ends first, Write returns its error at
// once; the batch may be stored then or not (Batch.SetProducer lets it be written again without storing it twice).
func (db *DB) Write(ctx context.Context, batch *Batch) (Written, error) {
	if err := ctx.Err(); err != nil {
		return Written{}, err
	}
	if batch == nil {
		return Written{}, failure(ErrInvalid, "the batch is nil: create one with var batch headwater.Batch")
	}
	native, err := db.fill(batch)
	if err != nil {
		return Written{}, err
	}
	streams := make([]*Stream, len(batch.entries))
	for i := range streams {
		streams[i] = batch.entries[i].stream
	}
	// The library has a copy of the batch: the caller may change it as soon as Write has returned.
	return call(ctx, db, func() (Written, error) {
		defer release(native)
		return write(db.handle, native, streams)
	})
}

func write(db C.hw_db, batch C.hw_batch, streams []*Stream) (Written, error) {
	var e C.hw_error
	var w C.hw_written
	if C.hw_write(db, batch, &w, &e) != C.HW_OK {
		return Written{}, take(&e)
	}
	written := Written{Accepted: int(w.accepted), Replaced: int(w.replaced), Repeated: w.repeated != 0}
	if w.handle == 0 {
		return written, nil
	}
	defer release(w.handle)
	refused := &RefusedError{Total: int(w.refused_count)}
	rows := unsafe.Slice(w.refused, int(w.refused_count))
	for i := range rows[:min(len(rows), refusedMax)] {
		row := Refused{Row: int(rows[i].row), Code: goString(rows[i].code), Message: goString(rows[i].message)}
		if part := int(rows[i].part); part < len(streams) {
			row.Stream = streams[part].String()
		}
		refused.Rows = append(refused.Rows, row)
	}
	return written, refused
}

// refusedMax is the most refused rows that an error names.
const refusedMax = 1000

// fill makes a batch of the library.
func (db *DB) fill(batch *Batch) (C.hw_batch, error) {
	var e C.hw_error
	var native C.hw_batch
	if C.hw_batch_new(&native, &e) != C.HW_OK {
		return 0, take(&e)
	}
	if err := db.fillIn(native, batch); err != nil {
		release(native)
		return 0, err
	}
	return native, nil
}

func (db *DB) fillIn(native C.hw_batch, batch *Batch) error {
	var e C.hw_error
	for i := range batch.entries {
		part := &batch.entries[i]
		if part.stream.db != db {
			return failure(ErrInvalid, "stream %s belongs to another database", part.stream)
		}
		times := (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(part.times)))
		if C.hw_batch_rows(native, part.stream.handle, times, C.size_t(len(part.times)), &e) != C.HW_OK {
			return take(&e)
		}
		runtime.KeepAlive(part.stream)
		for j := range part.columns {
			if err := part.columns[j].add(native); err != nil {
				return err
			}
		}
	}
	if batch.producer != "" && C.hw_batch_set_producer(native, text(batch.producer), C.uint64_t(batch.number), &e) != C.HW_OK {
		return take(&e)
	}
	if batch.expires && C.hw_batch_expire_at(native, C.int64_t(batch.expiresAt), &e) != C.HW_OK {
		return take(&e)
	}
	if batch.requireAll && C.hw_batch_require_all(native, &e) != C.HW_OK {
		return take(&e)
	}
	return nil
}

// add adds the column to the rows that were begun last.
func (c *Column) add(batch C.hw_batch) error {
	var e C.hw_error
	var code C.int32_t
	field := text(c.name)
	validity := (*C.uint8_t)(unsafe.SliceData(bitmap(c.present)))
	switch c.typ {
	case TypeFloat64:
		code = C.hw_batch_f64(batch, field, (*C.double)(unsafe.SliceData(c.floats)), validity, &e)
	case TypeInt64:
		code = C.hw_batch_i64(batch, field, (*C.int64_t)(unsafe.SliceData(c.ints)), validity, &e)
	case TypeUint64:
		code = C.hw_batch_u64(batch, field, (*C.uint64_t)(unsafe.SliceData(c.uints)), validity, &e)
	case TypeBool:
		bools := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(c.bools)))
		code = C.hw_batch_bool(batch, field, bools, validity, &e)
	default:
		kind := C.int32_t(C.HW_STRING)
		if c.typ == TypeBytes {
			kind = C.HW_BYTES
		}
		if uint64(len(c.data)) > 1<<32-1 {
			return failure(ErrInvalid, "the text of field %q exceeds 4 GiB: split it into several batches", c.name)
		}
		offsets := make([]C.uint32_t, len(c.ends)+1)
		for i, end := range c.ends {
			offsets[i+1] = C.uint32_t(end)
		}
		data := (*C.uint8_t)(unsafe.SliceData(c.data))
		code = C.hw_batch_text(batch, field, kind, unsafe.SliceData(offsets), data, validity, &e)
	}
	if code != C.HW_OK {
		return take(&e)
	}
	return nil
}

// bitmap gives a bit for each row, the lowest first; nil for nil.
func bitmap(present []bool) []byte {
	if present == nil {
		return nil
	}
	bits := make([]byte, (len(present)+7)/8)
	for i, is := range present {
		if is {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return bits
}

// Flush stores every event in memory in files.
func (db *DB) Flush(ctx context.Context) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_flush(db.handle, &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// Compact stores every event in memory, then rewrites every partition that would become smaller or tidier.
func (db *DB) Compact(ctx context.Context) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_compact(db.handle, &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// Refresh lets a database that was opened with ReadOnly show what its owner has written since. For one that was not it does nothing.
func (db *DB) Refresh(ctx context.Context) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_refresh(db.handle, &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// The instants that the engine counts: nanoseconds since 1970 UTC, from the year 1677 to 2262.
const (
	maxNanos = math.MaxInt64
	minNanos = math.MinInt64
	// maxSeconds is the last whole second that is in reach at both ends.
	maxSeconds = maxNanos / 1_000_000_000
)

// nanos gives an instant as the engine counts it, and whether it is in reach; else the end that is nearest.
func nanos(at time.Time) (int64, bool) {
	switch s := at.Unix(); {
	case s >= maxSeconds:
		return maxNanos, false
	case s < -maxSeconds:
		return minNanos, false
	}
	return at.UnixNano(), true
}
