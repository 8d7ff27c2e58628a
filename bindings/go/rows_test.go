package headwater

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestEveryTypeComesBack(t *testing.T) {
	db := temporary(t)
	pump := streamOf(t, db, "pumps", Tags{"site": "north", "id": "p1"})
	var batch Batch
	at := time.Unix(0, begin)
	must(t, batch.Row(pump, at, Float64("f", math.Inf(-1)), Int64("i", math.MinInt64), Uint64("u", math.MaxUint64)))
	must(t, batch.Row(pump, at.Add(time.Second), Bool("b", true), String("s", "Grüße\x00"), Bytes("y", []byte{0, 255})))
	must(t, batch.Row(pump, at.Add(-time.Second), Bool("b", false), String("s", ""), Bytes("y", nil), Float64("f", 0.1)))
	commit(t, db, &batch)
	check := func() {
		t.Helper()
		var rows []map[string]any
		for row, err := range db.Scan(t.Context(), pump, Query{}) {
			must(t, err)
			values := map[string]any{"at": row.Nanos()}
			for _, field := range []string{"f", "i", "u", "b", "s", "y"} {
				if v := row.Value(field); v != nil {
					values[field] = v
				}
			}
			rows = append(rows, values)
		}
		want := []map[string]any{
			{"at": begin - second, "b": false, "s": "", "y": []byte{}, "f": 0.1},
			{"at": begin, "f": math.Inf(-1), "i": int64(math.MinInt64), "u": uint64(math.MaxUint64)},
			{"at": begin + second, "b": true, "s": "Grüße\x00", "y": []byte{0, 255}},
		}
		if !reflect.DeepEqual(rows, want) {
			t.Fatalf("%v", rows)
		}
	}
	check()
	must(t, db.Flush(t.Context()))
	check()
}

func TestRowsGiveTheirValuesByType(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	var batch Batch
	must(t, batch.RowAt(s, 5, Float64("f", 1.5), Int64("i", -1), Uint64("u", 2), Bool("b", true), String("s", "x"), Bytes("y", []byte("z"))))
	must(t, batch.RowAt(s, 6))
	commit(t, db, &batch)
	var rows []Row
	for row, err := range db.Scan(t.Context(), s, Query{}) {
		must(t, err)
		rows = append(rows, row)
	}
	if len(rows) != 2 || rows[0].Stream() != "t" || !rows[0].Time().Equal(time.Unix(0, 5)) {
		t.Fatal(rows)
	}
	f, okF := rows[0].Float64("f")
	i, okI := rows[0].Int64("i")
	u, okU := rows[0].Uint64("u")
	b, okB := rows[0].Bool("b")
	x, okS := rows[0].Text("s")
	y, okY := rows[0].Text("y")
	if !(okF && okI && okU && okB && okS && okY) || f != 1.5 || i != -1 || u != 2 || !b || x != "x" || y != "z" {
		t.Fatal(f, i, u, b, x, y)
	}
	for _, field := range []string{"f", "i", "u", "b", "s", "y", "none"} {
		_, okF := rows[1].Float64(field)
		_, okI := rows[1].Int64(field)
		_, okU := rows[1].Uint64(field)
		_, okB := rows[1].Bool(field)
		_, okS := rows[1].Text(field)
		if okF || okI || okU || okB || okS || rows[1].Value(field) != nil {
			t.Errorf("field %s has a value in a row without any", field)
		}
	}
	if _, ok := rows[0].Int64("f"); ok {
		t.Error("a float was given as an integer")
	}
}

func TestColumnsKeepWhichRowsHaveValues(t *testing.T) {
	db := temporary(t, LeafEvents(64))
	s := streamOf(t, db, "t", Tags{"id": "1"})
	const n = 5000
	times := make([]int64, n)
	present := make([]bool, n)
	floats, ints, uints, bools := make([]float64, n), make([]int64, n), make([]uint64, n), make([]bool, n)
	texts, raw := make([]string, n), make([][]byte, n)
	for i := range n {
		times[i] = begin + int64(i)
		present[i] = i%3 != 0
		floats[i], ints[i], uints[i], bools[i] = float64(i)/7, int64(-i), uint64(i), i%2 == 0
		texts[i], raw[i] = fmt.Sprint("text", i%50), bytes.Repeat([]byte{byte(i)}, i%5)
	}
	var batch Batch
	must(t, batch.Columns(s, times, Float64s("f", floats).Present(present), Int64s("i", ints).Present(present),
		Uint64s("u", uints).Present(present), Bools("b", bools).Present(present), Strings("s", texts).Present(present),
		ByteSlices("y", raw).Present(present), Float64s("all", floats)))
	commit(t, db, &batch)
	check := func() {
		t.Helper()
		found, err := db.ScanColumns(t.Context(), s, Query{})
		must(t, err)
		if found.Len() != n || !slices.Equal(found.Times, times) || len(found.Fields) != 7 || !found.Field("all").HasAll() {
			t.Fatalf("%d rows, %d fields", found.Len(), len(found.Fields))
		}
		for i := range n {
			row := found.Row(i)
			want := []any{nil, nil, nil, nil, nil, nil}
			if present[i] {
				want = []any{floats[i], ints[i], uints[i], bools[i], texts[i], raw[i]}
			}
			for j, field := range []string{"f", "i", "u", "b", "s", "y"} {
				if v := row.Value(field); !reflect.DeepEqual(v, want[j]) && !(present[i] && j == 5 && bytes.Equal(v.([]byte), raw[i])) {
					t.Fatalf("row %d, field %s: %v, expected %v", i, field, v, want[j])
				}
			}
			if row.Value("all") != floats[i] {
				t.Fatalf("row %d: %v", i, row.Value("all"))
			}
		}
		if v := found.Field("f").Float64s(); len(v) != n || found.Field("f").Len() != n || found.Field("none") != nil {
			t.Fatal(len(v))
		}
	}
	check()
	must(t, db.Flush(t.Context()))
	check()
}

func TestChunksAreBoundedAndMakeUpTheWhole(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", Tags{"id": "1"})
	times, values := wave(t, db, s, "v", 30_000)
	must(t, db.Flush(t.Context()))
	var seen []int64
	chunks := 0
	for columns, err := range db.ScanChunks(t.Context(), s, Query{Fields: []string{"v"}}) {
		must(t, err)
		if columns.Stream != "t,id=1" {
			t.Fatal(columns.Stream)
		}
		seen = append(seen, columns.Times...)
		chunks++
	}
	if !slices.Equal(seen, times) || chunks < 3 {
		t.Fatalf("%d rows in %d chunks", len(seen), chunks)
	}
	all, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	if !slices.Equal(all.Times, times) || !slices.Equal(all.Fields[0].Float64s(), values) {
		t.Fatal("the columns differ from what was written")
	}
	var series Series
	must(t, db.ScanFloats(t.Context(), s, "v", Range{}, &series))
	if !slices.Equal(series.Times, times) || !slices.Equal(series.Values, values) {
		t.Fatalf("%d rows", len(series.Times))
	}
}

func TestRangesIncludeBothEnds(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	times, _ := wave(t, db, s, "v", 100)
	at := func(i int) time.Time { return time.Unix(0, times[i]) }
	for _, c := range []struct {
		within Range
		count  int
	}{
		{Range{}, 100},
		{Between(at(10), at(19)), 10},
		{BetweenNanos(times[10]+1, times[19]-1), 8},
		{Since(at(95)), 5},
		{Until(at(4)), 5},
		{Between(at(19), at(10)), 0},
		{Between(time.Time{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), 100},
		{Until(time.Time{}), 0},
	} {
		found, err := db.ScanColumns(t.Context(), s, Query{Range: c.within})
		must(t, err)
		var series Series
		must(t, db.ScanFloats(t.Context(), s, "v", c.within, &series))
		if found.Len() != c.count || len(series.Times) != c.count || len(found.Fields) != 1 {
			t.Errorf("%v: %d and %d rows, expected %d", c.within, found.Len(), len(series.Times), c.count)
		}
	}
}

func TestScanFloatsUsesTheSlicesItIsGiven(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	times, values := wave(t, db, s, "v", 3000)
	series := Series{Times: make([]int64, 0, 500), Values: make([]float64, 0, 600)}
	first := &series.Times[:1][0]
	must(t, db.ScanFloats(t.Context(), s, "v", BetweenNanos(times[0], times[499]), &series))
	if len(series.Times) != 500 || &series.Times[0] != first {
		t.Fatal("other slices were taken")
	}
	must(t, db.ScanFloats(t.Context(), s, "v", Range{}, &series))
	if !slices.Equal(series.Times, times) || !slices.Equal(series.Values, values) {
		t.Fatalf("%d rows after growing", len(series.Times))
	}
	allocations := testing.AllocsPerRun(100, func() {
		if err := db.ScanFloats(context.Background(), s, "v", Range{}, &series); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations for a read into slices that are large enough", allocations)
	}
}

func TestManyStreamsAreReadAtOnce(t *testing.T) {
	db := temporary(t)
	var streams []*Stream
	var times [][]int64
	var values [][]float64
	// More than are read without lists, and of lengths that need more room than there is at first.
	for i := range 3 * manyFloats {
		s := streamOf(t, db, "t", Tags{"id": fmt.Sprint(i)})
		at, v := wave(t, db, s, "v", 10+100*(i%5))
		streams, times, values = append(streams, s), append(times, at), append(values, v)
	}
	var set SeriesSet
	check := func(of []int, r interface {
		ScanManyFloats(context.Context, []*Stream, string, Range, *SeriesSet) error
	}) {
		t.Helper()
		var asked []*Stream
		for _, i := range of {
			asked = append(asked, streams[i])
		}
		must(t, r.ScanManyFloats(t.Context(), asked, "v", Range{}, &set))
		if len(set.Series) != len(of) {
			t.Fatalf("%d series of %d", len(set.Series), len(of))
		}
		for n, i := range of {
			if !slices.Equal(set.Series[n].Times, times[i]) || !slices.Equal(set.Series[n].Values, values[i]) {
				t.Fatalf("stream %d: %d rows of %d", i, len(set.Series[n].Times), len(times[i]))
			}
			// They share memory, and one can not grow into the next.
			_ = append(set.Series[n].Times, -1)
		}
	}
	all := make([]int, len(streams))
	for i := range all {
		all[i] = i
	}
	check([]int{4, 2, 2, 0}, db)
	check(all, db)
	check(nil, db)
	must(t, db.Flush(t.Context()))
	check(all, db)
	snapshot, err := db.Snapshot()
	must(t, err)
	defer snapshot.Close()
	for _, s := range streams {
		wave(t, db, s, "v", 700)
	}
	check(all, snapshot)

	few := streams[:3]
	allocations := testing.AllocsPerRun(100, func() {
		if err := snapshot.ScanManyFloats(context.Background(), few, "v", Range{}, &set); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations for a read into a set that is large enough", allocations)
	}
	mustBe(t, db.ScanManyFloats(t.Context(), []*Stream{few[0], nil}, "v", Range{}, &set), ErrInvalid)
	mustBe(t, db.ScanManyFloats(t.Context(), few, "none", Range{}, &set), ErrNotFound)
	unknown := streamOf(t, db, "t", Tags{"id": "none"})
	mustBe(t, db.ScanManyFloats(t.Context(), []*Stream{few[0], unknown}, "v", Range{}, &set), ErrNotFound)
	elsewhere := streamOf(t, temporary(t), "t", Tags{"id": "1"})
	mustBe(t, db.ScanManyFloats(t.Context(), []*Stream{few[0], elsewhere}, "v", Range{}, &set), ErrInvalid)
	ended, end := context.WithCancel(t.Context())
	end()
	mustBe(t, db.ScanManyFloats(ended, few, "v", Range{}, &set), context.Canceled)
}

func TestFiltersHold(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	var batch Batch
	for i := range int64(100) {
		must(t, batch.RowAt(s, i, Float64("f", float64(i)), Int64("i", i), Uint64("u", uint64(i)), Bool("b", i%2 == 0),
			String("s", fmt.Sprint(i%10))))
	}
	commit(t, db, &batch)
	for _, c := range []struct {
		where []Filter
		count int
	}{
		{[]Filter{Where(Greater, Float64("f", 89.5))}, 10},
		{[]Filter{Where(GreaterOrEqual, Int64("i", 90)), Where(Less, Uint64("u", 95))}, 5},
		{[]Filter{Where(Equal, Bool("b", true))}, 50},
		{[]Filter{Where(NotEqual, String("s", "3"))}, 90},
		{[]Filter{Where(LessOrEqual, Int64("f", 4))}, 5},
	} {
		found, err := db.ScanColumns(t.Context(), s, Query{Where: c.where, Fields: []string{"i"}})
		must(t, err)
		if found.Len() != c.count {
			t.Errorf("%v: %d rows, expected %d", c.where, found.Len(), c.count)
		}
	}
	_, err := db.ScanColumns(t.Context(), s, Query{Where: []Filter{Where(Less, String("f", "x"))}})
	mustBe(t, err, ErrInvalid)
	_, err = db.ScanColumns(t.Context(), s, Query{Where: []Filter{{}}})
	mustBe(t, err, ErrInvalid)
	_, err = db.ScanColumns(t.Context(), s, Query{Fields: []string{"none"}})
	mustBe(t, err, ErrNotFound)
}

func TestATableIsScannedStreamByStream(t *testing.T) {
	db := temporary(t)
	var batch Batch
	for id := range 20 {
		s := streamOf(t, db, "t", Tags{"id": fmt.Sprint(id), "even": fmt.Sprint(id%2 == 0)})
		must(t, batch.RowAt(s, int64(id), Int64("v", int64(id))))
	}
	commit(t, db, &batch)
	seen := map[string]int64{}
	for columns, err := range db.ScanTable(t.Context(), "t", Tags{"even": "true"}, Query{}) {
		must(t, err)
		seen[columns.Stream] = columns.Field("v").Int64s()[0]
	}
	if len(seen) != 10 || seen["t,even=true,id=8"] != 8 {
		t.Fatal(seen)
	}
	streams, err := db.Streams(t.Context(), "t", nil)
	must(t, err)
	if len(streams) != 20 || streams[0].Tags()["even"] == "" || streams[0].Table() != "t" {
		t.Fatal(streams)
	}
	newest, err := db.LastTable(t.Context(), "t", Tags{"id": "7"})
	must(t, err)
	if v := newest["t,even=false,id=7"]; len(newest) != 1 || len(v) != 1 || v[0].Value != int64(7) || v[0].Nanos != 7 {
		t.Fatal(newest)
	}
	for _, err := range db.ScanTable(t.Context(), "none", nil, Query{}) {
		mustBe(t, err, ErrNotFound)
	}
}

func TestManyStreamsAreListedPageByPage(t *testing.T) {
	db := temporary(t)
	var batch Batch
	for id := range streamsPage*2 + 5 {
		must(t, batch.RowAt(streamOf(t, db, "t", Tags{"id": fmt.Sprint(id)}), 1, Bool("v", true)))
	}
	commit(t, db, &batch)
	streams, err := db.Streams(t.Context(), "t", nil)
	must(t, err)
	names := map[string]bool{}
	for _, s := range streams {
		names[s.String()] = true
	}
	if len(streams) != streamsPage*2+5 || len(names) != len(streams) {
		t.Fatalf("%d streams, %d names", len(streams), len(names))
	}
}

func TestNamesOfAnyContentComeBack(t *testing.T) {
	db := temporary(t)
	for i, tags := range []Tags{
		nil,
		{"a": "b"},
		{"a=b": "c,d", "e f": `g\h`, "ü": "…"},
		{"z": "=", "k": `\`, "m": ", ="},
	} {
		table := []string{"plain", `with blank, comma and \`, "t=1", "ünï"}[i]
		s := streamOf(t, db, table, tags)
		var batch Batch
		must(t, batch.RowAt(s, 1, Int64("v", int64(i))))
		commit(t, db, &batch)
		listed, err := db.Streams(t.Context(), table, nil)
		must(t, err)
		if len(listed) != 1 || listed[0].String() != s.String() || len(listed[0].Tags()) != len(tags) {
			t.Fatalf("%s: %v", s, listed)
		}
		parsed, err := db.ParseStream(s.String())
		must(t, err)
		for key, value := range tags {
			if listed[0].Tags()[key] != value || parsed.Tags()[key] != value {
				t.Errorf("%s: tag %q is %q and %q", s, key, listed[0].Tags()[key], parsed.Tags()[key])
			}
		}
		if parsed.Table() != table {
			t.Errorf("%q, expected %q", parsed.Table(), table)
		}
		newest, err := db.Last(t.Context(), parsed)
		must(t, err)
		if len(newest) != 1 || newest[0].Value != int64(i) {
			t.Errorf("%s: %v", s, newest)
		}
	}
	for _, name := range []string{"", "t,", "t,a", "t,=1"} {
		_, err := db.ParseStream(name)
		mustBe(t, err, ErrInvalid)
	}
	_, err := db.Stream("", nil)
	mustBe(t, err, ErrInvalid)
	_, err = db.Stream("t", Tags{"a": "\xff"})
	mustBe(t, err, ErrInvalid)
}

func TestRefusedRowsAreNamedAndTheOthersStored(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", Tags{"id": "1"})
	var first Batch
	must(t, first.RowAt(s, 1, Int64("v", 1)))
	commit(t, db, &first)

	var batch Batch
	must(t, batch.Columns(s, []int64{2, 3}, Strings("v", []string{"no", "number"})))
	must(t, batch.Columns(s, []int64{4}, Int64s("v", []int64{4})))
	written, err := db.Write(t.Context(), &batch)
	mustBe(t, err, ErrRefused)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Total != 2 || len(refused.Rows) != 2 || written.Accepted != 1 {
		t.Fatal(written, err)
	}
	if row := refused.Rows[1]; row.Stream != "t,id=1" || row.Row != 1 || row.Code != "E_TYPE" || row.Message == "" {
		t.Fatalf("%+v", row)
	}
	batch.RequireAll()
	before, err := db.Stats()
	must(t, err)
	if written, err = db.Write(t.Context(), &batch); !errors.Is(err, ErrRefused) || written.Accepted != 0 {
		t.Fatal(written, err)
	}
	after, err := db.Stats()
	must(t, err)
	if after.EventsAccepted != before.EventsAccepted {
		t.Fatal("part of a batch was stored that wanted all or nothing")
	}
}

func TestABatchChecksWhatItIsGiven(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	var batch Batch
	must(t, batch.RowAt(s, 1, Float64("v", 1)))
	must(t, batch.RowAt(s, 2, Int64("v", 2)))
	mustBe(t, batch.RowAt(s, 3, String("v", "x")), ErrInvalid)
	mustBe(t, batch.RowAt(s, 3, Bool("a", true), Bool("a", false)), ErrInvalid)
	mustBe(t, batch.Row(s, time.Time{}, Float64("v", 1)), ErrInvalid)
	mustBe(t, batch.Columns(s, []int64{1, 2}, Float64s("v", []float64{1})), ErrInvalid)
	mustBe(t, batch.Columns(s, []int64{1}, Float64s("v", []float64{1}).Present([]bool{true, false})), ErrInvalid)
	mustBe(t, batch.Columns(s, []int64{1}, Float64s("v", []float64{1}), Bools("v", []bool{true})), ErrInvalid)
	mustBe(t, batch.RowAt(nil, 3, Float64("v", 1)), ErrInvalid)
	mustBe(t, batch.Columns(nil, []int64{3}), ErrInvalid)
	_, err := db.Last(t.Context(), nil)
	mustBe(t, err, ErrInvalid)
	if batch.Len() != 2 {
		t.Fatalf("%d rows", batch.Len())
	}
	commit(t, db, &batch)
	found, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	if !slices.Equal(found.Field("v").Float64s(), []float64{1, 2}) {
		t.Fatal(found.Field("v").Float64s())
	}
	batch.Reset()
	if batch.Len() != 0 {
		t.Fatal("a batch that was reset has rows")
	}
	commit(t, db, &batch)
	other := temporary(t)
	must(t, batch.RowAt(s, 9, Float64("v", 1)))
	_, err = other.Write(t.Context(), &batch)
	mustBe(t, err, ErrInvalid)
	_, err = other.Last(t.Context(), s)
	mustBe(t, err, ErrInvalid)
}

func TestAProducersBatchIsStoredOnce(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	var batch Batch
	must(t, batch.RowAt(s, 1, Int64("v", 1)))
	batch.SetProducer("gateway", 7)
	for round := range 2 {
		written, err := db.Write(t.Context(), &batch)
		must(t, err)
		if written.Repeated != (round == 1) {
			t.Fatalf("round %d: %+v", round, written)
		}
	}
	info, err := db.Describe(t.Context(), s)
	must(t, err)
	if info.Rows != 1 || !info.HasEvents || info.First != 1 || info.Last != 1 {
		t.Fatalf("%+v", info)
	}
}

func TestValuesExpire(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	for i, at := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Hour), {}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		var batch Batch
		must(t, batch.RowAt(s, int64(i), Int64("v", int64(i))))
		batch.ExpireAt(at)
		commit(t, db, &batch)
	}
	found, err := db.ScanColumns(t.Context(), s, Query{})
	must(t, err)
	if !slices.Equal(found.Times, []int64{1, 3}) {
		t.Fatal(found.Times)
	}
}

func TestRowsInMemoryComeInChunksAndAContextEndsTheScan(t *testing.T) {
	db := temporary(t)
	s := streamOf(t, db, "t", nil)
	const rows = 100_000
	times, texts := make([]int64, rows), make([]string, rows)
	for i := range rows {
		times[i] = begin + int64(i)*second
		texts[i] = fmt.Sprint("text ", i)
	}
	var batch Batch
	must(t, batch.Columns(s, times, Strings("s", texts)))
	// A field that some rows have only.
	for i := 0; i < rows; i += 3 {
		must(t, batch.RowAt(s, times[i], Int64("i", int64(i))))
	}
	_, err := db.Write(t.Context(), &batch)
	must(t, err)
	at := 0
	for columns, err := range db.ScanChunks(t.Context(), s, Query{}) {
		must(t, err)
		if columns.Len() > chunkRows {
			t.Fatalf("a chunk of %d rows", columns.Len())
		}
		for row := range columns.Len() {
			if columns.Times[row] != times[at] || columns.Field("s").Text(row) != texts[at] {
				t.Fatalf("row %d: %d %q", at, columns.Times[row], columns.Field("s").Text(row))
			}
			value, has := columns.Row(row).Int64("i")
			if has != (at%3 == 0) || has && value != int64(at) {
				t.Fatalf("row %d: %d %v", at, value, has)
			}
			at++
		}
	}
	if at != rows {
		t.Fatalf("%d rows", at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := 0, error(nil)
	for row, err := range db.Scan(ctx, s, Query{}) {
		if err != nil {
			ended = err
			// The row of an error is empty, and can be asked.
			if row.Nanos() != 0 || row.Stream() != "" || row.Value("s") != nil {
				t.Fatalf("%v", row)
			}
			continue
		}
		if seen++; seen == 10 {
			cancel()
		}
	}
	if !errors.Is(ended, context.Canceled) || seen > chunkRows {
		t.Fatalf("%d rows, then %v", seen, ended)
	}
}

func TestAWriteOfNoBatchIsAnError(t *testing.T) {
	db := temporary(t)
	_, err := db.Write(t.Context(), nil)
	mustBe(t, err, ErrInvalid)
}
