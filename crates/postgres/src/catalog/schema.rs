//! The schemas `pg_catalog` and `information_schema` as the planner sees them, and how their rows are made.

use super::columns::{CATALOG, Definition, INFORMATION};
use super::variables::Variables;
use super::{information_schema, pg_catalog};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::MemTable;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// A table that a session sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its columns, in order: name, type, and what it is (`time`, `tag` or `field`).
    pub columns: Vec<(String, DataType, &'static str)>,
}

/// What a session's questions about the database are answered from.
pub trait Listing: Debug + Send + Sync {
    /// The tables the session sees, by name, and only what it sees of them.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn tables(&self) -> Result<Vec<Shown>>;

    /// The session's settings.
    fn variables(&self) -> Variables;

    /// The user's name, as given at the start of the session.
    fn user(&self) -> String;

    /// The database's name, as given at the start of the session.
    fn database(&self) -> String;
}

/// The schemas of a session, by name.
#[must_use]
pub fn schemas(listing: &Arc<dyn Listing>) -> Vec<(String, Arc<dyn SchemaProvider>)> {
    let schema = |name: &'static str, tables| {
        let provider = Provider {
            name,
            tables,
            listing: Arc::clone(listing),
        };
        (
            name.to_owned(),
            Arc::new(provider) as Arc<dyn SchemaProvider>,
        )
    };
    vec![
        schema("pg_catalog", CATALOG),
        schema("information_schema", INFORMATION),
    ]
}

#[derive(Debug)]
struct Provider {
    name: &'static str,
    tables: &'static [Definition],
    listing: Arc<dyn Listing>,
}

#[async_trait]
impl SchemaProvider for Provider {
    fn table_names(&self) -> Vec<String> {
        self.tables.iter().map(|t| t.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(definition) = self.tables.iter().find(|table| table.name == name) else {
            return Ok(None);
        };
        let mut rows = Rows::new(definition);
        match self.name {
            "pg_catalog" => pg_catalog::fill(&mut rows, name, self.listing.as_ref())?,
            _ => information_schema::fill(&mut rows, name, self.listing.as_ref())?,
        }
        let (schema, batch) = rows.finish()?;
        let table = MemTable::try_new(schema, vec![vec![batch]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }
}

/// A value of a row.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
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

/// Rows being made. What is not said of a row is null.
#[derive(Debug)]
pub(super) struct Rows {
    fields: Vec<(&'static str, DataType)>,
    columns: Vec<Vec<ScalarValue>>,
}

impl Rows {
    pub(super) fn new(definition: &Definition) -> Rows {
        let fields: Vec<_> = definition.columns().collect();
        Rows {
            columns: vec![Vec::new(); fields.len()],
            fields,
        }
    }

    /// Adds a row of these values by their columns' names. Names that the table does not have are a mistake of this crate,
    /// which its tests find.
    pub(super) fn push<const N: usize>(&mut self, values: [(&str, Cell); N]) {
        self.push_some(values.map(|(name, cell)| (name, Some(cell))));
    }

    /// As [`Rows::push`], leaving out what is not known.
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

    fn finish(self) -> Result<(SchemaRef, RecordBatch)> {
        let fields = self
            .fields
            .iter()
            .map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
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
    }
}

/// The type of ours for a type in a definition.
pub(super) fn data_type(name: &str) -> DataType {
    if let Some(element) = name.strip_suffix("[]") {
        return DataType::List(Field::new_list_field(data_type(element), true).into());
    }
    match name {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" | "oid" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "timestamptz" => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        _ => DataType::Utf8,
    }
}
