// Package golsm is GoLSM's interface on Headwater: the names, arguments and results of the library that the paper "Developing a LSM
// Tree Time Series Storage Library in Golang" describes, so that a program of its changes an import and stays as it is:
//
//	reader, writer := golsm.InitStorage("data/commitlog", 100, 5*time.Second, time.Minute, 2*time.Minute, "data/sst", 1000)
//	writer.Store(map[string][]dto.Measurement{"temp": {{Timestamp: now, Value: value}}}, 0)
//	points := reader.Retrieve([]string{"temp"}, now-60_000, now)
//
// What differs is what the original gets wrong. What Store has taken is on the medium when it returns, all of a call or nothing,
// and is found at once, also after a crash; late points, expired points, the timestamp 0, ranges that end at the largest
// number, and values longer than 64 KiB are read right; readers and writers may run in any number of goroutines.
//
// The original's names have no error results. Where the original would panic or lose data, they panic with an error that says
// what to do (a *headwater.Error for most); StoreContext, StoreBatchContext and RetrieveContext return it instead.
//
// A tag is a stream of the table `golsm` with the tag key `tag`, and has one field, `value`, of bytes. The database may be read by
// everything else that reads Headwater.
package golsm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"headwater"
	"headwater/golsm/dto"
)

const (
	table  = "golsm"
	tagKey = "tag"
	field  = "value"

	// callBytes is the most that is written at once.
	callBytes = 8 << 20
	// pointBytes is what a point takes beside its value, about.
	pointBytes = 16

	// databaseFolder has a dot, which no file of the original has.
	databaseFolder = "headwater.db"

	nanosPerMilli = 1_000_000
	// MaxTimestamp is the latest millisecond that can be stored: in the year 2262.
	MaxTimestamp = uint64(math.MaxInt64 / nanosPerMilli)
)

// StorageReader reads what is stored. Any number of goroutines may use it.
type StorageReader struct{ storage *storage }

// StorageWriter stores points. Any number of goroutines may use it.
type StorageWriter struct {
	storage *storage
	closed  bool // guarded by opened.mutex
}

// InitStorage opens a storage, or makes it, with the arguments of the original:
//
//   - sstPath is the folder of the storage; the database lies in its folder `headwater.db`. Files of the original that lie there are
//     taken over when the database is made, and are left as they are.
//   - commitlogPath is where commit logs of the original may lie, which are taken over too. The log of the new database lies in
//     the database.
//   - entriesPerCommitlog, periodBetweenFlushes, memtPerformExpirationEvery, memtPrefetchSeconds and memtMaxEntriesPerTag have no
//     meaning any more: what was stored is synced before Store returns, memory is bounded as a whole, and nothing has to be
//     fetched or expired at times.
//
// A process that asks for the same folder again gets the storage that it has open. InitStorage panics when the storage cannot be
// opened; Open returns an error instead.
func InitStorage(commitlogPath string, entriesPerCommitlog int, periodBetweenFlushes time.Duration,
	memtPerformExpirationEvery time.Duration, memtPrefetchSeconds time.Duration, sstPath string,
	memtMaxEntriesPerTag int) (*StorageReader, *StorageWriter) {
	reader, writer, err := Open(commitlogPath, sstPath)
	if err != nil {
		panic(err)
	}
	return reader, writer
}

// Open is InitStorage with an error, and with options of the database. The options of a storage that this process has open
// already stay as they are.
func Open(commitlogPath, sstPath string, options ...headwater.Option) (*StorageReader, *StorageWriter, error) {
	s, err := share(commitlogPath, sstPath, options)
	if err != nil {
		return nil, nil, err
	}
	return &StorageReader{s}, &StorageWriter{storage: s}, nil
}

// storage is a database that is open, with the streams of its tags.
type storage struct {
	dir     string
	db      *headwater.DB
	streams sync.Map // tag → *headwater.Stream
	holders int      // guarded by opened.mutex
}

// opened are the storages of this process, by folder.
var opened = struct {
	mutex    sync.Mutex
	storages map[string]*storage
}{storages: make(map[string]*storage)}

func share(commitlogPath, sstPath string, options []headwater.Option) (*storage, error) {
	if sstPath == "" {
		return nil, errors.New("golsm: the path of the storage is empty: name a folder")
	}
	dir, err := filepath.Abs(filepath.Join(sstPath, databaseFolder))
	if err != nil {
		return nil, fmt.Errorf("golsm: %s: %w", sstPath, err)
	}
	opened.mutex.Lock()
	defer opened.mutex.Unlock()
	if s := opened.storages[dir]; s != nil {
		s.holders++
		return s, nil
	}
	if err := os.MkdirAll(sstPath, 0o777); err != nil {
		return nil, fmt.Errorf("golsm: %w", err)
	}
	if err := takeOver(commitlogPath, sstPath, dir, options); err != nil {
		return nil, err
	}
	db, err := headwater.Open(dir, options...)
	if err != nil {
		return nil, err
	}
	s := &storage{dir: dir, db: db, holders: 1}
	opened.storages[dir] = s
	return s, nil
}

// Close ends the use of a storage by one InitStorage or Open: the last one closes the database. The reader of the same call must not be
// used any more. A program that just ends loses nothing.
func (w *StorageWriter) Close() error {
	opened.mutex.Lock()
	defer opened.mutex.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	s := w.storage
	s.holders--
	if s.holders > 0 {
		return nil
	}
	delete(opened.storages, s.dir)
	return s.db.Close()
}

// stream gives the stream of a tag, made once.
func (s *storage) stream(tag string) (*headwater.Stream, error) {
	if known, ok := s.streams.Load(tag); ok {
		return known.(*headwater.Stream), nil
	}
	made, err := s.db.Stream(table, headwater.Tags{tagKey: tag})
	if err != nil {
		return nil, err
	}
	known, _ := s.streams.LoadOrStore(tag, made)
	return known.(*headwater.Stream), nil
}

// Store stores points of tags. With expiresAt, in milliseconds since 1970 and 0 = never, nobody finds them from then on. A point of a
// tag and time that are there already takes the place of the old one. A call of up to 8 MiB is stored as a whole or, after a crash, not
// at all; a larger one is stored in parts.
func (w *StorageWriter) Store(data map[string][]dto.Measurement, expiresAt uint64) {
	if err := w.StoreContext(context.Background(), data, expiresAt); err != nil {
		panic(err)
	}
}

// StoreContext is Store with a context, whose end ends the waiting (the points may be stored then or not), and with an error.
func (w *StorageWriter) StoreContext(ctx context.Context, data map[string][]dto.Measurement, expiresAt uint64) error {
	var batch headwater.Batch
	room := callBytes
	for tag, points := range data {
		for len(points) > 0 {
			// As many as there is room for, but one at least.
			fit, used := 0, 0
			for fit < len(points) && (fit == 0 || used < room) {
				used += pointBytes + len(points[fit].Value)
				fit++
			}
			if err := w.storage.add(&batch, tag, points[:fit]); err != nil {
				return err
			}
			points = points[fit:]
			if room -= used; room <= 0 {
				if err := w.storage.write(ctx, &batch, expiresAt); err != nil {
					return err
				}
				batch.Reset()
				room = callBytes
			}
		}
	}
	return w.storage.write(ctx, &batch, expiresAt)
}

// StoreBatch stores points of any tags; else as Store.
func (w *StorageWriter) StoreBatch(data []dto.TaggedMeasurement, expiresAt uint64) {
	if err := w.StoreBatchContext(context.Background(), data, expiresAt); err != nil {
		panic(err)
	}
}

// StoreBatchContext is StoreBatch with a context and an error, as StoreContext.
func (w *StorageWriter) StoreBatchContext(ctx context.Context, data []dto.TaggedMeasurement, expiresAt uint64) error {
	byTag := make(map[string][]dto.Measurement)
	for _, point := range data {
		byTag[point.Tag] = append(byTag[point.Tag], dto.Measurement{Timestamp: point.Timestamp, Value: point.Value})
	}
	return w.StoreContext(ctx, byTag, expiresAt)
}

func (s *storage) add(batch *headwater.Batch, tag string, points []dto.Measurement) error {
	stream, err := s.stream(tag)
	if err != nil {
		return err
	}
	times := make([]int64, len(points))
	values := make([][]byte, len(points))
	for i := range points {
		if points[i].Timestamp > MaxTimestamp {
			return fmt.Errorf("golsm: timestamp %d of tag %q is after the year 2262: give milliseconds since 1970: %w",
				points[i].Timestamp, tag, headwater.ErrInvalid)
		}
		times[i] = int64(points[i].Timestamp) * nanosPerMilli
		values[i] = points[i].Value
	}
	return batch.Columns(stream, times, headwater.ByteSlices(field, values))
}

func (s *storage) write(ctx context.Context, batch *headwater.Batch, expiresAt uint64) error {
	if batch.Len() == 0 {
		return nil
	}
	if expiresAt != 0 {
		batch.ExpireAt(time.UnixMilli(int64(min(expiresAt, MaxTimestamp))))
	}
	// The original stores all of a call.
	batch.RequireAll()
	_, err := s.db.Write(ctx, batch)
	return err
}

// Retrieve gives the points of tags from `from` to `to`, both included, by time. Every tag asked for is in the result; one that has no
// points there, or was never stored, with none.
func (r *StorageReader) Retrieve(tags []string, from uint64, to uint64) map[string][]dto.Measurement {
	found, err := r.RetrieveContext(context.Background(), tags, from, to)
	if err != nil {
		panic(err)
	}
	return found
}

// RetrieveContext is Retrieve with a context, whose end ends a long read, and with an error. All tags are read as they are at one
// instant.
func (r *StorageReader) RetrieveContext(ctx context.Context, tags []string, from uint64, to uint64) (map[string][]dto.Measurement, error) {
	found := make(map[string][]dto.Measurement, len(tags))
	if len(tags) == 0 {
		return found, nil
	}
	snapshot, err := r.storage.db.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snapshot.Close()
	for _, tag := range tags {
		if found[tag], err = r.storage.read(ctx, snapshot, tag, from, to); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *storage) read(ctx context.Context, snapshot *headwater.Snapshot, tag string, from, to uint64) ([]dto.Measurement, error) {
	if from > MaxTimestamp || from > to {
		return nil, nil
	}
	stream, err := s.stream(tag)
	if err != nil {
		return nil, err
	}
	last := int64(math.MaxInt64)
	if to <= MaxTimestamp {
		last = int64(to) * nanosPerMilli
	}
	query := headwater.Query{Range: headwater.BetweenNanos(int64(from)*nanosPerMilli, last), Fields: []string{field}}
	var points []dto.Measurement
	for columns, err := range snapshot.ScanChunks(ctx, stream, query) {
		if err != nil {
			if errors.Is(err, headwater.ErrNotFound) {
				return nil, nil
			}
			return nil, err
		}
		points = slices.Grow(points, columns.Len())
		values := &columns.Fields[0]
		for i, at := range columns.Times {
			points = append(points, dto.Measurement{Timestamp: uint64(at / nanosPerMilli), Value: values.Bytes(i)})
		}
	}
	return points, nil
}

// Availability gives the earliest and the latest timestamp that is stored of any tag; 0, 0 when nothing is.
func (r *StorageReader) Availability() (uint64, uint64) {
	first, last, _, err := r.AvailabilityContext(context.Background())
	if err != nil {
		panic(err)
	}
	return first, last
}

// AvailabilityContext is Availability with an error, and with whether anything is stored, which tells a single point at 0 from
// nothing.
func (r *StorageReader) AvailabilityContext(ctx context.Context) (first, last uint64, any bool, err error) {
	snapshot, err := r.storage.db.Snapshot()
	if err != nil {
		return 0, 0, false, err
	}
	defer snapshot.Close()
	streams, err := r.storage.list(ctx, snapshot)
	if err != nil {
		return 0, 0, false, err
	}
	for _, stream := range streams {
		// Only rows say what is neither expired nor deleted.
		for row, err := range snapshot.Scan(ctx, stream, headwater.Query{Fields: []string{field}}) {
			if err != nil {
				return 0, 0, false, err
			}
			earliest := uint64(row.Nanos() / nanosPerMilli)
			if !any || earliest < first {
				first = earliest
			}
			any = true
			break
		}
		newest, err := snapshot.Last(ctx, stream)
		if err != nil {
			return 0, 0, false, err
		}
		for _, value := range newest {
			last = max(last, uint64(value.Nanos/nanosPerMilli))
		}
	}
	return first, last, any, nil
}

// GetTags gives the tags that were ever stored, in order.
func (r *StorageReader) GetTags() []string {
	tags, err := r.GetTagsContext(context.Background())
	if err != nil {
		panic(err)
	}
	return tags
}

// GetTagsContext is GetTags with an error.
func (r *StorageReader) GetTagsContext(ctx context.Context) ([]string, error) {
	snapshot, err := r.storage.db.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snapshot.Close()
	streams, err := r.storage.list(ctx, snapshot)
	tags := make([]string, 0, len(streams))
	for _, stream := range streams {
		tags = append(tags, stream.Tags()[tagKey])
	}
	slices.Sort(tags)
	return tags, err
}

func (s *storage) list(ctx context.Context, snapshot *headwater.Snapshot) ([]*headwater.Stream, error) {
	streams, err := snapshot.Streams(ctx, table, nil)
	if errors.Is(err, headwater.ErrNotFound) {
		return nil, nil // nothing was stored yet
	}
	return streams, err
}
