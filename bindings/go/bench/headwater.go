package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"

	"headwater"
	"headwater/golsm"
	"headwater/golsm/dto"
)

const nanosPerMilli = 1_000_000

// ours is Headwater by its Go package: a stream for each tag, defaults.
type ours struct {
	db      *headwater.DB
	streams []*headwater.Stream
	// What a read asks for.
	asked []*headwater.Stream
}

// answers is the memory of answers. Like the slices that the other stores fill again, it outlives the store that was opened anew.
var answers headwater.SeriesSet

func openHeadwater(dir string) (store, error) {
	db, err := headwater.Open(filepath.Join(dir, "headwater.db"))
	if err != nil {
		return nil, err
	}
	o := &ours{db: db}
	for tag := range tags {
		stream, err := db.Stream("points", headwater.Tags{"tag": tagName(tag)})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		o.streams = append(o.streams, stream)
	}
	return o, nil
}

func (o *ours) write(points []series) error {
	var batch headwater.Batch
	for i := range points {
		s := &points[i]
		if err := batch.Columns(o.streams[s.tag], s.times, headwater.Float64s("value", s.values)); err != nil {
			return err
		}
	}
	_, err := o.db.Write(context.Background(), &batch)
	return err
}

func (o *ours) read(into []series, from, to int64) error {
	o.asked = o.asked[:0]
	for i := range into {
		o.asked = append(o.asked, o.streams[into[i].tag])
	}
	within := headwater.BetweenNanos(from, to)
	if err := o.db.ScanManyFloats(context.Background(), o.asked, "value", within, &answers); err != nil {
		return err
	}
	for i := range into {
		into[i].times, into[i].values = answers.Series[i].Times, answers.Series[i].Values
	}
	return nil
}

func (o *ours) close() error { return o.db.Close() }

// drain stores what is in memory, so that reads come from leaves.
func (o *ours) drain() error { return o.db.Flush(context.Background()) }

// dropIn is Headwater by the names of GoLSM: values are eight bytes, and every call makes its results anew, as the original does.
type dropIn struct {
	reader *golsm.StorageReader
	writer *golsm.StorageWriter
}

func openGolsm(dir string) (store, error) {
	reader, writer, err := golsm.Open("", dir)
	return &dropIn{reader, writer}, err
}

func (d *dropIn) write(points []series) error {
	data := make(map[string][]dto.Measurement, len(points))
	for i := range points {
		s := &points[i]
		room := make([]byte, 8*len(s.times))
		list := make([]dto.Measurement, len(s.times))
		for j, at := range s.times {
			value := room[8*j : 8*j+8]
			binary.LittleEndian.PutUint64(value, math.Float64bits(s.values[j]))
			list[j] = dto.Measurement{Timestamp: uint64(at / nanosPerMilli), Value: value}
		}
		data[tagName(s.tag)] = list
	}
	return d.writer.StoreContext(context.Background(), data, 0)
}

func (d *dropIn) read(into []series, from, to int64) error {
	names := make([]string, len(into))
	for i := range into {
		names[i] = tagName(into[i].tag)
	}
	found, err := d.reader.RetrieveContext(context.Background(), names, uint64((from+nanosPerMilli-1)/nanosPerMilli), uint64(to/nanosPerMilli))
	if err != nil {
		return err
	}
	for i := range into {
		s := &into[i]
		s.times, s.values = s.times[:0], s.values[:0]
		for _, point := range found[names[i]] {
			s.times = append(s.times, int64(point.Timestamp)*nanosPerMilli)
			s.values = append(s.values, math.Float64frombits(binary.LittleEndian.Uint64(point.Value)))
		}
	}
	return nil
}

func (d *dropIn) close() error { return d.writer.Close() }
