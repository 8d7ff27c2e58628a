//! Values on the wire: results out, parameters in, each as text or in PostgreSQL's binary forms.
//!
//! Invariants: numbers and texts read back unchanged. Instants have microseconds in the binary
//! form, whose unit they are, and also as text, in the session's time zone, since clients
//! read at most six digits; a session may request all nine, and `COPY` has all nine.

mod binary;
mod numeric;
mod parameters;
mod text;

pub(crate) use numeric::read as numeric_of_binary;
pub(crate) use parameters::{instant_of_binary, parameter};

use crate::catalog::vector;
use crate::messages::{Format, Writer};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use headwater_query::Zone;

/// Microseconds from 1970 to 2000, from where PostgreSQL counts.
const EPOCH_US: i64 = 946_684_800_000_000;
/// Days from 1970 to 2000.
const EPOCH_DAYS: i32 = 10_957;

/// Text form of instants: time zone and precision.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeFormat {
    /// The time zone of the text.
    pub(crate) zone: Zone,
    /// True for nanoseconds; false for microseconds, with truncation.
    pub(crate) nanoseconds: bool,
}

impl TimeFormat {
    /// Nanoseconds `ns` at the precision of the session.
    fn shown(&self, ns: i128) -> i128 {
        match self.nanoseconds {
            true => ns,
            false => ns - ns.rem_euclid(1_000),
        }
    }
}

/// A duration in microseconds, to the nearest: computed values are rounded, as in PostgreSQL;
/// instants are truncated.
fn nearest_us(ns: i128) -> i128 {
    (ns + 500 * ns.signum()) / 1_000
}

/// Reason why a value cannot be sent.
type Unsendable = String;

/// Appends the rows of a batch from `from` to before `to` as messages.
///
/// # Errors
/// When a value cannot be sent in the requested format.
pub(crate) fn rows(
    writer: &mut Writer,
    batch: &RecordBatch,
    from: usize,
    to: usize,
    formats: &[Format],
    time_format: &TimeFormat,
) -> Result<(), Unsendable> {
    let columns = whole(batch)?;
    let fields = batch.schema();
    let vectors: Vec<bool> = fields
        .fields()
        .iter()
        .map(|f| vector(f).is_some())
        .collect();
    for row in from..to {
        writer.data_row(columns.len(), |column, bytes| {
            let format = formats.get(column).copied().unwrap_or(Format::Text);
            let array = columns[column].as_ref();
            if format == Format::Text && vectors.get(column) == Some(&true) {
                return spaced(array, row, bytes);
            }
            cell(array, row, format, time_format, bytes)
        })?;
    }
    Ok(())
}

/// Appends the text of a vector: its elements with spaces between them.
fn spaced(array: &dyn Array, row: usize, bytes: &mut Vec<u8>) -> Result<bool, Unsendable> {
    let Some(elements) = elements(array, row).filter(|_| array.is_valid(row)) else {
        return Ok(false);
    };
    let numbers = cast(&elements, &DataType::Int64).map_err(|error| error.to_string())?;
    let numbers = numbers.as_primitive::<Int64Type>().iter().flatten();
    let texts: Vec<String> = numbers.map(|number| number.to_string()).collect();
    bytes.extend(texts.join(" ").into_bytes());
    Ok(true)
}

/// Columns of a batch; dictionaries are unpacked once, not for each row.
///
/// # Errors
/// When that cannot be done.
pub(crate) fn whole(batch: &RecordBatch) -> Result<Vec<ArrayRef>, Unsendable> {
    let columns = batch.columns().iter();
    let columns = columns.map(|column| match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values).map_err(|error| error.to_string()),
        _ => Ok(ArrayRef::clone(column)),
    });
    columns.collect()
}

/// Appends a value; returns false if it is null.
///
/// # Errors
/// When the value cannot be sent in the format.
pub(crate) fn cell(
    array: &dyn Array,
    row: usize,
    format: Format,
    time_format: &TimeFormat,
    bytes: &mut Vec<u8>,
) -> Result<bool, Unsendable> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Ok(false);
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let key = dictionary.normalized_keys()[row];
        return cell(
            dictionary.values().as_ref(),
            key,
            format,
            time_format,
            bytes,
        );
    }
    match format {
        Format::Text => text::put_value(array, row, time_format, bytes)?,
        Format::Binary => binary::put_value(array, row, bytes)?,
    }
    Ok(true)
}

/// The elements of a list, if it is one.
fn elements(array: &dyn Array, row: usize) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(row)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
