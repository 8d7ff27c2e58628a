//! Change numbers of tables, for clients that read again only changed tables.
//!
//! Invariants: as of [`crate::core::TableChanges`]. Concurrency: a lookup in the catalog and one in
//! a map.

use crate::Database;

impl Database {
    /// The newest record that concerns a table, since the database was opened: a write, a delete, a
    /// change of its definition or of its retention; 0 when there was none. A snapshot whose
    /// [`crate::Snapshot::sequence`] is not smaller shows the same content of the table, but for
    /// values that expire and rows that age meanwhile. `None` without such a table.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path()))?;
    /// let write = |table: &str| {
    ///     let mut batch = Batch::new();
    ///     let stream = StreamName::new(table, [("id", "7")]);
    ///     batch.stream(&stream).row(5, [("v", 1.5.into())]).unwrap();
    ///     db.commit(batch)
    /// };
    /// write("pump")?;
    /// let seen = db.snapshot()?.sequence();
    /// write("other")?;
    /// assert!(db.changed_at("pump").unwrap() <= seen);
    /// assert!(db.changed_at("other").unwrap() > seen);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    #[must_use]
    pub fn changed_at(&self, table: &str) -> Option<u64> {
        let core = self.core();
        let table = core.catalog.table_named(table)?;
        Some(core.table_changes.newest(table.id).0)
    }
}
