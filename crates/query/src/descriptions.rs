//! Views and indexes as sessions see them.

use arrow::datatypes::DataType;

/// A view, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDescription {
    /// Name of the view.
    pub name: String,
    /// Columns of the view: name and type.
    pub columns: Vec<(String, DataType)>,
    /// Text of its query, unchanged.
    pub definition: String,
}

/// An index, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// Name of the index.
    pub name: String,
    /// Table of the index.
    pub table: String,
    /// The indexed fields, in order.
    pub fields: Vec<String>,
    /// Whether the index covers every partition of its table.
    pub complete: bool,
}
