// Package bench measures the Go package beside other stores that a Go program may embed, as the GoLSM paper did: ten tags with a
// point a second, written in calls of all tags over a window, read three tags at a time over a window.
//
// All stores get the same points, the same durability (what a call stored is on the medium when it returns), and the same
// windows, and must give the same points back; a test compares them. They take turns within a round, so that what else the
// machine does falls on all of them.
//
// Two SQLites, and bbolt as the paper's host application uses it, take part with -tags rivals only: the former take more than a minute to
// compile, the latter is slow.
package bench

import (
	"fmt"
	"os"
	"path/filepath"
)

// Tags of the paper's store, and of a read.
const (
	tags     = 10
	readTags = 3
)

// begin is when the points begin, and second what lies between them: nanoseconds since 1970.
const (
	begin  = 1_700_000_000 * second
	second = int64(1_000_000_000)
)

// series is points of one tag: what a store is given, and what it gives back.
type series struct {
	tag    int
	times  []int64 // nanoseconds since 1970, rising
	values []float64
}

// store is what takes part.
type store interface {
	// write stores points of several tags; they are on the medium when it returns.
	write(points []series) error
	// read fills each of `into`, which names a tag, with its points from `from` to `to`, both included. It uses the slices that are there.
	read(into []series, from, to int64) error
	// close ends it, so that its folder can be opened again.
	close() error
}

// contestant makes stores of one kind.
type contestant struct {
	name string
	open func(dir string) (store, error)
	// data is where the points lie, below its folder: not the log and the reserve, whose size has nothing to do with theirs.
	data string
}

// contestants are those that take part, in the order of their turns; Headwater first.
var contestants = []contestant{
	{"headwater", openHeadwater, "headwater.db/segment"},
	{"golsm", openGolsm, "headwater.db/segment"},
	{"bbolt", openBbolt, "."},
}

func tagName(tag int) string { return fmt.Sprintf("tag%d", tag) }

// window makes the points of all tags from `from`, one a second. The values are those of sensors: a slow wave with noise, to three
// decimals.
func window(from int64, seconds int, next *random) []series {
	out := make([]series, tags)
	for tag := range out {
		s := &out[tag]
		s.tag = tag
		s.times = make([]int64, seconds)
		s.values = make([]float64, seconds)
		for i := range seconds {
			at := from + int64(i)*second
			s.times[i] = at
			level := float64(20_000+tag*1000) + float64(at/second%3600)
			s.values[i] = (level + float64(next.below(500))) / 1000
		}
	}
	return out
}

// random is a small generator that gives the same numbers in every run (splitmix64).
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *random) below(n int64) int64 { return int64(r.next() % uint64(n)) }

// diskBytes is the size of all files below a folder.
func diskBytes(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
