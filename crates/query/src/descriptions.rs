//! Views and indexes as sessions see them.

use arrow::datatypes::DataType;

/// A view, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDescription {
    /// Its name.
    pub name: String,
    /// Its columns: name and type.
    pub columns: Vec<(String, DataType)>,
    /// Its query, as it was written.
    pub definition: String,
}

/// An index, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: String,
    /// The fields that it is over, in order.
    pub fields: Vec<String>,
    /// Whether it holds every partition of its table.
    pub complete: bool,
}
