//go:build rivals

package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

func init() {
	contestants = append(contestants, contestant{"bbolt-host", openBboltHost, "."})
}

// hostStore is bbolt in the manner of the application whose benchmark the paper's is: times as text for keys, records of time, value and
// expiry, and for each answer a map by time.
type hostStore struct{ boltStore }

func openBboltHost(dir string) (store, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	return &hostStore{boltStore{db}}, nil
}

func hostKey(at int64) []byte {
	millis := at / nanosPerMilli
	return fmt.Appendf(nil, "%s.%03d", time.Unix(millis/1000, 0).UTC().Format(time.DateTime), millis%1000)
}

func (h *hostStore) write(points []series) error {
	return h.db.Update(func(tx *bbolt.Tx) error {
		for i := range points {
			s := &points[i]
			bucket, err := tx.CreateBucketIfNotExists([]byte(tagName(s.tag)))
			if err != nil {
				return err
			}
			for j, at := range s.times {
				record := binary.LittleEndian.AppendUint64(make([]byte, 0, 24), uint64(at))
				record = binary.LittleEndian.AppendUint64(record, math.Float64bits(s.values[j]))
				record = binary.LittleEndian.AppendUint64(record, 0)
				if err := bucket.Put(hostKey(at), record); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (h *hostStore) read(into []series, from, to int64) error {
	first, last := hostKey(from), hostKey(to)
	return h.db.View(func(tx *bbolt.Tx) error {
		for i := range into {
			s := &into[i]
			s.times, s.values = s.times[:0], s.values[:0]
			bucket := tx.Bucket([]byte(tagName(s.tag)))
			if bucket == nil {
				continue
			}
			found := make(map[int64]float64)
			cursor := bucket.Cursor()
			for key, record := cursor.Seek(first); key != nil && bytes.Compare(key, last) <= 0; key, record = cursor.Next() {
				at := int64(binary.LittleEndian.Uint64(record))
				if at < from || at > to {
					continue
				}
				value := math.Float64frombits(binary.LittleEndian.Uint64(record[8:]))
				// The map is the answer there; the slices are for the comparison here.
				found[at] = value
				s.times, s.values = append(s.times, at), append(s.values, value)
			}
		}
		return nil
	})
}
