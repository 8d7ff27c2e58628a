//! The streams of a table a page at a time: by number, ready to be read, or those whose tags have
//! certain values.
//!
//! Invariants: a snapshot finds what it would find by name: also what was dropped since, and not
//! what was dropped before. By number, streams lie as they do in segments: who reads all of them
//! goes through each page of a segment once.
//! Concurrency: nothing is held between two pages.

use super::handle::StreamHandle;
use super::snapshot::Snapshot;
use crate::Result;
use crate::catalog::{Having, decode_stream_key};
use crate::ids::StreamId;
use headwater_types::StreamName;

/// Some streams of a table, looked up.
#[derive(Clone, Debug, Default)]
pub struct HandlePage {
    /// In the order in which they were made.
    pub streams: Vec<StreamHandle>,
    /// Where to go on; `None` at the end of the table.
    pub next: Option<PageStart>,
}

/// Where a page of streams begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStart(StreamId);

impl Snapshot {
    /// At most `limit` streams of a table from `start` on, in the order in which they were made,
    /// ready to be read: to go through all streams of a table without holding their names.
    ///
    /// ```
    /// use headwater_engine::{Database, Options, PageStart};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// for id in ["b", "a", "c"] {
    ///     let mut batch = Batch::new();
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     batch.stream(&pump).row(1, [("rpm", 2150.0.into())]).unwrap();
    ///     db.commit(batch)?;
    /// }
    /// let snapshot = db.snapshot()?;
    /// let mut ids = Vec::new();
    /// let mut start = Some(PageStart::default());
    /// while let Some(from) = start {
    ///     let page = snapshot.handles_from("pump", from, 2)?;
    ///     ids.extend(page.streams.iter().filter_map(|s| s.name().tag("id")).map(str::to_owned));
    ///     start = page.next;
    /// }
    /// assert_eq!(ids, ["b", "a", "c"]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` without such a table.
    pub fn handles_from(&self, table: &str, start: PageStart, limit: usize) -> Result<HandlePage> {
        let core = self.core();
        let table = self.table(table)?;
        let (catalog, meta) = (&core.catalog, &*core.meta);
        let (records, next) =
            catalog.streams_by_number(meta, table.id, start.0, limit, self.at())?;
        let mut streams = Vec::with_capacity(records.len());
        for record in records {
            let name = decode_stream_key(&table.name, &record.key)
                .map_err(|e| crate::Error::decode(core.meta.path(), 0, e))?;
            let found = self.resolved(table, core.shards.of_key(&record.key), record.id)?;
            streams.push(StreamHandle::new(name, core, &found));
        }
        Ok(HandlePage {
            streams,
            next: next.map(PageStart),
        })
    }

    /// At most `limit` streams of a table behind `after` whose tags have one of the values given,
    /// in the order of [`Snapshot::streams_after`]. Streams that do not are not looked at one by
    /// one, but for those that differ in a tag before the ones given.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for (id, site) in [("1", "a"), ("2", "b"), ("3", "a")] {
    ///     let pump = StreamName::new("pump", [("id", id), ("site", site)]);
    ///     batch.stream(&pump).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let wanted = [("site".to_owned(), vec!["a".to_owned()])];
    /// let found = db.snapshot()?.streams_having("pump", &wanted, None, 10)?;
    /// let ids: Vec<_> = found.iter().filter_map(|s| s.tag("id")).collect();
    /// assert_eq!(ids, ["1", "3"]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` without such a table.
    pub fn streams_having(
        &self,
        table: &str,
        wanted: &[(String, Vec<String>)],
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        let mut streams = Vec::new();
        let table = self.table(table)?;
        let having = Having::new(wanted);
        self.each_key_after(table, after, &having, limit, &mut |key| {
            streams.push(decode_stream_key(&table.name, key)?);
            Ok(())
        })?;
        Ok(streams)
    }
}
