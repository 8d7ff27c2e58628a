//! Stores one stream's events in one partition: appends, merges, or writes a late run.
//!
//! Invariants: every event handed in is stored by the delta; main-run leaves stay ordered and apart (law 2); of equal times
//! the newer event wins or comes later, because late runs are never skipped: while a stream has late runs in a partition,
//! its late events become a further run or fold all of them.
//! Failure: a damaged leaf in the way of a merge is left where it is; the events become a late run instead.

use super::carried;
use super::cutter::{Destination, LeafCutter, SharedLeaves};
use crate::catalog::Table;
use crate::counters::{Cause, Counters};
use crate::ids::{SegmentId, StreamId};
use crate::late::MergeScope;
use crate::read::merge::{Merge, Source};
use crate::segment::pyramid::{self, Buckets, PyramidTarget};
use crate::segment::{GroupWriter, LeafEntry, Store, StreamDelta, StreamState};
use crate::{ErrorKind, Result};
use headwater_codec::leaf::EncodeHints;
use headwater_types::{ClosedRange, Level, Rows, Timestamp};
use std::ops::Range;

/// What a stream operation works with.
pub(crate) struct OpContext<'a> {
    pub(crate) store: &'a Store,
    pub(crate) segment: SegmentId,
    pub(crate) table: &'a Table,
    pub(crate) top: Level,
    pub(crate) scope: MergeScope,
    /// Events of a full leaf: the table's, or fewer if the policy says so.
    pub(crate) leaf_events: usize,
    /// Rewriting up to this many stored events per late event is done at once; more waits in a late run.
    pub(crate) rewrite_per_late: f64,
    pub(crate) late_runs_max: usize,
    /// Leaves are cut full from the left, as in the papers; otherwise evenly.
    pub(crate) exact_cut: bool,
    pub(crate) bucket_events: u32,
    pub(crate) counters: &'a Counters,
}

/// What is written besides the delta.
pub(crate) struct OpOutput<'a> {
    pub(crate) group: &'a mut GroupWriter,
    pub(crate) hints: &'a mut EncodeHints,
    pub(crate) shared: &'a mut SharedLeaves,
}

enum LatePlan {
    Nothing,
    Run,
    Merge(Vec<Range<usize>>),
    Fold,
}

impl OpContext<'_> {
    pub(super) fn leaf_events(&self) -> usize {
        self.leaf_events.max(1)
    }

    /// All rows of a stream's leaf, every field.
    pub(super) fn rows_of(&self, leaf: &LeafEntry) -> Result<Rows> {
        let all = 0..leaf.count as usize;
        self.store.leaf_rows(self.segment, leaf, all, self.table)
    }

    pub(super) fn target(&self) -> PyramidTarget<'_> {
        PyramidTarget {
            store: self.store,
            segment: self.segment,
            table: self.table,
            top: self.top,
            bucket_events: self.bucket_events,
        }
    }
}

/// Stores `rows` (sorted, all inside the partition) of a stream.
pub(crate) fn store_rows(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    rows: &Rows,
    delta: &mut StreamDelta,
) -> Result<()> {
    if state.is_aged() {
        return beside_buckets(context, out, stream, state, rows, delta);
    }
    let late_count = state
        .watermark()
        .map_or(0, |w| rows.times.partition_point(|t| *t <= w));
    let late = rows.slice(0..late_count);
    let append = if late_count == 0 {
        None
    } else {
        Some(rows.slice(late_count..rows.len()))
    };
    let append = append.as_ref().unwrap_or(rows);
    if !late.is_empty()
        && let Some(buckets) = carried::mixed(context, state)?
    {
        return carried::set_apart(context, out, (stream, state), rows, buckets, delta);
    }
    let (units, cause) = match plan_late(context, state, &late, !append.is_empty()) {
        LatePlan::Nothing => return append_only(context, out, stream, state, append, delta),
        LatePlan::Run => {
            write_late_run(context, out, stream, &late, delta)?;
            return append_only(context, out, stream, state, append, delta);
        }
        LatePlan::Merge(units) => (units, Cause::Merge),
        LatePlan::Fold => (
            fold_units(context, state, &late, !append.is_empty()),
            Cause::Fold,
        ),
    };
    merge_or_run(
        context,
        out,
        stream,
        state,
        (rows, &late, append),
        &units,
        cause,
        delta,
    )
}

/// Stores rows of a stream whose older rows here have gone and left their buckets: as a late run, which no bucket counts.
fn beside_buckets(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    rows: &Rows,
    delta: &mut StreamDelta,
) -> Result<()> {
    if state.late.len() < context.late_runs_max.max(1) {
        return write_late_run(context, out, stream, rows, delta);
    }
    let runs = state.late.iter();
    let mut sources: Vec<Source> = runs
        .map(|run| Source::leaves(context.segment, run.iter().copied()))
        .collect();
    sources.push(Source::rows(rows.clone()));
    let mut merge = Merge::new(
        context.store,
        context.table,
        ClosedRange::ALL,
        None,
        sources,
    );
    let mut all = Rows::default();
    loop {
        match merge.next_rows() {
            Ok(Some(merged)) => all.extend_from(&merged, 0..merged.len()),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return write_late_run(context, out, stream, rows, delta);
            }
            Err(error) => return Err(error),
        }
    }
    delta.clear_late = true;
    context.counters.count_merge();
    write_late_run(context, out, stream, &all, delta)
}

fn plan_late(context: &OpContext<'_>, state: &StreamState, late: &Rows, appends: bool) -> LatePlan {
    if late.is_empty() {
        return LatePlan::Nothing;
    }
    if !state.late.is_empty() {
        return if state.late.len() + 1 > context.late_runs_max {
            LatePlan::Fold
        } else {
            LatePlan::Run
        };
    }
    let units = units(context.scope, state, late, appends);
    if context.late_runs_max == 0 {
        return LatePlan::Merge(units);
    }
    let rewritten: u64 = units
        .iter()
        .flat_map(|u| state.main.get(u.clone()).unwrap_or_default())
        .map(|l| u64::from(l.count))
        .sum();
    if rewritten as f64 <= context.rewrite_per_late * late.len() as f64 {
        LatePlan::Merge(units)
    } else {
        LatePlan::Run
    }
}

/// Ranges of main-run leaves that late events rewrite, apart from one another.
fn units(scope: MergeScope, state: &StreamState, late: &Rows, appends: bool) -> Vec<Range<usize>> {
    let (Some(first), Some(last)) = (late.times.first(), late.times.last()) else {
        return Vec::new();
    };
    match scope {
        MergeScope::Overlap => {
            // Every leaf that shares an instant with the buffer's range; none when it lies in a gap.
            let from = state.main.partition_point(|l| l.last < *first);
            let to = if appends {
                state.main.len()
            } else {
                state.main.partition_point(|l| l.first <= *last).max(from)
            };
            apart(state, std::iter::once(from..to))
        }
        MergeScope::Touched => {
            let mut out: Vec<Range<usize>> = Vec::new();
            let mut at = 0;
            while let Some(time) = late.times.get(at) {
                let owner = state.owner(*time);
                match out.last_mut() {
                    Some(range) if range.end >= owner => range.end = range.end.max(owner + 1),
                    _ => out.push(owner..owner + 1),
                }
                // On to the first event behind this leaf.
                let rest = late.times.get(at..).unwrap_or_default();
                at += match state.main.get(owner + 1) {
                    Some(next) => rest.partition_point(|t| *t < next.first).max(1),
                    None => rest.len(),
                };
            }
            apart(state, out)
        }
    }
}

/// As [`units`], for the late runs' events and those at hand.
fn fold_units(
    context: &OpContext<'_>,
    state: &StreamState,
    late: &Rows,
    appends: bool,
) -> Vec<Range<usize>> {
    if state.main.is_empty() {
        // A delete has taken the main run away: the late runs become one.
        return std::iter::once(0..0).collect();
    }
    // The late runs' times are not at hand without reading them: take every leaf that one of their leaves overlaps.
    let mut touched = vec![false; state.main.len()];
    let mut mark = |first: i64, last: i64| {
        let from = state.owner(first);
        let to = state.owner(last);
        for slot in touched.iter_mut().take(to + 1).skip(from) {
            *slot = true;
        }
    };
    for leaf in state.late.iter().flatten() {
        mark(leaf.first, leaf.last);
    }
    if let (Some(first), Some(last)) = (late.times.first(), late.times.last()) {
        match context.scope {
            MergeScope::Overlap => mark(*first, if appends { i64::MAX } else { *last }),
            MergeScope::Touched => late.times.iter().for_each(|t| mark(*t, *t)),
        }
    }
    let mut out: Vec<Range<usize>> = Vec::new();
    for (index, _) in touched.iter().enumerate().filter(|(_, t)| **t) {
        match out.last_mut() {
            Some(range) if range.end == index => range.end = index + 1,
            _ => out.push(index..index + 1),
        }
    }
    apart(state, out)
}

/// Widens units so that none ends between two rows of one time (`keep`), where a newer event could not go to its place.
fn apart(state: &StreamState, units: impl IntoIterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for mut unit in units {
        while let (Some(a), Some(b)) = (
            unit.end.checked_sub(1).and_then(|i| state.main.get(i)),
            state.main.get(unit.end),
        ) && a.last == b.first
        {
            unit.end += 1;
        }
        match out.last_mut() {
            Some(last) if last.end >= unit.start => last.end = last.end.max(unit.end),
            _ => out.push(unit),
        }
    }
    out
}

pub(super) fn write_late_run(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    late: &Rows,
    delta: &mut StreamDelta,
) -> Result<()> {
    context
        .counters
        .events_written(Cause::LateRun, late.len() as u64);
    if late.len() <= out.shared.rows_max() {
        return out
            .shared
            .push(stream, Destination::LateRun, late, out.group, out.hints);
    }
    let mut cutter = LeafCutter::balanced(late.len(), context.leaf_events());
    cutter.push(late, out.group, out.hints)?;
    delta.late_runs.push(cutter.finish(out.group, out.hints)?);
    Ok(())
}

/// Events behind the main run: written once, nothing rewritten.
fn append_only(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    rows: &Rows,
    delta: &mut StreamDelta,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    append_leaves(context, out, stream, rows, delta)?;
    if state.base.is_some() {
        pyramid::append(&context.target(), out.group, state, rows, delta)
    } else if state.main_rows() + rows.len() as u64 >= context.target().rows_min() {
        let all = match read_leaves(context, &state.main) {
            Ok(mut old) => {
                old.extend_from(rows, 0..rows.len());
                old
            }
            // Without the old rows there is no pyramid yet; their damage is reported where they are read.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            Err(error) => return Err(error),
        };
        pyramid::build(&context.target(), out.group, &all, delta)
    } else {
        Ok(())
    }
}

fn append_leaves(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    rows: &Rows,
    delta: &mut StreamDelta,
) -> Result<()> {
    context
        .counters
        .events_written(Cause::Flush, rows.len() as u64);
    delta.last_row = last_row(rows);
    if rows.len() <= out.shared.rows_max() {
        // A few rows are as quick to read as their copy here would be.
        delta.last_row = Some(Box::default());
        return out
            .shared
            .push(stream, Destination::Main, rows, out.group, out.hints);
    }
    let mut cutter = LeafCutter::new(context.leaf_events());
    cutter.push(rows, out.group, out.hints)?;
    delta.added.extend(cutter.finish(out.group, out.hints)?);
    Ok(())
}

pub(super) fn last_row(rows: &Rows) -> Option<Box<[u8]>> {
    let mut bytes = Vec::new();
    let count = rows.len();
    headwater_codec::light::encode_rows(&rows.slice(count.checked_sub(1)?..count), &mut bytes);
    Some(bytes.into())
}

fn read_leaves(context: &OpContext<'_>, leaves: &[LeafEntry]) -> Result<Rows> {
    let mut all = Rows::default();
    for leaf in leaves {
        let rows = context.rows_of(leaf)?;
        all.extend_from(&rows, 0..rows.len());
    }
    Ok(all)
}

#[allow(clippy::too_many_arguments, reason = "one call, from one place")]
fn merge_or_run(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    (all, late, append): (&Rows, &Rows, &Rows),
    units: &[Range<usize>],
    cause: Cause,
    delta: &mut StreamDelta,
) -> Result<()> {
    let clean = delta.clone();
    // A merge that rewrites the last leaf takes the events behind it along: one sequence, cut once.
    let nothing = Rows::default();
    let takes_all = units.last().is_some_and(|u| u.end == state.main.len());
    let (merged, appended) = if takes_all {
        (all, &nothing)
    } else {
        (late, append)
    };
    match merge(
        context, out, stream, state, merged, appended, units, cause, delta,
    ) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            *delta = clean;
            write_late_run(context, out, stream, late, delta)?;
            append_only(context, out, stream, state, append, delta)
        }
        other => other,
    }
}

/// Rewrites the leaves of `units` with the late events, and those of the late runs when folding, and appends the rest.
#[allow(clippy::too_many_arguments, reason = "one call, from one place")]
fn merge(
    context: &OpContext<'_>,
    out: &mut OpOutput<'_>,
    stream: StreamId,
    state: &StreamState,
    late: &Rows,
    append: &Rows,
    units: &[Range<usize>],
    cause: Cause,
    delta: &mut StreamDelta,
) -> Result<()> {
    // Everything that may turn out damaged is read before anything is counted.
    let base = state.base.filter(|b| *b != Level::MAX);
    let whole = state.base.is_none();
    let mut overlay = if cause == Cause::Fold {
        state
            .late
            .iter()
            .map(|run| Source::leaves(context.segment, run.iter().copied()))
            .collect()
    } else {
        Vec::new()
    };
    overlay.push(Source::rows(late.clone()));
    let mut buckets = Buckets::new();
    let mut all = Rows::default();
    let mut written = 0u64;
    let mut next_leaf = 0;
    for unit in units {
        if whole {
            for leaf in state.main.get(next_leaf..unit.start).unwrap_or_default() {
                let rows = context.rows_of(leaf)?;
                all.extend_from(&rows, 0..rows.len());
            }
        }
        next_leaf = unit.end;
        let leaves = state.main.get(unit.clone()).unwrap_or_default();
        // A unit owns the times from its first leaf (or the beginning of time) up to the next leaf behind it.
        let until = state
            .main
            .get(unit.end)
            .map_or(i64::MAX, |next| next.first.saturating_sub(1));
        let late_rows: u64 = late.times.partition_point(|t| *t <= until) as u64;
        let estimate = leaves.iter().map(|l| u64::from(l.count)).sum::<u64>()
            + late_rows.min(late.len() as u64);
        let mut cutter = if context.exact_cut {
            LeafCutter::new(context.leaf_events())
        } else {
            LeafCutter::balanced(estimate as usize, context.leaf_events())
        };
        let mut sources = vec![Source::leaves(context.segment, leaves.iter().copied())];
        sources.append(&mut overlay);
        let mut merge = BoundedMerge::new(context, sources, until);
        let mut newest = None;
        while let Some(rows) = merge.next_rows()? {
            written += rows.len() as u64;
            if let Some(base) = base {
                pyramid::add_rows(&mut buckets, base, &rows);
            }
            if whole {
                all.extend_from(&rows, 0..rows.len());
            }
            newest = last_row(&rows);
            cutter.push(&rows, out.group, out.hints)?;
        }
        overlay = merge.into_overlay();
        delta.added.extend(cutter.finish(out.group, out.hints)?);
        delta
            .removed
            .extend(leaves.iter().map(|l| (l.offset, l.row_start)));
        if unit.end == state.main.len() && append.is_empty() {
            delta.last_row = newest;
        }
    }
    if whole {
        for leaf in state.main.get(next_leaf..).unwrap_or_default() {
            let rows = context.rows_of(leaf)?;
            all.extend_from(&rows, 0..rows.len());
        }
    }
    if !overlay.iter().all(Source::is_exhausted) {
        return Err(crate::Error::internal("a merge left late events behind"));
    }
    delta.clear_late = cause == Cause::Fold;
    if let Some(base) = base {
        complete_edges(context, state, units, base, &mut buckets)?;
        if !append.is_empty() {
            append_buckets(context, state, base, append, &mut buckets)?;
        }
    }
    context.counters.events_written(cause, written);
    context.counters.count_merge();
    if !append.is_empty() {
        append_leaves(context, out, stream, append, delta)?;
    }
    if base.is_some() {
        pyramid::replace(&context.target(), out.group, state, &buckets, delta)?;
    } else if whole {
        all.extend_from(append, 0..append.len());
        if all.len() as u64 >= context.target().rows_min() {
            pyramid::build(&context.target(), out.group, &all, delta)?;
        }
    }
    Ok(())
}

/// Buckets at the border of a unit hold rows of leaves that were not rewritten too.
fn complete_edges(
    context: &OpContext<'_>,
    state: &StreamState,
    units: &[Range<usize>],
    base: Level,
    buckets: &mut Buckets,
) -> Result<()> {
    let rewritten = |index: usize| {
        let at = units.partition_point(|u| u.end <= index);
        units.get(at).is_some_and(|u| u.contains(&index))
    };
    let numbers: Vec<i64> = buckets.keys().copied().collect();
    for number in numbers {
        let span = base.bucket_span(number);
        let (first, last) = (span.first.as_nanos(), span.last.as_nanos());
        let mut index = state.main.partition_point(|l| l.last < first);
        while let Some(leaf) = state.main.get(index).filter(|l| l.first <= last) {
            if !rewritten(index) {
                let rows = context.rows_of(leaf)?;
                let a = rows.times.partition_point(|t| *t < first);
                let b = rows.times.partition_point(|t| *t <= last);
                pyramid::add_rows(buckets, base, &rows.slice(a..b));
            }
            index += 1;
        }
    }
    Ok(())
}

/// Adds appended rows to buckets that replace stored ones: the newest stored bucket goes on with them.
fn append_buckets(
    context: &OpContext<'_>,
    state: &StreamState,
    base: Level,
    append: &Rows,
    buckets: &mut Buckets,
) -> Result<()> {
    let first = append.times.first().copied().unwrap_or(0);
    let number = base.bucket_of(Timestamp::from_nanos(first));
    if !buckets.contains_key(&number)
        && let Some(trailing) = state
            .blocks_of(base)
            .last()
            .filter(|b| b.last_bucket == number)
    {
        let block = context.store.block(context.segment, trailing)?;
        if let Some(bucket) = pyramid::from_block(&block, context.table).remove(&number) {
            buckets.insert(number, bucket);
        }
    }
    pyramid::add_rows(buckets, base, append);
    Ok(())
}

/// A merge over main-run leaves and the overlay up to a time; the overlay goes on with the next unit.
struct BoundedMerge<'a> {
    merge: Merge<'a>,
    until: i64,
    held: Option<Rows>,
    done: bool,
}

impl<'a> BoundedMerge<'a> {
    fn new(context: &OpContext<'a>, sources: Vec<Source>, until: i64) -> BoundedMerge<'a> {
        let merge = Merge::new(
            context.store,
            context.table,
            ClosedRange::ALL,
            None,
            sources,
        );
        BoundedMerge {
            merge,
            until,
            held: None,
            done: false,
        }
    }

    fn next_rows(&mut self) -> Result<Option<Rows>> {
        if self.done {
            return Ok(None);
        }
        let Some(rows) = self.merge.next_rows()? else {
            self.done = true;
            return Ok(None);
        };
        let inside = rows.times.partition_point(|t| *t <= self.until);
        if inside == rows.len() {
            return Ok(Some(rows));
        }
        self.done = true;
        self.held = Some(rows.slice(inside..rows.len()));
        Ok(if inside == 0 {
            None
        } else {
            Some(rows.slice(0..inside))
        })
    }

    /// The overlay's sources, with rows that were read too far in front.
    fn into_overlay(self) -> Vec<Source> {
        let mut sources = self.merge.into_sources();
        if let Some(held) = self.held {
            sources.insert(0, Source::rows(held));
        }
        sources
    }
}
