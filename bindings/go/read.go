package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// reader is what a database and a snapshot can both be asked. A database answers as it is at the moment of each call.
type reader struct {
	db *DB
	// view is the snapshot; 0 = a new one for each call.
	view C.hw_snapshot
}

func (r *reader) snapshot() C.hw_snapshot { return r.view }

// ready says why a call cannot begin.
func (r *reader) ready(ctx context.Context, stream *Stream) error {
	if stream == nil {
		return failure(ErrInvalid, "the query has no stream: create one with DB.Stream")
	}
	if stream.db != r.db {
		return failure(ErrInvalid, "stream %s belongs to another database", stream)
	}
	return ctx.Err()
}

// Snapshot is a consistent view of everything acknowledged before it was taken; it never changes. While it is open the files and
// memory that it sees are kept, so close it after a question, not after a day.
type Snapshot struct {
	reader
	cleanup runtime.Cleanup
}

// Snapshot takes a snapshot. It fails with ErrClosed after DB.Close.
func (db *DB) Snapshot() (*Snapshot, error) {
	var e C.hw_error
	var view C.hw_snapshot
	code := C.hw_snapshot_open(db.handle, &view, &e)
	runtime.KeepAlive(db)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	return db.viewed(view), nil
}

// Close lets go of what the snapshot keeps. A second call does nothing.
func (s *Snapshot) Close() {
	s.cleanup.Stop()
	release(s.view)
}

// Sequence gives the number of the newest record that the snapshot sees: it rises with every write.
func (s *Snapshot) Sequence() (uint64, error) {
	var e C.hw_error
	var sequence C.uint64_t
	code := C.hw_snapshot_sequence(s.view, &sequence, &e)
	runtime.KeepAlive(s)
	if code != C.HW_OK {
		return 0, take(&e)
	}
	return uint64(sequence), nil
}

// Scan gives the rows of a stream, by time; of equal times by arrival:
//
//	for row, err := range db.Scan(ctx, pump, headwater.Query{}) {
//		if err != nil { … }
//	}
//
// An error ends the scan, but for ErrCorrupt: a damaged part is reported where it is met, and the rows behind it follow if the loop
// goes on. A stream that was never written to is ErrNotFound. The context is looked at between chunks of some thousand rows.
func (r *reader) Scan(ctx context.Context, stream *Stream, query Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for columns, err := range r.ScanChunks(ctx, stream, query) {
			if err != nil {
				if !yield(Row{}, err) {
					return
				}
				continue
			}
			for i := range columns.Times {
				if !yield(Row{columns, i}, nil) {
					return
				}
			}
		}
	}
}

// ScanChunks is Scan with the rows as columns, some thousand at a time, in bounded memory. Chunks may be kept.
func (r *reader) ScanChunks(ctx context.Context, stream *Stream, query Query) iter.Seq2[*Columns, error] {
	return func(yield func(*Columns, error) bool) {
		if err := r.ready(ctx, stream); err != nil {
			yield(nil, err)
			return
		}
		question, done, err := stream.query(query.Fields, query.Where)
		if err != nil {
			yield(nil, err)
			return
		}
		defer done()
		r.scan(ctx, question, query.Range, stream.name, yield)
		runtime.KeepAlive(stream)
	}
}

// ScanTable is ScanChunks over all streams of a table that have these tags, stream by stream in the order of the catalog; no tags =
// all of them. Columns.Stream names the stream. Streams that have no row in the range do not come up.
func (r *reader) ScanTable(ctx context.Context, table string, tags Tags, query Query) iter.Seq2[*Columns, error] {
	return func(yield func(*Columns, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		question, err := r.tableQuery(table, tags, query)
		if err != nil {
			yield(nil, err)
			return
		}
		defer release(question)
		r.scan(ctx, question, query.Range, "", yield)
	}
}

func (r *reader) tableQuery(table string, tags Tags, query Query) (C.hw_query, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	return r.pinnedQuery(&pinner, table, pinnedTags(&pinner, tags), query)
}

// pinnedQuery is a question for the streams with these tags; a key that comes several times may have any of its values.
func (r *reader) pinnedQuery(pinner *runtime.Pinner, table string, native []C.hw_tag, query Query) (C.hw_query, error) {
	names := pinnedList(pinner, query.Fields)
	filters, err := pinnedFilters(pinner, query.Where)
	if err != nil {
		return 0, err
	}
	var e C.hw_error
	var question C.hw_query
	code := C.hw_query_table(r.db.handle, text(table), unsafe.SliceData(native), C.size_t(len(native)),
		unsafe.SliceData(names), C.size_t(len(names)), unsafe.SliceData(filters), C.size_t(len(filters)), &question, &e)
	runtime.KeepAlive(r)
	if code != C.HW_OK {
		return 0, take(&e)
	}
	return question, nil
}

// scan gives the rows of a question; name is that of its stream, empty for one of many streams.
func (r *reader) scan(ctx context.Context, question C.hw_query, within Range, name string, yield func(*Columns, error) bool) {
	var e C.hw_error
	var scan C.hw_scan
	var rows C.hw_rows
	first, last := within.native()
	// A small read is at its end with this.
	code := C.hw_scan_begin(question, r.snapshot(), first, last, &rows, &scan, &e)
	runtime.KeepAlive(r)
	if code == C.HW_CORRUPT {
		// Behind the damaged part there may be more: the scan that goes on there reports it again.
		C.hw_error_free(&e)
		code = C.hw_scan_open(question, r.snapshot(), first, last, &scan, &e)
		runtime.KeepAlive(r)
	}
	if code != C.HW_OK {
		yield(nil, take(&e))
		return
	}
	if scan != 0 {
		defer release(scan)
	}
	if rows.handle != 0 && !give(ctx, takeRows(&rows, name), yield) || scan == 0 {
		return
	}
	for {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		rows = C.hw_rows{}
		if C.hw_scan_next(scan, &rows, &e) != C.HW_OK {
			goesOn := e.code == C.HW_CORRUPT
			if !yield(nil, take(&e)) || !goesOn {
				return
			}
			continue
		}
		if rows.handle == 0 || !give(ctx, takeRows(&rows, name), yield) {
			return
		}
	}
}

// chunkRows is how many rows of memory are given at once, a multiple of eight. Those of files come in fewer.
const chunkRows = 8192

// give gives rows in chunks, and ends when the context does; false when no more are wanted.
func give(ctx context.Context, rows *Columns, yield func(*Columns, error) bool) bool {
	if rows.Len() <= chunkRows {
		return yield(rows, nil)
	}
	for from := 0; from < rows.Len(); from += chunkRows {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return false
		}
		if !yield(rows.part(from, min(from+chunkRows, rows.Len())), nil) {
			return false
		}
	}
	return true
}

// takeRows copies rows of the library and gives them back.
func takeRows(rows *C.hw_rows, name string) *Columns {
	defer release(rows.handle)
	if name == "" {
		name = goString(rows.stream.text)
	}
	return ownColumns(rows, name)
}

// ScanColumns gives all rows of a question at once, as slices. The first error ends it.
func (r *reader) ScanColumns(ctx context.Context, stream *Stream, query Query) (*Columns, error) {
	var all *Columns
	for columns, err := range r.ScanChunks(ctx, stream, query) {
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = columns
		} else {
			all.append(columns)
		}
	}
	if all == nil {
		return r.noRows(stream, query)
	}
	return all, nil
}

// noRows gives columns without rows, with the fields and types of a question.
func (r *reader) noRows(stream *Stream, query Query) (*Columns, error) {
	question, done, err := stream.query(query.Fields, query.Where)
	if err != nil {
		return nil, err
	}
	defer done()
	var e C.hw_error
	var rows C.hw_rows
	first, last := query.Range.native()
	code := C.hw_read(question, r.snapshot(), first, last, &rows, &e)
	runtime.KeepAlive(r)
	runtime.KeepAlive(stream)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	defer release(rows.handle)
	return ownColumns(&rows, stream.name), nil
}

// Series is times and values of one field.
type Series struct {
	// Times in nanoseconds since 1970 UTC.
	Times []int64
	// Values, one for each time.
	Values []float64
}

// ScanFloats reads the times and values of one field of TypeFloat64 into slices; rows without a value are left out. This is the
// fastest way to read: it fills what into has room for and makes new slices only when that is too small. into must not be nil.
func (r *reader) ScanFloats(ctx context.Context, stream *Stream, field string, within Range, into *Series) error {
	if err := r.ready(ctx, stream); err != nil {
		return err
	}
	question, known := stream.knownFloats(field)
	if !known {
		asked, done, err := stream.query([]string{field}, nil)
		if err != nil {
			return err
		}
		defer done()
		question = asked
	}
	room := min(cap(into.Times), cap(into.Values))
	if room == 0 {
		room = floatsRoom
		into.Times, into.Values = make([]int64, room), make([]float64, room)
	}
	view := r.snapshot()
	first, last := within.native()
	for {
		into.Times, into.Values = into.Times[:room], into.Values[:room]
		var e C.hw_error
		var count C.size_t
		code := C.hw_read_f64(question, view, first, last, (*C.int64_t)(unsafe.SliceData(into.Times)),
			(*C.double)(unsafe.SliceData(into.Values)), C.size_t(room), &count, &e)
		if code != C.HW_OK {
			into.Times, into.Values = into.Times[:0], into.Values[:0]
			return take(&e)
		}
		n := int(count)
		if n <= room {
			into.Times, into.Values = into.Times[:n], into.Values[:n]
			runtime.KeepAlive(r)
			runtime.KeepAlive(stream)
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// More rows may come between two calls: a little room for them.
		room = n + n/64
		into.Times, into.Values = slices.Grow(into.Times[:0], room), slices.Grow(into.Values[:0], room)
		room = min(cap(into.Times), cap(into.Values))
	}
}

// SeriesSet is times and values of one field of several streams, as ScanManyFloats fills it. The slices share memory, which the next
// call with the set uses again.
type SeriesSet struct {
	// Series has one for each stream asked for, in that order.
	Series []Series

	times  []int64
	values []float64
}

// ScanManyFloats is ScanFloats for several streams at once, all as of one instant: one call of the library for all of them. It uses
// the memory of the set again, and makes new one only when that is too small. into must not be nil. A stream that was never written to
// is ErrNotFound.
func (r *reader) ScanManyFloats(ctx context.Context, streams []*Stream, field string, within Range, into *SeriesSet) error {
	// Of a few streams nothing is allocated.
	var few [manyFloats]C.hw_query
	var fewCounts [manyFloats]C.size_t
	questions, counts := few[:0], fewCounts[:]
	if len(streams) > manyFloats {
		questions, counts = make([]C.hw_query, 0, len(streams)), make([]C.size_t, len(streams))
	}
	for _, stream := range streams {
		if err := r.ready(ctx, stream); err != nil {
			return err
		}
		question, known := stream.knownFloats(field)
		if !known {
			var done func()
			var err error
			if question, done, err = stream.query([]string{field}, nil); err != nil {
				return err
			}
			defer done()
		}
		questions = append(questions, question)
	}
	into.Series = slices.Grow(into.Series[:0], len(streams))[:len(streams)]
	clear(into.Series)
	if len(streams) == 0 {
		return nil
	}
	room := min(cap(into.times), cap(into.values))
	if room == 0 {
		room = floatsRoom
		into.times, into.values = make([]int64, room), make([]float64, room)
	}
	view := r.snapshot()
	first, last := within.native()
	for {
		into.times, into.values = into.times[:room], into.values[:room]
		var e C.hw_error
		code := C.hw_read_many_f64(unsafe.SliceData(questions), C.size_t(len(questions)), view, first, last,
			(*C.int64_t)(unsafe.SliceData(into.times)), (*C.double)(unsafe.SliceData(into.values)), C.size_t(room),
			unsafe.SliceData(counts), &e)
		runtime.KeepAlive(r)
		runtime.KeepAlive(streams)
		if code != C.HW_OK {
			return take(&e)
		}
		from, all := 0, 0
		for _, count := range counts[:len(streams)] {
			all += int(count)
		}
		if all <= room {
			for i := range into.Series {
				to := from + int(counts[i])
				into.Series[i] = Series{into.times[from:to:to], into.values[from:to:to]}
				from = to
			}
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// More rows may come between two calls: a little room for them.
		room = all + all/64
		into.times, into.values = slices.Grow(into.times[:0], room), slices.Grow(into.values[:0], room)
		room = min(cap(into.times), cap(into.values))
	}
}

// manyFloats is how many streams ScanManyFloats reads without allocating lists of them.
const manyFloats = 16

// floatsRoom is how many rows ScanFloats makes room for when it is given none.
const floatsRoom = 1024

// LastValue is the newest value of a field.
type LastValue struct {
	// Field is its name.
	Field string
	// Nanos is when, in nanoseconds since 1970 UTC.
	Nanos int64
	// Value is a float64, int64, uint64, bool, string or []byte.
	Value any
}

// Time gives when.
func (v LastValue) Time() time.Time { return time.Unix(0, v.Nanos) }

// Last gives the newest value of each field of a stream; fields without any are left out.
func (r *reader) Last(ctx context.Context, stream *Stream) ([]LastValue, error) {
	if err := r.ready(ctx, stream); err != nil {
		return nil, err
	}
	var e C.hw_error
	var native C.hw_last_values
	code := C.hw_last(stream.handle, r.snapshot(), &native, &e)
	runtime.KeepAlive(r)
	runtime.KeepAlive(stream)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	defer release(native.handle)
	values := make([]LastValue, int(native.count))
	for i, v := range unsafe.Slice(native.values, int(native.count)) {
		values[i] = LastValue{Field: goString(v.field), Nanos: int64(v.time_ns), Value: goValue(&v.value)}
	}
	return values, nil
}

// LastTable gives the newest values of all streams of a table that have these tags, by the streams' names; no tags = all of them.
func (r *reader) LastTable(ctx context.Context, table string, tags Tags) (map[string][]LastValue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	native := pinnedTags(&pinner, tags)
	var e C.hw_error
	var found C.hw_last_values
	code := C.hw_last_table(r.db.handle, r.snapshot(), text(table), unsafe.SliceData(native), C.size_t(len(native)), &found, &e)
	runtime.KeepAlive(r)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	defer release(found.handle)
	names := unsafe.Slice(found.streams, int(found.stream_count))
	out := make(map[string][]LastValue, len(names))
	for i := range names {
		out[goString(names[i].text)] = nil
	}
	for _, v := range unsafe.Slice(found.values, int(found.count)) {
		name := goString(names[v.stream].text)
		out[name] = append(out[name], LastValue{Field: goString(v.field), Nanos: int64(v.time_ns), Value: goValue(&v.value)})
	}
	return out, nil
}

// StreamInfo says what a stream holds.
type StreamInfo struct {
	// Rows of the stream. While rewritten rows or deletes wait to be merged it counts what they replace or remove too.
	Rows uint64
	// First and Last are the times of the earliest and the latest event in nanoseconds since 1970 UTC; they mean nothing while Rows
	// is 0 and nothing was aged away.
	First, Last int64
	// HasEvents says whether First and Last mean something.
	HasEvents bool
}

// Describe says what a stream holds, without reading its rows.
func (r *reader) Describe(ctx context.Context, stream *Stream) (StreamInfo, error) {
	if err := r.ready(ctx, stream); err != nil {
		return StreamInfo{}, err
	}
	var e C.hw_error
	var info C.hw_stream_info
	code := C.hw_stream_describe(stream.handle, r.snapshot(), &info, &e)
	runtime.KeepAlive(r)
	runtime.KeepAlive(stream)
	if code != C.HW_OK {
		return StreamInfo{}, take(&e)
	}
	return StreamInfo{Rows: uint64(info.rows), First: int64(info.first_ns), Last: int64(info.last_ns),
		HasEvents: info.has_events != 0}, nil
}
