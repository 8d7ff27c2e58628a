package headwater

// #include "headwater.h"
import "C"

import (
	"slices"
	"time"
	"unsafe"
)

// Columns are rows of one stream, column by column, by time. They are the caller's own.
type Columns struct {
	// Stream is the stream's name.
	Stream string
	// Times in nanoseconds since 1970 UTC.
	Times []int64
	// Fields are the columns asked for, each with a value for each time or none.
	Fields []FieldColumn
}

// Len gives the number of rows.
func (c *Columns) Len() int { return len(c.Times) }

// Field gives the column of a field; nil without one.
func (c *Columns) Field(name string) *FieldColumn {
	if c == nil {
		return nil
	}
	for i := range c.Fields {
		if c.Fields[i].Name == name {
			return &c.Fields[i]
		}
	}
	return nil
}

// Row gives one row.
func (c *Columns) Row(i int) Row { return Row{c, i} }

// append appends rows of the same question.
func (c *Columns) append(more *Columns) {
	c.Times = append(c.Times, more.Times...)
	for i := range c.Fields {
		c.Fields[i].append(&more.Fields[i])
	}
}

// FieldColumn is the values of one field, one for each row or none.
type FieldColumn struct {
	// Name of the field.
	Name string
	// Type of the values; says which of the methods below has them.
	Type FieldType

	rows     int
	floats   []float64
	ints     []int64
	uints    []uint64
	bools    []bool
	ends     []uint32
	data     []byte
	validity []byte // a bit for each row, the lowest first; nil = every row has a value
}

// Len gives the number of rows.
func (c *FieldColumn) Len() int { return c.rows }

// Has says whether a row has a value.
func (c *FieldColumn) Has(row int) bool {
	return c.validity == nil || c.validity[row/8]>>(row%8)&1 != 0
}

// HasAll says whether every row has a value.
func (c *FieldColumn) HasAll() bool { return c.validity == nil }

// Float64s gives the values of a field of TypeFloat64, else nil. Those of rows without a value mean nothing.
func (c *FieldColumn) Float64s() []float64 { return c.floats }

// Int64s gives the values of a field of TypeInt64, else nil. Those of rows without a value mean nothing.
func (c *FieldColumn) Int64s() []int64 { return c.ints }

// Uint64s gives the values of a field of TypeUint64, else nil. Those of rows without a value mean nothing.
func (c *FieldColumn) Uint64s() []uint64 { return c.uints }

// Bools gives the values of a field of TypeBool, else nil. Those of rows without a value mean nothing.
func (c *FieldColumn) Bools() []bool { return c.bools }

// Bytes gives a value of a field of TypeBytes or TypeString; nil for a field of another type. It shares memory with the column.
func (c *FieldColumn) Bytes(row int) []byte {
	if c.ends == nil {
		return nil
	}
	from := uint32(0)
	if row > 0 {
		from = c.ends[row-1]
	}
	return c.data[from:c.ends[row]:c.ends[row]]
}

// Text gives a value of a field of TypeString or TypeBytes as a string.
func (c *FieldColumn) Text(row int) string { return string(c.Bytes(row)) }

// Value gives a value as float64, int64, uint64, bool, string or []byte; nil where there is none.
func (c *FieldColumn) Value(row int) any {
	if !c.Has(row) {
		return nil
	}
	switch c.Type {
	case TypeFloat64:
		return c.floats[row]
	case TypeInt64:
		return c.ints[row]
	case TypeUint64:
		return c.uints[row]
	case TypeBool:
		return c.bools[row]
	case TypeString:
		return c.Text(row)
	default:
		return c.Bytes(row)
	}
}

func (c *FieldColumn) append(more *FieldColumn) {
	rows := c.rows + more.rows
	if c.validity != nil || more.validity != nil {
		validity := make([]byte, (rows+7)/8, (2*rows+7)/8)
		if c.validity == nil {
			for i := range c.rows {
				validity[i/8] |= 1 << (i % 8)
			}
		} else {
			copy(validity, c.validity)
		}
		for i := range more.rows {
			if more.Has(i) {
				validity[(c.rows+i)/8] |= 1 << ((c.rows + i) % 8)
			}
		}
		c.validity = validity
	}
	c.rows = rows
	c.floats = append(c.floats, more.floats...)
	c.ints = append(c.ints, more.ints...)
	c.uints = append(c.uints, more.uints...)
	c.bools = append(c.bools, more.bools...)
	before := uint32(len(c.data))
	c.data = append(c.data, more.data...)
	for _, end := range more.ends {
		c.ends = append(c.ends, before+end)
	}
}

// part gives rows from to to of the columns, of which from is a multiple of eight. It shares their memory.
func (c *Columns) part(from, to int) *Columns {
	out := &Columns{Stream: c.Stream, Times: c.Times[from:to:to], Fields: make([]FieldColumn, len(c.Fields))}
	for i := range c.Fields {
		out.Fields[i] = c.Fields[i].part(from, to)
	}
	return out
}

func (c *FieldColumn) part(from, to int) FieldColumn {
	out := FieldColumn{Name: c.Name, Type: c.Type, rows: to - from}
	out.floats, out.ints = cut(c.floats, from, to), cut(c.ints, from, to)
	out.uints, out.bools = cut(c.uints, from, to), cut(c.bools, from, to)
	if c.validity != nil {
		out.validity = c.validity[from/8 : (to+7)/8]
	}
	if c.ends != nil {
		// Where texts end is counted from the first one.
		first := uint32(0)
		if from > 0 {
			first = c.ends[from-1]
		}
		out.ends = make([]uint32, to-from)
		for i, end := range c.ends[from:to] {
			out.ends[i] = end - first
		}
		last := first
		if to > from {
			last = c.ends[to-1]
		}
		out.data = c.data[first:last:last]
	}
	return out
}

// cut gives a part of a slice; nil of nil.
func cut[T any](values []T, from, to int) []T {
	if values == nil {
		return nil
	}
	return values[from:to:to]
}

// Row is one row of a scan. That of a step of a scan which ended in an error is empty: it has the time 0, no stream and no values.
type Row struct {
	columns *Columns
	row     int
}

// Time gives the row's time.
func (r Row) Time() time.Time { return time.Unix(0, r.Nanos()) }

// Nanos gives the row's time in nanoseconds since 1970 UTC.
func (r Row) Nanos() int64 {
	if r.columns == nil {
		return 0
	}
	return r.columns.Times[r.row]
}

// Stream gives the name of the row's stream.
func (r Row) Stream() string {
	if r.columns == nil {
		return ""
	}
	return r.columns.Stream
}

// Value gives the value of a field as float64, int64, uint64, bool, string or []byte; nil where there is none.
func (r Row) Value(field string) any {
	if c := r.columns.Field(field); c != nil {
		return c.Value(r.row)
	}
	return nil
}

// Float64 gives the value of a field of TypeFloat64; false where there is none, and for a field of another type.
func (r Row) Float64(field string) (float64, bool) {
	if c := r.columns.Field(field); c != nil && c.floats != nil && c.Has(r.row) {
		return c.floats[r.row], true
	}
	return 0, false
}

// Int64 gives the value of a field of TypeInt64; false where there is none, and for a field of another type.
func (r Row) Int64(field string) (int64, bool) {
	if c := r.columns.Field(field); c != nil && c.ints != nil && c.Has(r.row) {
		return c.ints[r.row], true
	}
	return 0, false
}

// Uint64 gives the value of a field of TypeUint64; false where there is none, and for a field of another type.
func (r Row) Uint64(field string) (uint64, bool) {
	if c := r.columns.Field(field); c != nil && c.uints != nil && c.Has(r.row) {
		return c.uints[r.row], true
	}
	return 0, false
}

// Bool gives the value of a field of TypeBool; false, false where there is none, and for a field of another type.
func (r Row) Bool(field string) (value, ok bool) {
	if c := r.columns.Field(field); c != nil && c.bools != nil && c.Has(r.row) {
		return c.bools[r.row], true
	}
	return false, false
}

// Text gives the value of a field of TypeString or TypeBytes; false where there is none, and for a field of another type.
func (r Row) Text(field string) (string, bool) {
	if c := r.columns.Field(field); c != nil && c.ends != nil && c.Has(r.row) {
		return c.Text(r.row), true
	}
	return "", false
}

// copied copies n values of the library.
func copied[T any](from unsafe.Pointer, n int) []T {
	return slices.Clone(unsafe.Slice((*T)(from), n))
}

// ownColumns copies rows of the library.
func ownColumns(rows *C.hw_rows, name string) *Columns {
	return ownFields(int(rows.row_count), rows.times_ns, unsafe.Slice(rows.columns, int(rows.column_count)), name)
}

// ownFields copies n rows of columns of the library.
func ownFields(n int, times *C.int64_t, native []C.hw_column, name string) *Columns {
	columns := &Columns{Stream: name, Times: copied[int64](unsafe.Pointer(times), n)}
	columns.Fields = make([]FieldColumn, len(native))
	for i := range native {
		from, to := &native[i], &columns.Fields[i]
		to.Name = goString(from.name)
		to.Type, _ = fieldType(from.value_type)
		to.rows = n
		switch to.Type {
		case TypeFloat64:
			to.floats = copied[float64](unsafe.Pointer(from.values), n)
		case TypeInt64:
			to.ints = copied[int64](unsafe.Pointer(from.values), n)
		case TypeUint64:
			to.uints = copied[uint64](unsafe.Pointer(from.values), n)
		case TypeBool:
			to.bools = copied[bool](unsafe.Pointer(from.values), n)
		default:
			offsets := copied[uint32](unsafe.Pointer(from.offsets), n+1)
			to.ends = offsets[1:]
			to.data = copied[byte](unsafe.Pointer(from.bytes), int(offsets[n]))
		}
		if from.validity != nil {
			to.validity = copied[byte](unsafe.Pointer(from.validity), (n+7)/8)
		}
	}
	return columns
}
