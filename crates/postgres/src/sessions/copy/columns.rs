//! Incoming rows in the binary format.
//!
//! Invariant: as in PostgreSQL a field must have the encoding of its column's type; another
//! encoding, such as an integer for a float, is refused if its length differs.

use super::unfit::{BATCH_BYTES, BATCH_ROWS, Unfit};
use crate::messages::BinaryRow;
use crate::values::{instant_of_binary, numeric_of_binary};
use headwater_query::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch,
    StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use headwater_query::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use headwater_query::time_type;
use std::sync::Arc;

/// A column that grows.
enum Builder {
    Instants(TimestampNanosecondBuilder),
    Floats(Float64Builder),
    Integers(Int64Builder),
    Unsigned(UInt64Builder),
    Flags(BooleanBuilder),
    Bytes(BinaryBuilder),
    /// Tags and texts.
    Texts(StringBuilder),
}

/// A fault of a field: PostgreSQL's code, and a text.
type Fault = (&'static str, String);

impl Builder {
    fn of(data_type: &DataType) -> Builder {
        match data_type {
            DataType::Timestamp(..) => {
                Builder::Instants(TimestampNanosecondBuilder::new().with_data_type(time_type()))
            }
            DataType::Float64 => Builder::Floats(Float64Builder::new()),
            DataType::Int64 => Builder::Integers(Int64Builder::new()),
            DataType::UInt64 => Builder::Unsigned(UInt64Builder::new()),
            DataType::Boolean => Builder::Flags(BooleanBuilder::new()),
            DataType::Binary => Builder::Bytes(BinaryBuilder::new()),
            _ => Builder::Texts(StringBuilder::new()),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Builder::Instants(_) => time_type(),
            Builder::Floats(_) => DataType::Float64,
            Builder::Integers(_) => DataType::Int64,
            Builder::Unsigned(_) => DataType::UInt64,
            Builder::Flags(_) => DataType::Boolean,
            Builder::Bytes(_) => DataType::Binary,
            Builder::Texts(_) => DataType::Utf8,
        }
    }

    /// PostgreSQL's name of the form that a field must be in.
    fn form(&self) -> &'static str {
        match self {
            Builder::Instants(_) => "timestamptz",
            Builder::Floats(_) => "float8",
            Builder::Integers(_) => "int8",
            Builder::Unsigned(_) => "numeric",
            Builder::Flags(_) => "bool",
            Builder::Bytes(_) => "bytea",
            Builder::Texts(_) => "text",
        }
    }

    fn push(&mut self, field: Option<&[u8]>) -> Result<(), Fault> {
        let form = self.form();
        let eight = |bytes: &[u8]| -> Result<[u8; 8], Fault> {
            bytes.try_into().map_err(|_| {
                let length = bytes.len();
                (
                    "22P03",
                    format!("incorrect binary data format: {length} bytes; {form} has 8"),
                )
            })
        };
        match self {
            Builder::Instants(column) => {
                let us = field.map(eight).transpose()?.map(i64::from_be_bytes);
                column.append_option(us.map(instant_of_binary).transpose()?);
            }
            Builder::Floats(column) => {
                column.append_option(field.map(eight).transpose()?.map(f64::from_be_bytes));
            }
            Builder::Integers(column) => {
                column.append_option(field.map(eight).transpose()?.map(i64::from_be_bytes));
            }
            Builder::Unsigned(column) => {
                column.append_option(field.map(unsigned).transpose()?);
            }
            Builder::Flags(column) => column.append_option(match field {
                None => None,
                Some([flag]) => Some(*flag != 0),
                Some(bytes) => {
                    let length = bytes.len();
                    return Err((
                        "22P03",
                        format!("incorrect binary data format: {length} bytes; bool has 1"),
                    ));
                }
            }),
            Builder::Bytes(column) => column.append_option(field),
            Builder::Texts(column) => {
                let text = field.map(std::str::from_utf8).transpose();
                let text = text.map_err(|_| ("22021", "a text is not UTF-8".to_owned()))?;
                column.append_option(text);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Instants(column) => Arc::new(column.finish()),
            Builder::Floats(column) => Arc::new(column.finish()),
            Builder::Integers(column) => Arc::new(column.finish()),
            Builder::Unsigned(column) => Arc::new(column.finish()),
            Builder::Flags(column) => Arc::new(column.finish()),
            Builder::Bytes(column) => Arc::new(column.finish()),
            Builder::Texts(column) => Arc::new(column.finish()),
        }
    }
}

/// A whole number without a sign, which PostgreSQL's clients send as `numeric`.
fn unsigned(bytes: &[u8]) -> Result<u64, Fault> {
    let text = numeric_of_binary(bytes).map_err(|why| ("22P03", why))?;
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let number = whole.parse().ok();
    number
        .filter(|_| fraction.bytes().all(|digit| digit == b'0'))
        .ok_or_else(|| {
            let cut: String = text.chars().take(80).collect();
            (
                "22003",
                format!("{cut} is not a whole number from 0 to 18446744073709551615"),
            )
        })
}

/// Rows that wait to be stored, by column.
pub(in crate::sessions) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    bytes: usize,
    count: usize,
    /// Number of the first row.
    first: u64,
}

impl Columns {
    pub(super) fn new(schema: &Schema) -> Columns {
        let fields = schema.fields().iter();
        let builders: Vec<Builder> = fields.map(|field| Builder::of(field.data_type())).collect();
        let fields = schema.fields().iter().zip(&builders);
        let fields = fields.map(|(field, of)| Field::new(field.name(), of.data_type(), true));
        Columns {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            builders,
            bytes: 0,
            count: 0,
            first: 0,
        }
    }

    /// Appends a row, which has a field for each column. After an invalid row no more rows may be
    /// appended.
    pub(super) fn push(&mut self, row: BinaryRow<'_>, number: u64) -> Result<(), Unfit> {
        let columns = self.builders.iter_mut().zip(self.schema.fields());
        for ((column, named), field) in columns.zip(row.fields()) {
            column.push(field).map_err(|(sqlstate, why)| Unfit {
                position: ("row", number),
                sqlstate,
                message: format!("column {}: {why}", named.name()),
            })?;
            self.bytes += field.map_or(1, <[u8]>::len);
        }
        if self.count == 0 {
            self.first = number;
        }
        self.count += 1;
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.count >= BATCH_ROWS
    }

    /// The rows, with the number of each.
    pub(super) fn batch(&mut self) -> Result<Option<(RecordBatch, Vec<u64>)>, String> {
        if self.count == 0 {
            return Ok(None);
        }
        let numbers = (self.first..).take(self.count).collect();
        (self.bytes, self.count) = (0, 0);
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        Ok(Some((batch.map_err(|why| why.to_string())?, numbers)))
    }
}
