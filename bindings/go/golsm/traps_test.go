package golsm

// What the original gets wrong, each as a test: the claims that its code does not keep, and the calls at which it panics.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"headwater"
	"headwater/golsm/dto"
)

// open makes a storage with the arguments of the paper's benchmark, closed when the test ends.
func open(t testing.TB, dir string) (*StorageReader, *StorageWriter) {
	t.Helper()
	reader, writer := InitStorage(filepath.Join(dir, "commitlog"), 100, 5*time.Second, time.Minute, 2*time.Minute,
		filepath.Join(dir, "sst"), 1000)
	t.Cleanup(func() {
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	})
	return reader, writer
}

func number(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// points makes one point for each timestamp, with the timestamp as its value.
func points(timestamps ...uint64) []dto.Measurement {
	out := make([]dto.Measurement, len(timestamps))
	for i, at := range timestamps {
		out[i] = dto.Measurement{Timestamp: at, Value: number(at)}
	}
	return out
}

func rising(from, count, step uint64) []uint64 {
	out := make([]uint64, count)
	for i := range out {
		out[i] = from + uint64(i)*step
	}
	return out
}

func expect(t *testing.T, reader *StorageReader, tag string, from, to uint64, timestamps ...uint64) {
	t.Helper()
	found := reader.Retrieve([]string{tag}, from, to)[tag]
	if len(found) != len(timestamps) {
		t.Fatalf("%s from %d to %d: %d points, expected %d", tag, from, to, len(found), len(timestamps))
	}
	for i, at := range timestamps {
		if found[i].Timestamp != at || !bytes.Equal(found[i].Value, number(at)) {
			t.Fatalf("%s: point %d is %v, expected timestamp %d", tag, i, found[i], at)
		}
	}
}

func TestBothEndsAreIncluded(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	writer.Store(map[string][]dto.Measurement{"a": points(1000, 2000, 3000, 4000)}, 0)
	expect(t, reader, "a", 2000, 3000, 2000, 3000)
	expect(t, reader, "a", 2001, 2999)
	expect(t, reader, "a", 3000, 2000)
}

func TestEveryTagAskedForIsAnswered(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	if first, last := reader.Availability(); first != 0 || last != 0 {
		t.Fatalf("an empty storage has points from %d to %d", first, last)
	}
	if tags := reader.GetTags(); len(tags) != 0 {
		t.Fatalf("an empty storage has tags %v", tags)
	}
	if found := reader.Retrieve([]string{"none"}, 0, 10); len(found) != 1 || len(found["none"]) != 0 {
		t.Fatalf("an empty storage answers %v", found)
	}
	writer.StoreBatch([]dto.TaggedMeasurement{
		{Tag: "b", Timestamp: 7, Value: []byte("x")},
		{Tag: "a", Timestamp: 5, Value: nil},
		{Tag: "b", Timestamp: 9, Value: []byte{0, 255}},
		{Tag: "b", Timestamp: 7, Value: []byte("newer")},
	}, 0)
	found := reader.Retrieve([]string{"a", "b", "none"}, 0, 10)
	if len(found) != 3 || len(found["a"]) != 1 || len(found["a"][0].Value) != 0 || found["none"] != nil {
		t.Fatalf("%v", found)
	}
	if b := found["b"]; len(b) != 2 || string(b[0].Value) != "newer" || !bytes.Equal(b[1].Value, []byte{0, 255}) {
		t.Fatalf("%v", b)
	}
	if first, last := reader.Availability(); first != 5 || last != 9 {
		t.Fatalf("points from %d to %d", first, last)
	}
	if tags := reader.GetTags(); !slices.Equal(tags, []string{"a", "b"}) {
		t.Fatalf("tags %v", tags)
	}
}

// The original's commit log is never synced.
func TestStoreReturnsWhenTheLogIsSynced(t *testing.T) {
	_, writer := open(t, t.TempDir())
	writer.Store(map[string][]dto.Measurement{"a": points(1)}, 0)
	before, err := writer.storage.db.Stats()
	if err != nil {
		t.Fatal(err)
	}
	const calls = 20
	for i := range uint64(calls) {
		writer.Store(map[string][]dto.Measurement{"a": points(2 + i)}, 0)
	}
	after, err := writer.storage.db.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if syncs := after.LogSyncs - before.LogSyncs; syncs < calls {
		t.Fatalf("%d calls made %d syncs of the log", calls, syncs)
	}
}

// childVariable makes the test binary a program that stores points until it is killed.
const childVariable = "GOLSM_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		storeForEver(dir)
	}
	os.Exit(m.Run())
}

// storeForEver stores ten points of ten tags a call and prints the number of each call that returned. A small memory makes it
// store to files all the time.
func storeForEver(dir string) {
	_, writer, err := Open("", dir, headwater.MemoryBudget(1<<20))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for call := uint64(0); ; call++ {
		data := make(map[string][]dto.Measurement)
		for tag := range 10 {
			data[fmt.Sprint("tag", tag)] = points(rising(call*10, 10, 1)...)
		}
		writer.Store(data, 0)
		fmt.Println(call)
	}
}

// The original loses what it deleted from the log and had not yet put into a table, and after kill -9 shows nothing until the first
// flush.
func TestNothingIsLostOrHiddenByKill(t *testing.T) {
	dir := t.TempDir()
	for round, calls := range []int{40, 700, 200} {
		here := filepath.Join(dir, fmt.Sprint(round))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+here)
		child.Stderr = os.Stderr
		output, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := -1
		lines := bufio.NewScanner(output)
		for acknowledged < calls && lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				break // the line was cut by the kill
			}
		}
		if child.Wait() == nil || acknowledged < calls {
			t.Fatalf("the child ended by itself after %d calls", acknowledged)
		}
		cancel()

		reader, writer, err := Open("", here)
		if err != nil {
			t.Fatal(err)
		}
		for tag := range 10 {
			name := fmt.Sprint("tag", tag)
			found := reader.Retrieve([]string{name}, 0, math.MaxUint64)[name]
			// The newest call may have been stored and not acknowledged; whole in any case.
			if len(found) != 10*(acknowledged+1) && len(found) != 10*(acknowledged+2) {
				t.Fatalf("round %d, %s: %d points of %d acknowledged calls", round, name, len(found), acknowledged+1)
			}
			for i, point := range found {
				if point.Timestamp != uint64(i) || !bytes.Equal(point.Value, number(uint64(i))) {
					t.Fatalf("round %d, %s: point %d is %v", round, name, i, point)
				}
			}
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// One late point makes the original believe that its memory covers all from there on: it answers 10 of 80 points.
func TestALatePointHidesNothing(t *testing.T) {
	dir := t.TempDir()
	reader, writer := open(t, dir)
	first := rising(100_000, 70, 1000)
	writer.Store(map[string][]dto.Measurement{"a": points(first...)}, 0)
	if err := writer.storage.db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	writer.Store(map[string][]dto.Measurement{"a": points(50_000)}, 0)
	second := rising(170_000, 9, 1000)
	writer.Store(map[string][]dto.Measurement{"a": points(second...)}, 0)
	all := slices.Concat([]uint64{50_000}, first, second)
	expect(t, reader, "a", 50_000, 178_000, all...)
	expect(t, reader, "a", 0, math.MaxUint64, all...)
}

// In the original every late point makes the memory of its tag larger for good, and the hole stays.
func TestManyLatePointsAreReadRight(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	var all []uint64
	for i := range uint64(400) {
		at := 1_000_000 + i*1000
		late := 1_000_000 + (i*7919)%400*1000 + 1
		writer.Store(map[string][]dto.Measurement{"a": points(at, late)}, 0)
		all = append(all, at, late)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	expect(t, reader, "a", 0, math.MaxUint64, all...)
	expect(t, reader, "a", 1_200_000, 1_210_000, all[slices.Index(all, 1_200_000):slices.Index(all, 1_210_000)+1]...)
}

// The original panics when it reads a range in which points have expired.
func TestExpiredPointsAreLeftOut(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	now := uint64(time.Now().UnixMilli())
	writer.Store(map[string][]dto.Measurement{"a": points(rising(1000, 10, 10)...)}, now-1000)
	writer.Store(map[string][]dto.Measurement{"a": points(rising(2000, 10, 10)...)}, now+3_600_000)
	writer.Store(map[string][]dto.Measurement{"a": points(rising(3000, 10, 10)...)}, 0)
	writer.Store(map[string][]dto.Measurement{"a": points(rising(4000, 10, 10)...)}, math.MaxUint64)
	left := slices.Concat(rising(2000, 10, 10), rising(3000, 10, 10), rising(4000, 10, 10))
	expect(t, reader, "a", 0, math.MaxUint64, left...)
	if err := writer.storage.db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, reader, "a", 0, math.MaxUint64, left...)
	if first, last := reader.Availability(); first != 2000 || last != 4090 {
		t.Fatalf("points from %d to %d", first, last)
	}
}

// The original panics at the largest `to`, and can never read the timestamp 0.
func TestTheEndsOfTimeCanBeRead(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	writer.Store(map[string][]dto.Measurement{"a": points(0, 1, MaxTimestamp)}, 0)
	expect(t, reader, "a", 0, math.MaxUint64, 0, 1, MaxTimestamp)
	expect(t, reader, "a", 0, 0, 0)
	expect(t, reader, "a", MaxTimestamp, MaxTimestamp+1, MaxTimestamp)
	expect(t, reader, "a", MaxTimestamp+1, math.MaxUint64)
	err := writer.StoreContext(t.Context(), map[string][]dto.Measurement{"a": points(MaxTimestamp + 1)}, 0)
	if !errors.Is(err, headwater.ErrInvalid) {
		t.Fatalf("a timestamp that cannot be stored: %v", err)
	}
	if _, _, any, err := reader.AvailabilityContext(t.Context()); err != nil || !any {
		t.Fatal(any, err)
	}
}

// In the original a length of 16 bits wraps, and the log cannot be read any more.
func TestLongValuesAreKept(t *testing.T) {
	dir := t.TempDir()
	reader, writer := open(t, dir)
	sizes := []int{0, 1, 65_516, 65_517, 65_535, 65_536, 300_000, 1 << 20}
	var want [][]byte
	for i, size := range sizes {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(i*31 + j*j)
		}
		want = append(want, value)
		writer.Store(map[string][]dto.Measurement{"a": {{Timestamp: uint64(i), Value: value}}}, 0)
	}
	tooLong := map[string][]dto.Measurement{"a": {{Timestamp: 99, Value: make([]byte, 1<<20+1)}, {Timestamp: 100}}}
	var refused *headwater.RefusedError
	if err := writer.StoreContext(t.Context(), tooLong, 0); !errors.As(err, &refused) || refused.Rows[0].Code != "E_LIMIT_STRING" {
		t.Fatalf("a value that is too long: %v", err)
	}
	check := func() {
		t.Helper()
		found := reader.Retrieve([]string{"a"}, 0, math.MaxUint64)["a"]
		if len(found) != len(want) {
			t.Fatalf("%d values", len(found))
		}
		for i := range want {
			if !bytes.Equal(found[i].Value, want[i]) {
				t.Fatalf("value %d of %d bytes differs", i, sizes[i])
			}
		}
	}
	check()
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	reader, _ = open(t, dir)
	check()
}

// The original panics in Store; a program that wants to can be told instead.
func TestARefusedCallPanicsWithAnError(t *testing.T) {
	_, writer := open(t, t.TempDir())
	defer func() {
		err, ok := recover().(error)
		if !ok || !errors.Is(err, headwater.ErrRefused) {
			t.Fatalf("Store panicked with %v", err)
		}
	}()
	writer.Store(map[string][]dto.Measurement{"a": {{Value: make([]byte, 2<<20)}}}, 0)
	t.Fatal("Store returned")
}

// In the original a range that ends behind the newest point always goes to the disk.
func TestTheNewestPointsAreReadFromMemory(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	writer.Store(map[string][]dto.Measurement{"a": points(rising(1_000_000, 5000, 1000)...)}, 0)
	if err := writer.storage.db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	writer.Store(map[string][]dto.Measurement{"a": points(rising(6_000_000, 60, 1000)...)}, 0)
	before, err := writer.storage.db.Stats()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, reader, "a", 6_000_000, 9_000_000, rising(6_000_000, 60, 1000)...)
	after, err := writer.storage.db.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if after.LeavesRead != before.LeavesRead || after.BytesRead != before.BytesRead {
		t.Fatalf("reading the newest points read %d leaves", after.LeavesRead-before.LeavesRead)
	}
}

// The original keeps its tags in maps without locks, and reads files that are being rewritten.
func TestReadersAndWritersRunAtOnce(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	const writers, calls = 4, 60
	var group sync.WaitGroup
	for w := range writers {
		group.Add(1)
		go func() {
			defer group.Done()
			own := fmt.Sprint("own", w)
			for call := range uint64(calls) {
				writer.Store(map[string][]dto.Measurement{
					own:      points(rising(call*10, 10, 1)...),
					"shared": points(call*writers + uint64(w)),
				}, 0)
			}
		}()
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				tags := append(reader.GetTags(), "shared")
				for tag, found := range reader.Retrieve(tags, 0, math.MaxUint64) {
					if tag != "shared" && len(found)%10 != 0 {
						t.Errorf("%s: %d points, which is part of a call", tag, len(found))
					}
				}
				reader.Availability()
			}
		}()
	}
	group.Wait()
	close(stop)
	readers.Wait()
	for w := range writers {
		expect(t, reader, fmt.Sprint("own", w), 0, math.MaxUint64, rising(0, calls*10, 1)...)
	}
	expect(t, reader, "shared", 0, math.MaxUint64, rising(0, calls*writers, 1)...)
}

func TestAProcessMayAskForAStorageTwice(t *testing.T) {
	dir := t.TempDir()
	reader, writer := open(t, dir)
	_, again := open(t, dir)
	again.Store(map[string][]dto.Measurement{"a": points(1)}, 0)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal("closing twice:", err)
	}
	expect(t, reader, "a", 0, 10, 1)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.RetrieveContext(t.Context(), []string{"a"}, 0, 10); !errors.Is(err, headwater.ErrClosed) {
		t.Fatalf("reading what was closed: %v", err)
	}
}

func TestACallLargerThanABatchIsStored(t *testing.T) {
	reader, writer := open(t, t.TempDir())
	value := bytes.Repeat([]byte{7}, 100_000)
	var big []dto.Measurement
	for at := range uint64(300) {
		big = append(big, dto.Measurement{Timestamp: at, Value: value})
	}
	writer.Store(map[string][]dto.Measurement{"a": big, "b": points(1)}, 0)
	if found := reader.Retrieve([]string{"a", "b"}, 0, 1000); len(found["a"]) != 300 || len(found["b"]) != 1 {
		t.Fatal(len(found["a"]), len(found["b"]))
	}
}
