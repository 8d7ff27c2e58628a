//! Rows of the tables of the catalog, while they are built.

use super::columns::Definition;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value of a row.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// An array of whole numbers.
    Numbers(Vec<i64>),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Cell {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Bool(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Cell {
        Cell::Text(value)
    }
}

/// Rows being made. Columns that a row does not set are null.
#[derive(Debug)]
pub(super) struct Rows {
    fields: Vec<(&'static str, DataType)>,
    schema: SchemaRef,
    columns: Vec<Vec<ScalarValue>>,
}

impl Rows {
    pub(super) fn new(definition: &Definition) -> Rows {
        let fields: Vec<_> = definition.columns().collect();
        let declared = definition.declared();
        let columns = declared.map(|(name, declared)| super::columns::field(name, declared));
        Rows {
            schema: Arc::new(Schema::new(columns.collect::<Vec<_>>())),
            columns: vec![Vec::new(); fields.len()],
            fields,
        }
    }

    /// Adds a row of these values by their columns' names. Names that the table does not have are a
    /// mistake of this crate, which its tests find.
    pub(super) fn push<const N: usize>(&mut self, values: [(&str, Cell); N]) {
        self.push_some(values.map(|(name, cell)| (name, Some(cell))));
    }

    /// As [`Rows::push`], without the absent values.
    pub(super) fn push_some<const N: usize>(&mut self, values: [(&str, Option<Cell>); N]) {
        let mut values = BTreeMap::from(values);
        for ((name, data_type), column) in self.fields.iter().zip(&mut self.columns) {
            column.push(match values.remove(name).flatten() {
                Some(cell) => scalar(cell, data_type),
                None => null(data_type),
            });
        }
        debug_assert!(values.is_empty(), "no such columns: {values:?}");
    }

    /// The rows as one batch, with its schema.
    pub(super) fn finish(self) -> Result<(SchemaRef, RecordBatch)> {
        let schema = self.schema;
        if self.columns.iter().all(Vec::is_empty) {
            let batch = RecordBatch::new_empty(Arc::clone(&schema));
            return Ok((schema, batch));
        }
        let columns = self
            .columns
            .into_iter()
            .map(ScalarValue::iter_to_array)
            .collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        Ok((schema, batch))
    }
}

fn null(data_type: &DataType) -> ScalarValue {
    // Every type of these tables has a null.
    ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null)
}

fn scalar(cell: Cell, data_type: &DataType) -> ScalarValue {
    match (cell, data_type) {
        (Cell::Int(v), DataType::Int16) => ScalarValue::Int16(i16::try_from(v).ok()),
        (Cell::Int(v), DataType::Int32) => ScalarValue::Int32(i32::try_from(v).ok()),
        (Cell::Int(v), _) => ScalarValue::Int64(Some(v)),
        (Cell::Float(v), DataType::Float32) => ScalarValue::Float32(Some(v as f32)),
        (Cell::Float(v), _) => ScalarValue::Float64(Some(v)),
        (Cell::Bool(v), _) => ScalarValue::Boolean(Some(v)),
        (Cell::Text(v), _) => ScalarValue::Utf8(Some(v)),
        (Cell::Numbers(values), DataType::List(element)) => {
            let of = element.data_type();
            let cells = values.into_iter().map(|v| scalar(Cell::Int(v), of));
            let cells: Vec<ScalarValue> = cells.collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&cells, of))
        }
        (Cell::Numbers(_), _) => null(data_type),
    }
}
