//! Rows of a scan as record batches: time, tags, fields.
//!
//! Invariant: every batch has the schema of [`event_schema`]; rows without any of the requested
//! fields are left out, as in every other export; the order of rows is preserved.

use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder,
    RecordBatch, StringBuilder, StringDictionaryBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use headwater::{Column, FieldType, ScanChunk, StreamName, ValueRef};
use headwater_wire::free_name;
use std::sync::Arc;

/// Rows of a batch; a chunk is never split.
const BATCH_ROWS: usize = 8_192;

/// The columns of rows of a table: `time` (instants in UTC, nanoseconds), a dictionary of texts for
/// each tag, the fields. A field with the name of an earlier column gets the suffix `_1`, `_2`, …,
/// because readers look columns of files up by name.
#[must_use]
pub fn event_schema(tags: &[String], fields: &[(String, FieldType)]) -> SchemaRef {
    let mut columns = vec![Field::new("time", time_type(), false)];
    let mut push = |name: &str, data_type| {
        let unique = free_name(name, |name| columns.iter().any(|c| c.name() == name));
        columns.push(Field::new(unique, data_type, true));
    };
    for tag in tags {
        push(
            tag,
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        );
    }
    for (name, field_type) in fields {
        push(name, field_data_type(*field_type));
    }
    Arc::new(Schema::new(columns))
}

/// The type of the column of timestamps.
#[must_use]
pub fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// The type of a field's column.
#[must_use]
pub fn field_data_type(field_type: FieldType) -> DataType {
    match field_type {
        FieldType::F64 => DataType::Float64,
        FieldType::I64 => DataType::Int64,
        FieldType::U64 => DataType::UInt64,
        FieldType::Bool => DataType::Boolean,
        FieldType::String => DataType::Utf8,
        FieldType::Bytes => DataType::Binary,
    }
}

/// Collects chunks of scans of one table's streams.
pub struct EventBatches {
    schema: SchemaRef,
    tags: Vec<String>,
    times: TimestampNanosecondBuilder,
    tag_columns: Vec<StringDictionaryBuilder<Int32Type>>,
    fields: Vec<FieldBuilder>,
}

impl std::fmt::Debug for EventBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventBatches")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

enum FieldBuilder {
    F64(Float64Builder),
    I64(Int64Builder),
    U64(UInt64Builder),
    Bool(BooleanBuilder),
    String(StringBuilder),
    Bytes(BinaryBuilder),
}

impl EventBatches {
    /// A collector for rows with these tags and fields; scans must request exactly these fields, in
    /// this order.
    #[must_use]
    pub fn new(tags: &[String], fields: &[(String, FieldType)]) -> EventBatches {
        EventBatches {
            schema: event_schema(tags, fields),
            tags: tags.to_vec(),
            times: TimestampNanosecondBuilder::new().with_data_type(time_type()),
            tag_columns: tags
                .iter()
                .map(|_| StringDictionaryBuilder::new())
                .collect(),
            fields: fields.iter().map(|(_, t)| FieldBuilder::new(*t)).collect(),
        }
    }

    /// The schema of every batch.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds the rows of a chunk of `stream`.
    pub fn push(&mut self, stream: &StreamName, chunk: &ScanChunk) {
        let rows: Vec<usize> = (0..chunk.times.len())
            .filter(|row| chunk.columns.iter().any(|c| c.is_present(*row)))
            .collect();
        for row in &rows {
            let time = chunk.times.get(*row).copied().unwrap_or_default();
            self.times.append_value(time);
        }
        for (tag, column) in self.tags.iter().zip(&mut self.tag_columns) {
            match stream.tag(tag) {
                Some(value) => column.append_values(value, rows.len()),
                None => column.append_nulls(rows.len()),
            }
        }
        for (builder, column) in self.fields.iter_mut().zip(&chunk.columns) {
            builder.append(column, &rows);
        }
    }

    /// Takes the collected rows if they fill a batch.
    ///
    /// # Errors
    /// When the fields of the chunks differ from the fields of [`EventBatches::new`].
    pub fn full(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.times.len() < BATCH_ROWS {
            return Ok(None);
        }
        self.take().map(Some)
    }

    /// Takes the collected rows; the batch may be empty.
    ///
    /// # Errors
    /// As [`EventBatches::full`].
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.times.finish())];
        for column in &mut self.tag_columns {
            columns.push(Arc::new(column.finish()));
        }
        for field in &mut self.fields {
            columns.push(field.finish());
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

impl FieldBuilder {
    fn new(field_type: FieldType) -> FieldBuilder {
        match field_type {
            FieldType::F64 => FieldBuilder::F64(Float64Builder::new()),
            FieldType::I64 => FieldBuilder::I64(Int64Builder::new()),
            FieldType::U64 => FieldBuilder::U64(UInt64Builder::new()),
            FieldType::Bool => FieldBuilder::Bool(BooleanBuilder::new()),
            FieldType::String => FieldBuilder::String(StringBuilder::new()),
            FieldType::Bytes => FieldBuilder::Bytes(BinaryBuilder::new()),
        }
    }

    /// Appends these rows of a column of the builder's type; a value of another type would be a bug
    /// of the scan, and is missing.
    fn append(&mut self, column: &Column, rows: &[usize]) {
        for row in rows {
            let value = column.get(*row);
            match self {
                FieldBuilder::F64(b) => b.append_option(match value {
                    Some(ValueRef::F64(v)) => Some(v),
                    _ => None,
                }),
                FieldBuilder::I64(b) => b.append_option(match value {
                    Some(ValueRef::I64(v)) => Some(v),
                    _ => None,
                }),
                FieldBuilder::U64(b) => b.append_option(match value {
                    Some(ValueRef::U64(v)) => Some(v),
                    _ => None,
                }),
                FieldBuilder::Bool(b) => b.append_option(match value {
                    Some(ValueRef::Bool(v)) => Some(v),
                    _ => None,
                }),
                FieldBuilder::String(b) => b.append_option(match value {
                    Some(ValueRef::String(v)) => Some(v),
                    _ => None,
                }),
                FieldBuilder::Bytes(b) => b.append_option(match value {
                    Some(ValueRef::Bytes(v)) => Some(v),
                    _ => None,
                }),
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        let builder: &mut dyn ArrayBuilder = match self {
            FieldBuilder::F64(b) => b,
            FieldBuilder::I64(b) => b,
            FieldBuilder::U64(b) => b,
            FieldBuilder::Bool(b) => b,
            FieldBuilder::String(b) => b,
            FieldBuilder::Bytes(b) => b,
        };
        builder.finish()
    }
}
