//! Columns from Arrow arrays of any producer (Arrow C stream interface).
//!
//! Source: the Arrow columnar format and its C data and C stream interfaces, with the Python
//! capsule protocol.

use crate::errors::{Outcome, Problem};
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, Date64Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatchReader, new_empty_array};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use headwater::{Bitmap, Column, FieldType, Values, VarBytes};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The stream of an object that has `__arrow_c_stream__`.
pub(crate) fn reader(data: &Bound<'_, PyAny>) -> Outcome<ArrowArrayStreamReader> {
    let capsule = data.call_method0("__arrow_c_stream__")?;
    let capsule = capsule
        .cast::<PyCapsule>()
        .map_err(|_| Problem::invalid("`__arrow_c_stream__` returned no capsule"))?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    let stream = pointer.cast::<FFI_ArrowArrayStream>().as_ptr();
    // SAFETY: the capsule protocol says that a capsule of this name holds an `ArrowArrayStream`,
    // whose layout is that of `FFI_ArrowArrayStream`; it lives as long as `capsule`, and what is
    // moved out of it is marked as released.
    unsafe { ArrowArrayStreamReader::from_raw(stream) }.map_err(|e| arrow(&e))
}

/// The only column of an object that has `__arrow_c_stream__` and one batch at most.
pub(crate) fn single(name: &str, data: &Bound<'_, PyAny>) -> Outcome<ArrayRef> {
    let mut reader = reader(data)?;
    let schema = reader.schema();
    let first = reader.next().transpose().map_err(|e| arrow(&e))?;
    let more = reader.next().transpose().map_err(|e| arrow(&e))?;
    match (first, more) {
        (Some(batch), None) if batch.num_columns() == 1 => Ok(Arc::clone(batch.column(0))),
        (None, None) if schema.fields().len() == 1 => {
            Ok(new_empty_array(schema.field(0).data_type()))
        }
        _ => Err(Problem::invalid(format!(
            "field `{name}`: expected one Arrow column in one chunk"
        ))),
    }
}

/// An error of Arrow.
pub(crate) fn arrow(error: &ArrowError) -> Problem {
    Problem::invalid(format!("the Arrow data cannot be read: {error}"))
}

/// Supported types of fields, for messages.
const TAKEN: &str = "integers, floats, booleans, strings, binary, and dictionaries of strings or binary are supported";

/// Calls `$body` with `$t` as the type of a numeric array.
macro_rules! numeric {
    ($data_type:expr, $t:ident => $body:expr, $rest:pat => $otherwise:expr) => {
        match $data_type {
            DataType::Int8 => {
                type $t = Int8Type;
                $body
            }
            DataType::Int16 => {
                type $t = Int16Type;
                $body
            }
            DataType::Int32 => {
                type $t = Int32Type;
                $body
            }
            DataType::UInt8 => {
                type $t = UInt8Type;
                $body
            }
            DataType::UInt16 => {
                type $t = UInt16Type;
                $body
            }
            DataType::UInt32 => {
                type $t = UInt32Type;
                $body
            }
            $rest => $otherwise,
        }
    };
}

/// The slots of a primitive array, converted, with zeros where a row is absent.
fn slots<T: ArrowPrimitiveType, V: Default>(
    array: &ArrayRef,
    convert: impl Fn(T::Native) -> V,
) -> Vec<V> {
    let array = array.as_primitive::<T>();
    let values = array.values().iter();
    match array.nulls().filter(|n| n.null_count() > 0) {
        None => values.map(|v| convert(*v)).collect(),
        Some(nulls) => values
            .zip(nulls)
            .map(|(v, present)| if present { convert(*v) } else { V::default() })
            .collect(),
    }
}

fn presence(array: &ArrayRef) -> Option<Bitmap> {
    let nulls = array.logical_nulls().filter(|n| n.null_count() > 0)?;
    let mut bits = Bitmap::default();
    for present in &nulls {
        bits.push(present);
    }
    Some(bits)
}

/// Calls `put` with the text of each row; `None` for an absent row. False if the array is not of
/// text.
pub(crate) fn each_text<'a>(array: &'a dyn Array, put: &mut impl FnMut(Option<&'a [u8]>)) -> bool {
    match array.data_type() {
        DataType::Utf8 => array
            .as_string::<i32>()
            .iter()
            .for_each(|v| put(v.map(str::as_bytes))),
        DataType::LargeUtf8 => array
            .as_string::<i64>()
            .iter()
            .for_each(|v| put(v.map(str::as_bytes))),
        DataType::Utf8View => array
            .as_string_view()
            .iter()
            .for_each(|v| put(v.map(str::as_bytes))),
        DataType::Binary => array.as_binary::<i32>().iter().for_each(put),
        DataType::LargeBinary => array.as_binary::<i64>().iter().for_each(put),
        DataType::BinaryView => array.as_binary_view().iter().for_each(put),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().iter().for_each(put),
        _ => return false,
    }
    true
}

pub(crate) fn text_type(data_type: &DataType) -> Option<FieldType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(FieldType::String),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Some(FieldType::Bytes),
        DataType::Dictionary(_, values) => text_type(values),
        _ => None,
    }
}

/// The dictionary entry of each row; negative if absent.
fn dictionary_codes<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Outcome<Vec<i32>> {
    let dictionary = array.as_dictionary::<K>();
    let count = dictionary.values().len();
    let mut out = Vec::with_capacity(dictionary.len());
    for key in dictionary.keys() {
        out.push(match key {
            None => -1,
            Some(key) => {
                let key = arrow_buffer::ArrowNativeType::to_usize(key).filter(|k| *k < count);
                let key = key.and_then(|k| i32::try_from(k).ok());
                key.ok_or_else(|| Problem::invalid("a dictionary key is out of range"))?
            }
        });
    }
    Ok(out)
}

pub(crate) fn codes(array: &ArrayRef) -> Outcome<(Vec<i32>, &ArrayRef)> {
    let DataType::Dictionary(key, _) = array.data_type() else {
        return Err(Problem::invalid("expected a dictionary"));
    };
    let codes = match **key {
        DataType::Int64 => dictionary_codes::<Int64Type>(array)?,
        DataType::UInt64 => dictionary_codes::<UInt64Type>(array)?,
        ref other => numeric!(other, K => dictionary_codes::<K>(array)?,
            _ => return Err(Problem::invalid("dictionary keys must be integers"))),
    };
    Ok((codes, array.as_any_dictionary().values()))
}

fn var_bytes(name: &str, array: &ArrayRef) -> Outcome<VarBytes> {
    let mut out = VarBytes::new();
    out.reserve_exact(array.len());
    let mut total = 0usize;
    let mut push = |value: Option<&[u8]>| {
        let value = value.unwrap_or_default();
        total += value.len();
        if u32::try_from(total).is_ok() {
            out.push(value);
        }
    };
    if let DataType::Dictionary(..) = array.data_type() {
        let (codes, values) = codes(array)?;
        let mut known: Vec<Option<&[u8]>> = Vec::with_capacity(values.len());
        each_text(&**values, &mut |v| known.push(v));
        for code in codes {
            let value = usize::try_from(code)
                .ok()
                .and_then(|c| known.get(c).copied());
            push(value.flatten());
        }
    } else {
        each_text(&**array, &mut push);
    }
    if u32::try_from(total).is_err() {
        return Err(Problem::invalid(format!(
            "field `{name}`: more than 4 GiB of text in one batch: split the write"
        )));
    }
    Ok(out)
}

/// Rows of an array as a column of the engine.
pub(crate) fn column(name: &str, array: &ArrayRef, rows: Range<usize>) -> Outcome<Column> {
    let array = &array.slice(rows.start, rows.len());
    let values = match array.data_type() {
        DataType::Float64 => Values::F64(slots::<Float64Type, f64>(array, |v| v)),
        DataType::Float32 => Values::F64(slots::<Float32Type, f64>(array, f64::from)),
        DataType::Float16 => Values::F64(slots::<Float16Type, f64>(array, f64::from)),
        DataType::Int64 => Values::I64(slots::<Int64Type, i64>(array, |v| v)),
        DataType::UInt64 => Values::U64(slots::<UInt64Type, u64>(array, |v| v)),
        DataType::UInt8 => Values::U64(slots::<UInt8Type, u64>(array, u64::from)),
        DataType::UInt16 => Values::U64(slots::<UInt16Type, u64>(array, u64::from)),
        DataType::UInt32 => Values::U64(slots::<UInt32Type, u64>(array, u64::from)),
        DataType::Int8 => Values::I64(slots::<Int8Type, i64>(array, i64::from)),
        DataType::Int16 => Values::I64(slots::<Int16Type, i64>(array, i64::from)),
        DataType::Int32 => Values::I64(slots::<Int32Type, i64>(array, i64::from)),
        DataType::Boolean => {
            let array = array.as_boolean();
            Values::Bool(array.iter().map(Option::unwrap_or_default).collect())
        }
        // A column of type null has no type of its own; all its rows are absent.
        DataType::Null => Values::F64(vec![0.0; array.len()]),
        other => match text_type(other) {
            Some(FieldType::String) => Values::String(var_bytes(name, array)?),
            Some(_) => Values::Bytes(var_bytes(name, array)?),
            None => {
                return Err(Problem::invalid(format!(
                    "column `{name}` has Arrow type {other}: {TAKEN}"
                )));
            }
        },
    };
    from_parts(values, presence(array))
}

/// Bytes of rows, as the engine counts them for the size of a batch, or more.
pub(crate) fn bytes(array: &ArrayRef, rows: &Range<usize>) -> usize {
    match array.data_type() {
        DataType::Boolean => rows.len(),
        other if text_type(other).is_some() => {
            // By the average size of the array's rows: exact enough to cut a batch, whose size the
            // engine checks.
            let total = array.get_buffer_memory_size();
            total
                .div_ceil(array.len().max(1))
                .saturating_mul(rows.len())
        }
        _ => 8 * rows.len(),
    }
}

/// The times of a column, in nanoseconds.
pub(crate) fn times(name: &str, array: &ArrayRef) -> Outcome<Cow<'static, [i64]>> {
    if array.logical_null_count() > 0 {
        return Err(Problem::invalid(format!(
            "column `{name}`: a row without a time cannot be stored; drop such rows first"
        )));
    }
    const SECOND: i64 = 1_000_000_000;
    let (values, factor) = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            (slots::<TimestampSecondType, i64>(array, |v| v), SECOND)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => (
            slots::<TimestampMillisecondType, i64>(array, |v| v),
            1_000_000,
        ),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (slots::<TimestampMicrosecondType, i64>(array, |v| v), 1_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            (slots::<TimestampNanosecondType, i64>(array, |v| v), 1)
        }
        DataType::Int64 => (slots::<Int64Type, i64>(array, |v| v), 1),
        DataType::Date32 => (slots::<Date32Type, i64>(array, i64::from), 86_400 * SECOND),
        DataType::Date64 => (slots::<Date64Type, i64>(array, |v| v), 1_000_000),
        other => {
            return Err(Problem::invalid(format!(
                "column `{name}` has Arrow type {other}: expected timestamps, or integers of nanoseconds since 1970 UTC"
            )));
        }
    };
    if factor == 1 {
        return Ok(Cow::Owned(values));
    }
    let scaled: Option<Vec<i64>> = values.iter().map(|v| v.checked_mul(factor)).collect();
    scaled.map(Cow::Owned).ok_or_else(|| {
        Problem::invalid(format!(
            "column `{name}` has a time outside of the years 1678 to 2261"
        ))
    })
}

/// The column of values and presence; both have the right form already.
pub(crate) fn from_parts(values: Values, presence: Option<Bitmap>) -> Outcome<Column> {
    Column::from_parts(values, presence).ok_or_else(|| {
        Problem::invalid("a column with inconsistent lengths, or text that is not UTF-8")
    })
}
