package headwater

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestASnapshotDoesNotChange(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	wave(t, db, s, "v", 10)
	snapshot, err := db.Snapshot()
	must(t, err)
	before, err := snapshot.Sequence()
	must(t, err)
	times, _ := wave(t, db, s, "v", 20)
	found, err := snapshot.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	now, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	if found.Len() != 10 || now.Len() != len(times) {
		t.Fatalf("%d rows in the snapshot, %d now", found.Len(), now.Len())
	}
	later, err := db.Snapshot()
	must(t, err)
	defer later.Close()
	if after, err := later.Sequence(); err != nil || after <= before {
		t.Fatalf("sequence %d after %d, %v", after, before, err)
	}
	snapshot.Close()
	snapshot.Close()
	_, err = snapshot.ScanColumns(t.Context(), s, Query{})
	mustBe(t, err, ErrClosed)
}

func TestAggregatesAgreeWithRows(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	times, values := wave(t, db, s, "v", 10_000)
	for range 2 {
		bins, err := db.Aggregate(t.Context(), s, "v", AggregateQuery{Bins: EveryFrom(1000*time.Second, time.Unix(0, begin)), Ends: true})
		must(t, err)
		if len(bins) != 10 {
			t.Fatalf("%d bins", len(bins))
		}
		for i, b := range bins {
			part := values[i*1000 : (i+1)*1000]
			low, high, sum := math.Inf(1), math.Inf(-1), 0.0
			for _, v := range part {
				low, high, sum = min(low, v), max(high, v), sum+v
			}
			if b.Nanos != times[i*1000] || b.Count != 1000 || b.Min != low || b.Max != high || math.Abs(b.Mean-sum/1000) > 1e-9 ||
				b.First.Value != part[0] || b.Last.Value != part[999] || b.Last.Nanos != times[i*1000+999] || b.StdDev <= 0 {
				t.Fatalf("bin %d: %+v", i, b)
			}
		}
		whole, err := db.Aggregate(t.Context(), s, "v", AggregateQuery{})
		must(t, err)
		if len(whole) != 1 || whole[0].Count != 10_000 || whole[0].First != nil {
			t.Fatalf("%+v", whole)
		}
		level := 4
		tile, err := db.Tile(t.Context(), s, "v", level, begin/second/512/16)
		must(t, err)
		atLevel, err := db.Aggregate(t.Context(), s, "v", AggregateQuery{Bins: AtLevel(level)})
		must(t, err)
		if len(tile) == 0 || tile[0].Count != atLevel[0].Count || tile[0].Mean != atLevel[0].Mean || tile[0].Bucket*16*second > tile[0].Nanos {
			t.Fatalf("%+v, %+v", tile[0], atLevel[0])
		}
		must(t, db.Flush(t.Context()))
	}
	_, err := db.Tile(t.Context(), s, "v", 99, 0)
	mustBe(t, err, ErrInvalid)
	_, err = db.Aggregate(t.Context(), s, "v", AggregateQuery{Bins: Every(-1)})
	mustBe(t, err, ErrInvalid)
	_, err = db.Aggregate(t.Context(), s, "none", AggregateQuery{})
	mustBe(t, err, ErrNotFound)
}

func TestAggregatesOfIntegersAreExact(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	var batch Batch
	must(t, batch.Columns(s, []int64{1, 2, 3}, Int64s("i", []int64{math.MaxInt64, math.MaxInt64, -5}), Uint64s("u", []uint64{math.MaxUint64, 1, 2})))
	commit(t, db, &batch)
	bins, err := db.Aggregate(t.Context(), s, "i", AggregateQuery{})
	must(t, err)
	if low, high, ok := bins[0].ExtremesInt64(); !ok || low != -5 || high != math.MaxInt64 || bins[0].Sum().String() != "18446744073709551609" {
		t.Fatal(low, high, ok, bins[0].Sum())
	}
	bins, err = db.Aggregate(t.Context(), s, "u", AggregateQuery{})
	must(t, err)
	if sum, spread := bins[0].SumFloat64(), bins[0].Spread(); sum != 1<<64 || spread != 1<<64 {
		t.Fatal(sum, spread)
	}
	if population, sample := bins[0].StdDev, bins[0].SampleStdDev(); math.Abs(sample/population-math.Sqrt(1.5)) > 1e-9 {
		t.Fatal(population, sample)
	}
	if low, high, ok := bins[0].ExtremesUint64(); !ok || low != 1 || high != math.MaxUint64 || bins[0].Sum().String() != "18446744073709551618" {
		t.Fatal(low, high, ok, bins[0].Sum())
	}
}

func TestTablesAreMadeChangedAndDropped(t *testing.T) {
	db := temporary(t)
	ctx := t.Context()
	must(t, db.CreateTable(ctx, "t", TableSpec{Duplicates: DuplicatesKeep, LeafEvents: 512, Retention: 24 * 365 * 100 * time.Hour,
		Fields: []FieldSpec{{"i", TypeInt64}, {"s", TypeString}}}))
	mustBe(t, db.CreateTable(ctx, "t", TableSpec{}), ErrInvalid)
	mustBe(t, db.CreateTable(ctx, "u", TableSpec{Fields: []FieldSpec{{"x", 99}}}), ErrInvalid)
	must(t, db.AlterTable(ctx, "t", TableSpec{Retention: Forever, Fields: []FieldSpec{{"i", TypeFloat64}}}))
	mustBe(t, db.AlterTable(ctx, "none", TableSpec{LeafEvents: 64}), ErrNotFound)
	tables, err := db.Tables()
	must(t, err)
	if len(tables) != 1 || tables[0].Duplicates != "keep" || tables[0].LeafEvents != 512 || tables[0].Retention != nil ||
		tables[0].Fields[0] != (TableFieldInfo{"i", "f64"}) {
		t.Fatalf("%+v", tables)
	}
	s := streamOf(t, db, "t", Tags{"id": "1"})
	var batch Batch
	must(t, batch.RowAt(s, 5, Float64("i", 1)))
	must(t, batch.RowAt(s, 5, Float64("i", 2)))
	must(t, batch.RowAt(s, 9, Float64("i", 3)))
	commit(t, db, &batch)
	count := func() int {
		found, err := db.ScanColumns(ctx, s, Query{})
		must(t, err)
		return found.Len()
	}
	if n := count(); n != 3 {
		t.Fatalf("%d rows", n)
	}
	if n, err := db.Delete(ctx, "t", Tags{"id": "1"}, BetweenNanos(5, 6)); err != nil || n != 1 || count() != 1 {
		t.Fatal(n, err, count())
	}
	if n, err := db.DropStreams(ctx, "t", Tags{"id": "1"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	_, err = db.ScanColumns(ctx, s, Query{})
	mustBe(t, err, ErrNotFound)
	_, err = db.DropStreams(ctx, "t", nil)
	mustBe(t, err, ErrInvalid)
	must(t, db.DropTable(ctx, "t"))
	mustBe(t, db.DropTable(ctx, "t"), ErrNotFound)
}

func TestWhatIsWrongHasAKind(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	_, err := Open("")
	mustBe(t, err, ErrInvalid)
	_, err = Open(dir+"/none", MustExist())
	mustBe(t, err, ErrNotFound)
	_, err = Open(dir+"/none", MemoryBudget(5))
	mustBe(t, err, ErrInvalid)
	_, err = Open(dir+"/none", LatePolicy("perhaps"))
	mustBe(t, err, ErrInvalid)
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	_, err = Open(dir + "/file/db")
	mustBe(t, err, ErrIO)
	var e *Error
	if !errors.As(err, &e) || e.Code != "io" || e.Message == "" || err.Error() != "headwater: io: "+e.Message {
		t.Fatalf("%#v", err)
	}

	db := opened(t, dir+"/db")
	_, err = Open(dir + "/db")
	mustBe(t, err, ErrLocked)
	s := streamOf(t, db, "t", nil)
	for _, err := range db.Scan(ctx, s, Query{}) {
		mustBe(t, err, ErrNotFound)
	}
	wave(t, db, s, "v", 10)
	must(t, db.Flush(ctx))

	reader := opened(t, dir+"/db", ReadOnly())
	var batch Batch
	must(t, batch.RowAt(streamOf(t, reader, "t", nil), 1, Float64("v", 1)))
	_, err = reader.Write(ctx, &batch)
	mustBe(t, err, ErrReadOnly)

	snapshot, err := db.Snapshot()
	must(t, err)
	must(t, db.Close())
	must(t, db.Close())
	if found, err := snapshot.LastTable(ctx, "t", nil); !errors.Is(err, ErrClosed) {
		t.Fatal(found, err)
	}
	snapshot.Close()
	_, err = db.Write(ctx, &Batch{})
	mustBe(t, err, ErrClosed)
	_, err = db.Snapshot()
	mustBe(t, err, ErrClosed)
	_, err = db.Stream("t", nil)
	mustBe(t, err, ErrClosed)
	_, err = db.Stats()
	mustBe(t, err, ErrClosed)
	_, err = db.Last(ctx, s)
	mustBe(t, err, ErrClosed)
	mustBe(t, db.ScanFloats(ctx, s, "v", Range{}, &Series{}), ErrClosed)
}

func TestDamageIsReportedAndTheRestIsRead(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	db := opened(t, dir+"/db")
	s := streamOf(t, db, "t", nil)
	times, _ := wave(t, db, s, "v", 20_000)
	must(t, db.Close())
	segments, err := filepath.Glob(dir + "/db/segment/*.seg")
	must(t, err)
	if len(segments) == 0 {
		t.Fatal("no segment")
	}
	content, err := os.ReadFile(segments[0])
	must(t, err)
	for i := 2000; i < 2016; i++ {
		content[i] ^= 0x55
	}
	must(t, os.WriteFile(segments[0], content, 0o600))

	db = opened(t, dir+"/db")
	s = streamOf(t, db, "t", nil)
	rows, damages := 0, 0
	for columns, err := range db.ScanChunks(ctx, s, Query{}) {
		if err != nil {
			mustBe(t, err, ErrCorrupt)
			damages++
			continue
		}
		rows += columns.Len()
	}
	if damages == 0 || rows == 0 || rows >= len(times) {
		t.Fatalf("%d damaged parts, %d rows", damages, rows)
	}
	_, err = db.ScanColumns(ctx, s, Query{})
	mustBe(t, err, ErrCorrupt)
	report, err := db.Check(ctx)
	must(t, err)
	if report.IsSound || len(report.Damages) == 0 || report.Damages[0].File == "" {
		t.Fatalf("%+v", report)
	}
	must(t, db.Close())
	repair, err := Repair(ctx, dir+"/db", true)
	must(t, err)
	if len(repair.Findings) == 0 {
		t.Fatalf("%+v", repair)
	}
}

func TestABackupIsRestored(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	db := opened(t, dir+"/db")
	s := streamOf(t, db, "t", nil)
	times, _ := wave(t, db, s, "v", 5000)
	backup, err := db.Backup(ctx, dir+"/backup")
	must(t, err)
	if backup.Bytes == 0 || backup.BytesCopied == 0 || backup.Files == 0 {
		t.Fatalf("%+v", backup)
	}
	report, err := VerifyBackup(ctx, dir+"/backup")
	must(t, err)
	restored, err := Restore(ctx, dir+"/backup", dir+"/restored")
	must(t, err)
	if !report.IsSound || !restored.IsSound || restored.Rows+restored.LogRecords == 0 {
		t.Fatalf("%+v, %+v", report, restored)
	}
	other := opened(t, dir+"/restored")
	found, err := other.ScanColumns(ctx, streamOf(t, other, "t", nil), Query{})
	must(t, err)
	if found.Len() != len(times) {
		t.Fatalf("%d rows", found.Len())
	}
	check, err := db.Check(ctx)
	must(t, err)
	stats, err := db.Stats()
	must(t, err)
	late, err := db.Late()
	must(t, err)
	if !check.IsSound || stats.Events != uint64(len(times)) || stats.LogSyncs == 0 || late.Choice != "adaptive" || len(late.Shards) == 0 {
		t.Fatalf("%+v, %+v, %+v", check, stats, late)
	}
	must(t, db.SetLatePolicy(ctx, "conventional"))
	mustBe(t, db.SetLatePolicy(ctx, "perhaps"), ErrInvalid)
	must(t, db.Compact(ctx))
	_, err = VerifyBackup(ctx, dir+"/none")
	mustBe(t, err, ErrNotFound)
}

func TestAReaderBesideTheOwnerIsRefreshed(t *testing.T) {
	dir := t.TempDir() + "/db"
	owner := opened(t, dir)
	s := streamOf(t, owner, "t", nil)
	wave(t, owner, s, "v", 10)
	reader := opened(t, dir, ReadOnly())
	theirs := streamOf(t, reader, "t", nil)
	count := func() int {
		found, err := reader.ScanColumns(t.Context(), theirs, Query{})
		must(t, err)
		return found.Len()
	}
	if n := count(); n != 10 {
		t.Fatalf("%d rows", n)
	}
	wave(t, owner, s, "v", 30)
	must(t, reader.Refresh(t.Context()))
	if n := count(); n != 30 {
		t.Fatalf("%d rows after a refresh", n)
	}
	must(t, owner.Refresh(t.Context()))
	if reader.Dir() != dir || Version() == "" {
		t.Fatal(reader.Dir(), Version())
	}
}

func TestAContextEndsAScanBetweenChunks(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	wave(t, db, s, "v", 30_000)
	must(t, db.Flush(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	chunks, rows := 0, 0
	var ended error
	for columns, err := range db.ScanChunks(ctx, s, Query{}) {
		if err != nil {
			ended = err
			break
		}
		chunks++
		rows += columns.Len()
		cancel()
	}
	if !errors.Is(ended, context.Canceled) || chunks != 1 || rows >= 30_000 {
		t.Fatalf("%v after %d chunks of %d rows", ended, chunks, rows)
	}
	// What has ended already asks nothing.
	_, err := db.ScanColumns(ctx, s, Query{})
	mustBe(t, err, context.Canceled)
	mustBe(t, db.ScanFloats(ctx, s, "v", Range{}, &Series{}), context.Canceled)
	_, err = db.Last(ctx, s)
	mustBe(t, err, context.Canceled)
	_, err = db.Aggregate(ctx, s, "v", AggregateQuery{})
	mustBe(t, err, context.Canceled)
	_, err = db.Tile(ctx, s, "v", 0, 0)
	mustBe(t, err, context.Canceled)
	_, err = db.Describe(ctx, s)
	mustBe(t, err, context.Canceled)
	_, err = db.Streams(ctx, "t", nil)
	mustBe(t, err, context.Canceled)
	_, err = db.LastTable(ctx, "t", nil)
	mustBe(t, err, context.Canceled)
	_, err = db.Backup(ctx, t.TempDir())
	mustBe(t, err, context.Canceled)
	_, err = db.Write(ctx, &Batch{})
	mustBe(t, err, context.Canceled)
	for _, err := range db.ScanTable(ctx, "t", nil, Query{}) {
		mustBe(t, err, context.Canceled)
	}
}

// A writer whose context ends gets its error at once, and may change what it gave at once: the race detector looks on.
func TestAContextEndsWaitingWrites(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	times, values := []int64{0}, []float64{0}
	stored := map[int64]bool{}
	for i := range int64(200) {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		times[0], values[0] = i, float64(i)
		var batch Batch
		must(t, batch.Columns(s, times, Float64s("v", values)))
		switch _, err := db.Write(ctx, &batch); {
		case err == nil:
			stored[i] = true
		case !errors.Is(err, context.Canceled):
			t.Fatal(err)
		}
		times[0], values[0] = -1, -1
		cancel()
	}
	must(t, db.Close())
	db = opened(t, db.Dir())
	s = streamOf(t, db, "t", nil)
	if len(stored) == 0 {
		return // every one was ended, which says nothing of what is stored
	}
	found, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	for i, at := range found.Times {
		if v := found.Fields[0].Float64s()[i]; v != float64(at) || at < 0 {
			t.Fatalf("row %d has %v", at, v)
		}
		delete(stored, at)
	}
	if len(stored) > 0 {
		t.Fatalf("acknowledged rows are not there: %v", stored)
	}
}

func TestAnyNumberOfGoroutinesUseADatabase(t *testing.T) {
	db := temporary(t, MemoryBudget(2<<20))
	const writers, batches, rows = 4, 40, 50
	var group sync.WaitGroup
	for w := range writers {
		group.Add(1)
		go func() {
			defer group.Done()
			s, err := db.Stream("t", Tags{"id": fmt.Sprint(w)})
			if err != nil {
				t.Error(err)
				return
			}
			for b := range batches {
				var batch Batch
				for r := range rows {
					if err := batch.RowAt(s, int64(b*rows+r), Float64("v", float64(r)), String("s", fmt.Sprint(b))); err != nil {
						t.Error(err)
					}
				}
				if _, err := db.Write(context.Background(), &batch); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	shared := streamOf(t, db, "t", Tags{"id": "0"})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			var series Series
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := db.ScanFloats(context.Background(), shared, "v", Range{}, &series)
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
					return
				}
				if len(series.Times)%rows != 0 {
					t.Errorf("%d rows: part of a batch", len(series.Times))
				}
				for columns, err := range db.ScanTable(context.Background(), "t", nil, Query{}) {
					if err != nil {
						if !errors.Is(err, ErrNotFound) {
							t.Error(err)
						}
						return
					}
					_ = columns.Row(0).Value("s")
				}
			}
		}()
	}
	group.Wait()
	close(stop)
	readers.Wait()
	for w := range writers {
		info, err := db.Describe(t.Context(), streamOf(t, db, "t", Tags{"id": fmt.Sprint(w)}))
		must(t, err)
		if info.Rows != batches*rows {
			t.Errorf("writer %d: %d rows", w, info.Rows)
		}
	}
}

// Closing while others read and write gives them ErrClosed, or what they asked for.
func TestClosingWhileInUse(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	wave(t, db, s, "v", 1000)
	var group sync.WaitGroup
	started := make(chan struct{}, 4)
	for g := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; ; i++ {
				var err error
				if g%2 == 0 {
					_, err = db.ScanColumns(context.Background(), s, Query{})
				} else {
					var batch Batch
					if err := batch.RowAt(s, int64(i), Float64("v", 1)); err != nil {
						t.Error(err)
					}
					_, err = db.Write(context.Background(), &batch)
				}
				if i == 3 {
					started <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		}()
	}
	for range 4 {
		<-started
	}
	must(t, db.Close())
	group.Wait()
}
