//! Determines the missing part of an index beside a segment, and the runs to merge; pure except for
//! reading which leaves exist.
//!
//! Invariants: [`to_merge`] returns zero runs or at least two, and leaves at most [`RUNS_MAX`].

use crate::Result;
use crate::common::ids::StreamId;
use crate::core::Core;
use crate::storage::index::{Front, SegmentRuns, Types};
use crate::storage::segment::{LeafEntry, Partition};
use std::sync::Arc;

/// Maximum number of runs of an index beside a segment, exceeded only until a merge.
pub(super) const RUNS_MAX: usize = 8;
/// Size ratio: a run is merged if it is at most this many times as large as all smaller ones
/// together.
const TIER: u64 = 2;

/// The missing part of an index beside a segment.
pub(crate) enum Missing {
    /// Every leaf is indexed.
    Nothing,
    /// Runs have to be made, or rebuilt.
    Leaves,
    /// There are too many runs, or most of their rows were removed.
    Merge,
}

/// The missing part, estimated from counts alone.
pub(crate) fn missing(partition: &Partition, runs: &SegmentRuns, types: Types) -> Missing {
    let record = &partition.record;
    let is_whole = runs.complete_to == record.committed_bytes;
    if !is_whole || !runs.useless(types).is_empty() {
        return match record.events == 0 && runs.runs.is_empty() {
            true => Missing::Nothing,
            false => Missing::Leaves,
        };
    }
    let held: u64 = runs.runs.iter().map(|run| run.record.rows).sum();
    let is_stale = held > record.events.saturating_mul(2).max(1);
    match runs.runs.len() > RUNS_MAX || is_stale {
        true => Missing::Merge,
        false => Missing::Nothing,
    }
}

/// Number of runs to merge, from the first one; `sizes` are sorted ascending.
pub(super) fn to_merge(sizes: &[u64]) -> usize {
    if sizes.len() <= RUNS_MAX {
        return 0;
    }
    let least = sizes.len() + 1 - RUNS_MAX;
    let mut sum = 0u64;
    for (count, size) in sizes.iter().enumerate() {
        if count >= least.max(2) && *size > sum.saturating_mul(TIER) {
            return count;
        }
        sum = sum.saturating_add(*size);
    }
    sizes.len()
}

/// Leaves of a segment that are in none of the runs, in the order of streams: about the given
/// number of rows, and true when these are all.
pub(super) fn unindexed_leaves(
    core: &Core,
    partition: &Partition,
    fronts: &[Arc<Front>],
    rows_max: u64,
) -> Result<(Vec<(StreamId, LeafEntry)>, bool)> {
    let state = core.store.state(partition)?;
    let (mut leaves, mut rows, mut is_all) = (Vec::new(), 0u64, true);
    for page in state.pages() {
        core.store.each_stream(&state, page, &mut |stream, held| {
            for leaf in held.main.iter().chain(held.late.iter().flatten()) {
                if fronts.iter().any(|front| front.covers(stream, leaf)) {
                    continue;
                }
                if rows >= rows_max {
                    is_all = false;
                    return Ok(());
                }
                rows += u64::from(leaf.count);
                leaves.push((stream, *leaf));
            }
            Ok(())
        })?;
        if !is_all {
            break;
        }
    }
    Ok((leaves, is_all))
}

/// All leaves that a segment has.
pub(super) fn all_leaves(core: &Core, partition: &Partition) -> Result<Vec<(StreamId, LeafEntry)>> {
    Ok(unindexed_leaves(core, partition, &[], u64::MAX)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_runs_are_merged_before_large_ones() {
        assert_eq!(to_merge(&[1; 8]), 0);
        assert_eq!(to_merge(&[1, 1, 1, 1, 1, 1, 1, 1, 1_000_000]), 8);
        assert_eq!(
            to_merge(&[1, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 9_000_000]),
            2
        );
        assert_eq!(to_merge(&[5; 9]), 9);
    }

    #[test]
    fn so_many_are_merged_that_few_are_left() {
        for count in 9usize..40 {
            for base in [1u64, 2, 3, 10] {
                let sizes: Vec<u64> = (0u32..)
                    .take(count)
                    .map(|i| base.saturating_pow(i))
                    .collect();
                let merged = to_merge(&sizes);
                assert!(
                    merged >= 2 && count + 1 - merged <= RUNS_MAX,
                    "{count} {base} {merged}"
                );
            }
        }
    }
}
