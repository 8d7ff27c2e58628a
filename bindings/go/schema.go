package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"encoding/json"
	"runtime"
	"time"
	"unsafe"
)

// Duplicates says what happens to events of a stream with equal timestamps.
type Duplicates int32

// What happens to equal timestamps.
const (
	// DuplicatesLast lets the later write win, field by field: the default.
	DuplicatesLast Duplicates = C.HW_DUPLICATES_LAST
	// DuplicatesKeep keeps all, in order of arrival.
	DuplicatesKeep Duplicates = C.HW_DUPLICATES_KEEP
)

// Forever is the life of rows that end never, for TableSpec of AlterTable.
const Forever time.Duration = C.HW_FOR_EVER

// FieldSpec declares a field.
type FieldSpec struct {
	// Name of the field.
	Name string
	// Type of its values.
	Type FieldType
}

// TableSpec says what a table is like, or what changes: what is zero has the default, or stays.
type TableSpec struct {
	// Duplicates may change only before the first write.
	Duplicates Duplicates
	// LeafEvents is how many events of a stream are compressed together, 16 to 65,536.
	LeafEvents int
	// Retention removes rows that are older; Forever takes an earlier retention back.
	Retention time.Duration
	// RawFor removes rows that are older and keeps their aggregates; Forever takes an earlier one back.
	RawFor time.Duration
	// Fields to declare or to add. A field of TypeInt64 may be given as TypeFloat64, which widens it. More fields come with writes.
	Fields []FieldSpec
}

func (t *TableSpec) native(pinner *runtime.Pinner) (C.hw_table, error) {
	out := C.hw_table{duplicates: C.int32_t(t.Duplicates), leaf_events: C.uint32_t(min(max(t.LeafEvents, 0), 1<<31)),
		retention_ns: C.int64_t(t.Retention), raw_for_ns: C.int64_t(t.RawFor)}
	if len(t.Fields) > 0 {
		fields := make([]C.hw_field, len(t.Fields))
		for i, f := range t.Fields {
			if int(f.Type) >= len(nativeTypes) {
				return out, failure(ErrInvalid, "field %q has no type: use TypeFloat64 to TypeBytes", f.Name)
			}
			fields[i] = C.hw_field{name: pinned(pinner, f.Name), value_type: nativeTypes[f.Type]}
		}
		pinner.Pin(unsafe.SliceData(fields))
		out.fields, out.field_count = unsafe.SliceData(fields), C.size_t(len(fields))
	}
	return out, nil
}

// CreateTable declares a table. Writing to a table that is not there makes one too, with the defaults. ErrInvalid when there is one.
func (db *DB) CreateTable(ctx context.Context, name string, spec TableSpec) error {
	return db.do(ctx, func() error {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		native, err := spec.native(&pinner)
		if err != nil {
			return err
		}
		var e C.hw_error
		if C.hw_table_create(db.handle, text(name), &native, &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// AlterTable changes a table; what is stored stays as it is. ErrNotFound without one.
func (db *DB) AlterTable(ctx context.Context, name string, change TableSpec) error {
	return db.do(ctx, func() error {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		native, err := change.native(&pinner)
		if err != nil {
			return err
		}
		var e C.hw_error
		if C.hw_table_alter(db.handle, text(name), &native, &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// DropTable drops a table with all its streams and events. ErrNotFound without one.
func (db *DB) DropTable(ctx context.Context, name string) error {
	return db.do(ctx, func() error {
		var e C.hw_error
		if C.hw_table_drop(db.handle, text(name), &e) != C.HW_OK {
			return take(&e)
		}
		return nil
	})
}

// TableInfo describes a table.
type TableInfo struct {
	Name string `json:"name"`
	// Duplicates is "last" or "keep".
	Duplicates string `json:"duplicates"`
	LeafEvents int    `json:"leaf_events"`
	// Tags are the keys of tags that its streams have.
	Tags    []string         `json:"tags"`
	Fields  []TableFieldInfo `json:"fields"`
	Streams uint64           `json:"streams"`
	// Retention and RawFor are nil when rows are kept for ever.
	Retention *time.Duration `json:"retention_ns"`
	RawFor    *time.Duration `json:"raw_for_ns"`
	// Cut is the instant before which rows are gone by retention, AgedTo the one before which only aggregates are kept, in
	// nanoseconds since 1970 UTC; nil when there is none.
	Cut    *int64 `json:"cut_ns"`
	AgedTo *int64 `json:"aged_to_ns"`
}

// TableFieldInfo describes a field of a table.
type TableFieldInfo struct {
	Name string `json:"name"`
	// Type is f64, i64, u64, bool, string or bytes.
	Type string `json:"type"`
}

// Tables gives the tables.
func (db *DB) Tables() ([]TableInfo, error) {
	var tables []TableInfo
	err := db.report(&tables, func(t *C.hw_text, e *C.hw_error) C.int32_t { return C.hw_tables(db.handle, t, e) })
	return tables, err
}

// report reads a text of the library into a struct.
func (db *DB) report(into any, ask func(*C.hw_text, *C.hw_error) C.int32_t) error {
	var e C.hw_error
	var t C.hw_text
	code := ask(&t, &e)
	runtime.KeepAlive(db)
	if code != C.HW_OK {
		return take(&e)
	}
	return read(into, &t)
}

// read reads a report of the library.
func read(into any, t *C.hw_text) error {
	if err := json.Unmarshal([]byte(ownedText(t)), into); err != nil {
		return failure(ErrInternal, "cannot decode a report of the library: %v", err)
	}
	return nil
}

// Delete deletes the events of a range, of the streams of a table that have these tags; no tags = all of them. Those written before
// this call, that is: later writes stay. It gives the number of streams concerned.
func (db *DB) Delete(ctx context.Context, table string, tags Tags, within Range) (uint64, error) {
	return call(ctx, db, func() (uint64, error) {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		native := pinnedTags(&pinner, tags)
		var e C.hw_error
		var count C.uint64_t
		first, last := within.native()
		if C.hw_delete(db.handle, text(table), unsafe.SliceData(native), C.size_t(len(native)), first, last, &count, &e) != C.HW_OK {
			return 0, take(&e)
		}
		return uint64(count), nil
	})
}

// DropStreams drops the streams of a table that have these tags, at least one tag, with all their events, and gives their number. A
// later write with the same tags makes a new stream.
func (db *DB) DropStreams(ctx context.Context, table string, tags Tags) (uint64, error) {
	return call(ctx, db, func() (uint64, error) {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		native := pinnedTags(&pinner, tags)
		var e C.hw_error
		var count C.uint64_t
		if C.hw_drop_streams(db.handle, text(table), unsafe.SliceData(native), C.size_t(len(native)), &count, &e) != C.HW_OK {
			return 0, take(&e)
		}
		return uint64(count), nil
	})
}
