//! Statistics of floats with NaN in a Parquet file.
//!
//! Bounds exclude NaN, and readers take the bounds for the bounds of all values: DuckDB and pyarrow
//! skip a chunk with 1 and NaN in a query for values other than 1. The writer of the files always
//! writes bounds, and whether consecutive rows have NaN is unknown before their end; so the
//! metadata, which ends the file, is rewritten.
//!
//! Invariant: a chunk with NaN does not have bounds, neither in the metadata nor by pages; all
//! other chunks keep theirs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use parquet::basic::Type;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataWriter};
use std::ops::Range;

/// Bytes after the metadata: the length of the metadata, and the magic of the format.
pub const END_BYTES: usize = 8;

/// Ranges of rows of a file with NaN, by column.
#[derive(Debug, Default)]
pub struct NanRows {
    rows: usize,
    /// Per column the ranges of rows with NaN, sorted ascending; `None` = unknown.
    columns: Vec<Option<Vec<Range<usize>>>>,
}

fn has_nan(array: &ArrayRef) -> Option<bool> {
    Some(match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            values.iter().flatten().any(f64::is_nan)
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            values.iter().flatten().any(f32::is_nan)
        }
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>();
            values.iter().flatten().any(|value| value.is_nan())
        }
        of if of.is_nested() || matches!(of, DataType::Dictionary(..)) => return None,
        _ => false,
    })
}

/// Granularity in rows: a chunk that overlaps a range with NaN is treated as having NaN.
const STRETCH: usize = 1_024;

impl NanRows {
    /// Adds the next rows of the file.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.columns
            .resize_with(batch.num_columns(), || Some(Vec::new()));
        for (known, array) in self.columns.iter_mut().zip(batch.columns()) {
            let found = has_nan(array);
            if found.is_none() {
                *known = None;
            }
            if let (Some(true), Some(stretches)) = (found, known.as_mut()) {
                for from in (0..array.len()).step_by(STRETCH) {
                    let len = STRETCH.min(array.len() - from);
                    if has_nan(&array.slice(from, len)) == Some(true) {
                        let first = self.rows + from;
                        stretches.push(first..first + len);
                    }
                }
            }
        }
        self.rows += batch.num_rows();
    }

    /// Whether a column may have NaN in some rows.
    fn may_have(&self, column: usize, rows: &Range<usize>) -> bool {
        let Some(Some(stretches)) = self.columns.get(column) else {
            return true;
        };
        let behind = stretches.partition_point(|stretch| stretch.end <= rows.start);
        let next = stretches.get(behind);
        next.is_some_and(|stretch| stretch.start < rows.end)
    }

    /// The end of a file, from its metadata on, without the bounds of chunks with NaN; `None` = the
    /// file needs no change. `metadata` are the metadata that the writer of the file wrote,
    /// including the locations of its indexes.
    ///
    /// # Errors
    /// When the metadata do not match the rows.
    pub fn end(&self, metadata: &ParquetMetaData) -> Result<Option<Vec<u8>>> {
        let mut groups = Vec::with_capacity(metadata.num_row_groups());
        let (mut first, mut changed) = (0, false);
        for group in metadata.row_groups() {
            let count = usize::try_from(group.num_rows())
                .map_err(|_| ParquetError::General("rows of a group are below 0".to_owned()))?;
            let rows = first..first + count;
            first = rows.end;
            let schema = group.schema_descr();
            let mut columns = Vec::with_capacity(group.num_columns());
            for (leaf, chunk) in group.columns().iter().enumerate() {
                let is_float = matches!(chunk.column_type(), Type::FLOAT | Type::DOUBLE)
                    || matches!(chunk.column_type(), Type::FIXED_LEN_BYTE_ARRAY);
                let column = schema.get_column_root_idx(leaf);
                let is_bare = is_float && self.may_have(column, &rows);
                changed |= is_bare;
                columns.push(match is_bare {
                    true => bare(chunk.clone())?,
                    false => chunk.clone(),
                });
            }
            let builder = group.clone().into_builder().set_column_metadata(columns);
            groups.push(builder.build()?);
        }
        if !changed {
            return Ok(None);
        }
        let builder = metadata.clone().into_builder().set_row_groups(groups);
        // The indexes are in the file already, and the chunks have their locations.
        let metadata = builder
            .set_column_index(None)
            .set_offset_index(None)
            .build();
        let mut out = Vec::new();
        ParquetMetaDataWriter::new(&mut out, &metadata).finish()?;
        Ok(Some(out))
    }
}

/// A chunk without bounds.
fn bare(chunk: ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
    let builder = chunk.into_builder().clear_statistics();
    let builder = builder.set_column_index_offset(None);
    builder.set_column_index_length(None).build()
}

/// Bytes of a file's metadata and everything after them, derived from the file's last bytes.
///
/// # Errors
/// When the bytes are not the end of a Parquet file.
pub fn end_len(last: &[u8]) -> Result<usize> {
    match last.last_chunk() {
        Some([a, b, c, d, b'P', b'A', b'R', b'1']) => {
            let len = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d]));
            len.ok().and_then(|len| len.checked_add(END_BYTES))
        }
        _ => None,
    }
    .ok_or_else(|| ParquetError::General("a file does not end as Parquet does".to_owned()))
}
