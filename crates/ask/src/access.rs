//! What an asker may see and change.
//!
//! Invariants: every question asks; who may not see a stream cannot tell that it exists.
//! Concurrency: asked from any thread, also while a question is worked on.

use crate::error::found;
use headwater::{FieldType, Result, Snapshot};
use std::collections::BTreeSet;

/// What an asker may see and change. Asked for each stream by its table and tags.
pub trait Access: Send + Sync {
    /// May it read this stream?
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// May it write to this stream, and delete from it?
    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool;

    /// May it make, change and drop this table? Who may, sees its columns while it has no streams
    /// yet.
    fn manages(&self, table: &str) -> bool;

    /// The token that the asker shows, by its id; `None` where none are in use.
    fn token(&self) -> Option<String> {
        None
    }

    /// Could there be a stream of this table that it may read, as far as the table's name says?
    /// Each must still be asked about.
    fn reads_some_of(&self, table: &str) -> bool {
        let _ = table;
        true
    }

    /// The fields of a table that the asker is told of, of those that it has; `None` = all. Asked
    /// for a table of which it may read or manage something. A field that only streams have that it
    /// may not read would tell that there are such streams.
    ///
    /// # Errors
    /// What reading the snapshot says.
    fn fields(&self, snapshot: &Snapshot, table: &str) -> Result<Option<BTreeSet<String>>> {
        let _ = (snapshot, table);
        Ok(None)
    }

    /// The fields of a table that the asker is told of, with their types, in the order of the
    /// table; `None` when there is no such table, or the asker sees none of it.
    ///
    /// # Errors
    /// What reading the snapshot says, but for `not_found`.
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

    /// True when it may do everything: then nothing else is asked.
    fn all(&self) -> bool;

    /// True when it may read every stream of every table, those included that come yet: then it is
    /// told of tables and fields without streams too.
    fn reads_all(&self) -> bool {
        self.all()
    }

    /// May it read anything at all? Who may not, asks nothing, not even without a table.
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
