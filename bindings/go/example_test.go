package headwater_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"headwater"
)

func Example() {
	dir, err := os.MkdirTemp("", "pumps")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	db, err := headwater.Open(dir + "/pumps.db")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// A stream is one device. Its table and fields are made by the first write.
	pump, err := db.Stream("pumps", headwater.Tags{"site": "north", "id": "p1"})
	if err != nil {
		log.Fatal(err)
	}
	start := time.Date(2023, 11, 14, 22, 0, 0, 0, time.UTC)
	var batch headwater.Batch
	for i := range 3600 {
		at := start.Add(time.Duration(i) * time.Second)
		pressure := 4.2 + float64(i)/1000
		if err := batch.Row(pump, at, headwater.Float64("pressure", pressure), headwater.Bool("running", true)); err != nil {
			log.Fatal(err)
		}
	}
	written, err := db.Write(ctx, &batch) // on the medium when this returns
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(written.Accepted, "rows stored")

	// Rows, one by one.
	last := headwater.Query{Range: headwater.Since(start.Add(3598 * time.Second))}
	for row, err := range db.Scan(ctx, pump, last) {
		if err != nil {
			log.Fatal(err)
		}
		pressure, _ := row.Float64("pressure")
		fmt.Println(row.Time().UTC().Format(time.TimeOnly), pressure)
	}

	// Twenty-minute means, from the stored aggregates.
	bins, err := db.Aggregate(ctx, pump, "pressure", headwater.AggregateQuery{Bins: headwater.Every(20 * time.Minute)})
	if err != nil {
		log.Fatal(err)
	}
	for _, bin := range bins {
		fmt.Printf("%s: mean %.4f of %d\n", bin.Start().UTC().Format(time.TimeOnly), bin.Mean, bin.Count)
	}
	// Output:
	// 3600 rows stored
	// 22:59:58 7.798
	// 22:59:59 7.799
	// 22:00:00: mean 4.7995 of 1200
	// 22:20:00: mean 5.9995 of 1200
	// 22:40:00: mean 7.1995 of 1200
}

func ExampleBatch_Columns() {
	db, done := demo()
	defer done()
	ctx := context.Background()
	probe, err := db.Stream("probes", headwater.Tags{"id": "7"})
	if err != nil {
		log.Fatal(err)
	}
	var batch headwater.Batch
	err = batch.Columns(probe, []int64{1000, 2000, 3000},
		headwater.Float64s("temp", []float64{20.5, 0, 20.7}).Present([]bool{true, false, true}),
		headwater.Strings("state", []string{"ok", "ok", "hot"}))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Write(ctx, &batch); err != nil {
		log.Fatal(err)
	}
	columns, err := db.ScanColumns(ctx, probe, headwater.Query{Fields: []string{"state", "temp"}})
	if err != nil {
		log.Fatal(err)
	}
	for i, at := range columns.Times {
		fmt.Println(at, columns.Fields[0].Value(i), columns.Fields[1].Value(i))
	}
	// Output:
	// 1000 ok 20.5
	// 2000 ok <nil>
	// 3000 hot 20.7
}

func ExampleDB_ScanFloats() {
	db, done := demo()
	defer done()
	ctx := context.Background()
	probe, err := db.Stream("probes", headwater.Tags{"id": "7"})
	if err != nil {
		log.Fatal(err)
	}
	var batch headwater.Batch
	if err := batch.Columns(probe, []int64{1, 2, 3}, headwater.Float64s("temp", []float64{1.5, 2.5, 4})); err != nil {
		log.Fatal(err)
	}
	if _, err := db.Write(ctx, &batch); err != nil {
		log.Fatal(err)
	}
	var series headwater.Series // keep it, and its slices are used again
	if err := db.ScanFloats(ctx, probe, "temp", headwater.BetweenNanos(2, 9), &series); err != nil {
		log.Fatal(err)
	}
	fmt.Println(series.Times, series.Values)
	// Output: [2 3] [2.5 4]
}

func ExampleDB_ScanManyFloats() {
	db, done := demo()
	defer done()
	ctx := context.Background()
	var batch headwater.Batch
	var probes []*headwater.Stream
	for _, id := range []string{"7", "8"} {
		probe, err := db.Stream("probes", headwater.Tags{"id": id})
		if err != nil {
			log.Fatal(err)
		}
		if err := batch.Columns(probe, []int64{1, 2}, headwater.Float64s("temp", []float64{1.5, 2.5})); err != nil {
			log.Fatal(err)
		}
		probes = append(probes, probe)
	}
	if _, err := db.Write(ctx, &batch); err != nil {
		log.Fatal(err)
	}
	var set headwater.SeriesSet // keep it, and its memory is used again
	if err := db.ScanManyFloats(ctx, probes, "temp", headwater.Range{}, &set); err != nil {
		log.Fatal(err)
	}
	for i, series := range set.Series {
		fmt.Println(probes[i], series.Times, series.Values)
	}
	// Output:
	// probes,id=7 [1 2] [1.5 2.5]
	// probes,id=8 [1 2] [1.5 2.5]
}

func ExampleDB_Write_refused() {
	db, done := demo()
	defer done()
	ctx := context.Background()
	probe, err := db.Stream("probes", headwater.Tags{"id": "7"})
	if err != nil {
		log.Fatal(err)
	}
	for _, value := range []headwater.Value{headwater.Float64("temp", 20), headwater.String("temp", "warm")} {
		var batch headwater.Batch
		if err := batch.RowAt(probe, 1, value); err != nil {
			log.Fatal(err)
		}
		_, err := db.Write(ctx, &batch)
		var refused *headwater.RefusedError
		if errors.As(err, &refused) {
			fmt.Println(refused.Rows[0].Stream, refused.Rows[0].Code)
		} else if err != nil {
			log.Fatal(err)
		}
	}
	// Output: probes,id=7 E_TYPE
}

func ExampleDB_Tile() {
	db, done := demo()
	defer done()
	ctx := context.Background()
	probe, err := db.Stream("probes", headwater.Tags{"id": "7"})
	if err != nil {
		log.Fatal(err)
	}
	var batch headwater.Batch
	for i := range 8 {
		if err := batch.Row(probe, time.Unix(int64(i), 0), headwater.Float64("temp", float64(i))); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := db.Write(ctx, &batch); err != nil {
		log.Fatal(err)
	}
	// Buckets of 2^2 = 4 seconds.
	buckets, err := db.Tile(ctx, probe, "temp", 2, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range buckets {
		fmt.Println(b.Bucket, b.Count, b.Min, b.Mean, b.Max)
	}
	// Output:
	// 0 4 0 1.5 3
	// 1 4 4 5.5 7
}

// demo opens a database for an example.
func demo() (*headwater.DB, func()) {
	dir, err := os.MkdirTemp("", "headwater")
	if err != nil {
		log.Fatal(err)
	}
	db, err := headwater.Open(dir + "/db")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}
