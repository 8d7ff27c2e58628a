package bench

import (
	"encoding/binary"
	"math"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// boltStore keeps a bucket for each tag, with the time as big-endian key and the value as eight bytes: one transaction a call, synced.
type boltStore struct{ db *bbolt.DB }

func openBbolt(dir string) (store, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	return &boltStore{db}, nil
}

func (b *boltStore) write(points []series) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		for i := range points {
			s := &points[i]
			bucket, err := tx.CreateBucketIfNotExists([]byte(tagName(s.tag)))
			if err != nil {
				return err
			}
			// Keys and values must stay as they are until the transaction ends.
			room := make([]byte, 16*len(s.times))
			for j, at := range s.times {
				key, value := room[16*j:16*j+8], room[16*j+8:16*j+16]
				binary.BigEndian.PutUint64(key, uint64(at))
				binary.LittleEndian.PutUint64(value, math.Float64bits(s.values[j]))
				if err := bucket.Put(key, value); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (b *boltStore) read(into []series, from, to int64) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		var first [8]byte
		binary.BigEndian.PutUint64(first[:], uint64(from))
		for i := range into {
			s := &into[i]
			s.times, s.values = s.times[:0], s.values[:0]
			bucket := tx.Bucket([]byte(tagName(s.tag)))
			if bucket == nil {
				continue
			}
			cursor := bucket.Cursor()
			for key, value := cursor.Seek(first[:]); key != nil; key, value = cursor.Next() {
				at := int64(binary.BigEndian.Uint64(key))
				if at > to {
					break
				}
				s.times = append(s.times, at)
				s.values = append(s.values, math.Float64frombits(binary.LittleEndian.Uint64(value)))
			}
		}
		return nil
	})
}

func (b *boltStore) close() error { return b.db.Close() }
