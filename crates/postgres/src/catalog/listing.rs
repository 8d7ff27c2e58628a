//! Tables, views and indexes from which a session's queries of the catalog are answered.

use super::variables::Variables;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use std::fmt::Debug;

/// A table that a session sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownTable {
    /// Name of the relation.
    pub name: String,
    /// Columns, in order: name, type, and kind (`time`, `tag` or `field`).
    pub columns: Vec<(String, DataType, &'static str)>,
}

/// A view that a session sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownView {
    /// Name of the relation.
    pub name: String,
    /// Columns, in order: name and type.
    pub columns: Vec<(String, DataType)>,
    /// Text of its query, unchanged.
    pub definition: String,
}

/// An index that a session may know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownIndex {
    /// Name of the relation.
    pub name: String,
    /// Indexed table.
    pub table: String,
    /// Indexed fields, in order.
    pub fields: Vec<String>,
    /// True when the index has every partition of its table.
    pub complete: bool,
}

/// Tables, views and indexes from which a session's queries of the catalog are answered.
pub trait Listing: Debug + Send + Sync {
    /// Tables that the session sees, by name, with the visible columns only.
    ///
    /// # Errors
    /// When the tables cannot be listed.
    fn tables(&self) -> Result<Vec<ShownTable>>;

    /// The views that exist for the session, by name.
    ///
    /// # Errors
    /// When the views cannot be listed.
    fn views(&self) -> Result<Vec<ShownView>> {
        Ok(Vec::new())
    }

    /// The indexes that the session may know of, by name.
    ///
    /// # Errors
    /// When the indexes cannot be listed.
    fn indexes(&self) -> Result<Vec<ShownIndex>> {
        Ok(Vec::new())
    }

    /// The session's settings.
    fn variables(&self) -> Variables;

    /// Name of the user, from the start of the session.
    fn user(&self) -> String;

    /// Name of the database, from the start of the session.
    fn database(&self) -> String;
}
