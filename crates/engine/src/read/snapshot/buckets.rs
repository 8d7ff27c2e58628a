//! Buckets of a stream: aggregates, summaries, tiles, and their version.

use super::{Snapshot, SnapshotKind};
use crate::Result;
use crate::read::aggregate::{AggregateSpec, Bin};
use crate::read::summary::{SummaryBin, SummarySpec};
use crate::read::version::DataVersion;
use headwater_types::{Aggregate, ClosedRange, Level, StreamName};

impl Snapshot {
    /// Aggregates of one field over a range, whole or in bins. Bins without a value are left out.
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field, `invalid` for a bin width of 0 or less,
    /// `corrupt`, `io`.
    pub fn aggregate(
        &self,
        stream: &StreamName,
        field: &str,
        spec: &AggregateSpec,
    ) -> Result<Vec<Bin>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.aggregate(stream, field, spec),
            SnapshotKind::Across(all) => all.stream(stream)?.aggregate(field, spec),
        }
    }

    /// Rows and aggregates of several fields over a range, whole or in bins; bins without a row are
    /// left out. Whole buckets come from the pyramid.
    ///
    /// ```
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// use headwater_engine::{Bins, Database, Options, SummarySpec};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into()), ("on", true.into())]).unwrap();
    /// batch.stream(&pump).row(7, [("on", false.into())]).unwrap();
    /// db.commit(batch)?;
    /// let fields = vec!["rpm".into()];
    /// let spec = SummarySpec { range: ClosedRange::ALL, bins: Bins::Whole, fields };
    /// let bins = db.snapshot()?.summary(&pump, &spec)?;
    /// assert_eq!((bins[0].rows, bins[0].aggregates[0].count), (2, 1));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field, `invalid` for a bin width of 0 or less,
    /// `corrupt`, `io`.
    pub fn summary(&self, stream: &StreamName, spec: &SummarySpec) -> Result<Vec<SummaryBin>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.summary(stream, spec),
            SnapshotKind::Across(all) => all.stream(stream)?.summary(spec),
        }
    }

    /// The filled buckets of a tile: bucket numbers of the level, with the field's aggregates.
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field, `corrupt`, `io`. A tile outside the range of
    /// instants is empty.
    pub fn tile(
        &self,
        stream: &StreamName,
        field: &str,
        level: Level,
        offset: i64,
    ) -> Result<Vec<(i64, Aggregate)>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.tile(stream, field, level, offset),
            SnapshotKind::Across(all) => all.stream(stream)?.tile(field, level, offset),
        }
    }

    /// The version of a range of a stream in this snapshot: equal versions mean equal results of
    /// every read of the range. `None` when the table's values expire, so that time alone changes
    /// results.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let write = |time| {
    ///     let mut batch = Batch::new();
    ///     batch.stream(&pump).row(time, [("rpm", 2150.0.into())]).unwrap();
    ///     db.commit(batch)
    /// };
    /// write(5)?;
    /// let range = ClosedRange::nanos(0, 9);
    /// let before = db.snapshot()?.version(&pump, &range)?;
    /// write(50)?;
    /// assert_eq!(db.snapshot()?.version(&pump, &range)?, before);
    /// write(6)?;
    /// assert_ne!(db.snapshot()?.version(&pump, &range)?, before);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown stream.
    pub fn version(&self, stream: &StreamName, range: &ClosedRange) -> Result<Option<DataVersion>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.version(stream, range),
            SnapshotKind::Across(all) => all.stream(stream)?.version(range),
        }
    }
}
