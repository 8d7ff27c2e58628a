//! Merges the runs of a stream and its events in memory into one sequence of rows, by time and then
//! arrival.
//!
//! Invariants: a source's rows are sorted; sources are ordered by age, the oldest first, so that of
//! equal times the rows of the later source are the newer ones. Output rows have the current types
//! of the table, and rows of equal time are merged when the table's duplicates are `last`. Whole
//! ranges of rows are copied while one source is alone in time; rows are merged one by one only
//! where sources meet.

use crate::Result;
use crate::common::ids::SegmentId;
use crate::common::ranges::{contains_instant, overlapping, swallows};
use crate::memory::merge_equal_times;
use crate::metadata::catalog::Table;
use crate::storage::segment::{AheadOfReader, LeafAhead, LeafCaching, LeafEntry, Store};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Approximate number of rows returned at once.
pub(crate) const CHUNK_ROWS: usize = 2048;

/// Stretches of time whose stored events are deleted or expired; sorted, disjoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden(pub(crate) Arc<[ClosedRange]>);

impl Hidden {
    /// True when all events of the range are hidden.
    pub(crate) fn swallows(&self, range: &ClosedRange) -> bool {
        swallows(&self.0, range)
    }

    pub(crate) fn touches(&self, range: &ClosedRange) -> bool {
        !overlapping(&self.0, range).is_empty()
    }

    /// The rows that are not hidden.
    fn remaining(&self, rows: Rows) -> Rows {
        let (Some(first), Some(last)) = (rows.times.first(), rows.times.last()) else {
            return rows;
        };
        if !self.touches(&ClosedRange::nanos(*first, *last)) {
            return rows;
        }
        let picked: Vec<u32> = (0u32..)
            .zip(&rows.times)
            .filter(|(_, time)| !contains_instant(&self.0, Timestamp::from_nanos(**time)))
            .map(|(row, _)| row)
            .collect();
        rows.gather(&picked)
    }
}

/// One sorted sequence of rows: leaves still to be read, and decoded rows.
#[derive(Debug, Default)]
pub(crate) struct Source {
    leaves: VecDeque<(SegmentId, LeafEntry)>,
    ahead: AheadOfReader,
    hidden: Hidden,
    rows: Rows,
    at: usize,
}

impl Source {
    /// A source of decoded rows.
    pub(crate) fn rows(rows: Rows) -> Source {
        Source {
            rows,
            ..Source::default()
        }
    }

    /// Leaves of one run, in order.
    pub(crate) fn leaves(
        segment: SegmentId,
        leaves: impl IntoIterator<Item = LeafEntry>,
    ) -> Source {
        Source {
            leaves: leaves.into_iter().map(|l| (segment, l)).collect(),
            ..Source::default()
        }
    }

    /// Hides the events of the leaves in these stretches.
    pub(crate) fn without(mut self, hidden: Hidden) -> Source {
        self.hidden = hidden;
        self
    }

    /// True when every row was returned.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.leaves.is_empty() && self.at >= self.rows.len()
    }

    fn head(&self) -> Option<i64> {
        self.rows.times.get(self.at).copied()
    }

    /// True when a leaf may have rows of the range.
    fn is_to_be_read(&self, entry: &LeafEntry, range: &ClosedRange) -> bool {
        entry.range().overlaps(range) && !self.hidden.swallows(&entry.range())
    }

    /// Reads the requested part of the next leaf, and prefetches leaves after it.
    fn go_on(&mut self, store: &Store, range: &ClosedRange) -> Option<LeafAhead> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let leaves = self.leaves.iter();
        let leaves = leaves.map(|(id, entry)| {
            let is_wanted = self.is_to_be_read(entry, range);
            is_wanted.then_some((*id, entry))
        });
        let next = ahead.go_on(store, leaves);
        self.ahead = ahead;
        next
    }
}

/// The merging iterator.
pub(crate) struct Merge<'a> {
    store: &'a Store,
    table: &'a Table,
    range: ClosedRange,
    fields: Option<&'a [FieldId]>,
    keep: LeafCaching,
    sources: Vec<Source>,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        store: &'a Store,
        table: &'a Table,
        range: ClosedRange,
        fields: Option<&'a [FieldId]>,
        sources: Vec<Source>,
    ) -> Merge<'a> {
        Merge {
            store,
            table,
            range,
            fields,
            keep: LeafCaching::default(),
            sources,
        }
    }

    /// Sets the caching of the leaves that the merge decodes.
    pub(crate) fn keeping(self, keep: LeafCaching) -> Merge<'a> {
        Merge { keep, ..self }
    }

    /// Returns the sources, with their rows that were not returned yet.
    pub(crate) fn into_sources(self) -> Vec<Source> {
        self.sources
    }

    /// Ensures that source `index` has a decoded row, unless it is exhausted. A damaged leaf is
    /// dropped from the source, so that the next call continues after it.
    fn fill(&mut self, index: usize) -> Result<()> {
        let Some(source) = self.sources.get_mut(index) else {
            return Ok(());
        };
        while source.at >= source.rows.len() {
            // Maintenance jobs, which read all fields, read one leaf after the other.
            let ahead = match self.fields {
                Some(_) => source.go_on(self.store, &self.range),
                None => None,
            };
            let Some((segment, entry)) = source.leaves.pop_front() else {
                return Ok(());
            };
            if !source.is_to_be_read(&entry, &self.range) {
                continue;
            }
            let rows = read_leaf(
                self.store,
                (segment, &entry, ahead),
                &self.range,
                self.fields.map(|fields| (fields, self.keep)),
                self.table,
            )?;
            source.rows = source.hidden.remaining(rows);
            source.at = 0;
        }
        Ok(())
    }

    /// The next rows, at least one and about [`CHUNK_ROWS`]; `None` at the end.
    ///
    /// After an error of kind `corrupt` the next call continues after the damaged leaf.
    pub(crate) fn next_rows(&mut self) -> Result<Option<Rows>> {
        let mut out = Rows::default();
        while out.len() < CHUNK_ROWS {
            for index in 0..self.sources.len() {
                if let Err(error) = self.fill(index) {
                    // Rows that are merged must not be lost: they are put back at the front.
                    if !out.is_empty() {
                        self.sources.insert(0, Source::rows(out));
                    }
                    return Err(error);
                }
            }
            let mut heads: Vec<(i64, usize)> = self
                .sources
                .iter()
                .enumerate()
                .filter_map(|(i, s)| s.head().map(|t| (t, i)))
                .collect();
            heads.sort_unstable();
            let Some(&(time, first)) = heads.first() else {
                break;
            };
            let next = heads.get(1).copied();
            if let Some((other, _)) = next
                && other == time
            {
                self.take_equal(time, &heads, &mut out);
                continue;
            }
            self.take_until(first, next.map(|n| n.0), &mut out);
        }
        Ok(if out.is_empty() { None } else { Some(out) })
    }

    /// Rows of one source up to the next source's first time.
    fn take_until(&mut self, index: usize, bound: Option<i64>, out: &mut Rows) {
        let sources = self.sources.len();
        let Some(source) = self.sources.get_mut(index) else {
            assert!(index < sources, "source {index} of a merge of {sources}");
            return;
        };
        let rest = part_of(&source.rows.times, source.at.., "rows left of a source");
        let count = bound.map_or(rest.len(), |b| rest.partition_point(|t| *t < b));
        if source.at == 0 && count == source.rows.len() && out.is_empty() {
            *out = std::mem::take(&mut source.rows);
            return;
        }
        let count = count.min(CHUNK_ROWS);
        out.extend_from(&source.rows, source.at..source.at + count);
        source.at += count;
    }

    /// Rows of several sources with one time.
    fn take_equal(&mut self, time: i64, heads: &[(i64, usize)], out: &mut Rows) {
        let mut same = Rows::default();
        for (_, index) in heads.iter().take_while(|(t, _)| *t == time) {
            let sources = self.sources.len();
            let Some(source) = self.sources.get_mut(*index) else {
                assert!(*index < sources, "source {index} of a merge of {sources}");
                continue;
            };
            let rest = part_of(&source.rows.times, source.at.., "rows left of a source");
            let count = rest.partition_point(|t| *t == time);
            same.extend_from(&source.rows, source.at..source.at + count);
            source.at += count;
            if self.table.keeps_duplicates() && source.at >= source.rows.len() {
                // The source's next leaf may have more rows of this time, which precede the rows of
                // newer sources: the next round continues with this source.
                break;
            }
        }
        if !self.table.keeps_duplicates() {
            same = merge_equal_times(same);
        }
        let count = same.len();
        out.extend_from(&same, 0..count);
    }
}

/// The rows of a leaf within a range.
fn read_leaf(
    store: &Store,
    leaf: (SegmentId, &LeafEntry, Option<LeafAhead>),
    range: &ClosedRange,
    fields: Option<(&[FieldId], LeafCaching)>,
    table: &Table,
) -> Result<Rows> {
    if let Some((fields, keep)) = fields {
        let columns = store.leaf_columns_in(leaf, range, fields, keep)?;
        return Ok(columns.into_rows(table));
    }
    let (segment, entry, _) = leaf;
    let to_read = store.rows_about(segment, entry, range)?;
    let rows = store.leaf_rows(segment, entry, to_read, table)?;
    let a = rows.times.partition_point(|t| *t < range.first.as_nanos());
    let b = rows.times.partition_point(|t| *t <= range.last.as_nanos());
    Ok(if a == 0 && b == rows.len() {
        rows
    } else {
        rows.slice(a..b)
    })
}
