package headwater

import (
	"context"
	"errors"
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resident gives the bytes of memory that the process has.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("this system does not tell the memory of a process:", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	must(t, err)
	return pages * os.Getpagesize()
}

// settled waits until the objects that Go does not use any more are given back to the library.
func settled(t *testing.T, handles uint64) {
	t.Helper()
	for range 500 {
		runtime.GC()
		if handleCount() <= handles {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	debug.FreeOSMemory()
	if now := handleCount(); now != handles {
		t.Fatalf("%d objects of the library, expected %d", now, handles)
	}
}

// leakCalls is how many calls the test of leaks makes: by default so many that it does not take long with an unoptimised library. A
// million: go test -run Leave -args -leak-calls 1000000
var leakCalls = flag.Int("leak-calls", 50_000, "calls that the test of leaks makes")

// leakBytesMax is what memory may grow by for other reasons than calls. A million calls that leave 16 bytes each leave twice that.
const leakBytesMax = 8 << 20

// Calls of every kind, wrong ones and ones that are broken off among them, leave memory and objects as they were.
func TestCallsLeaveNothingBehind(t *testing.T) {
	calls := *leakCalls
	handles := handleCount()
	db := temporary(t)
	s := streamOf(t, db, "t", Tags{"id": "1"})
	times, values := []int64{0}, []float64{0}
	store := func(i int64) {
		var batch Batch
		// The same few rows again and again, so that the data do not grow.
		times[0], values[0] = i%64, float64(i)
		must(t, batch.Columns(s, times, Float64s("v", values), Strings("s", []string{"x"})))
		_, err := db.Write(t.Context(), &batch)
		must(t, err)
	}
	for i := range int64(64) {
		store(i)
	}
	unknown := streamOf(t, db, "none", nil)
	wrong := Query{Fields: []string{"none"}}
	var series Series
	var set SeriesSet
	ended, end := context.WithCancel(t.Context())
	end()
	kinds := []func() error{
		func() error { return db.ScanFloats(t.Context(), s, "v", Range{}, &series) },
		func() error { return db.ScanManyFloats(t.Context(), []*Stream{s, s}, "v", Range{}, &set) },
		func() error { _, err := db.Last(t.Context(), s); return err },
		func() error { _, err := db.Aggregate(t.Context(), s, "v", AggregateQuery{Ends: true}); return err },
		func() error { _, err := db.Tile(t.Context(), s, "v", -20, 0); return err },
		func() error { _, err := db.ScanColumns(t.Context(), s, Query{}); return err },
		func() error {
			for _, err := range db.Scan(t.Context(), s, Query{Where: []Filter{Where(Greater, Float64("v", 3))}}) {
				return err // broken off at the first row
			}
			return nil
		},
		func() error {
			snapshot, err := db.Snapshot()
			if err != nil {
				return err
			}
			defer snapshot.Close()
			_, err = snapshot.Describe(t.Context(), s)
			return err
		},
		func() error { _, err := db.Stream("t", Tags{"id": "2"}); return err },
		func() error { _, err := db.Streams(t.Context(), "t", nil); return err },
		func() error { _, err := db.LastTable(t.Context(), "t", nil); return err },
		func() error { _, err := db.Last(t.Context(), unknown); return except(err, ErrNotFound) },
		func() error { _, err := db.ScanColumns(t.Context(), s, wrong); return except(err, ErrNotFound) },
		func() error { _, err := db.Last(ended, s); return except(err, context.Canceled) },
		func() error { _, err := db.ParseStream(""); return except(err, ErrInvalid) },
	}
	run := func(calls int) {
		for i := range calls {
			if err := kinds[i%len(kinds)](); err != nil {
				t.Fatalf("call %d: %v", i%len(kinds), err)
			}
			if i%997 == 0 {
				store(int64(i))
			}
		}
	}
	run(calls / 10)
	// The database, two streams, and three prepared questions.
	settled(t, handles+6)
	before := resident(t)
	run(calls)
	settled(t, handles+6)
	runtime.KeepAlive(kinds)
	grown := resident(t) - before
	t.Logf("%d calls: memory grew by %d bytes", calls, grown)
	if grown > leakBytesMax && !raceDetector {
		t.Errorf("%d calls took %d bytes of memory, expected at most %d", calls, grown, leakBytesMax)
	}
	must(t, db.Close())
	settled(t, handles)
}

// except makes the error that is expected good, and none bad.
func except(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	if err == nil {
		return errors.New("it worked")
	}
	return err
}

// Objects that nobody closed are given back when Go finds that nobody uses them.
func TestForgottenObjectsAreGivenBack(t *testing.T) {
	handles := handleCount()
	dir := t.TempDir() + "/db"
	func() {
		db, err := Open(dir)
		must(t, err)
		s := streamOf(t, db, "t", nil)
		wave(t, db, s, "v", 10)
		snapshot, err := db.Snapshot()
		must(t, err)
		_, err = snapshot.ScanColumns(t.Context(), s, Query{})
		must(t, err)
		if handleCount() < handles+4 {
			t.Fatal("the objects are not counted")
		}
	}()
	settled(t, handles)
	// The handle is gone before the database is closed.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		db, err := Open(dir)
		if err == nil {
			must(t, db.Close())
			break
		}
		mustBe(t, err, ErrLocked)
	}
	db := opened(t, dir)
	if _, err := db.Last(t.Context(), streamOf(t, db, "t", nil)); err != nil {
		t.Fatal("what was acknowledged is not there:", err)
	}
}
