//! Values in PostgreSQL's binary forms.

use super::{
    EPOCH_DAYS, EPOCH_US, TimeFormat, Unsendable, cell, elements, nearest_us, numeric, text,
};
use crate::catalog::PgType;
use crate::messages::Format;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type,
};
use headwater_query::value_texts::{days, instant_ns, span, time_ns};

fn far(what: &str) -> String {
    format!("this {what} is out of range for PostgreSQL's binary format; request it as text")
}

/// Appends a value that is not null.
pub(super) fn put_value(
    array: &dyn Array,
    row: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), Unsendable> {
    macro_rules! number {
        ($kind:ty as $sent:ty) => {
            bytes.extend(<$sent>::from(array.as_primitive::<$kind>().value(row)).to_be_bytes())
        };
    }
    match array.data_type() {
        DataType::Boolean => bytes.push(u8::from(array.as_boolean().value(row))),
        DataType::Int8 => number!(Int8Type as i16),
        DataType::UInt8 => number!(UInt8Type as i16),
        DataType::Int16 => number!(Int16Type as i16),
        DataType::UInt16 => number!(UInt16Type as i32),
        DataType::Int32 => number!(Int32Type as i32),
        DataType::UInt32 => number!(UInt32Type as i64),
        DataType::Int64 => number!(Int64Type as i64),
        DataType::Float16 => {
            let number = array.as_primitive::<Float16Type>().value(row);
            bytes.extend(number.to_f32().to_be_bytes());
        }
        DataType::Float32 => number!(Float32Type as f32),
        DataType::Float64 => number!(Float64Type as f64),
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => {
            let digits = text::alone(array, row)?;
            numeric::put(&String::from_utf8_lossy(&digits), bytes)?;
        }
        DataType::Binary => bytes.extend(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes.extend(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes.extend(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes.extend(array.as_fixed_size_binary().value(row)),
        DataType::Timestamp(..) => {
            let us = instant_ns(array, row).unwrap_or_default().div_euclid(1_000);
            let us = i64::try_from(us - i128::from(EPOCH_US)).map_err(|_| far("instant"))?;
            bytes.extend(us.to_be_bytes());
        }
        DataType::Date32 | DataType::Date64 => {
            let days = days(array, row).unwrap_or_default() - i64::from(EPOCH_DAYS);
            bytes.extend(i32::try_from(days).map_err(|_| far("day"))?.to_be_bytes());
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let us = time_ns(array, row).unwrap_or_default() / 1_000;
            bytes.extend(i64::try_from(us).map_err(|_| far("time"))?.to_be_bytes());
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            let span = span(array, row).ok_or_else(|| far("span"))?;
            let us = i64::try_from(nearest_us(span.ns)).map_err(|_| far("span"))?;
            bytes.extend(us.to_be_bytes());
            bytes.extend(span.days.to_be_bytes());
            bytes.extend(span.months.to_be_bytes());
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            if let Some(list) = elements(array, row) {
                put_list(list.as_ref(), bytes)?;
            }
        }
        // Types that are announced as text have the same encoding in both formats.
        _ => text::put_value(array, row, &TimeFormat::default(), bytes)?,
    }
    Ok(())
}

/// One dimension that begins at 1, with its elements.
fn put_list(list: &dyn Array, bytes: &mut Vec<u8>) -> Result<(), Unsendable> {
    let oid = PgType::of(list.data_type()).oid;
    if PgType::oid_of(list.data_type()) != oid {
        return Err("a list of lists is supported in the text format only".to_owned());
    }
    let count = i32::try_from(list.len()).map_err(|_| "a list is too long".to_owned())?;
    bytes.extend(i32::from(count > 0).to_be_bytes());
    bytes.extend(i32::from(list.null_count() > 0).to_be_bytes());
    bytes.extend(oid.to_be_bytes());
    if count > 0 {
        bytes.extend(count.to_be_bytes());
        bytes.extend(1i32.to_be_bytes());
    }
    for row in 0..list.len() {
        let at = bytes.len();
        bytes.extend((-1i32).to_be_bytes());
        if cell(list, row, Format::Binary, &TimeFormat::default(), bytes)? {
            let length = i32::try_from(bytes.len() - at - 4)
                .map_err(|_| "a value is too long".to_owned())?;
            bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}
