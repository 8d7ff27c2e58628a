//! The values of a column as text: for JSON, for CSV and for people.
//!
//! Invariant: a column is converted once per batch to one of few types; values of other types are
//! shown as Arrow shows them.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray,
    StringArray, StructArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Field, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType, UInt64Type,
};
use arrow::error::ArrowError;
use headwater::{Timestamp, ValueRef};
use headwater_wire::instant::Rfc3339;
use headwater_wire::json::{push_str, push_value};
use std::io::Write;
use std::sync::Arc;

/// Format of instants in JSON and CSV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeText {
    /// RFC 3339 in UTC with as many digits as are needed.
    #[default]
    Rfc3339,
    /// Integer nanoseconds since 1970; in JSON as text, since JavaScript has no such numbers.
    Nanoseconds,
}

impl TimeText {
    /// `rfc3339` or `ns`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<TimeText> {
        match name {
            "rfc3339" => Some(TimeText::Rfc3339),
            "ns" => Some(TimeText::Nanoseconds),
            _ => None,
        }
    }
}

/// Name of a type in answers: a field type (`f64 i64 u64 bool string bytes`), `time` for instants,
/// and a few types that only expressions have.
#[must_use]
pub fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null => "null",
        DataType::Boolean => "bool",
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => "i64",
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => "u64",
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "f64",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "bytes",
        DataType::Timestamp(_, Some(_)) => "time",
        DataType::Timestamp(_, None) => "local_time",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time_of_day",
        DataType::Duration(_) => "duration",
        DataType::Interval(_) => "interval",
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => "decimal",
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => "list",
        DataType::Struct(_) => "struct",
        DataType::Dictionary(_, values) => type_name(values),
        DataType::RunEndEncoded(_, values) => type_name(values.data_type()),
        DataType::Map(..) => "map",
        DataType::Union(..) => "union",
    }
}

/// Whether values are right-aligned in a table for people.
#[must_use]
pub fn is_number(data_type: &DataType) -> bool {
    matches!(type_name(data_type), "i64" | "u64" | "f64" | "decimal")
}

/// The values of one column of a batch.
#[derive(Debug)]
pub struct Cells(CellArray);

#[derive(Debug)]
enum CellArray {
    Null,
    Bool(BooleanArray),
    I64(Int64Array),
    U64(UInt64Array),
    F64(Float64Array),
    Text(StringArray),
    /// Numbers that only text represents exactly.
    Decimal(StringArray),
    Bytes(BinaryArray),
    /// True with a zone: an instant.
    Instant(TimestampNanosecondArray, bool),
    List(ListArray, Box<Cells>),
    Struct(StructArray, Vec<(String, Cells)>),
}

impl Cells {
    /// Converts the values of a column.
    ///
    /// # Errors
    /// When Arrow cannot show values of the column's type.
    pub fn of(array: &ArrayRef) -> Result<Cells, ArrowError> {
        let to = |data_type: &DataType| cast(array, data_type);
        let kind = match array.data_type() {
            DataType::Null => CellArray::Null,
            DataType::Boolean => CellArray::Bool(array.as_boolean().clone()),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                CellArray::I64(to(&DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                CellArray::U64(to(&DataType::UInt64)?.as_primitive::<UInt64Type>().clone())
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                let floats = to(&DataType::Float64)?;
                CellArray::F64(floats.as_primitive::<Float64Type>().clone())
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                CellArray::Bytes(to(&DataType::Binary)?.as_binary::<i32>().clone())
            }
            DataType::Timestamp(_, zone) => {
                let nanos = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
                let strict = CastOptions {
                    safe: false,
                    ..CastOptions::default()
                };
                match cast_with_options(array, &nanos, &strict) {
                    Ok(times) => {
                        let times = times.as_primitive::<TimestampNanosecondType>().clone();
                        CellArray::Instant(times, zone.is_some())
                    }
                    // The instant is too far from 1970 for nanoseconds.
                    Err(_) => CellArray::Text(to(&DataType::Utf8)?.as_string::<i32>().clone()),
                }
            }
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => {
                CellArray::Decimal(to(&DataType::Utf8)?.as_string::<i32>().clone())
            }
            DataType::Dictionary(_, values) if !is_text(values) => {
                return Cells::of(&to(values)?);
            }
            DataType::RunEndEncoded(_, values) => return Cells::of(&to(values.data_type())?),
            DataType::List(element)
            | DataType::LargeList(element)
            | DataType::FixedSizeList(element, _)
            | DataType::ListView(element)
            | DataType::LargeListView(element) => {
                let element = Arc::new(Field::new("item", element.data_type().clone(), true));
                let lists = to(&DataType::List(element))?.as_list::<i32>().clone();
                let items = Cells::of(lists.values())?;
                CellArray::List(lists, Box::new(items))
            }
            DataType::Struct(_) => {
                let rows = array.as_struct().clone();
                let parts = rows
                    .column_names()
                    .into_iter()
                    .zip(rows.columns())
                    .map(|(name, part)| Ok((name.to_owned(), Cells::of(part)?)))
                    .collect::<Result<_, ArrowError>>()?;
                CellArray::Struct(rows, parts)
            }
            _ => CellArray::Text(to(&DataType::Utf8)?.as_string::<i32>().clone()),
        };
        Ok(Cells(kind))
    }

    /// Whether the value of a row is missing.
    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        match &self.0 {
            CellArray::Null => true,
            CellArray::Bool(a) => a.is_null(row),
            CellArray::I64(a) => a.is_null(row),
            CellArray::U64(a) => a.is_null(row),
            CellArray::F64(a) => a.is_null(row),
            CellArray::Text(a) | CellArray::Decimal(a) => a.is_null(row),
            CellArray::Bytes(a) => a.is_null(row),
            CellArray::Instant(a, _) => a.is_null(row),
            CellArray::List(a, _) => a.is_null(row),
            CellArray::Struct(a, _) => a.is_null(row),
        }
    }

    /// Appends the value of a row as JSON.
    pub fn push_json(&self, out: &mut Vec<u8>, row: usize, time: TimeText) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.0 {
            CellArray::Null => {}
            CellArray::Bool(a) => push_value(out, ValueRef::Bool(a.value(row))),
            CellArray::I64(a) => push_value(out, ValueRef::I64(a.value(row))),
            CellArray::U64(a) => push_value(out, ValueRef::U64(a.value(row))),
            CellArray::F64(a) => push_value(out, ValueRef::F64(a.value(row))),
            CellArray::Text(a) => push_str(out, a.value(row)),
            CellArray::Decimal(a) => out.extend_from_slice(a.value(row).as_bytes()),
            CellArray::Bytes(a) => push_value(out, ValueRef::Bytes(a.value(row))),
            CellArray::Instant(a, zoned) => {
                out.push(b'"');
                push_instant(out, a.value(row), *zoned, time);
                out.push(b'"');
            }
            CellArray::List(a, items) => {
                let ends = a.value_offsets();
                let from = ends.get(row).copied().unwrap_or_default();
                let to = ends.get(row + 1).copied().unwrap_or(from);
                out.push(b'[');
                for item in from..to {
                    if item > from {
                        out.push(b',');
                    }
                    items.push_json(out, item as usize, time);
                }
                out.push(b']');
            }
            CellArray::Struct(_, parts) => {
                out.push(b'{');
                for (index, (name, part)) in parts.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    push_str(out, name);
                    out.push(b':');
                    part.push_json(out, row, time);
                }
                out.push(b'}');
            }
        }
    }

    /// Appends the value of a row as a CSV cell. A missing value is an empty cell, an empty text is
    /// `""`. A row with a single missing cell is an empty line, as PostgreSQL writes and reads it.
    pub(super) fn push_csv(&self, out: &mut Vec<u8>, row: usize, time: TimeText) {
        if self.is_null(row) {
            return;
        }
        match &self.0 {
            CellArray::Text(a) => push_csv_text(out, a.value(row)),
            CellArray::List(..) | CellArray::Struct(..) => {
                push_csv_text(out, &self.text(row, time))
            }
            _ => self.push_text(out, row, time),
        }
    }

    /// The value of a row for people; empty for a missing value.
    #[must_use]
    pub fn text(&self, row: usize, time: TimeText) -> String {
        let mut out = Vec::new();
        if !self.is_null(row) {
            self.push_text(&mut out, row, time);
        }
        String::from_utf8(out).unwrap_or_default()
    }

    fn push_text(&self, out: &mut Vec<u8>, row: usize, time: TimeText) {
        // Writing to a vector cannot fail.
        let _ = match &self.0 {
            CellArray::F64(a) => write!(out, "{:?}", a.value(row)),
            CellArray::Text(a) | CellArray::Decimal(a) => out.write_all(a.value(row).as_bytes()),
            CellArray::Bytes(a) => {
                out.extend_from_slice(b"0x");
                a.value(row)
                    .iter()
                    .try_for_each(|byte| write!(out, "{byte:02x}"))
            }
            CellArray::Instant(a, zoned) => {
                push_instant(out, a.value(row), *zoned, time);
                Ok(())
            }
            CellArray::Null
            | CellArray::Bool(_)
            | CellArray::I64(_)
            | CellArray::U64(_)
            | CellArray::List(..)
            | CellArray::Struct(..) => {
                self.push_json(out, row, time);
                Ok(())
            }
        };
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn push_instant(out: &mut Vec<u8>, nanos: i64, zoned: bool, time: TimeText) {
    // Writing to a vector cannot fail.
    let _ = match time {
        TimeText::Nanoseconds => write!(out, "{nanos}"),
        TimeText::Rfc3339 => write!(out, "{}", Rfc3339(Timestamp::from_nanos(nanos))),
    };
    if !zoned && time == TimeText::Rfc3339 {
        // Without the Z: the value is not an instant.
        out.pop();
    }
}

/// Appends a text as a cell, in quotes if it would otherwise be read as something else.
pub(super) fn push_csv_text(out: &mut Vec<u8>, text: &str) {
    let is_plain = !text.is_empty()
        && !text
            .bytes()
            .any(|b| matches!(b, b'"' | b'\n' | b'\r' | b','));
    if is_plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
