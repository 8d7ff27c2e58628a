package headwater

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestANamedSnapshotOutlivesTheOpening(t *testing.T) {
	handles := handleCount()
	dir := t.TempDir() + "/db"
	db := opened(t, dir)
	s := streamOf(t, db, "t", Tags{"id": "1"})
	wave(t, db, s, "v", 10)
	made, err := db.CreateSnapshot(t.Context(), "ten")
	must(t, err)
	if made.Name != "ten" || made.Events != 10 || made.Streams != 1 || time.Since(made.Created()) > time.Hour {
		t.Fatalf("%+v", made)
	}
	wave(t, db, s, "v", 20)
	must(t, db.Close())

	db = opened(t, dir)
	s = streamOf(t, db, "t", Tags{"id": "1"})
	list, err := db.Snapshots()
	must(t, err)
	if len(list) != 1 || list[0].Name != "ten" || list[0].CreatedNanos != made.CreatedNanos {
		t.Fatalf("%+v", list)
	}
	// The stream is looked up in the present first, and then in the past.
	now, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	ten, err := db.SnapshotNamed("ten")
	must(t, err)
	past, err := ten.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	last, err := ten.Last(t.Context(), s)
	must(t, err)
	if now.Len() != 20 || past.Len() != 10 || last[0].Nanos != past.Times[9] {
		t.Fatalf("%d rows now, %d then, the last %v", now.Len(), past.Len(), last)
	}
	must(t, db.DropSnapshot(t.Context(), "ten"))
	// Dropping takes nothing from who reads it.
	if past, err = ten.ScanColumns(t.Context(), s, Query{}); err != nil || past.Len() != 10 {
		t.Fatalf("%v, %v", past, err)
	}
	ten.Close()
	_, err = db.SnapshotNamed("ten")
	mustBe(t, err, ErrNotFound)
	mustBe(t, db.DropSnapshot(t.Context(), "ten"), ErrNotFound)
	if list, err = db.Snapshots(); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	must(t, db.Close())
	settled(t, handles)
}

func TestWrongSnapshotsAreRefused(t *testing.T) {
	dir := t.TempDir() + "/db"
	db := opened(t, dir, SnapshotAgeMax(time.Second))
	_, err := db.CreateSnapshot(t.Context(), "now")
	mustBe(t, err, ErrInvalid)
	_, err = db.CreateSnapshot(t.Context(), "")
	mustBe(t, err, ErrInvalid)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = db.CreateSnapshot(cancelled, "late")
	mustBe(t, err, context.Canceled)
	_, err = db.CreateSnapshot(t.Context(), "old")
	must(t, err)
	// The next one finds that the one before is due.
	time.Sleep(1100 * time.Millisecond)
	_, err = db.CreateSnapshot(t.Context(), "new")
	must(t, err)
	_, err = db.SnapshotNamed("old")
	mustBe(t, err, ErrGone)
	ended, err := db.EndedSnapshots()
	must(t, err)
	if len(ended) == 0 || ended[0].Name != "old" || !strings.Contains(ended[0].Reason, "age_max") {
		t.Fatalf("%+v", ended)
	}
}

// pumps stores rows of three streams, the later of which come first, and gives their replay as text.
func pumps(t *testing.T, db *DB) []string {
	t.Helper()
	type row struct {
		at   int64
		text string
	}
	var all []row
	for p := range int64(3) {
		s := streamOf(t, db, "pump", Tags{"id": fmt.Sprint("p", p)})
		for _, part := range [][2]int64{{1000, 3000}, {0, 1000}} {
			var batch Batch
			for i := part[0]; i < part[1]; i++ {
				at := i*10 + p%2
				must(t, batch.Row(s, time.Unix(0, at), Float64("v", float64(i))))
				all = append(all, row{at, fmt.Sprintf("%d pump,id=p%d %v", at, p, float64(i))})
			}
			commit(t, db, &batch)
		}
	}
	slices.SortFunc(all, func(a, b row) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = r.text
	}
	return out
}

func played(t *testing.T, from *reader, query ReplayQuery, most int) ([]string, ReplayCursor) {
	t.Helper()
	var out []string
	var last ReplayCursor
	for row, err := range from.Replay(t.Context(), "pump", query) {
		must(t, err)
		v, _ := row.Float64("v")
		out, last = append(out, fmt.Sprintf("%d %s %v", row.Nanos(), row.Stream(), v)), row.Cursor()
		if len(out) == most {
			break
		}
	}
	return out, last
}

func TestAReplayGivesAllStreamsByTimeAndGoesOnBehindAnyRow(t *testing.T) {
	handles := handleCount()
	db := temporary(t)
	wanted := pumps(t, db)
	view, err := db.Snapshot()
	must(t, err)
	all, end := played(t, &view.reader, ReplayQuery{}, -1)
	if !slices.Equal(all, wanted) {
		t.Fatalf("%d rows, expected %d", len(all), len(wanted))
	}
	if text := end.String(); text != "29991/1/pump,id=p1" {
		t.Fatal(text)
	}
	for _, most := range []int{1, 2, 4500, len(wanted)} {
		some, cursor := played(t, &view.reader, ReplayQuery{}, most)
		rest, _ := played(t, &view.reader, ReplayQuery{After: &cursor}, -1)
		if !slices.Equal(append(some, rest...), wanted) {
			t.Fatalf("behind row %d come %d", most, len(rest))
		}
	}
	// With little memory, in many slabs, it is the same.
	if small, _ := played(t, &view.reader, ReplayQuery{MemoryBytes: 4096}, -1); !slices.Equal(small, wanted) {
		t.Fatalf("%d rows in little memory", len(small))
	}
	view.Close()
	few, _ := played(t, &db.reader, ReplayQuery{
		Query: Query{Range: BetweenNanos(0, 11), Fields: []string{"v"}, Where: []Filter{Where(Less, Float64("v", 1))}},
		Tags:  map[string][]string{"id": {"p2", "p1", "none"}},
	}, -1)
	if !slices.Equal(few, []string{"0 pump,id=p2 0", "1 pump,id=p1 0"}) {
		t.Fatal(few)
	}
	must(t, db.Close())
	settled(t, handles)
}

func TestAReplayOfTheLibrarysColumns(t *testing.T) {
	db := temporary(t)
	must(t, db.CreateTable(t.Context(), "t", TableSpec{Duplicates: DuplicatesKeep}))
	s := streamOf(t, db, "t", nil)
	var batch Batch
	for i := range 4 {
		must(t, batch.Row(s, time.Unix(0, 7), Int64("n", int64(i)), String("s", fmt.Sprint("a", i))))
	}
	commit(t, db, &batch)
	for rows, err := range db.ReplayChunks(t.Context(), "t", ReplayQuery{}) {
		must(t, err)
		if !slices.Equal(rows.Numbers, []uint64{1, 2, 3, 4}) || !slices.Equal(rows.Field("n").Int64s(), []int64{0, 1, 2, 3}) {
			t.Fatalf("%+v", rows)
		}
		if text, ok := rows.Row(3).Text("s"); text != "a3" || !ok || len(rows.Streams) != 1 {
			t.Fatal(text, rows.Streams)
		}
	}
}

func TestWrongReplaysAreRefused(t *testing.T) {
	db := temporary(t)
	pumps(t, db)
	for name, query := range map[string]ReplayQuery{
		"a cursor of another table": {After: &ReplayCursor{1, 1, "other,id=1"}},
		"a cursor without a number": {After: &ReplayCursor{1, 0, "pump,id=p1"}},
		"a cursor without a name":   {After: &ReplayCursor{1, 1, "pump,id"}},
		"a tag without values":      {Tags: map[string][]string{"id": nil}},
		"memory below nothing":      {MemoryBytes: -1},
	} {
		for row, err := range db.Replay(t.Context(), "pump", query) {
			if err == nil || row.Stream() != "" || row.Cursor() != (ReplayCursor{}) {
				t.Fatal(name, row, err)
			}
			mustBe(t, err, ErrInvalid)
		}
	}
	for _, err := range db.Replay(t.Context(), "none", ReplayQuery{}) {
		mustBe(t, err, ErrNotFound)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := 0
	var ended error
	for _, err := range db.ReplayChunks(ctx, "pump", ReplayQuery{MemoryBytes: 4096}) {
		if err != nil {
			ended = err
			break
		}
		rows++
		cancel()
	}
	if rows != 1 {
		t.Fatalf("%d chunks before the end of the context was seen", rows)
	}
	mustBe(t, ended, context.Canceled)
}
