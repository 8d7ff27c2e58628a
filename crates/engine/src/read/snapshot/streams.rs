//! Tables and streams, and statistics of a whole table.

use super::{Snapshot, SnapshotKind};
use crate::read::Bins;
use crate::read::across::{ConflictBounds, Conflicts};
use crate::read::coverage::{Coverage, whole_buckets};
use crate::read::describe::{StreamInfo, StreamPage};
use crate::read::filter::Filter;
use crate::read::handle::StreamHandle;
use crate::read::listing::{HandlePage, PageStart};
use crate::read::stretches::{Stretches, of_several};
use crate::read::summary::SummarySpec;
use crate::read::table_queries::{Accepts, ContinueCheck, OutermostSpec};
use crate::{ErrorKind, Result, TableInfo};
use headwater_types::{ClosedRange, FieldType, Level, StreamName};

impl Snapshot {
    /// The streams of a table whose tags have these values, by tags. An empty filter matches all.
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn streams(&self, table: &str, tags: &[(String, String)]) -> Result<Vec<StreamName>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.streams(table, tags),
            SnapshotKind::Across(all) => all.streams(table, tags),
        }
    }

    /// Counts the streams of a table with these tags that have an event in a range.
    ///
    /// # Errors
    /// `not_found` for an unknown table, `io`, `damaged`.
    pub fn streams_in(
        &self,
        table: &str,
        tags: &[(String, String)],
        range: ClosedRange,
    ) -> Result<u64> {
        let mut count = 0;
        for stream in self.streams(table, tags)? {
            let rows = SummarySpec {
                range,
                bins: Bins::Whole,
                fields: Vec::new(),
            };
            match self.summary(&stream, &rows) {
                Ok(bins) => count += u64::from(bins.iter().any(|bin| bin.rows > 0)),
                // The stream was dropped, or nothing was written to it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// At most `limit` streams of a table after `after`, in the order of the catalog: by tags,
    /// shorter texts first. For reading the streams of a table a page at a time.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for id in ["10", "9", "b"] {
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     batch.stream(&pump).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let snapshot = db.snapshot()?;
    /// let page = snapshot.streams_after("pump", None, 2)?;
    /// let rest = snapshot.streams_after("pump", page.last(), 2)?;
    /// let ids: Vec<_> = page.iter().chain(&rest).filter_map(|s| s.tag("id")).collect();
    /// assert_eq!(ids, ["9", "b", "10"]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn streams_after(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.streams_after(table, after, limit),
            SnapshotKind::Across(all) => all.streams_after(table, after, limit),
        }
    }

    /// Searches at most `limit` streams of a table after `after`, in the order of
    /// [`Snapshot::streams_after`], by their texts, and returns those for which `wanted` returns
    /// true: no names are made of streams that do not match.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for id in ["a 1", "b 1", "b 2"] {
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     batch.stream(&pump).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let mut is_b1 = |text: &str| text == r"pump,id=b\ 1";
    /// let page = db.snapshot()?.streams_where("pump", None, 2, &mut is_b1)?;
    /// assert_eq!(page.streams, [StreamName::new("pump", [("id", "b 1")])]);
    /// // There are more to look at.
    /// assert_eq!(page.next.as_ref(), page.streams.last());
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn streams_where(
        &self,
        table: &str,
        after: Option<&StreamName>,
        limit: usize,
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Result<StreamPage> {
        match &self.kind {
            SnapshotKind::Single(one) => one.streams_where(table, after, limit, wanted),
            SnapshotKind::Across(all) => all.streams_where(table, after, limit, wanted),
        }
    }

    /// At most `limit` streams of a table after `after` whose tags have one of the requested
    /// values, in the order of [`Snapshot::streams_after`]. Streams that do not match are skipped
    /// without being examined one by one, except those that differ in a tag before the requested
    /// ones.
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
    /// `not_found` for an unknown table.
    pub fn streams_having(
        &self,
        table: &str,
        wanted: &[(String, Vec<String>)],
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.streams_having(table, wanted, after, limit),
            SnapshotKind::Across(all) => all.streams_having(table, wanted, after, limit),
        }
    }

    /// At most `limit` streams of a table from `start` on, in the order in which they were created,
    /// ready to be read: for reading all streams of a table without their names in memory.
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
    /// `not_found` for an unknown table.
    pub fn handles_from(&self, table: &str, start: PageStart, limit: usize) -> Result<HandlePage> {
        match &self.kind {
            SnapshotKind::Single(one) => one.handles_from(table, start, limit),
            SnapshotKind::Across(all) => all.handles_from(table, start, limit),
        }
    }

    /// Looks a stream up, to read it many times, in this snapshot and in others.
    ///
    /// # Errors
    /// `not_found` for an unknown stream.
    pub fn handle(&self, stream: &StreamName) -> Result<StreamHandle> {
        match &self.kind {
            SnapshotKind::Single(one) => one.handle(stream),
            SnapshotKind::Across(all) => all.handle(stream),
        }
    }

    /// Number of streams of a table, by the catalog's count: including streams created after the
    /// snapshot.
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn stream_count(&self, table: &str) -> Result<u64> {
        match &self.kind {
            SnapshotKind::Single(one) => one.stream_count(table),
            SnapshotKind::Across(all) => all.stream_count(table),
        }
    }

    /// Describes a stream from its file metadata and memory: no row is read.
    ///
    /// # Errors
    /// `not_found` for an unknown stream, `corrupt`, `io`.
    pub fn stream_info(&self, stream: &StreamName) -> Result<StreamInfo> {
        match &self.kind {
            SnapshotKind::Single(one) => one.stream_info(stream),
            SnapshotKind::Across(all) => all.stream(stream)?.stream_info(),
        }
    }

    /// The type of a field of a stream.
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field.
    pub fn field_type(&self, stream: &StreamName, field: &str) -> Result<FieldType> {
        match &self.kind {
            SnapshotKind::Single(one) => one.field_type(stream, field),
            SnapshotKind::Across(all) => all.stream(stream)?.field_type(field),
        }
    }

    /// The fields of a stream's table, in the order they were added.
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn fields(&self, table: &str) -> Result<Vec<(String, FieldType)>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.fields(table),
            SnapshotKind::Across(all) => all.fields(table),
        }
    }

    /// The names of the indexes that can narrow down the rows of a table that pass these filters,
    /// which are as in a [`crate::ScanSpec`]. The use of an index is decided where rows are read,
    /// for each partition separately. For several databases the list is empty.
    ///
    /// # Errors
    /// `not_found` for an unknown table or field; `invalid` where a value has another type than its
    /// field.
    pub fn usable_indexes(
        &self,
        table: &str,
        filters: &[Filter],
        any_of: &[Vec<Filter>],
    ) -> Result<Vec<String>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.usable_indexes(table, filters, any_of),
            SnapshotKind::Across(_) => Ok(Vec::new()),
        }
    }

    /// The definition of a table; numbers of streams and tag keys are the current ones.
    ///
    /// # Errors
    /// `not_found` for an unknown table.
    pub fn table_info(&self, table: &str) -> Result<TableInfo> {
        match &self.kind {
            SnapshotKind::Single(one) => one.table_info(table),
            SnapshotKind::Across(all) => all.table_info(table),
        }
    }

    /// The tables, by name.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        match &self.kind {
            SnapshotKind::Single(one) => one.table_names(),
            SnapshotKind::Across(all) => all.table_names(),
        }
    }

    /// The number of rows of all streams of a table in a range, counted as by [`Snapshot::summary`]
    /// for one stream; `None` when `goes_on`, which is called now and then, returned false.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for id in ["1", "2", "3"] {
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     batch.stream(&pump).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let rows = db.snapshot()?.row_count("pump", ClosedRange::ALL, &mut || true)?;
    /// assert_eq!(rows, Some(3));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table, `corrupt`, `io`.
    pub fn row_count(
        &self,
        table: &str,
        range: ClosedRange,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Option<u64>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.row_count(table, range, goes_on),
            SnapshotKind::Across(all) => all.row_count(table, range, goes_on),
        }
    }

    /// At most `limit` streams with the newest (or oldest) rows of the table in a range: the first
    /// `limit` rows of the table, newest (or oldest) first, are rows of these streams. Of rows of
    /// one instant any may come first. `accepts` is called for a stream that would be in the
    /// result, and excludes it by returning false; `None` accepts all. Fewer than requested when
    /// `goes_on` returned false.
    ///
    /// ```
    /// use headwater_engine::{Database, Options, OutermostSpec};
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// for (id, at) in [("1", 5), ("2", 7), ("3", 6)] {
    ///     let pump = StreamName::new("pump", [("id", id)]);
    ///     batch.stream(&pump).row(at, [("rpm", 2150.0.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let spec = OutermostSpec { range: ClosedRange::ALL, newest: true, limit: 2 };
    /// let streams = db.snapshot()?.outermost_streams("pump", &spec, None, &mut || true)?;
    /// let ids: Vec<_> = streams.iter().filter_map(|s| s.tag("id")).collect();
    /// assert_eq!(ids, ["2", "3"]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table, `corrupt`, `io`, and any error of `accepts`.
    pub fn outermost_streams(
        &self,
        table: &str,
        spec: &OutermostSpec,
        accepts: Option<Accepts<'_>>,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Vec<StreamName>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.outermost_streams(table, spec, accepts, goes_on),
            SnapshotKind::Across(all) => all.outermost_streams(table, spec, accepts, goes_on),
        }
    }

    /// Availability of a stream in a range, by time; for several databases with a stretch for each
    /// part that is read. With a level, the requested data is the data that tiles at this level and
    /// above need whose buckets meet the range; without one, rows. No leaf of a main run is read.
    ///
    /// # Errors
    /// `not_found` for an unknown stream, `corrupt`, `io`.
    pub fn coverage(
        &self,
        stream: &StreamName,
        range: ClosedRange,
        level: Option<Level>,
    ) -> Result<Vec<Coverage>> {
        match &self.kind {
            SnapshotKind::Single(one) => {
                let coverage =
                    one.coverage_found(one.find(stream)?, whole_buckets(range, level), level)?;
                Ok(vec![coverage])
            }
            SnapshotKind::Across(all) => all.stream(stream)?.coverage(range, level),
        }
    }

    /// The streams of a table of which several databases have rows at the same time, or of which a
    /// database has rows that another one owns, with the stretches and the number of rows that are
    /// not shown. The work is bounded. For one database the list is empty.
    ///
    /// ```
    /// use headwater_engine::{AddedTags, ConflictBounds, Database, Options, Snapshot, SnapshotPart};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let mut parts = Vec::new();
    /// for (rank, name) in [(1, "edge-a"), (2, "edge-b")] {
    ///     let db = Database::open(Options::new(dir.path().join(name)))?;
    ///     let mut batch = Batch::new();
    ///     let pump = StreamName::new("pump", [("id", "7")]);
    ///     batch.stream(&pump).row(5, [("rpm", 1.0.into())]).unwrap();
    ///     db.commit(batch)?;
    ///     let (snapshot, tags) = (db.snapshot()?, AddedTags::default());
    ///     parts.push(SnapshotPart { name: name.into(), rank, snapshot, tags });
    /// }
    /// let both = Snapshot::of_parts(parts)?;
    /// let found = both.conflicts("pump", &ConflictBounds::default())?;
    /// assert_eq!((&*found.list[0].part, found.list[0].hidden_rows), ("edge-b", Some(1)));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table, `elsewhere` while a part cannot be read, `corrupt`, `io`.
    pub fn conflicts(&self, table: &str, bounds: &ConflictBounds) -> Result<Conflicts> {
        match &self.kind {
            SnapshotKind::Single(one) => one.table(table).map(|_| Conflicts {
                is_complete: true,
                ..Conflicts::default()
            }),
            SnapshotKind::Across(all) => all.conflicts(table, bounds),
        }
    }

    /// Level of the widest buckets that aging has left of a stream in a range; `None` = all of its
    /// rows exist. A summary by this level, or a coarser one, counts each bucket in one bin.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// assert_eq!(db.snapshot()?.aged_level(&pump, &ClosedRange::ALL)?, None);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown stream, `elsewhere` where a copy does not know its own content
    /// yet, `invalid` for a view of several databases, `corrupt`, `io`.
    pub fn aged_level(&self, stream: &StreamName, range: &ClosedRange) -> Result<Option<Level>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.aged_level(stream, range),
            SnapshotKind::Across(_) => Err(of_several("levels left by aging")),
        }
    }

    /// The stretches where a table has rows, with imprints that show whether a stretch is unchanged
    /// since an earlier call, perhaps in another process. Only metadata are read.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// assert_eq!(db.snapshot()?.stretches("pump")?.all[0].imprint, None);
    /// db.flush()?;
    /// let stored = db.snapshot()?.stretches("pump")?;
    /// assert!(stored.all[0].imprint.is_some());
    /// db.close()?;
    /// drop(db);
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// assert_eq!(db.snapshot()?.stretches("pump")?, stored);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown table, `invalid` for a view of several databases.
    pub fn stretches(&self, table: &str) -> Result<Stretches> {
        match &self.kind {
            SnapshotKind::Single(one) => one.stretches(table),
            SnapshotKind::Across(_) => Err(of_several("stretches")),
        }
    }
}
