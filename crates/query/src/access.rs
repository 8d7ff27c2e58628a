//! What a session may see and change.
//!
//! Invariants: every statement asks; a session that may not see a stream cannot tell that it exists.
//! Concurrency: asked from any thread, also while a statement runs.

use headwater::{Result, Snapshot};
use std::collections::BTreeSet;

/// What a session may see and change. Asked for each stream by its table and tags, when a statement is planned.
pub trait Access: Send + Sync {
    /// May it read this stream?
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// May it write to this stream, and delete from it?
    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// May it make, change and drop this table? Who may, sees its columns while it has no streams yet.
    fn manages(&self, table: &str) -> bool;

    /// The fields of a table that the session is told of, of those that it has; `None` = all. Asked
    /// for a table of which it may read or manage something. A field that only streams have that it
    /// may not read would tell that there are such streams.
    ///
    /// # Errors
    /// What reading the snapshot says.
    fn fields(&self, snapshot: &Snapshot, table: &str) -> Result<Option<BTreeSet<String>>> {
        let _ = (snapshot, table);
        Ok(None)
    }

    /// True when it may do everything: then nothing else is asked.
    fn all(&self) -> bool;

    /// May it read anything at all? Who may not, runs no statement that asks for something, one
    /// without a table neither.
    fn asks(&self) -> bool {
        true
    }

    /// Sessions with the same key may do the same; what was prepared for one is used for the others then. `None` shares nothing.
    fn key(&self) -> Option<String> {
        None
    }
}

/// Everything is allowed: for programs that own the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unrestricted;

impl Access for Unrestricted {
    fn reads(&self, _: &str, _: &[(String, String)]) -> bool {
        true
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        true
    }

    fn manages(&self, _: &str) -> bool {
        true
    }

    fn all(&self) -> bool {
        true
    }
}
