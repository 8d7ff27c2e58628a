//! Columns of the engine as Arrow arrays, and back.
//!
//! Invariants: numbers and the bitmap of present values are passed on as they were decoded, without
//! a copy; absent values are nulls; values are preserved bit for bit. Types: time is
//! `Timestamp(Nanosecond, "UTC")`, a tag a dictionary of strings, and each field type maps to an
//! Arrow type.

use crate::error::{Error, Result};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, PrimitiveArray,
    StringArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float64Type, Int64Type, UInt64Type};
use headwater::{Bitmap, Column, FieldType, Values, VarBytes};
use headwater_columnar::field_data_type;
pub use headwater_columnar::time_type;
use std::sync::Arc;

/// The name of the column of timestamps.
pub(crate) const TIME: &str = "time";

/// The type of a tag's column.
#[must_use]
pub fn tag_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The column of a field.
pub(crate) fn arrow_field(name: &str, of: FieldType) -> Field {
    Field::new(name, field_data_type(of), true)
}

/// Timestamps as an array.
pub(crate) fn times(times: Vec<i64>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::new(times.into(), None).with_timezone("UTC"))
}

fn nulls(presence: Option<Bitmap>) -> Option<NullBuffer> {
    presence.map(|bits| {
        let len = bits.len();
        // The bits of a word count from the lowest, as Arrow's do on a little-endian machine.
        let words: Vec<u64> = bits.into_words().into_iter().map(u64::to_le).collect();
        NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(words), 0, len))
    })
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

/// Offsets as Arrow represents them; a chunk of a scan is far smaller than 2 GiB, a larger one is
/// refused.
fn offsets(ends: &[u32]) -> Result<OffsetBuffer<i32>> {
    let mut out: Vec<i32> = Vec::with_capacity(ends.len() + 1);
    out.push(0);
    for end in ends {
        let end = i32::try_from(*end)
            .map_err(|_| Error::too_large("a batch holds more than 2 GiB of text"))?;
        out.push(end);
    }
    Ok(OffsetBuffer::new(ScalarBuffer::from(out)))
}

/// A column as an array.
///
/// # Errors
/// When the column has more than 2 GiB of text.
pub(crate) fn to_array(column: Column) -> Result<ArrayRef> {
    let (values, presence) = column.into_parts();
    let nulls = nulls(presence);
    Ok(match values {
        Values::F64(v) => primitive::<Float64Type>(v, nulls),
        Values::I64(v) => primitive::<Int64Type>(v, nulls),
        Values::U64(v) => primitive::<UInt64Type>(v, nulls),
        Values::Bool(v) => Arc::new(BooleanArray::new(v.into(), nulls)),
        Values::String(v) => {
            let (ends, bytes) = v.into_parts();
            let array = StringArray::try_new(offsets(&ends)?, Buffer::from_vec(bytes), nulls);
            Arc::new(array.map_err(|e| Error::internal(e.to_string()))?)
        }
        Values::Bytes(v) => {
            let (ends, bytes) = v.into_parts();
            let array = BinaryArray::try_new(offsets(&ends)?, Buffer::from_vec(bytes), nulls);
            Arc::new(array.map_err(|e| Error::internal(e.to_string()))?)
        }
    })
}

/// Replaces all NaN by the same bits: SQL has a single NaN, and Arrow's comparison and grouping
/// distinguish NaN by their bits.
pub(crate) fn one_nan(array: ArrayRef) -> ArrayRef {
    let is_other = |v: &f64| v.is_nan() && v.to_bits() != f64::NAN.to_bits();
    match array.as_primitive_opt::<Float64Type>() {
        Some(floats) if floats.values().iter().any(is_other) => {
            let one = floats.unary::<_, Float64Type>(|v| if v.is_nan() { f64::NAN } else { v });
            Arc::new(one)
        }
        _ => array,
    }
}

fn text<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> VarBytes {
    let mut out = VarBytes::new();
    for value in values {
        out.push(value.unwrap_or_default());
    }
    out
}

/// Converts an array to a column. Its type must be that of a field ([`field_type`]).
///
/// # Errors
/// When it has another type.
pub(crate) fn to_column(array: &dyn Array) -> Result<Column> {
    let any = array.as_any();
    // The slot of a missing row is zero or empty.
    macro_rules! numbers {
        ($array:expr) => {
            $array.iter().map(|v| v.unwrap_or_default()).collect()
        };
    }
    let values = if let Some(a) = any.downcast_ref::<Float64Array>() {
        Values::F64(numbers!(a))
    } else if let Some(a) = any.downcast_ref::<Int64Array>() {
        Values::I64(numbers!(a))
    } else if let Some(a) = any.downcast_ref::<UInt64Array>() {
        Values::U64(numbers!(a))
    } else if let Some(a) = any.downcast_ref::<BooleanArray>() {
        Values::Bool(numbers!(a))
    } else if let Some(a) = any.downcast_ref::<StringArray>() {
        Values::String(text(a.iter().map(|v| v.map(str::as_bytes))))
    } else if let Some(a) = any.downcast_ref::<BinaryArray>() {
        Values::Bytes(text(a.iter()))
    } else {
        return Err(Error::internal(format!(
            "a column of type {} cannot be stored",
            array.data_type()
        )));
    };
    let presence = array.nulls().map(|nulls| {
        let mut bits = Bitmap::default();
        for row in 0..nulls.len() {
            bits.push(nulls.is_valid(row));
        }
        bits
    });
    Column::from_parts(values, presence)
        .ok_or_else(|| Error::internal("a column and its nulls have two lengths"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use headwater::{Value, ValueRef};

    /// The one NaN of the test is not equal to itself.
    fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
        matches!((a, b), (ValueRef::F64(a), ValueRef::F64(b)) if a.to_bits() == b.to_bits())
    }

    #[test]
    fn every_type_comes_back_bit_for_bit() {
        let nan = f64::from_bits(0xfff8_0000_dead_beef);
        let lists: Vec<Vec<Value>> = vec![
            vec![1.5.into(), nan.into(), (-0.0).into()],
            vec![i64::MIN.into(), 0i64.into(), i64::MAX.into()],
            vec![Value::U64(u64::MAX), Value::U64(0), Value::U64(7)],
            vec![true.into(), false.into(), true.into()],
            vec![
                Value::String("ä".into()),
                Value::String("".into()),
                Value::String("x".into()),
            ],
            vec![
                Value::Bytes(vec![0, 255]),
                Value::Bytes(vec![]),
                Value::Bytes(vec![1]),
            ],
        ];
        for values in lists {
            let first = values.first().unwrap().as_ref().field_type();
            for absent in [false, true] {
                let mut column = Column::new(first);
                for value in &values {
                    if absent {
                        column.push_absent(40);
                    }
                    assert!(column.push(value.as_ref()));
                }
                let array = to_array(column.clone()).unwrap();
                assert_eq!(array.data_type(), &field_data_type(first));
                assert_eq!(array.null_count(), column.len() - column.present_count());
                let back = to_column(&*array).unwrap();
                for row in 0..column.len() {
                    match (column.get(row), back.get(row)) {
                        (None, None) => {}
                        (Some(a), Some(b)) => assert!(
                            same(a, b) || (a == b && a != ValueRef::F64(0.0)),
                            "{a:?} {b:?}"
                        ),
                        (a, b) => panic!("{a:?} {b:?}"),
                    }
                }
            }
        }
        assert!(matches!(
            to_column(&StringArray::from(vec!["a"])).unwrap().get(0),
            Some(ValueRef::String("a"))
        ));
    }
}
