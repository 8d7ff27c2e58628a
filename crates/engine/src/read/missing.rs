//! Ranges that a read of a stream needs and a copy does not have, partition by partition.
//!
//! Invariants: ranges are those of the reader's own rules ([`needed_of_stream`]). Concurrency,
//! failure: as in [`super`].

use super::view::StreamView;
use crate::replication::needed::{NeededFor, NeededRange, needed_of_stream};
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
    pub(super) fn ends_before(&mut self, at: Timestamp) {
        let before = at.previous().filter(|last| *last >= self.range.first);
        self.until = self.until.min(before);
    }
}

/// A range of a partition to examine.
pub(super) struct PartitionRange<'a> {
    pub(super) view: &'a StreamView,
    pub(super) here: &'a dyn PresentRanges,
    pub(super) level: Option<Level>,
    pub(super) range: ClosedRange,
    /// True for only what a reader of this level reads; otherwise with the levels above it.
    pub(super) is_for_fetching: bool,
}

impl PartitionRange<'_> {
    pub(super) fn partition(&self, partition: &Partition, coverage: &mut Coverage) -> Result<()> {
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
        let is_above = |part: &NeededRange| match (part.needed_for, self.level) {
            (NeededFor::Buckets(stored), Some(level)) => stored > level,
            _ => false,
        };
        for (range, first) in needed.ranges {
            if self.is_for_fetching && is_above(&range) {
                continue;
            }
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

/// Records the ranges that a read of buckets of a width needs, after it ended at a missing one:
/// they are fetched in one round trip, not each in its own. Only where this thread reads on behalf
/// of a reader for which missing ranges are fetched.
pub(super) fn record_missing(view: &StreamView, range: &ClosedRange, width_ns: i128) -> Result<()> {
    let here = view.core.store.here_or_freed();
    let Some(here) = here.filter(|here| here.has_reader()) else {
        return Ok(());
    };
    let mut levels = (Level::MIN.get()..=Level::MAX.get())
        .rev()
        .map(Level::clamped);
    let level = levels.find(|level| level.bucket_start_wide(1) <= width_ns);
    let look = PartitionRange {
        view,
        here,
        level: Some(level.unwrap_or(Level::MIN)),
        range: *range,
        is_for_fetching: true,
    };
    let mut coverage = Coverage::full(*range);
    for partition in view.partitions_in(range) {
        look.partition(&partition, &mut coverage)?;
    }
    here.missed_too(&coverage.missing);
    Ok(())
}
