//! Rights of a client: the streams that it may see and change.
//!
//! Invariants: every query checks the rights; a client that may not see a stream cannot tell that
//! it exists. Concurrency: called from any thread, also while a query runs.

use crate::error::ok_if_found;
use headwater::{FieldType, Result, Snapshot};
use std::collections::BTreeSet;

/// Rights of a client, checked for each stream by its table and tags.
pub trait Access: Send + Sync {
    /// Whether the client may read this stream.
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// Whether the client may write to this stream, and delete from it.
    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// Whether the client may create, change and drop this table. If so, the client sees the
    /// table's columns even while the table has no streams.
    fn manages(&self, table: &str) -> bool;

    /// Whether the client may read everything, so that it may know the names of databases.
    fn reads_everything(&self) -> bool {
        false
    }

    /// The id of the client's token; `None` if tokens are not in use.
    fn token(&self) -> Option<String> {
        None
    }

    /// Whether the client may read some stream of this table, judged by the table's name alone.
    /// Each stream must still be checked.
    fn reads_some_of(&self, table: &str) -> bool {
        let _ = table;
        true
    }

    /// The fields of a table that the client may know of; `None` = all of them. Called for tables
    /// of which the client may read or manage something. A field that exists only in streams that
    /// the client may not read is excluded, since it would reveal these streams.
    ///
    /// # Errors
    /// Errors of reading the snapshot.
    fn fields(&self, snapshot: &Snapshot, table: &str) -> Result<Option<BTreeSet<String>>> {
        let _ = (snapshot, table);
        Ok(None)
    }

    /// The fields of a table that the client may know of, with their types, in the order of the
    /// table; `None` when the table does not exist or the client may not see it.
    ///
    /// # Errors
    /// Errors of reading the snapshot, except `not_found`.
    fn typed_fields(
        &self,
        snapshot: &Snapshot,
        table: &str,
    ) -> Result<Option<Vec<(String, FieldType)>>> {
        if !self.reads_some_of(table) {
            return Ok(None);
        }
        let Some(mut known) = ok_if_found(snapshot.fields(table))? else {
            return Ok(None);
        };
        if let Some(told) = self.fields(snapshot, table)? {
            known.retain(|(name, _)| told.contains(name));
        }
        Ok(Some(known))
    }

    /// True when the client has all rights: then no other check is made.
    fn all(&self) -> bool;

    /// True when the client may read every stream of every table, including future streams: then
    /// tables and fields without streams are visible too.
    fn reads_all(&self) -> bool {
        self.all()
    }

    /// Whether the client may read anything at all. Otherwise every query is refused, even a query
    /// without a table.
    fn may_query(&self) -> bool {
        true
    }

    /// Whether the client may write to some table whose name is longer than `beginning` and starts
    /// with it.
    fn writes_some_with_prefix(&self, beginning: &str) -> bool {
        let _ = beginning;
        true
    }

    /// Clients with the same key have the same rights; a statement prepared for one client is
    /// reused for the others. `None` = no sharing.
    fn key(&self) -> Option<String> {
        None
    }
}

/// All rights: for programs that own the database.
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

    fn reads_everything(&self) -> bool {
        true
    }
}
