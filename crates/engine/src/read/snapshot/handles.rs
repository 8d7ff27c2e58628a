//! Reads of streams that were looked up once.
//!
//! Invariants, concurrency, failure: as for the same reads by name in [`Snapshot`].

use super::{Scan, Snapshot, SnapshotKind};
use crate::Result;
use crate::read::aggregate::{AggregateSpec, Bin};
use crate::read::coverage::{Coverage, whole_buckets};
use crate::read::describe::StreamInfo;
use crate::read::ends::RangeEnd;
use crate::read::handle::StreamHandle;
use crate::read::last::LastValue;
use crate::read::scan::ScanSpec;
use crate::read::single::SingleSnapshot;
use crate::read::summary::{SummaryBin, SummarySpec};
use crate::read::version::DataVersion;
use crate::read::visit::{self, RowBlock};
use headwater_types::{Aggregate, ClosedRange, FieldType, Level, Timestamp, Value};

impl StreamHandle {
    /// As [`Snapshot::scan`].
    ///
    /// # Errors
    /// As for [`Snapshot::scan`].
    pub fn scan(&self, snapshot: &Snapshot, spec: &ScanSpec) -> Result<Scan> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one
                .scan_found(one.find_again(self)?, spec)
                .map(Scan::of_one),
            SnapshotKind::Across(all) => all.stream_again(self)?.scan(spec).map(Scan::of_several),
        }
    }

    /// The ranges of time outside of which no row meets the conditions of a scan, by the pyramid
    /// and by indexes; sorted, disjoint. Rows within the ranges need not meet the conditions. The
    /// fields of the spec are ignored.
    ///
    /// ```
    /// use headwater_engine::{Comparison, Database, Filter, Options, ScanSpec};
    /// use headwater_types::{Batch, ClosedRange, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// let mut batch = Batch::new();
    /// for (time, rpm) in [(5, 2150.0), (7, 2180.0), (9, 2170.0)] {
    ///     batch.stream(&pump).row(time, [("rpm", rpm.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// let snapshot = db.snapshot()?;
    /// let filters = vec![Filter {
    ///     field: "rpm".into(),
    ///     comparison: Comparison::Greater,
    ///     value: 2160.0.into(),
    /// }];
    /// let spec = ScanSpec { filters, ..ScanSpec::default() };
    /// let spans = snapshot.handle(&pump)?.spans(&snapshot, &spec)?;
    /// assert_eq!(spans, [ClosedRange::nanos(7, 7), ClosedRange::nanos(9, 9)]);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Snapshot::scan`].
    pub fn spans(&self, snapshot: &Snapshot, spec: &ScanSpec) -> Result<Vec<ClosedRange>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.scan_found(one.find_again(self)?, spec)?.spans(),
            SnapshotKind::Across(all) => all.stream_again(self)?.spans(spec),
        }
    }

    /// As [`Snapshot::visit`].
    ///
    /// # Errors
    /// As for [`Snapshot::visit`].
    pub fn visit(
        &self,
        snapshot: &Snapshot,
        spec: &ScanSpec,
        each: impl FnMut(RowBlock<'_>),
    ) -> Result<()> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => visit::visit(one, one.find_again(self)?, spec, each),
            SnapshotKind::Across(all) => all.stream_again(self)?.visit(spec, each),
        }
    }

    /// As [`Snapshot::last`].
    ///
    /// # Errors
    /// As for [`Snapshot::last`].
    pub fn last(&self, snapshot: &Snapshot) -> Result<Vec<LastValue>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.last_found(one.find_again(self)?),
            SnapshotKind::Across(all) => all.stream_again(self)?.last(),
        }
    }

    /// As [`Snapshot::first_in`].
    ///
    /// # Errors
    /// As for [`Snapshot::first_in`].
    pub fn first_in(
        &self,
        snapshot: &Snapshot,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                one.end_found(one.find_again(self)?, field, range, RangeEnd::First)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.first_in(field, range),
        }
    }

    /// As [`Snapshot::last_in`].
    ///
    /// # Errors
    /// As for [`Snapshot::last_in`].
    pub fn last_in(
        &self,
        snapshot: &Snapshot,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                one.end_found(one.find_again(self)?, field, range, RangeEnd::Last)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.last_in(field, range),
        }
    }

    /// As [`Snapshot::first_row_in`].
    ///
    /// # Errors
    /// As for [`Snapshot::first_row_in`].
    pub fn first_row_in(
        &self,
        snapshot: &Snapshot,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                one.row_found(one.find_again(self)?, range, RangeEnd::First)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.first_row_in(range),
        }
    }

    /// As [`Snapshot::last_row_in`].
    ///
    /// # Errors
    /// As for [`Snapshot::last_row_in`].
    pub fn last_row_in(
        &self,
        snapshot: &Snapshot,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                one.row_found(one.find_again(self)?, range, RangeEnd::Last)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.last_row_in(range),
        }
    }

    /// As [`Snapshot::aggregate`].
    ///
    /// # Errors
    /// As for [`Snapshot::aggregate`].
    pub fn aggregate(
        &self,
        snapshot: &Snapshot,
        field: &str,
        spec: &AggregateSpec,
    ) -> Result<Vec<Bin>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.aggregate_found(one.find_again(self)?, field, spec),
            SnapshotKind::Across(all) => all.stream_again(self)?.aggregate(field, spec),
        }
    }

    /// As [`Snapshot::summary`].
    ///
    /// # Errors
    /// As for [`Snapshot::summary`].
    pub fn summary(&self, snapshot: &Snapshot, spec: &SummarySpec) -> Result<Vec<SummaryBin>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.summary_found(one.find_again(self)?, spec),
            SnapshotKind::Across(all) => all.stream_again(self)?.summary(spec),
        }
    }

    /// As [`Snapshot::tile`].
    ///
    /// # Errors
    /// As for [`Snapshot::tile`].
    pub fn tile(
        &self,
        snapshot: &Snapshot,
        field: &str,
        level: Level,
        offset: i64,
    ) -> Result<Vec<(i64, Aggregate)>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                one.tile_found(one.find_again(self)?, field, level, offset)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.tile(field, level, offset),
        }
    }

    /// As [`Snapshot::field_type`].
    ///
    /// # Errors
    /// As for [`Snapshot::field_type`].
    pub fn field_type(&self, snapshot: &Snapshot, field: &str) -> Result<FieldType> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                SingleSnapshot::field_type_found(&one.find_again(self)?, field)
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.field_type(field),
        }
    }

    /// As [`Snapshot::stream_info`].
    ///
    /// # Errors
    /// As for [`Snapshot::stream_info`].
    pub fn info(&self, snapshot: &Snapshot) -> Result<StreamInfo> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.info_found(one.find_again(self)?),
            SnapshotKind::Across(all) => all.stream_again(self)?.stream_info(),
        }
    }

    /// As [`Snapshot::version`].
    ///
    /// # Errors
    /// As for [`Snapshot::version`].
    pub fn version(&self, snapshot: &Snapshot, range: &ClosedRange) -> Result<Option<DataVersion>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => one.version_found(one.find_again(self)?, range),
            SnapshotKind::Across(all) => all.stream_again(self)?.version(range),
        }
    }

    /// As [`Snapshot::coverage`].
    ///
    /// # Errors
    /// As for [`Snapshot::coverage`].
    pub fn coverage(
        &self,
        snapshot: &Snapshot,
        range: ClosedRange,
        level: Option<Level>,
    ) -> Result<Vec<Coverage>> {
        match &snapshot.kind {
            SnapshotKind::Single(one) => {
                let range = whole_buckets(range, level);
                Ok(vec![one.coverage_found(
                    one.find_again(self)?,
                    range,
                    level,
                )?])
            }
            SnapshotKind::Across(all) => all.stream_again(self)?.coverage(range, level),
        }
    }
}
