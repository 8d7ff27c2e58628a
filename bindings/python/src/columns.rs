//! Columns on their way out: rows of scans gathered into Arrow record batches.
//!
//! Invariants: all columns of a batch have as many rows as it has times; an absent row's slot is
//! zero or empty; a column of a batch has at most [`TEXT_BYTES_MAX`] of text (Arrow's offsets are
//! 32 bits), plus one row.

use crate::errors::{Outcome, Problem};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer,
    ScalarBuffer,
};
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use headwater::{Column, FieldType, Value, Values, VarBytes};
use std::ops::Range;
use std::sync::Arc;

/// A column is cut when its text has this many bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 30;

/// The Arrow type of instants: nanoseconds, UTC.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// The Arrow type of tags.
pub(crate) fn tag_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The Arrow type of a field.
pub(crate) fn data_type(field_type: FieldType) -> DataType {
    match field_type {
        FieldType::F64 => DataType::Float64,
        FieldType::I64 => DataType::Int64,
        FieldType::U64 => DataType::UInt64,
        FieldType::Bool => DataType::Boolean,
        FieldType::String => DataType::Utf8,
        FieldType::Bytes => DataType::Binary,
    }
}

/// A column of the schema that has a value in every row.
pub(crate) fn required(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, false)
}

/// A nullable column of the schema.
pub(crate) fn optional(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// Instants as an Arrow array.
pub(crate) fn time_array(times: Vec<i64>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC"))
}

/// The values of a tag that rows may have.
pub(crate) fn dictionary(values: &[String]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A tag of every row; negative codes are absent.
pub(crate) fn tag_array(codes: Vec<i32>, dictionary: ArrayRef) -> Outcome<ArrayRef> {
    let absent = codes.iter().any(|c| *c < 0);
    let keys: Int32Array = if absent {
        codes.into_iter().map(|c| (c >= 0).then_some(c)).collect()
    } else {
        Int32Array::from(codes)
    };
    let array = DictionaryArray::<Int32Type>::try_new(keys, dictionary);
    Ok(Arc::new(array.map_err(internal)?))
}

/// An error that only a defect of this crate can cause.
pub(crate) fn internal(error: impl std::fmt::Display) -> Problem {
    Problem::Own("internal", format!("{error}"))
}

struct TextBuilder {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl TextBuilder {
    fn new() -> TextBuilder {
        TextBuilder {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }

    fn extend(&mut self, source: &VarBytes, rows: Range<usize>) {
        let before = rows.start.checked_sub(1);
        let from = before.and_then(|r| source.ends().get(r)).map_or(0, |e| *e);
        let base = self.bytes.len();
        let ends = source.ends().get(rows.clone()).unwrap_or_default();
        self.offsets.extend(
            ends.iter()
                // Batches are cut long before this could be too large.
                .map(|end| i32::try_from(base + (end - from) as usize).unwrap_or(i32::MAX)),
        );
        self.bytes.extend_from_slice(source.slice_bytes(rows));
    }

    fn finish(self) -> (OffsetBuffer<i32>, Buffer) {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        (offsets, Buffer::from_vec(self.bytes))
    }
}

enum Slots {
    F64(Vec<f64>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Bool(BooleanBufferBuilder),
    String(TextBuilder),
    Bytes(TextBuilder),
}

/// Gathers the values of one field.
pub(crate) struct ColumnBuilder {
    slots: Slots,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder {
    pub(crate) fn new(field_type: FieldType) -> ColumnBuilder {
        ColumnBuilder {
            slots: match field_type {
                FieldType::F64 => Slots::F64(Vec::new()),
                FieldType::I64 => Slots::I64(Vec::new()),
                FieldType::U64 => Slots::U64(Vec::new()),
                FieldType::Bool => Slots::Bool(BooleanBufferBuilder::new(0)),
                FieldType::String => Slots::String(TextBuilder::new()),
                FieldType::Bytes => Slots::Bytes(TextBuilder::new()),
            },
            nulls: NullBufferBuilder::new(0),
        }
    }

    /// Appends rows of a column of the engine. A column of the field before it was widened from i64
    /// to f64 is accepted, too.
    pub(crate) fn extend(&mut self, column: &Column, rows: Range<usize>) -> Outcome<()> {
        macro_rules! part {
            ($v:expr) => {
                $v.get(rows.clone()).unwrap_or_default()
            };
        }
        match (&mut self.slots, column.values()) {
            (Slots::F64(mine), Values::F64(v)) => mine.extend_from_slice(part!(v)),
            (Slots::F64(mine), Values::I64(v)) => mine.extend(part!(v).iter().map(|x| *x as f64)),
            (Slots::I64(mine), Values::I64(v)) => mine.extend_from_slice(part!(v)),
            (Slots::U64(mine), Values::U64(v)) => mine.extend_from_slice(part!(v)),
            (Slots::Bool(mine), Values::Bool(v)) => mine.append_slice(part!(v)),
            (Slots::String(mine), Values::String(v)) | (Slots::Bytes(mine), Values::Bytes(v)) => {
                mine.extend(v, rows.clone());
            }
            (_, found) => {
                return Err(internal(format!("a column of type {}", found.field_type())));
            }
        }
        match column.presence() {
            None => self.nulls.append_n_non_nulls(rows.len()),
            Some(bits) => {
                let words = Buffer::from_slice_ref(bits.words());
                let bits = BooleanBuffer::new(words, rows.start, rows.len());
                self.nulls.append_buffer(&NullBuffer::new(bits));
            }
        }
        Ok(())
    }

    /// Appends one value, or an absent one.
    pub(crate) fn push(&mut self, value: Option<&Value>) -> Outcome<()> {
        let present = value.is_some();
        match (&mut self.slots, value) {
            (Slots::F64(v), Some(Value::F64(x))) => v.push(*x),
            (Slots::I64(v), Some(Value::I64(x))) => v.push(*x),
            (Slots::U64(v), Some(Value::U64(x))) => v.push(*x),
            (Slots::Bool(v), Some(Value::Bool(x))) => v.append(*x),
            (Slots::String(v), Some(Value::String(x))) => v.push(x.as_bytes()),
            (Slots::Bytes(v), Some(Value::Bytes(x))) => v.push(x),
            (Slots::F64(v), None) => v.push(0.0),
            (Slots::I64(v), None) => v.push(0),
            (Slots::U64(v), None) => v.push(0),
            (Slots::Bool(v), None) => v.append(false),
            (Slots::String(v) | Slots::Bytes(v), None) => v.push(b""),
            (_, Some(found)) => {
                return Err(internal(format!(
                    "a value of type {}",
                    found.as_ref().field_type()
                )));
            }
        }
        self.nulls.append(present);
        Ok(())
    }

    fn text_bytes(&self) -> usize {
        match &self.slots {
            Slots::String(text) | Slots::Bytes(text) => text.bytes.len(),
            _ => 0,
        }
    }

    pub(crate) fn finish(mut self) -> ArrayRef {
        let nulls = self.nulls.finish();
        match self.slots {
            Slots::F64(v) => Arc::new(Float64Array::new(v.into(), nulls)),
            Slots::I64(v) => Arc::new(Int64Array::new(v.into(), nulls)),
            Slots::U64(v) => Arc::new(UInt64Array::new(v.into(), nulls)),
            Slots::Bool(v) => Arc::new(BooleanArray::new(v.build(), nulls)),
            Slots::String(v) => {
                let (offsets, bytes) = v.finish();
                Arc::new(StringArray::new(offsets, bytes, nulls))
            }
            Slots::Bytes(v) => {
                let (offsets, bytes) = v.finish();
                Arc::new(BinaryArray::new(offsets, bytes, nulls))
            }
        }
    }
}

impl TextBuilder {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets
            .push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }
}

/// Gathers rows: their times, tags and fields, in this order.
pub(crate) struct RowsBuilder {
    times: Vec<i64>,
    tags: Vec<Vec<i32>>,
    fields: Vec<ColumnBuilder>,
}

impl RowsBuilder {
    pub(crate) fn new(tags: usize, fields: &[FieldType]) -> RowsBuilder {
        RowsBuilder {
            times: Vec::new(),
            tags: vec![Vec::new(); tags],
            fields: fields.iter().map(|t| ColumnBuilder::new(*t)).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// True when no more text should be added.
    pub(crate) fn is_full_of_text(&self) -> bool {
        self.fields.iter().any(|f| f.text_bytes() >= TEXT_BYTES_MAX)
    }

    /// Appends rows of one stream, whose tags have these codes.
    pub(crate) fn extend(
        &mut self,
        times: &[i64],
        columns: &[Column],
        rows: Range<usize>,
        codes: &[i32],
    ) -> Outcome<()> {
        for (field, column) in self.fields.iter_mut().zip(columns) {
            field.extend(column, rows.clone())?;
        }
        for (tag, code) in self.tags.iter_mut().zip(codes) {
            tag.resize(tag.len() + rows.len(), *code);
        }
        self.times
            .extend_from_slice(times.get(rows).unwrap_or_default());
        Ok(())
    }

    /// Appends rows of several streams: for each row one, by its index in the codes of all.
    pub(crate) fn extend_mixed(
        &mut self,
        times: &[i64],
        columns: &[Column],
        rows: Range<usize>,
        streams: &[u32],
        codes: &[Vec<i32>],
    ) -> Outcome<()> {
        for (field, column) in self.fields.iter_mut().zip(columns) {
            field.extend(column, rows.clone())?;
        }
        let unknown = || internal("a row index is out of range");
        let streams = streams.get(rows.clone()).ok_or_else(unknown)?;
        for (at, tag) in self.tags.iter_mut().enumerate() {
            let code = |stream: &u32| {
                let codes = codes.get(usize::try_from(*stream).ok()?)?;
                codes.get(at).copied()
            };
            for stream in streams {
                let found = code(stream).ok_or_else(|| internal("a row of an unknown stream"));
                tag.push(found?);
            }
        }
        let times = times.get(rows).ok_or_else(unknown)?;
        self.times.extend_from_slice(times);
        Ok(())
    }

    /// The rows as a record batch.
    pub(crate) fn finish(
        self,
        schema: SchemaRef,
        dictionaries: &[ArrayRef],
    ) -> Outcome<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![time_array(self.times)];
        for (codes, dictionary) in self.tags.into_iter().zip(dictionaries) {
            columns.push(tag_array(codes, Arc::clone(dictionary))?);
        }
        columns.extend(self.fields.into_iter().map(ColumnBuilder::finish));
        RecordBatch::try_new(schema, columns).map_err(internal)
    }
}
