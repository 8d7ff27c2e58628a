//! What a session's questions about the database are answered from.

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
