package headwater

// #include "headwater.h"
import "C"

import (
	"fmt"
	"runtime"
	"time"
)

// Range is a range of instants; both ends belong to it. The zero value is all instants.
type Range struct {
	first, last int64
	bounded     bool
}

// Between is the instants from first to last, both included.
func Between(first, last time.Time) Range {
	from, _ := nanos(first)
	to, _ := nanos(last)
	return BetweenNanos(from, to)
}

// BetweenNanos is Between in nanoseconds since 1970 UTC.
func BetweenNanos(first, last int64) Range { return Range{first, last, true} }

// Since is an instant and all that follow.
func Since(first time.Time) Range {
	from, _ := nanos(first)
	return BetweenNanos(from, maxNanos)
}

// Until is an instant and all before it.
func Until(last time.Time) Range {
	to, _ := nanos(last)
	return BetweenNanos(minNanos, to)
}

// Nanos gives the ends, in nanoseconds since 1970 UTC.
func (r Range) Nanos() (first, last int64) {
	if !r.bounded {
		return minNanos, maxNanos
	}
	return r.first, r.last
}

func (r Range) native() (C.int64_t, C.int64_t) {
	first, last := r.Nanos()
	return C.int64_t(first), C.int64_t(last)
}

// Query says which rows and fields of a stream are wanted. The zero value is all of them.
type Query struct {
	// Range is the instants wanted.
	Range Range
	// Fields are the fields wanted, in this order; none = all, in the order they were added to the table.
	Fields []string
	// Where are conditions that must all hold. A row without a value in the field of a condition never matches.
	Where []Filter
}

// Comparison compares the value of a field with another.
type Comparison int32

// Comparisons.
const (
	Equal          Comparison = C.HW_EQUAL
	NotEqual       Comparison = C.HW_NOT_EQUAL
	Less           Comparison = C.HW_LESS
	LessOrEqual    Comparison = C.HW_LESS_OR_EQUAL
	Greater        Comparison = C.HW_GREATER
	GreaterOrEqual Comparison = C.HW_GREATER_OR_EQUAL
)

// Filter is a condition on a field.
type Filter struct {
	comparison Comparison
	value      Value
}

// Where makes a condition of a value as Batch.Row takes it: Where(Greater, Float64("pressure", 4.2)).
func Where(comparison Comparison, value Value) Filter { return Filter{comparison, value} }

func pinnedFilters(pinner *runtime.Pinner, where []Filter) ([]C.hw_filter, error) {
	if len(where) == 0 {
		return nil, nil
	}
	out := make([]C.hw_filter, len(where))
	for i := range where {
		f := &where[i]
		if f.comparison < Equal || f.comparison > GreaterOrEqual {
			return nil, failure(ErrInvalid, "the filter on field %q has no comparison: create it with Where", f.value.field)
		}
		out[i] = C.hw_filter{field: pinned(pinner, f.value.field), comparison: C.int32_t(f.comparison), value: f.value.native(pinner)}
	}
	return out, nil
}

// The types as the library numbers them, and back.
var nativeTypes = [...]C.int32_t{TypeFloat64: C.HW_F64, TypeInt64: C.HW_I64, TypeUint64: C.HW_U64, TypeBool: C.HW_BOOL,
	TypeString: C.HW_STRING, TypeBytes: C.HW_BYTES}

func fieldType(native C.int32_t) (FieldType, bool) {
	for t, n := range nativeTypes {
		if n == native {
			return FieldType(t), true
		}
	}
	return 0, false
}

func (v *Value) native(pinner *runtime.Pinner) C.hw_value {
	out := C.hw_value{value_type: nativeTypes[v.typ]}
	switch v.typ {
	case TypeFloat64:
		out.f64 = C.double(v.float)
	case TypeInt64:
		out.i64 = C.int64_t(v.number)
	case TypeUint64:
		out.u64 = C.uint64_t(v.number)
	case TypeBool:
		out.boolean = C.uint8_t(v.number)
	default:
		out.text = pinned(pinner, v.text)
	}
	return out
}

// goValue gives a value as float64, int64, uint64, bool, string or []byte; nil for none.
func goValue(v *C.hw_value) any {
	switch t, ok := fieldType(v.value_type); {
	case !ok:
		return nil
	case t == TypeFloat64:
		return float64(v.f64)
	case t == TypeInt64:
		return int64(v.i64)
	case t == TypeUint64:
		return uint64(v.u64)
	case t == TypeBool:
		return v.boolean != 0
	case t == TypeString:
		return goString(v.text)
	default:
		return []byte(goString(v.text))
	}
}

// String gives field and value, for messages.
func (v Value) String() string {
	switch v.typ {
	case TypeFloat64:
		return fmt.Sprintf("%s %v", v.field, v.float)
	case TypeInt64:
		return fmt.Sprintf("%s %d", v.field, int64(v.number))
	case TypeUint64:
		return fmt.Sprintf("%s %d", v.field, v.number)
	case TypeBool:
		return fmt.Sprintf("%s %v", v.field, v.number != 0)
	default:
		return fmt.Sprintf("%s %q", v.field, v.text)
	}
}
