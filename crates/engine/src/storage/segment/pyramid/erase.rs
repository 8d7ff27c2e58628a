//! Removes stretches of time from a stream's pyramid.
//!
//! Base buckets inside a stretch are removed; the buckets at its edges are replaced by buckets that
//! the caller computes from the remaining rows. Levels above are marked as stale there, as after a
//! merge.

use super::bucket::{Buckets, from_block, to_blocks};
use super::build::{PyramidTarget, give_up, joined};
use crate::common::ranges::{overlapping, swallows};
use crate::storage::segment::format::StreamDelta;
use crate::storage::segment::group::GroupWriter;
use crate::storage::segment::state::StreamState;
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, Level};
use std::collections::BTreeSet;

/// Base buckets that the ranges cover in part: they must be recomputed.
pub(crate) fn edge_buckets(base: Level, ranges: &[ClosedRange]) -> BTreeSet<i64> {
    let mut out = BTreeSet::new();
    for range in ranges {
        for instant in [range.first, range.last] {
            let number = base.bucket_of(instant);
            if !swallows(ranges, &base.bucket_span(number)) {
                out.insert(number);
            }
        }
    }
    out
}

/// Erases the ranges (sorted, disjoint). `edges` has the contents of [`edge_buckets`] without the
/// erased rows; `None` = unknown, since the rows have been aged away: such buckets stay unchanged.
pub(crate) fn erase(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    state: &StreamState,
    ranges: &[ClosedRange],
    edges: Option<&Buckets>,
    delta: &mut StreamDelta,
) -> Result<()> {
    let Some(base) = state.base.filter(|b| *b != Level::MAX) else {
        return Ok(());
    };
    delta.base = Some(base);
    match erase_blocks(target, group, state, base, ranges, edges, delta) {
        Err(error) if error.kind() == ErrorKind::Corrupt && edges.is_some() => {
            give_up(state, delta);
            Ok(())
        }
        other => other,
    }
}

fn erase_blocks(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    state: &StreamState,
    base: Level,
    ranges: &[ClosedRange],
    edges: Option<&Buckets>,
    delta: &mut StreamDelta,
) -> Result<()> {
    let mut left = 0;
    let mut end = None;
    for entry in state.blocks_of(base) {
        let span = base.span(entry.first_bucket, entry.last_bucket);
        if overlapping(ranges, &span).is_empty() {
            left += 1;
            end = Some(entry.last_bucket);
            continue;
        }
        if swallows(ranges, &span) {
            delta.removed_blocks.push(entry.offset);
            continue;
        }
        let block = match target.store.block(target.segment, entry) {
            Err(error) if error.kind() == ErrorKind::Corrupt && edges.is_none() => {
                tracing::warn!(%error, "a damaged block retains deleted buckets, since they cannot be read");
                left += 1;
                end = Some(entry.last_bucket);
                continue;
            }
            other => other?,
        };
        let mut buckets = from_block(&block, target.table);
        let before = buckets.len();
        let mut changed = false;
        buckets.retain(|number, bucket| {
            let span = base.bucket_span(*number);
            if overlapping(ranges, &span).is_empty() {
                return true;
            }
            if swallows(ranges, &span) {
                return false;
            }
            match edges {
                None => true,
                Some(edges) => {
                    changed = true;
                    match edges.get(number) {
                        Some(new) => {
                            bucket.clone_from(new);
                            true
                        }
                        None => false,
                    }
                }
            }
        });
        end = buckets.last_key_value().map(|(n, _)| *n).or(end);
        if !changed && buckets.len() == before {
            left += 1;
            continue;
        }
        delta.removed_blocks.push(entry.offset);
        for block in to_blocks(base, &buckets, true) {
            delta.added_blocks.push(group.put_block(&block, base)?);
            left += 1;
        }
    }
    let upper = state.blocks.iter().filter(|b| b.level > base);
    if left == 0 {
        delta.removed_blocks.extend(upper.map(|b| b.offset));
        delta.stale = Some(Vec::new());
    } else if upper.count() > 0 {
        let mut stale = state.stale.clone();
        stale.extend(ranges.iter().map(|r| {
            ClosedRange::new(
                base.bucket_span(base.bucket_of(r.first)).first,
                base.bucket_span(base.bucket_of(r.last)).last,
            )
        }));
        // Rows appended from now on are after the last remaining bucket, where levels above may be
        // closed already.
        let ends = state.blocks.iter().filter(|b| b.level > base);
        let closed = ends.map(|b| b.level.bucket_span(b.last_bucket).last).max();
        if let (Some(end), Some(closed)) = (end, closed) {
            let rest = ClosedRange::new(base.bucket_span(end).first, closed);
            stale.extend((!rest.is_empty()).then_some(rest));
        }
        delta.stale = Some(joined(stale));
    }
    Ok(())
}
