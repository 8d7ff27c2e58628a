package headwater

import (
	"context"
	"testing"
)

// What a call of the library costs beside what it does.
func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		if nothing() != 0 {
			b.Fatal("nothing went wrong")
		}
	}
}

// A thousand rows from memory into slices that are large enough; crates/ffi/examples/call_cost.rs does the same in Rust.
func BenchmarkScanFloats1000(b *testing.B) {
	db := temporary(b)
	s := streamOf(b, db, "t", Tags{"id": "1"})
	times, _ := wave(b, db, s, "v", 10_000)
	var series Series
	ctx := context.Background()
	for i := 0; b.Loop(); i++ {
		from := i * 37 % 9000
		if err := db.ScanFloats(ctx, s, "v", BetweenNanos(times[from], times[from+999]), &series); err != nil || len(series.Times) != 1000 {
			b.Fatal(len(series.Times), err)
		}
	}
}

// One row from memory: what a read costs beside its rows.
func BenchmarkScanFloats1(b *testing.B) {
	db := temporary(b)
	s := streamOf(b, db, "t", Tags{"id": "1"})
	times, _ := wave(b, db, s, "v", 10_000)
	var series Series
	ctx := context.Background()
	for i := 0; b.Loop(); i++ {
		at := times[i*37%10_000]
		if err := db.ScanFloats(ctx, s, "v", BetweenNanos(at, at), &series); err != nil || len(series.Times) != 1 {
			b.Fatal(len(series.Times), err)
		}
	}
}

// Twenty-five rows, as the GoLSM paper reads them of each tag.
func BenchmarkScanFloats25(b *testing.B) {
	db := temporary(b)
	s := streamOf(b, db, "t", Tags{"id": "1"})
	times, _ := wave(b, db, s, "v", 10_000)
	var series Series
	ctx := context.Background()
	for i := 0; b.Loop(); i++ {
		from := i * 37 % 9000
		if err := db.ScanFloats(ctx, s, "v", BetweenNanos(times[from], times[from+24]), &series); err != nil || len(series.Times) != 25 {
			b.Fatal(len(series.Times), err)
		}
	}
}
