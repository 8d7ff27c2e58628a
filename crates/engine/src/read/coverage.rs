//! Coverage: the bytes of a stream that a copy with missing ranges has, determined without reading
//! a leaf of its main runs.
//!
//! Invariants: where the coverage reports everything as present, no read of the range is
//! `elsewhere`. In a database that is not a copy everything is present. Concurrency, failure: as in
//! [`super`]; the metadata of the coverage may themselves be elsewhere, and then they are among the
//! missing ranges.

use super::single::{ResolvedStream, SingleSnapshot};
use super::view::StreamView;
use crate::replication::needed::needed_of_stream;
use crate::storage::segment::{MissedRange, Partition, PresentRanges};
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, Level, Timestamp};
use std::sync::Arc;

/// Availability of a stretch of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Of several databases, the part that the stretch is read from. `None` for one database, and
    /// where the owner of the stretch is not among the parts.
    pub part: Option<Arc<str>>,
    /// The stretch, extended to whole buckets where buckets were requested.
    pub range: ClosedRange,
    /// True when all requested data can be read.
    pub is_here: bool,
    /// The last instant up to which all requested data can be read; `None` = data is missing from
    /// the beginning of the stream on.
    pub until: Option<Timestamp>,
    /// True when some data is shown in an older version: later changes are not visible yet.
    pub is_older: bool,
    /// The missing ranges, by segment and offset, as far as known: footers and late rows may reveal
    /// more.
    pub missing: Vec<MissedRange>,
}

impl Coverage {
    /// The coverage of a stretch that is completely present.
    pub(super) fn full(range: ClosedRange) -> Coverage {
        Coverage {
            part: None,
            range,
            is_here: true,
            until: Some(range.last),
            is_older: false,
            missing: Vec::new(),
        }
    }

    /// The coverage of a stretch whose owner is not among the parts.
    pub(super) fn elsewhere(range: ClosedRange) -> Coverage {
        Coverage {
            is_here: false,
            until: None,
            ..Coverage::full(range)
        }
    }

    /// Records that data is missing from this instant on.
    fn ends_before(&mut self, at: Timestamp) {
        let before = at.previous().filter(|last| *last >= self.range.first);
        self.until = self.until.min(before);
    }
}

/// A range of a partition to examine.
struct PartitionRange<'a> {
    view: &'a StreamView,
    here: &'a dyn PresentRanges,
    level: Option<Level>,
    range: ClosedRange,
}

impl PartitionRange<'_> {
    fn partition(&self, partition: &Partition, coverage: &mut Coverage) -> Result<()> {
        let span = partition.span().intersect(&self.range);
        if self.here.is_older(partition.id()) {
            coverage.is_older = true;
        }
        match self.stream(partition, coverage) {
            Err(error) if error.kind() == ErrorKind::Elsewhere => {
                coverage.is_here = false;
                coverage.ends_before(span.first);
                let segment = partition.id();
                let missing = self.here.missing_frame(segment).into_iter();
                let missing = missing.map(|range| MissedRange::of(segment, range));
                coverage.missing.extend(missing);
                Ok(())
            }
            other => other,
        }
    }

    fn stream(&self, partition: &Partition, coverage: &mut Coverage) -> Result<()> {
        let store = &self.view.core.store;
        let span = partition.span().intersect(&self.range);
        let state = store.state(partition)?;
        let held = store.stream(&state, self.view.stream)?;
        let is_older = self.here.is_older(partition.id());
        let Some(held) = held else {
            if is_older {
                coverage.ends_before(span.first);
            }
            return Ok(());
        };
        if is_older {
            // Events that are not visible yet are after the newest visible row, except late ones.
            let ends = held.watermark().and_then(Timestamp::next);
            coverage.ends_before(ends.unwrap_or(span.first).max(span.first));
        }
        let hidden = self.view.hidden(partition).0.to_vec();
        let needed = needed_of_stream(
            store,
            partition,
            (self.view.stream, &held),
            (self.range, hidden),
            self.level,
        )?;
        let segment = partition.id();
        for (range, first) in needed.ranges {
            for missing in self.here.missing(segment, range.byte_range()) {
                coverage.is_here = false;
                coverage.ends_before(first.max(span.first));
                coverage.missing.push(MissedRange::of(segment, missing));
            }
        }
        if !needed.is_complete {
            coverage.is_here = false;
            coverage.ends_before(span.first);
        }
        Ok(())
    }
}

/// The range extended to whole buckets of the level; unchanged without a level.
pub(in crate::read) fn whole_buckets(range: ClosedRange, level: Option<Level>) -> ClosedRange {
    match level.filter(|_| !range.is_empty()) {
        Some(level) => level.span(level.bucket_of(range.first), level.bucket_of(range.last)),
        None => range,
    }
}

/// The parts of buckets of a level at the ends of a range, which are read as rows.
fn cut_buckets(range: ClosedRange, level: Level) -> impl Iterator<Item = ClosedRange> {
    let ends = [range.first, range.last].into_iter();
    let buckets = ends.map(move |at| level.bucket_span(level.bucket_of(at)));
    let cut = buckets.filter(move |bucket| bucket.intersect(&range) != *bucket);
    cut.map(move |bucket| bucket.intersect(&range))
}

impl SingleSnapshot {
    /// Coverage of a stream in a range.
    pub(super) fn coverage_found(
        &self,
        found: ResolvedStream<'_>,
        range: ClosedRange,
        level: Option<Level>,
    ) -> Result<Coverage> {
        let mut coverage = Coverage::full(range);
        let here = self.core().store.here_or_freed();
        let Some(here) = here.filter(|_| !range.is_empty()) else {
            return Ok(coverage);
        };
        let (table, shard) = (found.table.id, found.shard_index);
        let view = self.view(found, &range)?;
        if let Some(first) = here.left_out(table, shard, &range) {
            coverage.is_older = true;
            coverage.ends_before(first);
        }
        let cut = level
            .into_iter()
            .flat_map(|level| cut_buckets(range, level));
        let rows = cut.map(|range| (range, None));
        for (range, level) in rows.chain([(range, level)]) {
            let look = PartitionRange {
                view: &view,
                here,
                level,
                range,
            };
            for partition in view.partitions_in(&range) {
                look.partition(&partition, &mut coverage)?;
            }
        }
        let missing = &mut coverage.missing;
        missing.sort_by_key(|m| (m.segment, m.offset, m.bytes));
        missing.dedup();
        Ok(coverage)
    }
}
