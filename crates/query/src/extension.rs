//! Names, functions, settings and checks that a front end adds to its sessions.
//!
//! Invariants: an extension changes no statement of other sessions. Concurrency: called from any
//! thread. Failure: an error of a check is the statement's.

use crate::error::Result;
use datafusion::catalog::SchemaProvider;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast;
use headwater_wire::zone::Zone;
use std::fmt;
use std::sync::Arc;

/// Additions of a front end to its sessions: names that its clients expect.
pub trait Extension: Send + Sync + fmt::Debug {
    /// Checks a statement, and may change it, before it is planned.
    ///
    /// # Errors
    /// The error that the client gets instead of an answer.
    fn rewrite(&self, statement: &mut ast::Statement) -> Result<()>;

    /// Schemas besides `public`. A schema `information_schema` replaces the built-in one.
    fn schemas(&self) -> Vec<(String, Arc<dyn SchemaProvider>)>;

    /// Functions besides the built-in ones.
    fn functions(&self) -> Vec<Arc<ScalarUDF>>;

    /// The key by which sessions share plans: extensions with equal keys give the same names the
    /// same meaning in every session, except functions that are not immutable and tables of their
    /// own schemas. `None` = plans are not cached.
    fn shared(&self) -> Option<&'static str> {
        None
    }

    /// The session's time zone, if the front end stores it. `None` = the zone of `SET`.
    fn zone(&self) -> Option<Zone> {
        None
    }

    /// Whether aggregates are answered from the pyramid, if the front end stores it. `None` = the
    /// value of `SET`.
    fn uses_pyramid(&self) -> Option<bool> {
        None
    }

    /// True if statements may leave out parts of the data that cannot be read: the front end tells
    /// the client of [`crate::Answer::left_out`].
    fn allows_partial(&self) -> bool {
        false
    }
}
