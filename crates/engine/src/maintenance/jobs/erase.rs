//! Erases deleted events of one stream in a partition.
//!
//! Invariants: leaves inside a range are removed without being read; leaves at its edges are
//! rewritten without the events; the pyramid is updated in the same group. Failure: a damaged leaf
//! at an edge stays as it is, with a warning: its rows cannot be read any more.

use super::cutter::{Destination, LeafCutter};
use super::stream_writer::{GroupOutput, StoreContext};
use crate::ErrorKind;
use crate::Result;
use crate::common::counters::Cause;
use crate::common::ids::StreamId;
use crate::common::ranges::{contains_instant, overlapping, swallows};
use crate::storage::segment::pyramid::{self, Buckets};
use crate::storage::segment::{LeafEntry, StreamDelta, StreamState};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Level, Rows, Timestamp};

/// True when the stream has data in the ranges (sorted, disjoint).
pub(super) fn is_touched(state: &StreamState, ranges: &[ClosedRange]) -> bool {
    let leaves = state.main.iter().chain(state.late.iter().flatten());
    let touches = |range: &ClosedRange| !overlapping(ranges, range).is_empty();
    if state.is_aged() {
        let blocks = state.blocks.iter();
        let mut spans = blocks.map(|b| b.level.span(b.first_bucket, b.last_bucket));
        if spans.any(|span| touches(&span)) {
            return true;
        }
    }
    leaves.map(LeafEntry::range).any(|range| touches(&range))
}

/// A leaf with some remaining rows.
struct TrimmedLeaf {
    /// Its position in the main run.
    index: usize,
    remaining: Rows,
}

/// Erases the ranges (sorted, disjoint) from a stream.
pub(super) fn erase(
    context: &StoreContext<'_>,
    out: &mut GroupOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    ranges: &[ClosedRange],
    delta: &mut StreamDelta,
) -> Result<()> {
    if state.is_aged() {
        erase_late(context, out, state, ranges, delta)?;
        return pyramid::erase(&context.target(), out.group, state, ranges, None, delta);
    }
    let mut cuts: Vec<TrimmedLeaf> = Vec::new();
    let mut gone = vec![false; state.main.len()];
    for (index, leaf) in state.main.iter().enumerate() {
        match remainder(context, leaf, ranges)? {
            Remainder::All => {}
            Remainder::Nothing => {
                delta.removed.push((leaf.offset, leaf.row_start));
                gone[index] = true;
            }
            Remainder::Rows(remaining) => {
                delta.removed.push((leaf.offset, leaf.row_start));
                gone[index] = true;
                cuts.push(TrimmedLeaf { index, remaining });
            }
        }
    }
    if gone.last() == Some(&true) {
        delta.last_row = Some(Box::default());
    }
    erase_late(context, out, state, ranges, delta)?;
    if let Some(base) = state.base.filter(|b| *b != Level::MAX) {
        let edges = edges(context, state, base, ranges, &gone, &cuts)?;
        pyramid::erase(
            &context.target(),
            out.group,
            state,
            ranges,
            Some(&edges),
            delta,
        )?;
    }
    // Entries of shared leaves reach the delta last, so only a single one may be shared.
    if let [cut] = &*cuts
        && cut.remaining.len() <= out.shared.rows_max()
        && equals_behind(state, cut).is_empty()
    {
        let count = cut.remaining.len() as u64;
        context.counters.events_written(Cause::Delete, count);
        return out.shared.push(
            stream,
            Destination::Main,
            &cut.remaining,
            out.group,
            out.encodings,
        );
    }
    for cut in &cuts {
        context
            .counters
            .events_written(Cause::Delete, cut.remaining.len() as u64);
        delta
            .added
            .push(out.group.put_leaf(&cut.remaining, out.encodings)?);
        for leaf in equals_behind(state, cut) {
            let place = (leaf.offset, leaf.row_start);
            if !delta.removed.contains(&place) {
                delta.removed.push(place);
                delta.added.push(*leaf);
            }
        }
    }
    Ok(())
}

/// Leaves after a shortened one whose only instant is the remaining instant of the shortened one
/// (`keep`). The caller lists them again after it, since only their position in the list tells the
/// order of events.
fn equals_behind<'a>(state: &'a StreamState, cut: &TrimmedLeaf) -> &'a [LeafEntry] {
    let behind = part_of(&state.main, cut.index + 1.., "leaves behind a cut one");
    let (first, last) = (cut.remaining.times.first(), cut.remaining.times.last());
    let count = match (first, last) {
        (Some(first), Some(last)) if first == last => {
            let at = Timestamp::from_nanos(*first);
            let same = |l: &&LeafEntry| l.first == at && l.last == at;
            behind.iter().take_while(same).count()
        }
        _ => 0,
    };
    part_of(behind, ..count, "leaves of one instant")
}

enum Remainder {
    All,
    Nothing,
    Rows(Rows),
}

/// The remaining rows of a leaf.
fn remainder(
    context: &StoreContext<'_>,
    leaf: &LeafEntry,
    ranges: &[ClosedRange],
) -> Result<Remainder> {
    let span = leaf.range();
    if overlapping(ranges, &span).is_empty() {
        return Ok(Remainder::All);
    }
    if swallows(ranges, &span) {
        return Ok(Remainder::Nothing);
    }
    let rows = context.rows_of(leaf);
    let rows = match rows {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(%error, "a damaged leaf retains deleted rows, since they cannot be read");
            return Ok(Remainder::All);
        }
        other => other?,
    };
    Ok(match without(rows, ranges) {
        (_, 0) => Remainder::All,
        (kept, _) if kept.is_empty() => Remainder::Nothing,
        (kept, _) => Remainder::Rows(kept),
    })
}

/// The rows outside of the ranges, and the number of rows inside.
pub(super) fn without(rows: Rows, ranges: &[ClosedRange]) -> (Rows, usize) {
    let picked: Vec<u32> = (0u32..)
        .zip(&rows.times)
        .filter(|(_, time)| !contains_instant(ranges, Timestamp::from_nanos(**time)))
        .map(|(row, _)| row)
        .collect();
    let inside = rows.len() - picked.len();
    if inside == 0 {
        return (rows, 0);
    }
    (rows.gather(&picked), inside)
}

/// Late runs are listed again, without the events, when any of their leaves is affected.
fn erase_late(
    context: &StoreContext<'_>,
    out: &mut GroupOutput<'_>,
    state: &StreamState,
    ranges: &[ClosedRange],
    delta: &mut StreamDelta,
) -> Result<()> {
    let touched = |leaf: &LeafEntry| !overlapping(ranges, &leaf.range()).is_empty();
    if !state.late.iter().flatten().any(touched) {
        return Ok(());
    }
    delta.clear_late = true;
    for run in &state.late {
        let mut left: Vec<LeafEntry> = Vec::with_capacity(run.len());
        for leaf in run {
            match remainder(context, leaf, ranges)? {
                Remainder::All => left.push(*leaf),
                Remainder::Nothing => {}
                Remainder::Rows(kept) => {
                    context
                        .counters
                        .events_written(Cause::Delete, kept.len() as u64);
                    let mut cutter = LeafCutter::new(context.leaf_events());
                    cutter.push(&kept, out.group, out.encodings)?;
                    left.extend(cutter.finish(out.group, out.encodings)?);
                }
            }
        }
        if !left.is_empty() {
            delta.late_runs.push(left);
        }
    }
    Ok(())
}

/// The remaining parts of the base buckets that the ranges cover in part.
fn edges(
    context: &StoreContext<'_>,
    state: &StreamState,
    base: Level,
    ranges: &[ClosedRange],
    gone: &[bool],
    cuts: &[TrimmedLeaf],
) -> Result<Buckets> {
    let mut out = Buckets::new();
    for number in pyramid::edge_buckets(base, ranges) {
        let span = base.bucket_span(number);
        let (first, last) = (span.first.as_nanos(), span.last.as_nanos());
        let mut add = |rows: &Rows| {
            let from = rows.times.partition_point(|t| *t < first);
            let to = rows.times.partition_point(|t| *t <= last);
            pyramid::add_rows(&mut out, base, &rows.slice(from..to.max(from)));
        };
        let from = state.main.partition_point(|l| l.last < span.first);
        for (index, leaf) in state.main.iter().enumerate().skip(from) {
            if leaf.first > span.last {
                break;
            }
            if let Some(cut) = cuts.iter().find(|c| c.index == index) {
                add(&cut.remaining);
            } else if gone.get(index) == Some(&false) {
                let rows = context.rows_of(leaf);
                match rows {
                    Ok(rows) => add(&without(rows, ranges).0),
                    // Its rows cannot be read: the bucket is made of the readable rows.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(out)
}
