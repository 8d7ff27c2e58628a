//! Values as text.

use super::{TimeFormat, Unsendable, cell, elements, nearest_us};
use crate::messages::Format;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::array_value_to_string;
use headwater_query::value_texts::{
    days, instant_ns, put, put_day, put_float, put_instant, put_span, put_time, span, time_ns,
};

/// A value that is not null, on its own.
pub(super) fn alone(array: &dyn Array, row: usize) -> Result<Vec<u8>, Unsendable> {
    let mut bytes = Vec::new();
    put_value(array, row, &TimeFormat::default(), &mut bytes)?;
    Ok(bytes)
}

/// Appends a value that is not null.
pub(super) fn put_value(
    array: &dyn Array,
    row: usize,
    time_format: &TimeFormat,
    bytes: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    macro_rules! integer {
        ($kind:ty) => {
            put(
                bytes,
                format_args!("{}", array.as_primitive::<$kind>().value(row)),
            )
        };
    }
    match array.data_type() {
        DataType::Boolean => bytes.push(if array.as_boolean().value(row) {
            b't'
        } else {
            b'f'
        }),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Float16 => put_float(
            array.as_primitive::<Float16Type>().value(row).to_f32(),
            bytes,
        ),
        DataType::Float32 => put_float(array.as_primitive::<Float32Type>().value(row), bytes),
        DataType::Float64 => put_float(array.as_primitive::<Float64Type>().value(row), bytes),
        DataType::Utf8 => bytes.extend(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => bytes.extend(array.as_string::<i64>().value(row).as_bytes()),
        DataType::Utf8View => bytes.extend(array.as_string_view().value(row).as_bytes()),
        DataType::Binary => put_hex(array.as_binary::<i32>().value(row), bytes),
        DataType::LargeBinary => put_hex(array.as_binary::<i64>().value(row), bytes),
        DataType::BinaryView => put_hex(array.as_binary_view().value(row), bytes),
        DataType::FixedSizeBinary(_) => put_hex(array.as_fixed_size_binary().value(row), bytes),
        DataType::Timestamp(_, of) => {
            let ns = time_format.shown(instant_ns(array, row).unwrap_or_default());
            let offset = of.as_ref().map(|_| time_format.zone.offset_seconds(ns));
            put_instant(ns, offset, bytes);
        }
        DataType::Date32 | DataType::Date64 => {
            if put_day(days(array, row).unwrap_or_default(), bytes) {
                bytes.extend(b" BC");
            }
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let ns = time_ns(array, row).unwrap_or_default();
            put_time(time_format.shown(ns), bytes);
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            if let Some(mut span) = span(array, row) {
                if !time_format.nanoseconds {
                    span.ns = nearest_us(span.ns) * 1_000;
                }
                put_span(span, bytes);
            }
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            if let Some(list) = elements(array, row) {
                put_list(list.as_ref(), time_format, bytes)?;
            }
        }
        // Numbers with a point, records and the like: as the planner writes them.
        _ => {
            let text = array_value_to_string(array, row).map_err(|error| error.to_string())?;
            bytes.extend(text.as_bytes());
        }
    }
    Ok(())
}

fn put_hex(value: &[u8], bytes: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.extend(b"\\x");
    for byte in value {
        bytes.push(DIGITS[usize::from(byte >> 4)]);
        bytes.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// `{1,2,NULL}`; elements are quoted where they must be.
fn put_list(
    list: &dyn Array,
    time_format: &TimeFormat,
    bytes: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    bytes.push(b'{');
    let mut element = Vec::new();
    for row in 0..list.len() {
        if row > 0 {
            bytes.push(b',');
        }
        element.clear();
        if !cell(list, row, Format::Text, time_format, &mut element)? {
            bytes.extend(b"NULL");
            continue;
        }
        let nested = elements(list, row).is_some();
        let plain = !element.is_empty()
            && !element.eq_ignore_ascii_case(b"null")
            && !element
                .iter()
                .any(|b| b.is_ascii_whitespace() || b"{},\"\\".contains(b));
        if plain || nested {
            bytes.extend(&element);
            continue;
        }
        bytes.push(b'"');
        for byte in &element {
            if b"\"\\".contains(byte) {
                bytes.push(b'\\');
            }
            bytes.push(*byte);
        }
        bytes.push(b'"');
    }
    bytes.push(b'}');
    Ok(())
}
