//! Rights of a client: the streams that it may see and change.
//!
//! Invariants: every query checks the rights; a client that may not see a stream cannot tell that
//! it exists.
//! Concurrency: called from any thread, also while a query runs.

use crate::error::found;
use headwater::{FieldType, Result, Snapshot};
use std::collections::BTreeSet;

/// Rights of a client, checked for each stream by its table and tags.
pub trait Access: Send + Sync {
    /// May it read this stream?
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// May it write to this stream, and delete from it?
    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// Whether the client may make, change and drop this table. A client that may sees the table's
    /// columns while it has no streams yet.
    fn manages(&self, table: &str) -> bool;

    /// The id of the client's token; `None` where none are in use.
    fn token(&self) -> Option<String> {
        None
    }

    /// Could there be a stream of this table that it may read, as far as the table's name says?
    /// Each must still be checked.
    fn reads_some_of(&self, table: &str) -> bool {
        let _ = table;
        true
    }

    /// The fields of a table that the client may know of, of those that it has; `None` = all. Asked
    /// for a table of which it may read or manage something. A field that only streams have that it
    /// may not read would tell that there are such streams.
    ///
    /// # Errors
    /// Errors of reading the snapshot.
    fn fields(&self, snapshot: &Snapshot, table: &str) -> Result<Option<BTreeSet<String>>> {
        let _ = (snapshot, table);
        Ok(None)
    }

    /// The fields of a table that the client may know of, with their types, in the order of the
    /// table; `None` when there is no such table, or the client sees none of it.
    ///
    /// # Errors
    /// Errors of reading the snapshot, but for `not_found`.
    fn typed_fields(
        &self,
        snapshot: &Snapshot,
        table: &str,
    ) -> Result<Option<Vec<(String, FieldType)>>> {
        if !self.reads_some_of(table) {
            return Ok(None);
        }
        let Some(mut known) = found(snapshot.fields(table))? else {
            return Ok(None);
        };
        if let Some(told) = self.fields(snapshot, table)? {
            known.retain(|(name, _)| told.contains(name));
        }
        Ok(Some(known))
    }

    /// True when it may do everything: then nothing else is checked.
    fn all(&self) -> bool;

    /// True when it may read every stream of every table, those included that come yet: then it is
    /// shown tables and fields without streams too.
    fn reads_all(&self) -> bool {
        self.all()
    }

    /// Whether the client may read anything at all. One that may not runs no query, not even one
    /// without a table.
    fn asks(&self) -> bool {
        true
    }

    /// May it write to some table whose name begins so and goes on?
    fn writes_some_behind(&self, beginning: &str) -> bool {
        let _ = beginning;
        true
    }

    /// Askers with the same key may do the same; what was prepared for one is used for the others
    /// then. `None` shares nothing.
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
