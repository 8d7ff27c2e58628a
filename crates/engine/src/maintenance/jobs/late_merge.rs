//! Merges late events into the main-run leaves that contain their times;
//! [`super::late_decision`] decides when.
//!
//! Invariants: main-run leaves stay ordered and disjoint (law 2); everything that may turn out
//! damaged is read before events are counted. Failure: a damaged leaf in the way stays unchanged;
//! the events become a late run instead.

use super::append::last_row;
use super::cutter::LeafCutter;
use super::stream_writer::{StoreContext, StreamWriter};
use crate::common::counters::Cause;
use crate::read::merge::{Merge, Source};
use crate::storage::segment::pyramid::{self, Buckets};
use crate::storage::segment::{LeafEntry, StreamState};
use crate::{ErrorKind, Result};
use headwater_late::MergeScope;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Level, Rows, Timestamp};
use std::ops::Range;

/// Rows of a stream that a merge stores.
pub(super) struct RowsToMerge<'a> {
    /// All, by time.
    pub(super) all: &'a Rows,
    /// The late ones of these rows.
    pub(super) late: &'a Rows,
    /// The rows after the main run.
    pub(super) append: &'a Rows,
}

/// Disjoint ranges of main-run leaves that late events rewrite.
pub(super) fn units(
    scope: MergeScope,
    state: &StreamState,
    late: &Rows,
    appends: bool,
) -> Vec<Range<usize>> {
    let (Some(first), Some(last)) = (late.times.first(), late.times.last()) else {
        return Vec::new();
    };
    let late_span = ClosedRange::nanos(*first, *last);
    match scope {
        MergeScope::Overlap => {
            // Every leaf that shares an instant with the buffer's range; empty for a gap.
            let from = state.main.partition_point(|l| l.last < late_span.first);
            let to = if appends {
                state.main.len()
            } else {
                let to = state.main.partition_point(|l| l.first <= late_span.last);
                to.max(from)
            };
            apart(state, std::iter::once(from..to))
        }
        MergeScope::Touched => {
            let mut out: Vec<Range<usize>> = Vec::new();
            let mut at = 0;
            while let Some(time) = late.times.get(at) {
                let owner = state.owner(Timestamp::from_nanos(*time));
                match out.last_mut() {
                    Some(range) if range.end >= owner => range.end = range.end.max(owner + 1),
                    _ => out.push(owner..owner + 1),
                }
                // Skip to the first event after this leaf.
                let rest = part_of(&late.times, at.., "late events behind a leaf");
                at += match state.main.get(owner + 1) {
                    Some(next) => {
                        let before = rest.partition_point(|t| *t < next.first.as_nanos());
                        before.max(1)
                    }
                    None => rest.len(),
                };
            }
            apart(state, out)
        }
    }
}

/// Ranges like [`units`], for the late runs' events and the job's events.
pub(super) fn fold_units(
    context: &StoreContext<'_>,
    state: &StreamState,
    late: &Rows,
    appends: bool,
) -> Vec<Range<usize>> {
    if state.main.is_empty() {
        // A delete has removed the main run: the late runs become one.
        return std::iter::once(0..0).collect();
    }
    // The late runs' times are unknown without reading them: take every leaf that overlaps one of
    // their leaves.
    let mut touched = vec![false; state.main.len()];
    let mut mark = |first: Timestamp, last: Timestamp| {
        let from = state.owner(first);
        let to = state.owner(last);
        for slot in touched.iter_mut().take(to + 1).skip(from) {
            *slot = true;
        }
    };
    for leaf in state.late.iter().flatten() {
        mark(leaf.first, leaf.last);
    }
    let mut times = late.times.iter().map(|t| Timestamp::from_nanos(*t));
    match context.scope {
        MergeScope::Touched => times.for_each(|time| mark(time, time)),
        MergeScope::Overlap => {
            if let Some(first) = times.next() {
                let last = times.next_back().unwrap_or(first);
                mark(first, if appends { Timestamp::MAX } else { last });
            }
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

/// Widens units so that no unit ends between two rows of one time (`keep`), where a newer event
/// could not be ordered.
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

impl StreamWriter<'_, '_> {
    /// Merges late events into these ranges of leaves; where damage is in the way the events become
    /// a late run.
    pub(super) fn merge_or_run(
        &mut self,
        rows: &RowsToMerge<'_>,
        units: &[Range<usize>],
        cause: Cause,
    ) -> Result<()> {
        let clean = self.delta.clone();
        // A merge that rewrites the last leaf includes the events after it: one sequence, cut once.
        let nothing = Rows::default();
        let takes_all = units.last().is_some_and(|u| u.end == self.state.main.len());
        let (merged, appended) = if takes_all {
            (rows.all, &nothing)
        } else {
            (rows.late, rows.append)
        };
        match self.merge(merged, appended, units, cause) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                *self.delta = clean;
                self.write_late_run(rows.late)?;
                self.append(rows.append)
            }
            other => other,
        }
    }

    /// Rewrites the leaves of `units` with the late events, and those of the late runs when
    /// folding, and appends the rest.
    fn merge(
        &mut self,
        late: &Rows,
        append: &Rows,
        units: &[Range<usize>],
        cause: Cause,
    ) -> Result<()> {
        // Everything that may turn out damaged is read before events are counted.
        let mut merged = MergedRows::begin(self.state);
        let mut overlay = self.overlay(late, cause);
        let mut next_leaf = 0;
        for unit in units {
            if let Some(all) = &mut merged.all {
                let before = next_leaf..unit.start;
                let leaves = part_of(&self.state.main, before, "leaves before a merge");
                read_into(self.context, leaves, all)?;
            }
            next_leaf = unit.end;
            let newest = self.merge_unit(unit, late, &mut overlay, &mut merged)?;
            if unit.end == self.state.main.len() && append.is_empty() {
                self.delta.last_row = newest;
            }
        }
        if let Some(all) = &mut merged.all {
            let leaves = part_of(&self.state.main, next_leaf.., "leaves behind a merge");
            read_into(self.context, leaves, all)?;
        }
        if !overlay.iter().all(Source::is_exhausted) {
            return Err(crate::Error::internal(
                "a merge did not write all late events",
            ));
        }
        self.check_written(units, cause, late, merged.written)?;
        self.delta.clear_late = cause == Cause::Fold;
        if let Some(base) = merged.base {
            self.complete_edges(units, base, &mut merged.buckets)?;
            if !append.is_empty() {
                self.append_buckets(base, append, &mut merged.buckets)?;
            }
        }
        self.context.counters.events_written(cause, merged.written);
        self.context.counters.count_merge();
        if !append.is_empty() {
            self.append_leaves(append)?;
        }
        self.replace_pyramid(merged, append)
    }

    /// Lists the sources that are newer than the main run: the late runs when folding, and the late
    /// events.
    fn overlay(&self, late: &Rows, cause: Cause) -> Vec<Source> {
        let mut overlay = if cause == Cause::Fold {
            self.state
                .late
                .iter()
                .map(|run| Source::leaves(self.context.segment, run.iter().copied()))
                .collect()
        } else {
            Vec::new()
        };
        overlay.push(Source::rows(late.clone()));
        overlay
    }

    /// Rewrites the leaves of one unit with the overlay's rows among them; returns its newest row.
    fn merge_unit(
        &mut self,
        unit: &Range<usize>,
        late: &Rows,
        overlay: &mut Vec<Source>,
        merged: &mut MergedRows,
    ) -> Result<Option<Box<[u8]>>> {
        let leaves = part_of(&self.state.main, unit.clone(), "leaves to rewrite");
        // A unit owns the times from its first leaf (or the beginning of time) up to the first leaf
        // after the unit.
        let until = self
            .state
            .main
            .get(unit.end)
            .map_or(Timestamp::MAX, |next| {
                next.first.previous().unwrap_or(Timestamp::MIN)
            });
        let late_rows: u64 = late.times.partition_point(|t| *t <= until.as_nanos()) as u64;
        let estimate = leaves.iter().map(|l| u64::from(l.count)).sum::<u64>()
            + late_rows.min(late.len() as u64);
        let mut cutter = if self.context.exact_cut {
            LeafCutter::new(self.context.leaf_events())
        } else {
            LeafCutter::balanced(estimate as usize, self.context.leaf_events())
        };
        let mut sources = vec![Source::leaves(self.context.segment, leaves.iter().copied())];
        sources.append(overlay);
        let mut merge = BoundedMerge::new(self.context, sources, until);
        let mut newest = None;
        while let Some(rows) = merge.next_rows()? {
            merged.add(&rows);
            newest = last_row(&rows);
            cutter.push(&rows, self.out.group, self.out.encodings)?;
        }
        *overlay = merge.into_overlay();
        self.delta
            .added
            .extend(cutter.finish(self.out.group, self.out.encodings)?);
        self.delta
            .removed
            .extend(leaves.iter().map(|l| (l.offset, l.row_start)));
        Ok(newest)
    }

    /// Refuses a merge that wrote more rows than it read, or fewer where duplicates are kept.
    fn check_written(
        &self,
        units: &[Range<usize>],
        cause: Cause,
        late: &Rows,
        written: u64,
    ) -> Result<()> {
        let folded = self
            .state
            .late
            .iter()
            .flatten()
            .filter(|_| cause == Cause::Fold);
        let taken = units.iter();
        let taken = taken.flat_map(|u| part_of(&self.state.main, u.clone(), "leaves to rewrite"));
        let read = taken.chain(folded).map(|l| u64::from(l.count)).sum::<u64>() + late.len() as u64;
        let keeps_all = self.context.table.keeps_duplicates();
        if written > read || (keeps_all && written < read) {
            return Err(crate::Error::internal(format!(
                "a merge of {read} rows wrote {written}"
            )));
        }
        Ok(())
    }

    /// Replaces the buckets that a merge changed; builds the pyramid of a stream without one, when
    /// it has enough rows.
    fn replace_pyramid(&mut self, merged: MergedRows, append: &Rows) -> Result<()> {
        if merged.base.is_some() {
            pyramid::replace(
                &self.context.target(),
                self.out.group,
                self.state,
                &merged.buckets,
                self.delta,
            )?;
        } else if let Some(mut all) = merged.all {
            all.extend_from(append, 0..append.len());
            if all.len() as u64 >= self.context.target().rows_min() {
                let target = self.context.target();
                pyramid::build(&target, self.out.group, &all, false, self.delta)?;
            }
        }
        Ok(())
    }

    /// Buckets at the border of a unit also contain rows of leaves that were not rewritten.
    fn complete_edges(
        &self,
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
            let mut index = self.state.main.partition_point(|l| l.last < span.first);
            while let Some(leaf) = self.state.main.get(index).filter(|l| l.first <= span.last) {
                if !rewritten(index) {
                    let rows = self.context.rows_of(leaf)?;
                    let a = rows.times.partition_point(|t| *t < first);
                    let b = rows.times.partition_point(|t| *t <= last);
                    pyramid::add_rows(buckets, base, &rows.slice(a..b));
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// Adds appended rows to buckets that replace stored ones: the newest stored bucket is
    /// continued with them.
    fn append_buckets(&self, base: Level, append: &Rows, buckets: &mut Buckets) -> Result<()> {
        let first = append.times.first().copied().unwrap_or(0);
        let number = base.bucket_of(Timestamp::from_nanos(first));
        if !buckets.contains_key(&number)
            && let Some(trailing) = self
                .state
                .blocks_of(base)
                .last()
                .filter(|b| b.last_bucket == number)
        {
            let block = self.context.store.block(self.context.segment, trailing)?;
            if let Some(bucket) = pyramid::from_block(&block, self.context.table).remove(&number) {
                buckets.insert(number, bucket);
            }
        }
        pyramid::add_rows(buckets, base, append);
        Ok(())
    }
}

/// Rows that a merge wrote, for the pyramid of the stream.
struct MergedRows {
    /// Base level of the pyramid; `None` = there is no pyramid, or no correct one.
    base: Option<Level>,
    /// Buckets of the rows written, at that level.
    buckets: Buckets,
    /// All rows of the main run, where it has no pyramid yet.
    all: Option<Rows>,
    /// Number of rows written.
    written: u64,
}

impl MergedRows {
    /// Begins with no rows.
    fn begin(state: &StreamState) -> MergedRows {
        MergedRows {
            base: state.base.filter(|b| *b != Level::MAX),
            buckets: Buckets::new(),
            all: state.base.is_none().then(Rows::default),
            written: 0,
        }
    }

    /// Adds rows that are being written.
    fn add(&mut self, rows: &Rows) {
        self.written += rows.len() as u64;
        if let Some(base) = self.base {
            pyramid::add_rows(&mut self.buckets, base, rows);
        }
        if let Some(all) = &mut self.all {
            all.extend_from(rows, 0..rows.len());
        }
    }
}

/// Reads leaves of the main run and adds their rows.
fn read_into(context: &StoreContext<'_>, leaves: &[LeafEntry], all: &mut Rows) -> Result<()> {
    for leaf in leaves {
        let rows = context.rows_of(leaf)?;
        all.extend_from(&rows, 0..rows.len());
    }
    Ok(())
}

/// A merge over main-run leaves and the overlay up to a time; the next unit continues the overlay.
struct BoundedMerge<'a> {
    merge: Merge<'a>,
    until: Timestamp,
    read_ahead: Option<Rows>,
    done: bool,
}

impl<'a> BoundedMerge<'a> {
    fn new(context: &StoreContext<'a>, sources: Vec<Source>, until: Timestamp) -> BoundedMerge<'a> {
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
            read_ahead: None,
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
        let inside = rows.times.partition_point(|t| *t <= self.until.as_nanos());
        if inside == rows.len() {
            return Ok(Some(rows));
        }
        self.done = true;
        self.read_ahead = Some(rows.slice(inside..rows.len()));
        Ok(if inside == 0 {
            None
        } else {
            Some(rows.slice(0..inside))
        })
    }

    /// The overlay's sources, with rows that were read ahead put back in front.
    fn into_overlay(self) -> Vec<Source> {
        let mut sources = self.merge.into_sources();
        if let Some(held) = self.read_ahead {
            sources.insert(0, Source::rows(held));
        }
        sources
    }
}
