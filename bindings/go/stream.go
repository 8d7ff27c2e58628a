package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Tags name a stream within its table.
type Tags map[string]string

// Stream is one device: a table and tags. Make it once and use it for many reads and writes, from any goroutine; it is looked up
// once. It belongs to its database and ends with it.
type Stream struct {
	db     *DB
	handle C.hw_stream
	table  string
	tags   Tags
	name   string
	// Prepared questions for the rows of this stream, without filters. Never changed in place.
	queries atomic.Pointer[[]prepared]
}

// prepared is a question that the library keeps.
type prepared struct {
	fields []string
	handle C.hw_query
}

// preparedMax is how many questions are kept of a stream; others are made for each call.
const preparedMax = 8

// Stream gives the stream of a table with these tags. Nothing is asked of the database: a stream that is not there comes into being
// with the first write to it.
func (db *DB) Stream(table string, tags Tags) (*Stream, error) {
	tags = maps.Clone(tags)
	return db.openStream(table, tags, streamName(table, tags))
}

// ParseStream gives a stream by its name, "table,tag=value,…"; a backslash keeps the character behind it.
func (db *DB) ParseStream(name string) (*Stream, error) {
	var e C.hw_error
	var handle C.hw_stream
	if C.hw_stream_parse(db.handle, text(name), &handle, &e) != C.HW_OK {
		return nil, take(&e)
	}
	release(handle)
	table, tags := parseName(name)
	return db.Stream(table, tags)
}

func (db *DB) openStream(table string, tags Tags, name string) (*Stream, error) {
	var e C.hw_error
	var handle C.hw_stream
	if C.hw_stream_parse(db.handle, text(name), &handle, &e) != C.HW_OK {
		return nil, take(&e)
	}
	stream := &Stream{db: db, handle: handle, table: table, tags: tags, name: name}
	if !db.owned.add(handle) {
		release(handle)
		return nil, failure(ErrClosed, "the database in %s was closed: open it again", db.dir)
	}
	// Streams that are not used any more take no memory of the library; the database ends the others.
	owned := db.owned
	runtime.AddCleanup(stream, func(handle C.hw_stream) { owned.release(handle) }, handle)
	return stream, nil
}

// Table gives the table.
func (s *Stream) Table() string { return s.table }

// Tags gives a copy of the tags.
func (s *Stream) Tags() Tags { return maps.Clone(s.tags) }

// String gives the name, "table,tag=value,…".
func (s *Stream) String() string {
	if s == nil {
		return "no stream"
	}
	return s.name
}

// query gives a question for fields of the stream, all if there are none, and what to call when it was asked.
func (s *Stream) query(fields []string, where []Filter) (C.hw_query, func(), error) {
	if len(where) == 0 {
		if known := s.queries.Load(); known != nil {
			for i := range *known {
				if slices.Equal((*known)[i].fields, fields) {
					return (*known)[i].handle, nothingToRelease, nil
				}
			}
		}
	}
	handle, err := s.prepare(fields, where)
	if err != nil {
		return 0, nil, err
	}
	if len(where) == 0 && s.keep(fields, handle) {
		return handle, nothingToRelease, nil
	}
	return handle, func() { release(handle) }, nil
}

// keep keeps a question for the next time, if there is room.
func (s *Stream) keep(fields []string, handle C.hw_query) bool {
	before := s.queries.Load()
	var next []prepared
	if before != nil {
		next = slices.Clone(*before)
	}
	if len(next) >= preparedMax {
		return false
	}
	next = append(next, prepared{slices.Clone(fields), handle})
	if !s.queries.CompareAndSwap(before, &next) {
		return false
	}
	if !s.db.owned.add(handle) {
		return false // the database was closed meanwhile
	}
	owned := s.db.owned
	runtime.AddCleanup(s, func(handle C.hw_query) { owned.release(handle) }, handle)
	return true
}

func (s *Stream) prepare(fields []string, where []Filter) (C.hw_query, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	names := pinnedList(&pinner, fields)
	filters, err := pinnedFilters(&pinner, where)
	if err != nil {
		return 0, err
	}
	var e C.hw_error
	var handle C.hw_query
	code := C.hw_query_stream(s.handle, unsafe.SliceData(names), C.size_t(len(names)),
		unsafe.SliceData(filters), C.size_t(len(filters)), &handle, &e)
	runtime.KeepAlive(s)
	if code != C.HW_OK {
		return 0, take(&e)
	}
	return handle, nil
}

func pinnedList(pinner *runtime.Pinner, list []string) []C.hw_str {
	if len(list) == 0 {
		return nil
	}
	out := make([]C.hw_str, len(list))
	for i, s := range list {
		out[i] = pinned(pinner, s)
	}
	return out
}

// pinnedTags gives tags by key.
func pinnedTags(pinner *runtime.Pinner, tags Tags) []C.hw_tag {
	out := make([]C.hw_tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, C.hw_tag{key: pinned(pinner, key), value: pinned(pinner, tags[key])})
	}
	return out
}

// Streams gives the streams of a table that have these tags, in the order of the catalog; no tags = all of them.
func (r *reader) Streams(ctx context.Context, table string, tags Tags) ([]*Stream, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	native := pinnedTags(&pinner, tags)
	var streams []*Stream
	var after string
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var e C.hw_error
		var list C.hw_streams
		code := C.hw_streams_list(r.db.handle, r.snapshot(), text(table), unsafe.SliceData(native), C.size_t(len(native)),
			text(after), streamsPage, &list, &e)
		runtime.KeepAlive(r)
		if code != C.HW_OK {
			return nil, take(&e)
		}
		page := unsafe.Slice(list.streams, int(list.count))
		for i := range page {
			name := goString(page[i].text)
			tags := make(Tags, int(page[i].tag_count))
			for _, tag := range unsafe.Slice(page[i].tags, int(page[i].tag_count)) {
				tags[goString(tag.key)] = goString(tag.value)
			}
			stream, err := r.db.openStream(table, tags, name)
			if err != nil {
				release(list.handle)
				return nil, err
			}
			streams = append(streams, stream)
			after = name
		}
		release(list.handle)
		if len(page) < streamsPage {
			return streams, nil
		}
	}
}

// streamsPage is how many streams are listed at a time.
const streamsPage = 1024

// streamName gives the name of a stream, as ParseStream reads it.
func streamName(table string, tags Tags) string {
	var name strings.Builder
	escape(&name, table, `, \`)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		name.WriteByte(',')
		escape(&name, key, `,= \`)
		name.WriteByte('=')
		escape(&name, tags[key], `,= \`)
	}
	return name.String()
}

func escape(to *strings.Builder, s, special string) {
	for i := range len(s) {
		if strings.IndexByte(special, s[i]) >= 0 {
			to.WriteByte('\\')
		}
		to.WriteByte(s[i])
	}
}

// parseName reads a name that the library takes.
func parseName(name string) (string, Tags) {
	var table, key string
	tags := Tags{}
	var part strings.Builder
	parts, inValue := 0, false
	end := func() {
		if parts == 0 {
			table = part.String()
		} else {
			tags[key] = part.String()
		}
		part.Reset()
		parts, inValue = parts+1, false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && i+1 < len(name):
			i++
			part.WriteByte(name[i])
		case c == ',':
			end()
		case c == '=' && parts > 0 && !inValue:
			key, inValue = part.String(), true
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	end()
	return table, tags
}

// knownFloats gives the question for one field if it was asked before.
func (s *Stream) knownFloats(field string) (C.hw_query, bool) {
	if known := s.queries.Load(); known != nil {
		for i := range *known {
			if f := (*known)[i].fields; len(f) == 1 && f[0] == field {
				return (*known)[i].handle, true
			}
		}
	}
	return 0, false
}

func nothingToRelease() {}
