//! Coverage: the bytes of a stream that a copy with missing ranges has, determined without reading
//! a leaf of its main runs.
//!
//! Invariants: where the coverage reports everything as present, no read of the range is
//! `elsewhere`. In a database that is not a copy everything is present. Concurrency, failure: as in
//! [`super`]; the metadata of the coverage may themselves be elsewhere, and then they are among the
//! missing ranges.

pub use super::missing::Coverage;
use super::missing::PartitionRange;
use super::single::{ResolvedStream, SingleSnapshot};
use crate::Result;
use headwater_types::{ClosedRange, Level};

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
                is_for_fetching: false,
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
