//! Scans: rows of a stream as columns, in bounded memory.

use super::demand::{self, Counting};
use super::filter::{Clause, Filter};
use super::indexed::{Filtered, Usable, usable};
use super::merge::{Merge, Source};
use super::view::{StreamView, run_sources};
use super::walk::{Visit, Walk};
use crate::common::ranges::{intersection, union};
use crate::metadata::catalog::{Field, Table};
use crate::storage::segment::{LeafCaching, Partition, StreamContents};
use crate::{Error, Result};
use headwater_types::invariant::{part_of, wide};
use headwater_types::{ClosedRange, Column, FieldId, FieldType, Rows, Timestamp};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// A scan to make.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanSpec {
    /// The requested instants, both ends included.
    pub range: ClosedRange,
    /// The requested fields, in this order; `None` = all, in the order they were added.
    pub fields: Option<Vec<String>>,
    /// Conditions that must all hold.
    pub filters: Vec<Filter>,
    /// Lists of conditions: at least one of each list must hold. An empty list matches no row.
    pub any_of: Vec<Vec<Filter>>,
}

impl Default for ScanSpec {
    fn default() -> Self {
        ScanSpec {
            range: ClosedRange::ALL,
            fields: None,
            filters: Vec::new(),
            any_of: Vec::new(),
        }
    }
}

/// Rows of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanChunk {
    /// Nanoseconds since 1970 UTC.
    pub times: Vec<i64>,
    /// One column per field of [`crate::Scan::fields`].
    pub columns: Vec<Column>,
}

/// See [`crate::Scan`].
pub(crate) struct SingleScan {
    view: StreamView,
    /// Names and types of `wanted`, made on first use.
    fields: OnceLock<Vec<(String, FieldType)>>,
    projection: Vec<FieldId>,
    /// Fields to read: the requested ones and the fields of conditions, sorted; empty = the
    /// requested ones.
    read: Vec<FieldId>,
    conditions: Vec<Clause>,
    /// Indexes that can answer some of the conditions.
    usable: Vec<Usable>,
    /// Counts of rows read in vain, where indexes are chosen by use.
    counting: Option<Counting>,
    /// Caching of the leaves of the partition that is being read.
    keep: LeafCaching,
    memory: Rows,
    segments: VecDeque<ScanStretch>,
    spans: VecDeque<ClosedRange>,
    partition: Option<(Arc<Partition>, StreamContents)>,
    current: Option<(Vec<Source>, ClosedRange)>,
    /// The complete result, when no partition meets the range.
    ready: Option<Rows>,
}

pub(super) enum ScanStretch {
    /// A range in which only memory may have rows.
    Between(ClosedRange),
    Partition(Arc<Partition>, ClosedRange),
}

impl SingleScan {
    pub(crate) fn new(view: StreamView, spec: &ScanSpec) -> Result<SingleScan> {
        let table = Arc::clone(&view.table);
        let projection = requested_fields(&table, spec)?;
        let conditions = Clause::all(&spec.filters, &spec.any_of, &table)?;
        let mut read: Vec<FieldId> = Vec::new();
        if !conditions.is_empty() || !projection.is_sorted_by(|a, b| a < b) {
            read.extend(&projection);
            read.extend(conditions.iter().flat_map(Clause::fields));
            read.sort_unstable();
            read.dedup();
        }
        if view.now.is_some() {
            // A row no longer exists when all its values have expired, not only the requested ones.
            let all: Vec<FieldId> = (0..table.fields.len()).map(|i| FieldId(i as u32)).collect();
            read = view.fields_to_read(&all);
        }
        let asked = if read.is_empty() { &projection } else { &read };
        let mut memory = view.memory_rows(&spec.range, Some(asked));
        let segments = segments(&view, &spec.range);
        let ready = segments.is_empty().then(|| std::mem::take(&mut memory));
        let usable = usable(&view.core, view.table.id, &conditions);
        let counting = Counting::of(&view, &conditions, &usable);
        Ok(SingleScan {
            usable,
            counting,
            keep: LeafCaching::default(),
            view,
            fields: OnceLock::new(),
            projection,
            read,
            conditions,
            memory,
            segments,
            spans: VecDeque::new(),
            partition: None,
            current: None,
            ready,
        })
    }

    /// Names and types of the columns of every chunk.
    pub(crate) fn fields(&self) -> &[(String, FieldType)] {
        self.fields.get_or_init(|| {
            let fields = self.projection.iter();
            fields
                .filter_map(|id| self.view.table.field(*id))
                .map(|f| (f.name.clone(), f.field_type))
                .collect()
        })
    }

    /// Rows in memory within a range; `last` = no later range will follow.
    fn memory_in(&mut self, range: &ClosedRange, last: bool) -> Rows {
        let from = self
            .memory
            .times
            .partition_point(|t| *t < range.first.as_nanos());
        let to = self
            .memory
            .times
            .partition_point(|t| *t <= range.last.as_nanos());
        if last && from == 0 && to == self.memory.len() {
            return std::mem::take(&mut self.memory);
        }
        self.memory.slice(from..to.max(from))
    }

    /// Advances to the next range that may have rows. False at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(span) = self.spans.pop_front() {
                let mut sources = match &self.partition {
                    Some((partition, state)) => run_sources(&self.view, partition, state, &span)?,
                    None => Vec::new(),
                };
                let is_last = self.spans.is_empty() && self.segments.is_empty();
                let memory = self.memory_in(&span, is_last);
                if !memory.is_empty() {
                    sources.push(Source::rows(memory));
                }
                self.current = Some((sources, span));
                return Ok(true);
            }
            self.partition = None;
            match self.segments.pop_front() {
                None => return Ok(false),
                Some(ScanStretch::Between(range)) => self.spans.push_back(range),
                Some(ScanStretch::Partition(partition, range)) => {
                    // Memory may have rows there, whatever the state of the partition.
                    self.spans.push_back(range);
                    let Some(state) = self.view.state(&partition)? else {
                        continue;
                    };
                    (self.spans, self.keep) = self.spans_to_read(&partition, &state, range)?;
                    self.partition = Some((partition, state));
                }
            }
        }
    }

    /// The parts of a partition that may have matching rows, and the caching of the leaves that are
    /// decoded for them.
    fn spans_to_read(
        &self,
        partition: &Partition,
        state: &StreamContents,
        range: ClosedRange,
    ) -> Result<(VecDeque<ClosedRange>, LeafCaching)> {
        let keep = LeafCaching::default();
        if self.conditions.is_empty() || state.is_aged() {
            return Ok(([range].into(), keep));
        }
        let filtered = Filtered {
            view: &self.view,
            partition,
            state,
            range,
            conditions: &self.conditions,
            memory: &self.memory,
        };
        let Some(found) = filtered.candidates(&self.usable)? else {
            let spans = self.spans_by_pyramid(partition, state, range)?;
            return Ok((spans.into(), keep));
        };
        if self.view.core.indexes.counts(self.view.table.id) {
            let leaves = state.leaves_in(&self.view.core.store, &range)?;
            let rows: u64 = leaves.iter().map(|leaf| u64::from(leaf.count)).sum();
            let spared = rows.saturating_sub(wide(found.spans.len()));
            demand::spared(&self.view, &found.fields, spared);
        }
        let mut spans = found.spans;
        if found.worth_narrowing {
            let by_pyramid = self.spans_by_pyramid(partition, state, range)?;
            spans = intersection(&spans, &by_pyramid);
        }
        Ok((spans.into(), LeafCaching::UnlessSmall))
    }

    /// The parts of a partition that may have matching rows, by the bounds in the pyramid.
    fn spans_by_pyramid(
        &self,
        partition: &Partition,
        state: &StreamContents,
        range: ClosedRange,
    ) -> Result<Vec<ClosedRange>> {
        let Some(walk) = Walk::new(&self.view, partition, state, range, &self.memory.times)? else {
            return Ok(vec![range]);
        };
        let conditions = &self.conditions;
        let fields: Vec<FieldId> = conditions.iter().flat_map(Clause::fields).collect();
        walk.only(&fields).run(&mut |seen| {
            let possible = conditions
                .iter()
                .all(|clause| clause.may_match(|field| seen.aggregate(field)));
            if possible {
                Visit::Descend
            } else {
                Visit::Done
            }
        })
    }

    /// The ranges outside of which no row meets the conditions; sorted, disjoint.
    pub(crate) fn spans(mut self) -> Result<Vec<ClosedRange>> {
        if let Some(rows) = self.ready.take() {
            return Ok(union(self.matching(rows)));
        }
        let mut out = Vec::new();
        while let Some(stretch) = self.segments.pop_front() {
            let (range, stored) = match stretch {
                ScanStretch::Between(range) => (range, None),
                ScanStretch::Partition(partition, range) => {
                    let state = self.view.state(&partition)?;
                    (range, state.map(|state| (partition, state)))
                }
            };
            match stored {
                Some((partition, state)) => {
                    out.extend(self.spans_to_read(&partition, &state, range)?.0);
                }
                None => {
                    let rows = self.memory_in(&range, false);
                    out.extend(self.matching(rows));
                }
            }
        }
        Ok(union(out))
    }

    /// The instants of these rows that meet the conditions; no other rows exist at their times.
    fn matching(&self, rows: Rows) -> Vec<ClosedRange> {
        let rows = self.view.settled_rows(rows);
        let mut picked: Vec<u32> = (0u32..).take(rows.len()).collect();
        for condition in &self.conditions {
            condition.retain(&rows, &mut picked);
        }
        let times = picked.iter().filter_map(|row| {
            let time = rows.times.get(usize::try_from(*row).ok()?)?;
            Some(ClosedRange::nanos(*time, *time))
        });
        times.collect()
    }

    /// Applies the conditions and puts the columns in the requested order.
    fn shape(&mut self, rows: Rows) -> ScanChunk {
        let mut rows = self.view.settled_rows(rows);
        if !self.conditions.is_empty() {
            let mut picked: Vec<u32> = (0..rows.len() as u32).collect();
            for condition in &self.conditions {
                condition.retain(&rows, &mut picked);
            }
            if let Some(counting) = &mut self.counting {
                counting.record(rows.len(), picked.len());
            }
            if picked.len() < rows.len() {
                rows = rows.gather(&picked);
            }
        }
        if rows.columns.iter().map(|(f, _)| f).eq(&self.projection) {
            return ScanChunk {
                times: rows.times,
                columns: rows.columns.into_iter().map(|(_, c)| c).collect(),
            };
        }
        let count = rows.len();
        let mut columns: Vec<Option<Column>> = Vec::new();
        let mut by_field = rows.columns;
        for (position, id) in self.projection.iter().enumerate() {
            // A field may be requested twice: the column is moved out for its last mention only.
            let later = part_of(&self.projection, position + 1.., "fields wanted later");
            let again = later.contains(id);
            let found = by_field.iter().position(|(f, _)| f == id);
            columns.push(match found {
                Some(at) if again => by_field.get(at).map(|(_, c)| c.clone()),
                Some(at) => Some(by_field.swap_remove(at).1),
                None => None,
            });
        }
        let columns = columns
            .into_iter()
            .zip(&self.projection)
            .filter_map(|(column, id)| {
                let absent = |f: &Field| Column::absent(f.field_type, count);
                column.or_else(|| self.view.table.field(*id).map(absent))
            })
            .collect();
        ScanChunk {
            times: rows.times,
            columns,
        }
    }
}

impl Iterator for SingleScan {
    type Item = Result<ScanChunk>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(rows) = self.ready.take() {
            let chunk = self.shape(rows);
            return (!chunk.times.is_empty()).then_some(Ok(chunk));
        }
        loop {
            if let Some((sources, span)) = self.current.take() {
                let asked = if self.read.is_empty() {
                    &self.projection
                } else {
                    &self.read
                };
                let mut merge = Merge::new(
                    &self.view.core.store,
                    &self.view.table,
                    span,
                    Some(asked),
                    sources,
                )
                .keeping(self.keep);
                let result = merge.next_rows();
                let sources = merge.into_sources();
                match result {
                    Ok(None) => continue,
                    Ok(Some(rows)) => {
                        self.current = Some((sources, span));
                        let chunk = self.shape(rows);
                        if !chunk.times.is_empty() {
                            return Some(Ok(chunk));
                        }
                        continue;
                    }
                    Err(error) => {
                        if error.kind() == crate::ErrorKind::Corrupt {
                            self.current = Some((sources, span));
                        }
                        return Some(Err(error));
                    }
                }
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The requested fields, in the order of the request.
pub(super) fn requested_fields(table: &Table, spec: &ScanSpec) -> Result<Vec<FieldId>> {
    match &spec.fields {
        None => Ok((0..table.fields.len()).map(|i| FieldId(i as u32)).collect()),
        Some(names) => names.iter().map(|n| requested_field(table, n)).collect(),
    }
}

pub(super) fn requested_field(table: &Table, name: &str) -> Result<FieldId> {
    table
        .field_id(name)
        .ok_or_else(|| Error::not_found(format!("table `{}` has no field `{name}`", table.name)))
}

/// The range split at the borders of partitions, by time; empty when no partition meets the range.
pub(super) fn segments(view: &StreamView, range: &ClosedRange) -> VecDeque<ScanStretch> {
    let mut out = VecDeque::new();
    let mut next = Some(range.first);
    let partitions = view.partitions_in(range);
    if partitions.is_empty() {
        return out;
    }
    for partition in partitions {
        let span = partition.span().intersect(range);
        if let Some(from) = next
            && from < span.first
        {
            let before = Timestamp::from_nanos(span.first.as_nanos() - 1);
            out.push_back(ScanStretch::Between(ClosedRange::new(from, before)));
        }
        out.push_back(ScanStretch::Partition(partition, span));
        next = span
            .last
            .as_nanos()
            .checked_add(1)
            .map(Timestamp::from_nanos);
    }
    if let Some(from) = next
        && from <= range.last
    {
        out.push_back(ScanStretch::Between(ClosedRange::new(from, range.last)));
    }
    out
}
