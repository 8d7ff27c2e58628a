//! Tables, views and indexes from which a session's queries of the catalog are answered.

use super::variables::Variables;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use std::fmt::Debug;

/// A table that a session sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its columns, in order: name, type, and what it is (`time`, `tag` or `field`).
    pub columns: Vec<(String, DataType, &'static str)>,
}

/// A view that a session sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownView {
    /// Its name.
    pub name: String,
    /// Its columns, in order: name and type.
    pub columns: Vec<(String, DataType)>,
    /// Its query, as it was written.
    pub definition: String,
}

/// An index that a session may know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownIndex {
    /// Its name.
    pub name: String,
    /// The table that it is of.
    pub table: String,
    /// The fields that it is over, in order.
    pub fields: Vec<String>,
    /// Whether it holds every partition of its table.
    pub complete: bool,
}

/// Tables, views and indexes from which a session's queries of the catalog are answered.
pub trait Listing: Debug + Send + Sync {
    /// The tables the session sees, by name, and only what it sees of them.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn tables(&self) -> Result<Vec<Shown>>;

    /// The views that exist for the session, by name.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn views(&self) -> Result<Vec<ShownView>> {
        Ok(Vec::new())
    }

    /// The indexes that the session may know of, by name.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn indexes(&self) -> Result<Vec<ShownIndex>> {
        Ok(Vec::new())
    }

    /// The session's settings.
    fn variables(&self) -> Variables;

    /// The user's name, as given at the start of the session.
    fn user(&self) -> String;

    /// The database's name, as given at the start of the session.
    fn database(&self) -> String;
}
