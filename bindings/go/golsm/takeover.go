package golsm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"headwater"
	"headwater/golsm/dto"
)

// What is taken over from a storage of the original: its tables, one file for each tag named by the tag in base 58, with records of
// (u16 length, u64 timestamp, u64 expiry, value); and its commit logs, with records of (u16 length, u16 length of the tag, tag, u64
// timestamp, u64 expiry, value), all little-endian. A length counts what follows it.
const (
	tableHead = 16
	logHead   = 2 + 16
)

// takeOver makes the database in `dir` of the files of the original, if there are some and the database is not there yet. It is made
// under another name and renamed when it is whole, so that a crash on the way leaves nothing half taken over.
func takeOver(commitlogPath, sstPath, dir string, options []headwater.Option) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	files, err := originals(commitlogPath, sstPath)
	if err != nil || len(files) == 0 {
		return err
	}
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("golsm: %w", err)
	}
	db, err := headwater.Open(unfinished, options...)
	if err != nil {
		return err
	}
	s := &storage{dir: unfinished, db: db}
	for _, file := range files {
		if err := s.takeOverFile(file); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("golsm: %w", err)
	}
	return syncFolder(filepath.Dir(dir))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("golsm: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// original is a file of the original library.
type original struct {
	path string
	// tag of a table; empty for a commit log.
	tag   string
	isLog bool
}

// originals gives the tables, then the commit logs, the one changed last at the end.
func originals(commitlogPath, sstPath string) ([]original, error) {
	var files []original
	entries, err := os.ReadDir(sstPath)
	if err != nil {
		return nil, fmt.Errorf("golsm: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(sstPath, entry.Name())
		if !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), "COMMITLOG") || strings.HasSuffix(entry.Name(), ".copy") {
			continue // a `.copy` was being written when the original ended; the file it was to replace is whole
		}
		tag, ok := fromBase58(entry.Name())
		if !ok {
			return nil, fmt.Errorf("golsm: %s is not a file of this library: give the storage a folder of its own", path)
		}
		files = append(files, original{path: path, tag: tag})
	}
	var logs []os.FileInfo
	if commitlogPath != "" {
		for _, name := range []string{"COMMITLOGA", "COMMITLOGB"} {
			info, err := os.Stat(filepath.Join(commitlogPath, name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("golsm: %w", err)
			}
			logs = append(logs, info)
		}
	}
	slices.SortStableFunc(logs, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, log := range logs {
		if log.Size() > 0 {
			files = append(files, original{path: filepath.Join(commitlogPath, log.Name()), isLog: true})
		}
	}
	return files, nil
}

// takeOverFile stores the points of a file. A log may end in the middle of a record, as a crash leaves it; a table may not.
func (s *storage) takeOverFile(file original) error {
	content, err := os.ReadFile(file.path)
	if err != nil {
		return fmt.Errorf("golsm: %w", err)
	}
	damaged := func(at int, what string) error {
		return fmt.Errorf("golsm: taking over %s: byte %d: %s; move the file away to go on without it: %w",
			file.path, at, what, headwater.ErrCorrupt)
	}
	type group struct {
		expiresAt uint64
		points    map[string][]dto.Measurement
		bytes     int
	}
	store := func(g *group) error {
		writer := StorageWriter{storage: s}
		return writer.StoreContext(context.Background(), g.points, g.expiresAt)
	}
	pending := group{points: make(map[string][]dto.Measurement)}
	for at := 0; at < len(content); {
		record := content[at:]
		if len(record) < 2 || len(record) < 2+int(binary.LittleEndian.Uint16(record)) {
			if file.isLog {
				break
			}
			return damaged(at, "the file ends inside a record")
		}
		record = record[2 : 2+int(binary.LittleEndian.Uint16(record))]
		next := at + 2 + len(record)
		tag := file.tag
		if file.isLog {
			if len(record) < logHead || len(record) < logHead+int(binary.LittleEndian.Uint16(record)) {
				return damaged(at, "the record is too short")
			}
			end := 2 + int(binary.LittleEndian.Uint16(record))
			tag, record = string(record[2:end]), record[end:]
		}
		if len(record) < tableHead {
			return damaged(at, "the record is too short")
		}
		point := dto.Measurement{
			Timestamp: binary.LittleEndian.Uint64(record),
			Value:     bytes.Clone(record[tableHead:]),
		}
		expiresAt := binary.LittleEndian.Uint64(record[8:])
		if pending.bytes >= callBytes || expiresAt != pending.expiresAt {
			if err := store(&pending); err != nil {
				return fmt.Errorf("golsm: taking over %s: %w", file.path, err)
			}
			clear(pending.points)
			pending.bytes = 0
		}
		pending.expiresAt = expiresAt
		pending.points[tag] = append(pending.points[tag], point)
		pending.bytes += pointBytes + len(point.Value)
		at = next
	}
	if err := store(&pending); err != nil {
		return fmt.Errorf("golsm: taking over %s: %w", file.path, err)
	}
	return nil
}

// alphabet is that of base 58 as Bitcoin has it: without 0, O, I and l.
const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// fromBase58 decodes the name of a table's file.
func fromBase58(text string) (string, bool) {
	number, base := new(big.Int), big.NewInt(58)
	for i := range len(text) {
		digit := strings.IndexByte(alphabet, text[i])
		if digit < 0 {
			return "", false
		}
		number.Add(number.Mul(number, base), big.NewInt(int64(digit)))
	}
	zeros := len(text) - len(strings.TrimLeft(text, alphabet[:1]))
	return string(make([]byte, zeros)) + string(number.Bytes()), true
}
