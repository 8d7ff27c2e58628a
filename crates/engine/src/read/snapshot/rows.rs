//! Rows of a stream: all rows of a range, as copies or in place, the newest, and the rows at the
//! ends.

use super::{Snapshot, SnapshotKind};
use crate::Result;
use crate::read::across::AcrossScan;
use crate::read::last::LastValue;
use crate::read::scan::{ScanChunk, ScanSpec, SingleScan};
use crate::read::visit::RowBlock;
use headwater_types::{ClosedRange, FieldType, StreamName, Timestamp, Value};
use std::fmt;

/// An iterator over the rows of a stream, by time. The data that it reads stays alive, except for
/// its snapshot's memory.
pub struct Scan(Rows);

#[allow(
    clippy::large_enum_variant,
    reason = "a scan of one database is the usual one, and takes no allocation"
)]
enum Rows {
    Single(SingleScan),
    Across(Box<AcrossScan>),
}

impl Scan {
    pub(super) fn of_one(scan: SingleScan) -> Scan {
        Scan(Rows::Single(scan))
    }

    pub(super) fn of_several(scan: AcrossScan) -> Scan {
        Scan(Rows::Across(Box::new(scan)))
    }

    /// Names and types of the columns of every chunk.
    #[must_use]
    pub fn fields(&self) -> &[(String, FieldType)] {
        match &self.0 {
            Rows::Single(scan) => scan.fields(),
            Rows::Across(scan) => scan.fields(),
        }
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("fields", &self.fields())
            .finish_non_exhaustive()
    }
}

impl Iterator for Scan {
    type Item = Result<ScanChunk>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Rows::Single(scan) => scan.next(),
            Rows::Across(scan) => scan.next(),
        }
    }
}

impl Snapshot {
    /// The rows of a stream in a range, by time; rows of equal time by arrival.
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field, `invalid` for a filter of another type than its
    /// field. The iterator yields `corrupt` for a damaged part and continues after it.
    pub fn scan(&self, stream: &StreamName, spec: &ScanSpec) -> Result<Scan> {
        match &self.kind {
            SnapshotKind::Single(one) => one.scan(stream, spec).map(Scan::of_one),
            SnapshotKind::Across(all) => all.stream(stream)?.scan(spec).map(Scan::of_several),
        }
    }

    /// The rows of [`Snapshot::scan`], passed to `each` in place, some at a time: rows in memory or
    /// decoded already are not copied; rows that must be merged are copied first. For programs that
    /// put rows into memory of their own.
    ///
    /// ```
    /// use headwater_engine::{Database, Options, ScanSpec};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let mut batch = Batch::new();
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// let (mut times, mut values) = (Vec::new(), Vec::new());
    /// db.snapshot()?.visit(&pump, &ScanSpec::default(), |rows| {
    ///     times.extend_from_slice(rows.times());
    ///     values.extend_from_slice(rows.column(0).and_then(|c| c.f64s()).unwrap_or_default());
    /// })?;
    /// assert_eq!((times, values), (vec![5], vec![2150.0]));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Snapshot::scan`]; the first error ends the read, `corrupt` too.
    pub fn visit(
        &self,
        stream: &StreamName,
        spec: &ScanSpec,
        each: impl FnMut(RowBlock<'_>),
    ) -> Result<()> {
        match &self.kind {
            SnapshotKind::Single(one) => one.visit(stream, spec, each),
            SnapshotKind::Across(all) => all.stream(stream)?.visit(spec, each),
        }
    }

    /// The newest present value of each field; fields without any are left out.
    ///
    /// # Errors
    /// `not_found` for an unknown stream, `corrupt`, `io`.
    pub fn last(&self, stream: &StreamName) -> Result<Vec<LastValue>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.last(stream),
            SnapshotKind::Across(all) => all.stream(stream)?.last(),
        }
    }

    /// The earliest value of a field in a range: the first one that a scan of the range returns.
    /// Little more is read than the leaf of the value.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, ClosedRange, StreamName, Timestamp};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let mut batch = Batch::new();
    /// for (time, rpm) in [(5, 2150.0), (7, 2180.0), (9, 2170.0)] {
    ///     batch.stream(&pump).row(time, [("rpm", rpm.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let snapshot = db.snapshot()?;
    /// let range = ClosedRange::nanos(6, 8);
    /// let first = snapshot.first_in(&pump, "rpm", range)?;
    /// assert_eq!(first, Some((Timestamp::from_nanos(7), 2180.0.into())));
    /// assert_eq!(snapshot.last_in(&pump, "rpm", range)?, first);
    /// assert_eq!(snapshot.last_row_in(&pump, ClosedRange::ALL)?, Some(Timestamp::from_nanos(9)));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for an unknown stream or field, `corrupt`, `io`.
    pub fn first_in(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.first_in(stream, field, range),
            SnapshotKind::Across(all) => all.stream(stream)?.first_in(field, range),
        }
    }

    /// The latest value of a field in a range: the last one that a scan of the range returns.
    ///
    /// # Errors
    /// As for [`Snapshot::first_in`].
    pub fn last_in(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.last_in(stream, field, range),
            SnapshotKind::Across(all) => all.stream(stream)?.last_in(field, range),
        }
    }

    /// The instant of the earliest row in a range, with any fields.
    ///
    /// # Errors
    /// `not_found` for an unknown stream, `corrupt`, `io`.
    pub fn first_row_in(
        &self,
        stream: &StreamName,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.first_row_in(stream, range),
            SnapshotKind::Across(all) => all.stream(stream)?.first_row_in(range),
        }
    }

    /// The instant of the latest row in a range, with any fields.
    ///
    /// # Errors
    /// As for [`Snapshot::first_row_in`].
    pub fn last_row_in(
        &self,
        stream: &StreamName,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        match &self.kind {
            SnapshotKind::Single(one) => one.last_row_in(stream, range),
            SnapshotKind::Across(all) => all.stream(stream)?.last_row_in(range),
        }
    }
}
