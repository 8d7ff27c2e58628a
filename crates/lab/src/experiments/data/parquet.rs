//! The rows of a table as one Parquet file: zstd at its default level, the writer's default
//! settings, sorted by stream and time, tags as columns.

use crate::harness::Failure;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use headwater::{Column, Database, FieldType, ScanSpec, ValueRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::sync::Arc;

/// Writes the rows to memory; returns the length of the file and its number of rows.
pub(super) fn size_of(db: &Database, table: &str) -> Result<(u64, u64), Failure> {
    let snapshot = db.snapshot()?;
    let fields = snapshot.fields(table)?;
    let streams = snapshot.streams(table, &[])?;
    let mut tags: Vec<String> = streams
        .iter()
        .flat_map(|s| s.tags().iter().map(|(key, _)| key.clone()))
        .collect();
    tags.sort();
    tags.dedup();
    let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let mut columns = vec![Field::new("time", time, false)];
    columns.extend(tags.iter().map(|t| Field::new(t, DataType::Utf8, true)));
    columns.extend(
        fields
            .iter()
            .map(|(name, t)| Field::new(name, arrow_type(*t), true)),
    );
    let schema = Arc::new(Schema::new(columns));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
    for stream in &streams {
        for chunk in snapshot.scan(stream, &ScanSpec::default())? {
            let chunk = chunk?;
            let rows = chunk.times.len();
            let mut arrays: Vec<ArrayRef> =
                vec![Arc::new(TimestampNanosecondArray::from(chunk.times))];
            for tag in &tags {
                arrays.push(Arc::new(StringArray::from(vec![stream.tag(tag); rows])));
            }
            arrays.extend(chunk.columns.iter().map(arrow_array));
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), arrays)?)?;
        }
    }
    writer.flush()?;
    let rows: i64 = writer
        .flushed_row_groups()
        .iter()
        .map(|g| g.num_rows())
        .sum();
    Ok((writer.into_inner()?.len() as u64, u64::try_from(rows)?))
}

fn arrow_type(field_type: FieldType) -> DataType {
    match field_type {
        FieldType::F64 => DataType::Float64,
        FieldType::I64 => DataType::Int64,
        FieldType::U64 => DataType::UInt64,
        FieldType::Bool => DataType::Boolean,
        FieldType::String => DataType::Utf8,
        FieldType::Bytes => DataType::Binary,
    }
}

fn arrow_array(column: &Column) -> ArrayRef {
    macro_rules! array {
        ($array:ident, $variant:ident) => {
            Arc::new($array::from_iter((0..column.len()).map(
                |row| match column.get(row) {
                    Some(ValueRef::$variant(value)) => Some(value),
                    _ => None,
                },
            )))
        };
    }
    match column.field_type() {
        FieldType::F64 => array!(Float64Array, F64),
        FieldType::I64 => array!(Int64Array, I64),
        FieldType::U64 => array!(UInt64Array, U64),
        FieldType::Bool => array!(BooleanArray, Bool),
        FieldType::String => array!(StringArray, String),
        FieldType::Bytes => array!(BinaryArray, Bytes),
    }
}
