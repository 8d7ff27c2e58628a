//! Incoming rows as lines.

use super::unfit::{BATCH_BYTES, BATCH_ROWS, Unfit};
use crate::catalog::PgType;
use crate::messages::{CopyRow, Format};
use crate::values::parameter;
use headwater_query::arrow::array::{ArrayRef, RecordBatch};
use headwater_query::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use headwater_query::datafusion::common::ScalarValue;
use std::sync::Arc;

/// Rows that wait to be stored, by column: values, read from text.
pub(in crate::sessions) struct Lines {
    schema: SchemaRef,
    /// OID of each column's type, and the type as which its texts are parsed.
    types: Vec<(u32, DataType)>,
    columns: Vec<Vec<ScalarValue>>,
    bytes: usize,
    lines: Vec<u64>,
}

impl Lines {
    pub(super) fn new(schema: &Schema) -> Lines {
        let types = schema.fields().iter().map(|field| {
            let oid = PgType::oid_of(field.data_type());
            match oid {
                16 => (oid, DataType::Boolean),
                20 => (oid, DataType::Int64),
                701 => (oid, DataType::Float64),
                17 => (oid, DataType::Binary),
                // The planner's side reads instants and whole numbers without a sign.
                _ => (25, DataType::Utf8),
            }
        });
        let types: Vec<(u32, DataType)> = types.collect();
        let fields = schema.fields().iter().zip(&types);
        let fields: Vec<Field> = fields
            .map(|(field, (_, of))| Field::new(field.name(), of.clone(), true))
            .collect();
        Lines {
            columns: vec![Vec::new(); types.len()],
            types,
            schema: Arc::new(Schema::new(fields)),
            bytes: 0,
            lines: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: CopyRow, line: u64) -> Result<(), Unfit> {
        let unfit = |sqlstate, message| Unfit {
            position: ("line", line),
            sqlstate,
            message,
        };
        let (found, wanted) = (row.len(), self.types.len());
        if found != wanted {
            let message = format!("expected {wanted} fields, found {found}");
            return Err(unfit("22P04", message));
        }
        let mut values = Vec::with_capacity(found);
        for ((field, (oid, of)), named) in row.iter().zip(&self.types).zip(self.schema.fields()) {
            let bytes = field.as_deref().map(str::as_bytes);
            let value = parameter(bytes, *oid, of, Format::Text);
            values.push(value.map_err(|(sqlstate, why)| {
                unfit(sqlstate, format!("column {}: {why}", named.name()))
            })?);
            self.bytes += bytes.map_or(1, <[u8]>::len);
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.lines.push(line);
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.columns.first().is_some_and(|c| c.len() >= BATCH_ROWS)
    }

    /// The rows, with the line of each.
    pub(super) fn batch(&mut self) -> Result<Option<(RecordBatch, Vec<u64>)>, String> {
        if self.lines.is_empty() {
            return Ok(None);
        }
        let lines = std::mem::take(&mut self.lines);
        self.bytes = 0;
        let columns = self.columns.iter_mut().map(std::mem::take);
        let arrays: Vec<ArrayRef> = columns
            .map(ScalarValue::iter_to_array)
            .collect::<Result<_, _>>()
            .map_err(|why| why.to_string())?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        Ok(Some((batch.map_err(|why| why.to_string())?, lines)))
    }
}
