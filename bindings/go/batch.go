package headwater

import (
	"fmt"
	"time"
)

// FieldType is the type of a field's values.
type FieldType uint8

// The types of fields.
const (
	TypeFloat64 FieldType = iota
	TypeInt64
	TypeUint64
	TypeBool
	TypeString
	TypeBytes
)

// String gives the type as tables name it: f64, i64, u64, bool, string, bytes.
func (t FieldType) String() string {
	names := [...]string{"f64", "i64", "u64", "bool", "string", "bytes"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("FieldType(%d)", uint8(t))
}

// Value is a value of one field in one row, for Batch.Row.
type Value struct {
	field  string
	typ    FieldType
	number uint64
	float  float64
	text   string
}

// Float64 is a value of a floating-point field.
func Float64(field string, v float64) Value { return Value{field: field, typ: TypeFloat64, float: v} }

// Int64 is a value of a signed field; a floating-point field takes it too if it fits exactly.
func Int64(field string, v int64) Value {
	return Value{field: field, typ: TypeInt64, number: uint64(v)}
}

// Uint64 is a value of an unsigned field.
func Uint64(field string, v uint64) Value { return Value{field: field, typ: TypeUint64, number: v} }

// Bool is a value of a boolean field.
func Bool(field string, v bool) Value {
	value := Value{field: field, typ: TypeBool}
	if v {
		value.number = 1
	}
	return value
}

// String is a value of a text field; the text must be UTF-8.
func String(field, v string) Value { return Value{field: field, typ: TypeString, text: v} }

// Bytes is a value of a field of bytes.
func Bytes(field string, v []byte) Value {
	return Value{field: field, typ: TypeBytes, text: string(v)}
}

// Column is the values of one field, one for each time, for Batch.Columns. The slices of numbers and booleans are not copied:
// leave them alone until the batch is written.
type Column struct {
	name    string
	typ     FieldType
	floats  []float64
	ints    []int64
	uints   []uint64
	bools   []bool
	ends    []uint64 // of strings and bytes: where each value ends in data
	data    []byte
	present []bool // nil = every row has a value
}

// Float64s is a column of a floating-point field.
func Float64s(field string, values []float64) Column {
	return Column{name: field, typ: TypeFloat64, floats: values}
}

// Int64s is a column of a signed field.
func Int64s(field string, values []int64) Column {
	return Column{name: field, typ: TypeInt64, ints: values}
}

// Uint64s is a column of an unsigned field.
func Uint64s(field string, values []uint64) Column {
	return Column{name: field, typ: TypeUint64, uints: values}
}

// Bools is a column of a boolean field.
func Bools(field string, values []bool) Column {
	return Column{name: field, typ: TypeBool, bools: values}
}

// Strings is a column of a text field. The texts, which must be UTF-8, are copied.
func Strings(field string, values []string) Column {
	c := Column{name: field, typ: TypeString, ends: make([]uint64, 0, len(values))}
	for _, v := range values {
		c.pushText(v)
	}
	return c
}

// ByteSlices is a column of a field of bytes. The bytes are copied.
func ByteSlices(field string, values [][]byte) Column {
	total := 0
	for _, v := range values {
		total += len(v)
	}
	c := Column{name: field, typ: TypeBytes, ends: make([]uint64, 0, len(values)), data: make([]byte, 0, total)}
	for _, v := range values {
		c.data = append(c.data, v...)
		c.ends = append(c.ends, uint64(len(c.data)))
	}
	return c
}

// Present says which rows have a value; without it all have one. The values of other rows are not looked at.
func (c Column) Present(present []bool) Column {
	c.present = present
	return c
}

func (c *Column) len() int {
	switch c.typ {
	case TypeFloat64:
		return len(c.floats)
	case TypeInt64:
		return len(c.ints)
	case TypeUint64:
		return len(c.uints)
	case TypeBool:
		return len(c.bools)
	default:
		return len(c.ends)
	}
}

func (c *Column) pushText(v string) {
	c.data = append(c.data, v...)
	c.ends = append(c.ends, uint64(len(c.data)))
}

// push appends a value of the column's type.
func (c *Column) push(v *Value) {
	switch c.typ {
	case TypeFloat64:
		if v.typ == TypeInt64 {
			c.floats = append(c.floats, float64(int64(v.number)))
		} else {
			c.floats = append(c.floats, v.float)
		}
	case TypeInt64:
		c.ints = append(c.ints, int64(v.number))
	case TypeUint64:
		c.uints = append(c.uints, v.number)
	case TypeBool:
		c.bools = append(c.bools, v.number != 0)
	default:
		c.pushText(v.text)
	}
	if c.present != nil {
		c.present = append(c.present, true)
	}
}

// pad appends rows without a value until there are n.
func (c *Column) pad(n int) {
	have := c.len()
	if have >= n {
		return
	}
	if c.present == nil {
		c.present = make([]bool, have, n)
		for i := range c.present {
			c.present[i] = true
		}
	}
	none := Value{typ: c.typ}
	for c.len() < n {
		c.push(&none)
		c.present[len(c.present)-1] = false
	}
}

// entry is rows of one stream.
type entry struct {
	stream  *Stream
	times   []int64
	columns []Column
}

// Batch is rows of any number of streams that are written all or nothing: a crash leaves all of it or none of it. The zero value
// is an empty batch. It may be used again after Reset; it must not be changed while it is being written, and two goroutines
// must not use it at once.
type Batch struct {
	entries    []entry
	rows       map[*Stream]int // the entry that Row appends to
	producer   string
	number     uint64
	expiresAt  int64
	expires    bool
	requireAll bool
}

// Row appends a row of a stream. Fields that are not named have no value in it. An error says that a field already has values of
// another type in this batch; the row is not added then.
func (b *Batch) Row(stream *Stream, at time.Time, values ...Value) error {
	nanos, ok := nanos(at)
	if !ok {
		return failure(ErrInvalid, "the time %v of a row of %s is out of range: expected the years 1678 to 2261", at, stream)
	}
	return b.RowAt(stream, nanos, values...)
}

// RowAt is Row with the time in nanoseconds since 1970 UTC.
func (b *Batch) RowAt(stream *Stream, nanos int64, values ...Value) error {
	if stream == nil {
		return failure(ErrInvalid, "the row has no stream: create one with DB.Stream")
	}
	e := b.rowEntry(stream)
	for i := range values {
		v := &values[i]
		if at := e.column(v.field); at >= 0 {
			c := &e.columns[at]
			if c.typ != v.typ && !(c.typ == TypeFloat64 && v.typ == TypeInt64) {
				return failure(ErrInvalid, "field %q of %s has values of type %v in this batch, found %v: give a field one type",
					v.field, stream, c.typ, v.typ)
			}
		}
		for j := range values[:i] {
			if values[j].field == v.field {
				return failure(ErrInvalid, "field %q is specified more than once in a row of %s", v.field, stream)
			}
		}
	}
	before := len(e.times)
	e.times = append(e.times, nanos)
	for i := range values {
		at := e.column(values[i].field)
		if at < 0 {
			at = len(e.columns)
			e.columns = append(e.columns, Column{name: values[i].field, typ: values[i].typ})
			e.columns[at].pad(before)
		}
		e.columns[at].push(&values[i])
	}
	for i := range e.columns {
		e.columns[i].pad(before + 1)
	}
	return nil
}

// Columns appends rows of a stream, column by column: times in nanoseconds since 1970 UTC, in any order, and as many values in
// each column. The slices are not copied: leave them alone until the batch is written.
func (b *Batch) Columns(stream *Stream, nanos []int64, columns ...Column) error {
	if stream == nil {
		return failure(ErrInvalid, "the columns have no stream: create one with DB.Stream")
	}
	for i := range columns {
		c := &columns[i]
		if c.len() != len(nanos) {
			return failure(ErrInvalid, "column %q of %s has %d values for %d times: give one value per time, and mark missing ones with Present",
				c.name, stream, c.len(), len(nanos))
		}
		if c.present != nil && len(c.present) != len(nanos) {
			return failure(ErrInvalid, "Present of column %q of %s has %d rows, expected %d",
				c.name, stream, len(c.present), len(nanos))
		}
		for j := range columns[:i] {
			if columns[j].name == c.name {
				return failure(ErrInvalid, "column %q of %s is specified more than once", c.name, stream)
			}
		}
	}
	b.entries = append(b.entries, entry{stream: stream, times: nanos, columns: columns})
	return nil
}

// SetProducer numbers the batch, so that writing it again after an error or a restart stores it once: a batch whose number is at
// most the newest one taken in of this producer is acknowledged and not stored again. A producer writes its batches in the
// order of their numbers and gives a number to one content only.
func (b *Batch) SetProducer(name string, number uint64) {
	b.producer, b.number = name, number
}

// ExpireAt lets every value of the batch end at an instant: from then on no reader finds it.
func (b *Batch) ExpireAt(at time.Time) {
	b.expiresAt, _ = nanos(at)
	b.expires = true
}

// RequireAll lets the batch be stored only as a whole: when a row is refused, none is stored.
func (b *Batch) RequireAll() { b.requireAll = true }

// Len gives the number of rows.
func (b *Batch) Len() int {
	n := 0
	for i := range b.entries {
		n += len(b.entries[i].times)
	}
	return n
}

// Reset empties the batch, to use it again.
func (b *Batch) Reset() {
	clear(b.entries)
	clear(b.rows)
	*b = Batch{entries: b.entries[:0], rows: b.rows}
}

func (b *Batch) rowEntry(stream *Stream) *entry {
	if at, ok := b.rows[stream]; ok {
		return &b.entries[at]
	}
	if b.rows == nil {
		b.rows = make(map[*Stream]int)
	}
	b.rows[stream] = len(b.entries)
	b.entries = append(b.entries, entry{stream: stream})
	return &b.entries[len(b.entries)-1]
}

func (e *entry) column(name string) int {
	for i := range e.columns {
		if e.columns[i].name == name {
			return i
		}
	}
	return -1
}
