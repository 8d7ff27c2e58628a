package headwater

import (
	"errors"
	"testing"
	"time"
)

// begin is the time of the first row of most tests, in nanoseconds since 1970.
const begin = int64(1_700_000_000_000_000_000)

const second = int64(time.Second)

// temporary opens a database that is closed when the test ends.
func temporary(t testing.TB, options ...Option) *DB {
	t.Helper()
	return opened(t, t.TempDir()+"/db", options...)
}

func opened(t testing.TB, dir string, options ...Option) *DB {
	t.Helper()
	db, err := Open(dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func streamOf(t testing.TB, db *DB, table string, tags Tags) *Stream {
	t.Helper()
	stream, err := db.Stream(table, tags)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func commit(t testing.TB, db *DB, batch *Batch) {
	t.Helper()
	written, err := db.Write(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	if written.Accepted != batch.Len() {
		t.Fatalf("%d of %d rows were stored", written.Accepted, batch.Len())
	}
}

// wave stores n rows of one float field, a second apart, and gives times and values.
func wave(t testing.TB, db *DB, stream *Stream, field string, n int) ([]int64, []float64) {
	t.Helper()
	times, values := make([]int64, n), make([]float64, n)
	for i := range n {
		times[i] = begin + int64(i)*second
		values[i] = float64(i%360) / 8
	}
	var batch Batch
	if err := batch.Columns(stream, times, Float64s(field, values)); err != nil {
		t.Fatal(err)
	}
	commit(t, db, &batch)
	return times, values
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("expected %v, found %v", kind, err)
	}
}
