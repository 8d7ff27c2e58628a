//! Rows of a day as batches of columns, and their fingerprints.
//!
//! Invariants: rows are ordered by stream, the streams by their tags (absent ones first) in the
//! order of the table's columns, and within a stream by time. A row without any value is omitted.
//! The fingerprint of rows is a sum over them: it depends neither on their order nor on their
//! division into files, and a column without values does not change it. Memory: one batch, and the
//! memory of an engine's scan.

use crate::columns::{ColumnKind, Columns, U64_DIGITS};
use crate::day::Day;
use crate::error::{LakeError, Result};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder,
    Int32Builder, Int64Builder, RecordBatch, StringBuilder, StringDictionaryBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, SchemaRef,
    TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use headwater::{Column, FieldType, ScanChunk, ScanSpec, Snapshot, StreamName, ValueRef};
use headwater_types::invariant::wide;
use std::sync::Arc;
use twox_hash::XxHash64;

/// Rows of a batch, about; a chunk is never cut.
const BATCH_ROWS: usize = 8_192;
/// Nanoseconds of a microsecond.
const MICRO_NS: i64 = 1_000;

/// Streams of a table in the order of its files.
pub(crate) fn sort_streams(streams: &mut [StreamName], columns: &Columns) {
    let tags: Vec<String> = columns.tags().map(|c| c.source.clone()).collect();
    streams.sort_by_cached_key(|name| -> Vec<Option<String>> {
        tags.iter()
            .map(|tag| name.tag(tag).map(str::to_owned))
            .collect()
    });
}

/// Number and kind of a column.
pub(crate) type ColumnKey = (i32, ColumnKind);

/// The columns of batches that [`walk`] makes.
pub(crate) fn column_keys(columns: &Columns) -> Vec<Option<ColumnKey>> {
    columns
        .written()
        .map(|column| Some((column.id, column.kind)))
        .collect()
}

/// Number of rows, and their hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) rows: u64,
    pub(crate) sum: u128,
}

impl Fingerprint {
    /// Adds the rows of a batch. `columns` are the meanings of its columns; columns with `None` are
    /// ignored.
    pub(crate) fn take(
        &mut self,
        batch: &RecordBatch,
        columns: &[Option<ColumnKey>],
    ) -> Result<()> {
        let cells: Vec<(i32, ColumnKind, Cells<'_>)> = columns
            .iter()
            .zip(batch.columns())
            .filter_map(|(known, array)| Some((*known.as_ref()?, array)))
            .map(|((id, kind), array)| Ok((id, kind, Cells::of(array)?)))
            .collect::<Result<_>>()?;
        let mut row_bytes = Vec::with_capacity(256);
        for row in 0..batch.num_rows() {
            row_bytes.clear();
            for (id, kind, cells) in &cells {
                cells.push(&mut row_bytes, *id, *kind, row);
            }
            self.sum = self.sum.wrapping_add(hash(&row_bytes));
        }
        self.rows += wide(batch.num_rows());
        Ok(())
    }
}

/// A hash of 128 bits: two of 64 bits with the seeds 1, above, and 0.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let of = |seed| u128::from(XxHash64::oneshot(seed, bytes));
    (of(1) << 64) | of(0)
}

/// The values of a column as bytes.
enum Cells<'a> {
    Fixed(Box<dyn Fn(usize) -> [u8; 8] + 'a>, &'a dyn Array),
    Wide(Box<dyn Fn(usize) -> &'a [u8] + 'a>, &'a dyn Array),
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef) -> Result<Cells<'a>> {
        let whole: &dyn Array = &**array;
        Ok(match array.data_type() {
            DataType::Timestamp(..) => {
                let values = array.as_primitive::<TimestampMicrosecondType>();
                Cells::Fixed(Box::new(|row| values.value(row).to_le_bytes()), whole)
            }
            DataType::Int32 => {
                let values = array.as_primitive::<Int32Type>();
                let wide = |row| i64::from(values.value(row)).to_le_bytes();
                Cells::Fixed(Box::new(wide), whole)
            }
            DataType::Int64 => {
                let values = array.as_primitive::<Int64Type>();
                Cells::Fixed(Box::new(|row| values.value(row).to_le_bytes()), whole)
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>();
                Cells::Fixed(Box::new(|row| values.value(row).to_le_bytes()), whole)
            }
            DataType::Boolean => {
                let values = array.as_boolean();
                let wide = |row| u64::from(values.value(row)).to_le_bytes();
                Cells::Fixed(Box::new(wide), whole)
            }
            DataType::Decimal128(..) => {
                let values = array.as_primitive::<Decimal128Type>();
                // Columns of this type contain unsigned integers of 64 bits.
                let wide = |row| u64::try_from(values.value(row)).unwrap_or(0).to_le_bytes();
                Cells::Fixed(Box::new(wide), whole)
            }
            DataType::Utf8 => {
                let values = array.as_string::<i32>();
                Cells::Wide(Box::new(|row| values.value(row).as_bytes()), whole)
            }
            DataType::Binary => {
                let values = array.as_binary::<i32>();
                Cells::Wide(Box::new(|row| values.value(row)), whole)
            }
            DataType::Dictionary(..) => {
                let keyed = array.as_dictionary::<Int32Type>();
                let texts = keyed.values().as_string::<i32>();
                let of = |row| {
                    keyed
                        .key(row)
                        .map_or([].as_slice(), |key| texts.value(key).as_bytes())
                };
                Cells::Wide(Box::new(of), whole)
            }
            other => {
                return Err(LakeError::internal(format!(
                    "rows with a column of {other}"
                )));
            }
        })
    }

    fn push(&self, out: &mut Vec<u8>, id: i32, kind: ColumnKind, row: usize) {
        match self {
            Cells::Fixed(value, array) => {
                let value = value(row);
                // A column for the rest was perhaps added after the row was written.
                let is_there = array.is_valid(row) && (kind != ColumnKind::Rest || value != [0; 8]);
                if is_there {
                    out.extend_from_slice(&id.to_le_bytes());
                    out.extend_from_slice(&value);
                }
            }
            Cells::Wide(value, array) => {
                if array.is_valid(row) {
                    let value = value(row);
                    out.extend_from_slice(&id.to_le_bytes());
                    out.extend_from_slice(&wide(value.len()).to_le_bytes());
                    out.extend_from_slice(value);
                }
            }
        }
    }
}

/// A day has times that are not whole microseconds, so the table needs a column for the remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsRest;

/// Result of a walk through a day's rows.
pub(crate) type WalkResult = std::result::Result<(), NeedsRest>;

/// Hands the rows of some streams on a day to `sink`, batch by batch.
pub(crate) fn walk(
    snapshot: &Snapshot,
    columns: &Columns,
    day: Day,
    streams: &mut dyn Iterator<Item = &StreamName>,
    sink: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<WalkResult> {
    let spec = ScanSpec {
        range: day.range(),
        fields: Some(columns.fields().map(|c| c.source.clone()).collect()),
        ..ScanSpec::default()
    };
    let mut walk = Walk::new(columns, sink);
    for stream in streams {
        for chunk in snapshot.scan(stream, &spec)? {
            if walk.push(stream, &chunk?)?.is_err() {
                return Ok(Err(NeedsRest));
            }
        }
    }
    walk.finish()?;
    Ok(Ok(()))
}

/// Rows that are passed on in batches.
pub(crate) struct Walk<'a> {
    batches: Batches,
    sink: &'a mut dyn FnMut(&RecordBatch) -> Result<()>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        columns: &Columns,
        sink: &'a mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Walk<'a> {
        Walk {
            batches: Batches::new(columns),
            sink,
        }
    }

    /// Adds rows of a stream, whose columns are the fields in the order of the table's.
    pub(crate) fn push(&mut self, stream: &StreamName, chunk: &ScanChunk) -> Result<WalkResult> {
        if self.batches.push(stream, chunk).is_err() {
            return Ok(Err(NeedsRest));
        }
        if self.batches.times.len() >= BATCH_ROWS {
            (self.sink)(&self.batches.take()?)?;
        }
        Ok(Ok(()))
    }

    /// Passes the remaining rows on.
    pub(crate) fn finish(mut self) -> Result<()> {
        match self.batches.times.is_empty() {
            true => Ok(()),
            false => (self.sink)(&self.batches.take()?),
        }
    }
}

/// Rows that become a batch.
struct Batches {
    schema: SchemaRef,
    times: Vec<i64>,
    columns: Vec<Builder>,
}

/// A column that is being filled.
enum Builder {
    Time(TimestampMicrosecondBuilder),
    Rest(Int32Builder),
    Tag(String, StringDictionaryBuilder<Int32Type>),
    F64(Float64Builder),
    I64(Int64Builder),
    U64(Decimal128Builder),
    Bool(BooleanBuilder),
    String(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Batches {
    fn new(columns: &Columns) -> Batches {
        let schema = columns.arrow();
        let builder = |column: &crate::columns::Column| match column.kind {
            ColumnKind::Time => {
                let times = TimestampMicrosecondBuilder::new();
                Builder::Time(times.with_timezone("UTC"))
            }
            ColumnKind::Rest => Builder::Rest(Int32Builder::new()),
            ColumnKind::Tag => Builder::Tag(column.source.clone(), StringDictionaryBuilder::new()),
            ColumnKind::Field | ColumnKind::Former => match column.field_type() {
                Some(FieldType::F64) => Builder::F64(Float64Builder::new()),
                Some(FieldType::I64) => Builder::I64(Int64Builder::new()),
                Some(FieldType::U64) => {
                    let type_of = DataType::Decimal128(U64_DIGITS, 0);
                    Builder::U64(Decimal128Builder::new().with_data_type(type_of))
                }
                Some(FieldType::Bool) => Builder::Bool(BooleanBuilder::new()),
                None | Some(FieldType::String) => Builder::String(StringBuilder::new()),
                Some(FieldType::Bytes) => Builder::Bytes(BinaryBuilder::new()),
            },
        };
        Batches {
            columns: columns.written().map(builder).collect(),
            times: Vec::new(),
            schema,
        }
    }

    /// Adds the rows of a chunk, whose columns are the fields in the order of the table's.
    fn push(
        &mut self,
        stream: &StreamName,
        chunk: &ScanChunk,
    ) -> std::result::Result<(), NeedsRest> {
        let has_value = |row: usize| chunk.columns.iter().any(|c| c.is_present(row));
        let rows: Vec<(usize, i64)> = chunk
            .times
            .iter()
            .enumerate()
            .filter(|(row, _)| has_value(*row))
            .map(|(row, time)| (row, *time))
            .collect();
        let has_rest = self.columns.iter().any(|c| matches!(c, Builder::Rest(_)));
        if !has_rest && rows.iter().any(|(_, time)| time.rem_euclid(MICRO_NS) != 0) {
            return Err(NeedsRest);
        }
        self.times.extend(rows.iter().map(|(_, time)| *time));
        let mut fields = chunk.columns.iter();
        for builder in &mut self.columns {
            builder.append(stream, &rows, &mut fields);
        }
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch> {
        self.times.clear();
        let arrays = self.columns.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        batch.map_err(|e: ArrowError| LakeError::internal(e.to_string()))
    }
}

impl Builder {
    fn append<'a>(
        &mut self,
        stream: &StreamName,
        rows: &[(usize, i64)],
        fields: &mut impl Iterator<Item = &'a Column>,
    ) {
        match self {
            Builder::Time(times) => {
                rows.iter()
                    .for_each(|(_, time)| times.append_value(time.div_euclid(MICRO_NS)));
            }
            Builder::Rest(rest) => {
                for (_, time) in rows {
                    // Always below a thousand.
                    rest.append_option(i32::try_from(time.rem_euclid(MICRO_NS)).ok());
                }
            }
            Builder::Tag(tag, values) => match stream.tag(tag) {
                Some(value) => values.append_values(value, rows.len()),
                None => values.append_nulls(rows.len()),
            },
            _ => {
                let field = fields.next();
                for (row, _) in rows {
                    self.append_value(field.and_then(|column| column.get(*row)));
                }
            }
        }
    }

    /// A value of another type than the builder's would be a mistake of the scan, and is absent.
    fn append_value(&mut self, value: Option<ValueRef<'_>>) {
        match (self, value) {
            (Builder::F64(b), Some(ValueRef::F64(v))) => b.append_value(v),
            (Builder::I64(b), Some(ValueRef::I64(v))) => b.append_value(v),
            (Builder::U64(b), Some(ValueRef::U64(v))) => b.append_value(i128::from(v)),
            (Builder::Bool(b), Some(ValueRef::Bool(v))) => b.append_value(v),
            (Builder::String(b), Some(ValueRef::String(v))) => b.append_value(v),
            (Builder::Bytes(b), Some(ValueRef::Bytes(v))) => b.append_value(v),
            (Builder::F64(b), _) => b.append_null(),
            (Builder::I64(b), _) => b.append_null(),
            (Builder::U64(b), _) => b.append_null(),
            (Builder::Bool(b), _) => b.append_null(),
            (Builder::String(b), _) => b.append_null(),
            (Builder::Bytes(b), _) => b.append_null(),
            (Builder::Time(_) | Builder::Rest(_) | Builder::Tag(..), _) => {}
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Time(b) => Arc::new(b.finish()),
            Builder::Rest(b) => Arc::new(b.finish()),
            Builder::Tag(_, b) => Arc::new(b.finish()),
            Builder::F64(b) => Arc::new(b.finish()),
            Builder::I64(b) => Arc::new(b.finish()),
            Builder::U64(b) => Arc::new(b.finish()),
            Builder::Bool(b) => Arc::new(b.finish()),
            Builder::String(b) => Arc::new(b.finish()),
            Builder::Bytes(b) => Arc::new(b.finish()),
        }
    }
}
