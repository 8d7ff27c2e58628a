package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The seconds that a read's store holds, as in the paper.
const held = 3 * 3600

// callSeconds is how many seconds one call stores when a store is filled.
const callSeconds = 60

// running is a store that takes part.
type running struct {
	contestant
	dir   string
	store store
	// times of the rounds, ns for each call.
	rounds []float64
}

// start opens all stores, each in a folder of its own.
func start(tb testing.TB) []*running {
	tb.Helper()
	all := make([]*running, len(contestants))
	for i, c := range contestants {
		r := &running{contestant: c, dir: filepath.Join(tb.TempDir(), c.name)}
		if err := os.MkdirAll(r.dir, 0o777); err != nil {
			tb.Fatal(err)
		}
		r.reopen(tb)
		tb.Cleanup(func() {
			if r.store != nil {
				if err := r.store.close(); err != nil {
					tb.Error(err)
				}
			}
		})
		all[i] = r
	}
	return all
}

// reopen closes the store, if it is open, and opens it.
func (r *running) reopen(tb testing.TB) {
	tb.Helper()
	if r.store != nil {
		err := r.store.close()
		r.store = nil
		if err != nil {
			tb.Fatalf("%s: %v", r.name, err)
		}
	}
	var err error
	if r.store, err = r.open(r.dir); err != nil {
		tb.Fatalf("%s: %v", r.name, err)
	}
}

// measure lets the stores take turns: each round, every one does `work` once, beginning with the next of them; the first round warms
// up and does not count. It reports the median of the ns that a call took, and how many times Headwater's each of the others took:
// the median of the ratios within rounds.
func measure(b *testing.B, all []*running, calls int, prepare func(round int), work func(r *running)) {
	b.Helper()
	for _, r := range all {
		r.rounds = r.rounds[:0]
	}
	round := 0
	one := func() {
		prepare(round)
		for turn := range all {
			r := all[(round+turn)%len(all)]
			begun := time.Now()
			work(r)
			r.rounds = append(r.rounds, float64(time.Since(begun).Nanoseconds())/float64(calls))
		}
		round++
	}
	one()
	for _, r := range all {
		r.rounds = r.rounds[:0]
	}
	for b.Loop() {
		one()
	}
	b.ReportMetric(0, "ns/op") // a round is of no interest
	for i, r := range all {
		b.ReportMetric(math.Round(median(r.rounds)), r.name+"-ns")
		if i > 0 {
			ratios := make([]float64, len(r.rounds))
			for j := range ratios {
				ratios[j] = r.rounds[j] / all[0].rounds[j]
			}
			b.ReportMetric(median(ratios), r.name+"-x")
		}
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// BenchmarkWrite: a call stores a window of all ten tags and is synced. Linear: the next window begins later by twice its width; random:
// at a random place of the past.
func BenchmarkWrite(b *testing.B) {
	for _, order := range []string{"linear", "random"} {
		for _, seconds := range []int{5, 60, 300, 1500} {
			b.Run(fmt.Sprintf("%s/%ds", order, seconds), func(b *testing.B) {
				all := start(b)
				next := &random{1}
				calls := max(1, min(50, 3000/seconds))
				from := int64(begin)
				var windows [][]series
				prepare := func(int) {
					windows = windows[:0]
					for range calls {
						at := from
						from += 2 * int64(seconds) * second
						if order == "random" {
							at = next.below(begin/second) * second
						}
						windows = append(windows, window(at, seconds, next))
					}
				}
				measure(b, all, calls, prepare, func(r *running) {
					for _, w := range windows {
						if err := r.store.write(w); err != nil {
							b.Fatalf("%s: %v", r.name, err)
						}
					}
				})
			})
		}
	}
}

// fill stores three hours, and gives what was stored.
func fill(tb testing.TB, all []*running) []series {
	tb.Helper()
	next := &random{2}
	stored := make([]series, tags)
	for at := 0; at < held; at += callSeconds {
		part := window(begin+int64(at)*second, callSeconds, next)
		for _, r := range all {
			if err := r.store.write(part); err != nil {
				tb.Fatalf("%s: %v", r.name, err)
			}
		}
		for tag := range part {
			stored[tag].tag = tag
			stored[tag].times = append(stored[tag].times, part[tag].times...)
			stored[tag].values = append(stored[tag].values, part[tag].values...)
		}
	}
	return stored
}

// read is a window to read, with three tags.
type read struct {
	tags     [readTags]int
	from, to int64
}

// reads makes windows of a width within [begin+first, begin+held) seconds.
func reads(count, width, first int, next *random) []read {
	out := make([]read, count)
	for i := range out {
		start := begin + int64(first)*second + next.below(int64(held-first-width+1)*second)
		out[i] = read{from: start, to: start + int64(width)*second - 1}
		tag := int(next.below(tags))
		for j := range readTags {
			out[i].tags[j] = (tag + j*3) % tags
		}
	}
	return out
}

func newResult() []series { return make([]series, readTags) }

func (r *running) answer(tb testing.TB, result []series, ask read) {
	for i := range result {
		result[i].tag = ask.tags[i]
	}
	if err := r.store.read(result, ask.from, ask.to); err != nil {
		tb.Fatalf("%s: %v", r.name, err)
	}
}

// check compares an answer with what was stored.
func check(tb testing.TB, r *running, stored, result []series, ask read) {
	tb.Helper()
	first := int((ask.from - begin + second - 1) / second)
	last := min(int((ask.to-begin)/second), held-1)
	for i, s := range result {
		want := stored[ask.tags[i]]
		if !slices.Equal(s.times, want.times[first:last+1]) || !slices.Equal(s.values, want.values[first:last+1]) {
			tb.Fatalf("%s: the points of tag %d from %d to %d are not what was stored: %d of %d", r.name, s.tag, ask.from, ask.to,
				len(s.times), last-first+1)
		}
	}
}

// BenchmarkRead: a call reads a window of three tags. Anywhere: in three hours, as they were stored; latest: in the last three minutes;
// leaves: after Headwater has put everything into files, with what was decoded in its cache; cold: every store opened anew before
// each call, and one row of another tag read.
func BenchmarkRead(b *testing.B) {
	all := start(b)
	stored := fill(b, all)
	for _, c := range []struct {
		how    string
		widths []int
	}{
		{"anywhere", []int{25, 60, 600, 3600, 8100}},
		{"latest", []int{5, 25, 90}},
		{"leaves", []int{25, 8100}},
		{"cold", []int{25, 8100}},
	} {
		if c.how == "leaves" {
			for _, r := range all {
				if o, ok := r.store.(*ours); ok {
					if err := o.drain(); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		first := 0
		if c.how == "latest" {
			first = held - 180
		}
		for _, width := range c.widths {
			b.Run(fmt.Sprintf("%s/%ds", c.how, width), func(b *testing.B) {
				next := &random{uint64(width)}
				calls := max(1, 5000/width)
				if c.how == "cold" {
					calls = 1
				}
				result := newResult()
				for _, r := range all {
					for _, ask := range reads(20, width, first, &random{3}) {
						r.answer(b, result, ask)
						check(b, r, stored, result, ask)
					}
				}
				var asks []read
				prepare := func(int) {
					asks = reads(calls, width, first, next)
					if c.how == "cold" {
						for _, r := range all {
							r.reopen(b)
							other := asks[0]
							for i := range other.tags {
								other.tags[i] = (other.tags[i] + 1) % tags
							}
							other.from, other.to = begin, begin
							r.answer(b, result, other)
						}
					}
				}
				measure(b, all, calls, prepare, func(r *running) {
					for _, ask := range asks {
						r.answer(b, result, ask)
					}
				})
			})
		}
	}
}

// BenchmarkSize: bytes a point of three hours, closed.
func BenchmarkSize(b *testing.B) {
	all := start(b)
	fill(b, all)
	for _, r := range all {
		if err := r.store.close(); err != nil {
			b.Fatal(err)
		}
		r.store = nil
		bytes, err := diskBytes(filepath.Join(r.dir, r.data))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(bytes)/held/tags, r.name+"-B/point")
	}
	b.ReportMetric(0, "ns/op")
}

// What the stores answer is what was stored, in memory, from files and opened anew, also when the windows overlap and come in any order.
func TestAllStoresGiveTheSamePoints(t *testing.T) {
	all := start(t)
	stored := fill(t, all)
	result := newResult()
	for _, again := range []bool{false, true} {
		for _, r := range all {
			if again {
				r.reopen(t)
			}
			for _, width := range []int{1, 25, 3600, held} {
				for _, ask := range reads(10, width, 0, &random{4}) {
					r.answer(t, result, ask)
					check(t, r, stored, result, ask)
				}
			}
		}
	}
	next := &random{5}
	for range 20 {
		from := next.below(held - 100)
		part := window(begin+from*second, 100, next)
		for _, r := range all {
			if err := r.store.write(part); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
		}
		for tag := range part {
			copy(stored[tag].values[from:], part[tag].values)
		}
	}
	whole := read{from: begin, to: begin + held*second}
	for _, r := range all {
		r.answer(t, result, whole)
		check(t, r, stored, result, whole)
	}
}
