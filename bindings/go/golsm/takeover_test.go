package golsm

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headwater"
)

func TestBase58IsDecoded(t *testing.T) {
	for text, tag := range map[string]string{"": "", "2g": "a", "a3gV": "bbb", "1112": "\x00\x00\x00\x01", "StV1DL6CwTryKyV": "hello world"} {
		if found, ok := fromBase58(text); !ok || found != tag {
			t.Errorf("%q: %q, expected %q", text, found, tag)
		}
	}
	if _, ok := fromBase58("meta.redb"); ok {
		t.Error("a dot was taken for a digit")
	}
}

func tableRecord(at, expiresAt uint64) []byte {
	record := binary.LittleEndian.AppendUint16(nil, 16+8)
	record = binary.LittleEndian.AppendUint64(record, at)
	record = binary.LittleEndian.AppendUint64(record, expiresAt)
	return append(record, number(at)...)
}

func logRecord(tag string, at, expiresAt uint64) []byte {
	record := binary.LittleEndian.AppendUint16(nil, uint16(2+len(tag)+16+8))
	record = binary.LittleEndian.AppendUint16(record, uint16(len(tag)))
	record = append(record, tag...)
	return append(record, tableRecord(at, expiresAt)[2:]...)
}

// put writes files of the original into a folder.
func put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStorageOfTheOriginalIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	now := uint64(time.Now().UnixMilli())
	var a, b []byte
	for _, at := range rising(1000, 5000, 10) {
		a = append(a, tableRecord(at, 0)...)
	}
	b = slices.Concat(tableRecord(5, now-1000), tableRecord(6, now+3_600_000), tableRecord(7, 0))
	log := slices.Concat(logRecord("a", 60_000, 0), logRecord("new", 1, 0), logRecord("cut", 1, 0)[:20])
	put(t, dir, map[string][]byte{"sst/2g": a, "sst/2h": b, "sst/2g.copy": a[:30], "commitlog/COMMITLOGA": log, "commitlog/COMMITLOGB": nil})

	reader, writer := open(t, dir)
	expect(t, reader, "a", 0, now, append(rising(1000, 5000, 10), 60_000)...)
	expect(t, reader, "b", 0, now, 6, 7)
	expect(t, reader, "new", 0, now, 1)
	if tags := reader.GetTags(); !slices.Equal(tags, []string{"a", "b", "new"}) {
		t.Fatalf("tags %v", tags)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "sst/2g")); err != nil || len(content) != len(a) {
		t.Fatal("the original's files were changed", err)
	}
	// Only once: what is deleted does not come back.
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string][]byte{"sst/2h": tableRecord(8, 0)})
	reader, _ = open(t, dir)
	expect(t, reader, "b", 0, now, 6, 7)
}

func TestWhatCannotBeTakenOverIsNamed(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"sst/2g: byte 26": {"sst/2g": append(tableRecord(1, 0), 24, 0, 1)},
		"COMMITLOGB":      {"commitlog/COMMITLOGB": {3, 0, 1, 0, 65}},
		"meta.redb":       {"sst/meta.redb": {1}},
	} {
		dir := t.TempDir()
		put(t, dir, files)
		_, _, err := Open(filepath.Join(dir, "commitlog"), filepath.Join(dir, "sst"))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "sst", databaseFolder)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a database was made of it", name)
		}
	}
	if _, _, err := Open("", t.TempDir(), headwater.MemoryBudget(1)); !errors.Is(err, headwater.ErrInvalid) {
		t.Errorf("a wrong option: %v", err)
	}
}
