package headwater

// #include "headwater.h"
import "C"

import (
	"context"
	"math"
	"math/big"
	"runtime"
	"time"
	"unsafe"
)

// Bins divide a range of instants. The zero value is one bin.
type Bins struct {
	kind          C.int32_t
	level         int
	width, origin int64
}

// Every divides into bins of a width, of which one begins at 1970-01-01T00:00Z.
func Every(width time.Duration) Bins { return EveryFrom(width, time.Unix(0, 0)) }

// EveryFrom divides into bins of a width, of which one begins at origin.
func EveryFrom(width time.Duration, origin time.Time) Bins {
	at, _ := nanos(origin)
	return Bins{kind: C.HW_EVERY_WIDTH, width: int64(width), origin: at}
}

// AtLevel divides into the buckets that are stored: 2^level seconds wide, level -20 to 40.
func AtLevel(level int) Bins { return Bins{kind: C.HW_LEVEL, level: level} }

// AggregateQuery says what to aggregate.
type AggregateQuery struct {
	// Range is the instants wanted; the zero value is all.
	Range Range
	// Bins divide the range; the zero value is one bin.
	Bins Bins
	// Ends asks for the first and the last value of each bin too, which reads every row of the range.
	Ends bool
}

// Bin is the aggregate of the values of one field over a span of time.
type Bin struct {
	// Nanos is its first instant, or that of the range if that is later, in nanoseconds since 1970 UTC.
	Nanos int64
	// Bucket is the number of a tile's bucket, which begins at Bucket * 2^level s; else 0.
	Bucket int64
	// Count is the number of values, those that are not finite included.
	Count uint64
	// NaN, PositiveInf and NegativeInf are the numbers of values that are not finite.
	NaN, PositiveInf, NegativeInf uint64
	// MeanNanos is the mean time of the values, rounded down.
	MeanNanos int64
	// Mean and StdDev are the mean and the population standard deviation of the finite values; NaN without one, and for text.
	Mean, StdDev float64
	// Min and Max are the smallest and the largest finite value; NaN without one. MinInt64 and the like give those of integers exactly.
	Min, Max float64
	// First and Last are the first and the last value, if they were asked for and there are rows.
	First, Last *LastValue

	extremes         C.int32_t
	minBits, maxBits uint64
	sumLow           uint64
	sumHigh          int64
	m2               float64
}

// Start gives the bin's first instant.
func (b *Bin) Start() time.Time { return time.Unix(0, b.Nanos) }

// ExtremesInt64 gives the smallest and the largest value of a field of TypeInt64 or TypeBool exactly; false without one.
func (b *Bin) ExtremesInt64() (low, high int64, ok bool) {
	return int64(b.minBits), int64(b.maxBits), b.extremes == C.HW_I64
}

// ExtremesUint64 gives the smallest and the largest value of a field of TypeUint64 exactly; false without one.
func (b *Bin) ExtremesUint64() (low, high uint64, ok bool) {
	return b.minBits, b.maxBits, b.extremes == C.HW_U64
}

// Sum gives the exact sum of integers and booleans; 0 for other types, whose sum is SumFloat64.
func (b *Bin) Sum() *big.Int {
	sum := new(big.Int).Lsh(big.NewInt(b.sumHigh), 64)
	return sum.Add(sum, new(big.Int).SetUint64(b.sumLow))
}

// SumFloat64 gives the sum of the finite values, of any type that has one; NaN without one, and for text.
func (b *Bin) SumFloat64() float64 {
	native := b.native()
	return float64(C.hw_bin_sum(&native))
}

// Spread gives the largest finite value minus the smallest; NaN without one, and for text.
func (b *Bin) Spread() float64 {
	native := b.native()
	return float64(C.hw_bin_spread(&native))
}

// SampleStdDev gives the standard deviation of the finite values as a sample; NaN of fewer than two, and for text.
func (b *Bin) SampleStdDev() float64 {
	native := b.native()
	return float64(C.hw_bin_sample_stddev(&native))
}

// native is what the library needs to finish the bin.
func (b *Bin) native() C.hw_bin {
	return C.hw_bin{
		count: C.uint64_t(b.Count), nan_count: C.uint64_t(b.NaN),
		positive_infinite_count: C.uint64_t(b.PositiveInf), negative_infinite_count: C.uint64_t(b.NegativeInf),
		mean: C.double(b.Mean), m2: C.double(b.m2), extremes_type: b.extremes,
		min_bits: C.uint64_t(b.minBits), max_bits: C.uint64_t(b.maxBits),
		sum_low: C.uint64_t(b.sumLow), sum_high: C.int64_t(b.sumHigh),
	}
}

// Aggregate gives count, extremes, mean and deviation of one field over a range, whole or in bins, in the order of time. Bins without a
// value are left out. What is stored of wide spans is used, so that a year is as quick as a day.
func (r *reader) Aggregate(ctx context.Context, stream *Stream, field string, query AggregateQuery) ([]Bin, error) {
	if err := r.ready(ctx, stream); err != nil {
		return nil, err
	}
	if query.Bins.level < math.MinInt32 || query.Bins.level > math.MaxInt32 {
		return nil, failure(ErrInvalid, "level: expected -20 to 40, found %d", query.Bins.level)
	}
	first, last := query.Range.native()
	spec := C.hw_aggregate_spec{first_ns: first, last_ns: last, bins: query.Bins.kind, level: C.int32_t(query.Bins.level),
		width_ns: C.int64_t(query.Bins.width), origin_ns: C.int64_t(query.Bins.origin)}
	if query.Ends {
		spec.first_last = 1
	}
	var e C.hw_error
	var bins C.hw_bins
	code := C.hw_aggregate(stream.handle, r.snapshot(), text(field), &spec, &bins, &e)
	runtime.KeepAlive(r)
	runtime.KeepAlive(stream)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	return ownBins(&bins, field), nil
}

// Tile gives the filled buckets of a tile of one field: tile `offset` of a level holds buckets offset * 512 to offset * 512 + 511, each
// 2^level seconds wide, counted from 1970; level -20 to 40. A tile outside of the range of instants is empty.
func (r *reader) Tile(ctx context.Context, stream *Stream, field string, level int, offset int64) ([]Bin, error) {
	if err := r.ready(ctx, stream); err != nil {
		return nil, err
	}
	if level < math.MinInt32 || level > math.MaxInt32 {
		return nil, failure(ErrInvalid, "level: expected -20 to 40, found %d", level)
	}
	var e C.hw_error
	var bins C.hw_bins
	code := C.hw_tile(stream.handle, r.snapshot(), text(field), C.int32_t(level), C.int64_t(offset), &bins, &e)
	runtime.KeepAlive(r)
	runtime.KeepAlive(stream)
	if code != C.HW_OK {
		return nil, take(&e)
	}
	return ownBins(&bins, field), nil
}

// ownBins copies bins of the library and gives them back.
func ownBins(native *C.hw_bins, field string) []Bin {
	defer release(native.handle)
	n := int(native.count)
	bins := make([]Bin, n)
	for i, b := range unsafe.Slice(native.bins, n) {
		bins[i] = Bin{
			Nanos: int64(b.start_ns), Bucket: int64(b.bucket), Count: uint64(b.count), NaN: uint64(b.nan_count),
			PositiveInf: uint64(b.positive_infinite_count), NegativeInf: uint64(b.negative_infinite_count),
			MeanNanos: int64(b.mean_time_ns), Mean: float64(b.mean), StdDev: float64(b.stddev), Min: float64(b.min), Max: float64(b.max),
			extremes: b.extremes_type, minBits: uint64(b.min_bits), maxBits: uint64(b.max_bits),
			sumLow: uint64(b.sum_low), sumHigh: int64(b.sum_high), m2: float64(b.m2),
		}
	}
	if native.firsts != nil && native.lasts != nil {
		firsts, lasts := unsafe.Slice(native.firsts, n), unsafe.Slice(native.lasts, n)
		for i := range bins {
			bins[i].First, bins[i].Last = ownEnd(&firsts[i], field), ownEnd(&lasts[i], field)
		}
	}
	return bins
}

func ownEnd(end *C.hw_bin_end, field string) *LastValue {
	value := goValue(&end.value)
	if value == nil {
		return nil
	}
	return &LastValue{Field: field, Nanos: int64(end.time_ns), Value: value}
}
