package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"unsafe"
)

// ReplayQuery says what a replay gives. The zero value is all rows of a table.
type ReplayQuery struct {
	// Range, Fields and Where, as of a scan.
	Query
	// Tags of the streams, each with the values that it may have; none = all streams.
	Tags map[string][]string
	// After is the row to go on behind; nil = from the first one on.
	After *ReplayCursor
	// MemoryBytes of rows that are held at once, about; 0 = a share of the quarter of MemoryBudget that all replays have together.
	MemoryBytes int
}

// ReplayCursor names a row of a replay, to go on behind it: in the same snapshot, where nothing is lost and nothing comes twice, or in a
// later one, which does not show what has come before it since.
type ReplayCursor struct {
	// Nanos is the row's time in nanoseconds since 1970 UTC.
	Nanos int64
	// Number says which of the rows of this stream and time it is, from 1 on.
	Number uint64
	// Stream is the stream's name.
	Stream string
}

// String gives the cursor as the server and the command take it.
func (c ReplayCursor) String() string { return fmt.Sprintf("%d/%d/%s", c.Nanos, c.Number, c.Stream) }

// ReplayRows are rows of several streams, column by column, by time. They are the caller's own.
type ReplayRows struct {
	// Columns have times and fields; their Stream is empty.
	Columns
	// Streams of these rows, each once.
	Streams []string
	// Places says of each row which of Streams it is of.
	Places []uint32
	// Numbers says of each row which of the rows of its stream and time it is, from 1 on.
	Numbers []uint64
}

// Row gives one row.
func (r *ReplayRows) Row(i int) ReplayRow { return ReplayRow{r.Columns.Row(i), r} }

// ReplayRow is one row of a replay. That of a step which ended in an error is empty.
type ReplayRow struct {
	Row
	rows *ReplayRows
}

// Stream gives the name of the row's stream.
func (r ReplayRow) Stream() string {
	if r.rows == nil {
		return ""
	}
	return r.rows.Streams[r.rows.Places[r.row]]
}

// Cursor names the row, to go on behind it.
func (r ReplayRow) Cursor() ReplayCursor {
	if r.rows == nil {
		return ReplayCursor{}
	}
	return ReplayCursor{Nanos: r.Nanos(), Number: r.rows.Numbers[r.row], Stream: r.Stream()}
}

// Replay gives the rows of many streams of a table as one sequence in the order of time. Rows of one time stand in the order of their
// streams' names, those of one stream and time as a scan gives them; the order is the same each time. An error ends it.
func (r *reader) Replay(ctx context.Context, table string, query ReplayQuery) iter.Seq2[ReplayRow, error] {
	return func(yield func(ReplayRow, error) bool) {
		for rows, err := range r.ReplayChunks(ctx, table, query) {
			if err != nil {
				yield(ReplayRow{}, err)
				return
			}
			for i := range rows.Times {
				if !yield(rows.Row(i), nil) {
					return
				}
			}
		}
	}
}

// ReplayChunks is Replay with the rows as columns, some thousand at a time, in bounded memory. Chunks may be kept.
func (r *reader) ReplayChunks(ctx context.Context, table string, query ReplayQuery) iter.Seq2[*ReplayRows, error] {
	return func(yield func(*ReplayRows, error) bool) {
		replay, err := r.replay(ctx, table, query)
		if err != nil {
			yield(nil, err)
			return
		}
		defer release(replay)
		for {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			var e C.hw_error
			var native C.hw_replay_rows
			if C.hw_replay_next(replay, &native, &e) != C.HW_OK {
				yield(nil, take(&e))
				return
			}
			if native.handle == 0 || !yield(ownReplayRows(&native), nil) {
				return
			}
		}
	}
}

func (r *reader) replay(ctx context.Context, table string, query ReplayQuery) (C.hw_replay, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if query.MemoryBytes < 0 {
		return 0, failure(ErrInvalid, "MemoryBytes: expected a number of bytes, or 0 for a share of MemoryBudget, found %d", query.MemoryBytes)
	}
	question, err := r.taggedQuery(table, query.Tags, query.Query)
	if err != nil {
		return 0, err
	}
	defer release(question)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	var after *C.hw_replay_cursor
	if query.After != nil {
		after = &C.hw_replay_cursor{
			time_ns: C.int64_t(query.After.Nanos),
			number:  C.uint64_t(query.After.Number),
			stream:  pinned(&pinner, query.After.Stream),
		}
	}
	first, last := query.Range.native()
	var e C.hw_error
	var replay C.hw_replay
	code := C.hw_replay_open(question, r.snapshot(), first, last, after, C.size_t(query.MemoryBytes), &replay, &e)
	runtime.KeepAlive(r)
	if code != C.HW_OK {
		return 0, take(&e)
	}
	return replay, nil
}

// taggedQuery is a question for the streams whose tags have some of these values.
func (r *reader) taggedQuery(table string, tags map[string][]string, query Query) (C.hw_query, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	var native []C.hw_tag
	for key, values := range tags {
		if len(values) == 0 {
			return 0, failure(ErrInvalid, "tag %q has an empty list of values: give at least one, or omit the tag", key)
		}
		for _, value := range values {
			native = append(native, C.hw_tag{key: pinned(&pinner, key), value: pinned(&pinner, value)})
		}
	}
	return r.pinnedQuery(&pinner, table, native, query)
}

// ownReplayRows copies rows of the library and gives them back.
func ownReplayRows(native *C.hw_replay_rows) *ReplayRows {
	defer release(native.handle)
	n := int(native.row_count)
	names := unsafe.Slice(native.streams, int(native.stream_count))
	rows := &ReplayRows{
		Columns: *ownFields(n, native.times_ns, unsafe.Slice(native.columns, int(native.column_count)), ""),
		Streams: make([]string, len(names)),
		Places:  copied[uint32](unsafe.Pointer(native.places), n),
		Numbers: copied[uint64](unsafe.Pointer(native.numbers), n),
	}
	for i := range names {
		rows.Streams[i] = goString(names[i].text)
	}
	return rows
}
