//! Use of indexes in a filtered scan: the instants of a stream in a partition at which rows may
//! meet all conditions.
//!
//! Invariants: every instant at which a row meets all conditions is returned. The values of a row
//! may come from several versions of it, in leaves of the main run, of late runs, and in memory; so
//! the instants of a condition are the instants of every version that meets it, and only instants
//! are intersected. A leaf in no run counts with its whole span. Of alternatives over several
//! fields each has its own index, and the instants of all alternatives count. Concurrency, failure:
//! a run that cannot be read is ignored.

use super::filter::{Clause, Condition};
use super::view::StreamView;
use crate::Result;
use crate::common::ids::TableId;
use crate::common::ranges::{intersection, union};
use crate::core::Core;
use crate::storage::index::{
    FieldBounds, Front, IndexDefinition, IndexUse, KeyRange, LeafSlot, Lookup, SegmentRuns,
    types_in,
};
use crate::storage::read_stats;
use crate::storage::segment::{LeafEntry, Partition, StreamContents};
use headwater_types::invariant::wide;
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp};
use std::sync::Arc;

/// An index is used where it returns at most one row in this number: with more, nearly every page
/// of a leaf would have to be read all the same, and in smaller parts.
const ROWS_PER_CANDIDATE: u64 = 256;
/// Bytes charged for an entry, where entries are looked up and not cached.
const ENTRY_BYTES: u64 = 8;
/// A second index is used as well when the first one leaves more candidates than this.
const CANDIDATES_FEW: u64 = 64;
/// Maximum number of alternatives that are looked up one by one.
const ALTERNATIVES_MAX: usize = 64;
/// Candidates of a leaf at most this number of rows apart are read at once.
const ROWS_APART: u32 = 16;

/// Indexes that can answer conditions: a single one, or several for alternatives.
pub(super) struct Usable {
    /// A row matches if any part returns it: one index, or one for each field of alternatives over
    /// several fields.
    parts: Vec<IndexLookup>,
    /// The answered clauses, as positions in the list of all.
    answers: Vec<usize>,
}

/// An index with the keys to look up.
struct IndexLookup {
    definition: Arc<IndexDefinition>,
    /// The key ranges to look up; for several fields including the range of rows that have only
    /// some of the fields.
    ranges: Vec<KeyRange>,
}

/// Instants that remain after the indexes, and whether other access paths may leave fewer.
pub(super) struct Candidates {
    pub(super) spans: Vec<ClosedRange>,
    pub(super) worth_narrowing: bool,
    /// The first fields of the indexes that were used.
    pub(super) fields: Vec<FieldId>,
}

/// The indexes of a table that can answer some of these conditions.
pub(super) fn usable(core: &Core, table: TableId, conditions: &[Clause]) -> Vec<Usable> {
    if conditions.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    let definitions = core.indexes.of_table(table);
    for definition in &definitions {
        if let Some(range) = KeyRange::of(&definition.fields, |field| bounds_of(conditions, field))
        {
            all.push(Usable::new(definition, vec![range], conditions));
        }
        let lists = conditions.iter().filter(|clause| clause.single().is_none());
        for list in lists {
            if let Some(ranges) = ranges_of(list, conditions, &definition.fields) {
                all.push(Usable::new(definition, ranges, conditions));
            }
        }
    }
    for (at, list) in conditions.iter().enumerate() {
        all.extend(Usable::union(&definitions, at, list, conditions));
    }
    all
}

impl Usable {
    fn new(
        definition: &Arc<IndexDefinition>,
        ranges: Vec<KeyRange>,
        conditions: &[Clause],
    ) -> Usable {
        let answers = (0..conditions.len()).filter(|at| {
            let clause = conditions.get(*at);
            clause.is_some_and(|c| c.fields().all(|field| definition.fields.contains(&field)))
        });
        Usable {
            answers: answers.collect(),
            parts: vec![IndexLookup::new(definition, ranges)],
        }
    }

    /// Alternatives over several fields, each with an index: of the indexes that begin with its
    /// field the one with the fewest fields. `None` when an alternative has no index.
    fn union(
        definitions: &[Arc<IndexDefinition>],
        at: usize,
        list: &Clause,
        conditions: &[Clause],
    ) -> Option<Usable> {
        let alternatives = list.alternatives();
        let first = alternatives.first()?.field;
        if alternatives.len() > ALTERNATIVES_MAX || alternatives.iter().all(|c| c.field == first) {
            return None;
        }
        let mut parts: Vec<IndexLookup> = Vec::new();
        for condition in alternatives {
            let own = definitions
                .iter()
                .filter(|d| d.fields.first() == Some(&condition.field));
            let definition = own.min_by_key(|d| d.fields.len())?;
            let range = range_of(condition, conditions, &definition.fields)?;
            match parts.iter_mut().find(|p| p.definition.id == definition.id) {
                Some(part) => part.ranges.push(range),
                None => parts.push(IndexLookup::new(definition, vec![range])),
            }
        }
        Some(Usable {
            parts,
            answers: vec![at],
        })
    }

    /// The names of its indexes.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.definition.name.as_str())
    }
}

impl IndexLookup {
    fn new(definition: &Arc<IndexDefinition>, mut ranges: Vec<KeyRange>) -> IndexLookup {
        if definition.fields.len() > 1 {
            ranges.push(KeyRange::partial());
        }
        IndexLookup {
            definition: Arc::clone(definition),
            ranges,
        }
    }
}

/// The key ranges of alternatives in an index over these fields; `None` unless every alternative is
/// on the first field and has bounds.
fn ranges_of(list: &Clause, all: &[Clause], fields: &[FieldId]) -> Option<Vec<KeyRange>> {
    let first = *fields.first()?;
    let alternatives = list.alternatives();
    if alternatives.len() > ALTERNATIVES_MAX {
        return None;
    }
    let ranges = alternatives
        .iter()
        .map(|condition| (condition.field == first).then(|| range_of(condition, all, fields))?);
    ranges.collect()
}

/// The key range of an alternative in an index whose first field is the alternative's field; `None`
/// when the alternative has no bounds.
fn range_of(condition: &Condition, all: &[Clause], fields: &[FieldId]) -> Option<KeyRange> {
    let own = condition.bounds()?;
    KeyRange::of(fields, |field| match field == condition.field {
        true => own,
        false => bounds_of(all, field),
    })
}

/// Combined bounds of all conditions on a field; the filter of the scan checks the rest.
fn bounds_of(conditions: &[Clause], field: FieldId) -> FieldBounds<'_> {
    let mut found = FieldBounds::default();
    let own = conditions.iter().filter_map(Clause::single);
    let own = own.filter(|c| c.field == field);
    for bounds in own.filter_map(Condition::bounds) {
        if bounds.is_equal {
            return bounds;
        }
        found.low = found.low.or(bounds.low);
        found.high = found.high.or(bounds.high);
    }
    found
}

/// A scan of a stream in a partition.
pub(super) struct Filtered<'a> {
    pub(super) view: &'a StreamView,
    pub(super) partition: &'a Partition,
    pub(super) state: &'a StreamContents,
    pub(super) range: ClosedRange,
    pub(super) conditions: &'a [Clause],
    /// Rows in memory.
    pub(super) memory: &'a Rows,
}

/// An index, or several for alternatives, with the approximate number of candidates.
struct WeighedIndex<'a> {
    usable: &'a Usable,
    /// The runs of each part.
    runs: Vec<Arc<SegmentRuns>>,
    entries: u64,
}

impl Filtered<'_> {
    /// The instants at which rows may meet the conditions; `None` when indexes are not worth using.
    pub(super) fn candidates(&self, usable: &[Usable]) -> Result<Option<Candidates>> {
        let always = self.view.core.indexes.usage() == IndexUse::Always;
        let mut weighed: Vec<WeighedIndex<'_>> = Vec::new();
        for one in usable {
            weighed.extend(self.weigh(one, always)?);
        }
        weighed.sort_by_key(|w| w.entries);
        let mut spans: Option<Vec<ClosedRange>> = None;
        let mut unanswered: Vec<usize> = (0..self.conditions.len()).collect();
        let mut left = u64::MAX;
        let mut fields = Vec::new();
        for one in &weighed {
            if left <= CANDIDATES_FEW && !always {
                break;
            }
            let Some(found) = self.instants(one)? else {
                return Ok(None);
            };
            left = left.min(one.entries);
            let asked = one.usable.parts.iter();
            fields.extend(asked.filter_map(|part| part.definition.fields.first()));
            unanswered.retain(|at| !one.usable.answers.contains(at));
            spans = Some(match spans {
                None => found,
                Some(before) => intersection(&before, &found),
            });
        }
        let is_behind = |w: &WeighedIndex<'_>| !w.runs.iter().all(|runs| self.is_complete(runs));
        let is_behind = weighed.iter().any(is_behind);
        Ok(spans.map(|spans| {
            let many = wide(spans.len()) > CANDIDATES_FEW;
            Candidates {
                worth_narrowing: is_behind || (many && !unanswered.is_empty()),
                fields,
                spans,
            }
        }))
    }

    /// `None` when there is no run, it cannot be read, or the lookup does not pay.
    fn weigh<'a>(&self, usable: &'a Usable, always: bool) -> Result<Option<WeighedIndex<'a>>> {
        let (mut entries, mut rows, mut runs) = (0u64, 0, Vec::new());
        for part in &usable.parts {
            let Some((own, of_part, own_runs)) = self.weigh_part(part, always)? else {
                return Ok(None);
            };
            entries += own;
            rows = of_part.max(rows);
            runs.push(own_runs);
        }
        let is_few = entries.saturating_mul(ROWS_PER_CANDIDATE) <= rows;
        Ok((rows > 0 && (always || is_few)).then_some(WeighedIndex {
            usable,
            runs,
            entries,
        }))
    }

    /// The approximate number of entries that an index returns, the number of rows, and its runs.
    fn weigh_part(
        &self,
        part: &IndexLookup,
        always: bool,
    ) -> Result<Option<(u64, u64, Arc<SegmentRuns>)>> {
        let indexes = &self.view.core.indexes;
        let runs = indexes.runs(self.partition.id(), part.definition.id);
        // Where a field was widened after the run was written, the keys have values of another
        // type.
        let types = types_in(&self.view.table, &part.definition);
        if runs.runs.is_empty() || runs.runs.iter().any(|run| run.record.types != types) {
            return Ok(None);
        }
        let instead = if always { 0 } else { self.bytes_of_leaves()? };
        let (mut entries, mut rows) = (0, 0);
        for run in &runs.runs {
            let bytes = u64::from(run.record.front_bytes);
            let is_free = always || Lookup::is_at_hand(indexes, run);
            if !is_free && !run.is_worth_loading(bytes, instead) {
                return Ok(None);
            }
            let Some(lookup) = Lookup::new(indexes, run) else {
                return Ok(None);
            };
            let mut own = 0u64;
            for range in &part.ranges {
                let Some(found) = lookup.estimate(range) else {
                    return Ok(None);
                };
                own += found;
            }
            let of_run = u64::from(lookup.front.rows());
            let is_few = own.saturating_mul(ROWS_PER_CANDIDATE) <= of_run;
            let is_free = always || part.ranges.iter().all(|range| lookup.has_rows(range));
            if is_few && !is_free && !run.is_worth_loading(own * ENTRY_BYTES, instead) {
                return Ok(None);
            }
            entries += own;
            rows += of_run;
        }
        Ok(Some((entries, rows, runs)))
    }

    /// Approximate bytes of the leaves that are read without indexes.
    fn bytes_of_leaves(&self) -> Result<u64> {
        let leaves = self.state.leaves_in(&self.view.core.store, &self.range)?;
        let own = leaves.iter().map(|leaf| {
            let of_leaf = u64::from(leaf.bytes) * u64::from(leaf.count);
            of_leaf / u64::from(leaf.leaf_rows).max(1)
        });
        Ok(own.sum())
    }

    /// True when the runs include every leaf that the scan may read.
    fn is_complete(&self, runs: &SegmentRuns) -> bool {
        runs.complete_to == self.partition.record.committed_bytes
    }

    /// The instants at which some version of a row meets the conditions of the index.
    fn instants(&self, weighed: &WeighedIndex<'_>) -> Result<Option<Vec<ClosedRange>>> {
        let indexes = &self.view.core.indexes;
        let mut found = Vec::new();
        for (part, runs) in weighed.usable.parts.iter().zip(&weighed.runs) {
            let mut fronts: Vec<Arc<Front>> = Vec::new();
            for run in &runs.runs {
                let Some(lookup) = Lookup::new(indexes, run) else {
                    return Ok(None);
                };
                for range in &part.ranges {
                    let Some(rows) = lookup.rows(range) else {
                        return Ok(None);
                    };
                    for leaf in lookup.front.of_stream(self.view.stream) {
                        self.of_leaf(leaf, &rows, &mut found)?;
                    }
                }
                fronts.push(Arc::clone(&lookup.front));
            }
            if !self.is_complete(runs) {
                self.unindexed_spans(&fronts, &mut found)?;
            }
        }
        self.in_memory(weighed.usable, &mut found);
        let inside = found.into_iter().map(|span| span.intersect(&self.range));
        Ok(Some(union(inside.collect())))
    }

    /// Appends the instants of these rows of a leaf.
    fn of_leaf(&self, leaf: &LeafSlot, rows: &[u32], out: &mut Vec<ClosedRange>) -> Result<()> {
        if !leaf.entry.range().overlaps(&self.range) {
            return Ok(());
        }
        let from = rows.partition_point(|row| *row < leaf.start);
        let to = rows.partition_point(|row| *row < leaf.end());
        let own = headwater_types::invariant::part_of(rows, from..to, "rows of a leaf in an index");
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            return Ok(());
        };
        read_stats::candidates(wide(own.len()));
        let place = |row: &u32| usize::try_from(*row - leaf.start).unwrap_or(usize::MAX);
        let (start, end) = (place(first), place(last) + 1);
        let store = &self.view.core.store;
        let times = match store.leaf_times(self.partition.id(), &leaf.entry, start..end) {
            Ok(times) => times,
            // The error is reported where the rows are read.
            Err(error) if error.kind() == crate::ErrorKind::Corrupt => {
                out.push(leaf.entry.range());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let time = |row: &u32| times.times().get(place(row) - start).copied();
        let groups = own.chunk_by(|a, b| b - a <= ROWS_APART);
        for group in groups {
            let ends = (group.first().and_then(time), group.last().and_then(time));
            out.push(match ends {
                (Some(first), Some(last)) => ClosedRange::nanos(first, last),
                // A leaf with fewer rows than its entry states: the error is reported where the
                // rows are read.
                _ => leaf.entry.range(),
            });
        }
        Ok(())
    }

    /// Appends the spans of leaves that are in none of the runs.
    fn unindexed_spans(&self, fronts: &[Arc<Front>], out: &mut Vec<ClosedRange>) -> Result<()> {
        let stream = self.view.stream;
        let is_held = |leaf: &LeafEntry| fronts.iter().any(|front| front.covers(stream, leaf));
        let main = self.state.leaves_in(&self.view.core.store, &self.range)?;
        let late = self.state.late().iter().flatten();
        let late = late.filter(|leaf| leaf.range().overlaps(&self.range));
        let spans = main.iter().chain(late).filter(|leaf| !is_held(leaf));
        out.extend(spans.map(LeafEntry::range));
        Ok(())
    }

    /// Appends the instants of rows in memory that may meet the conditions of the indexes: for an
    /// index over several fields, including rows that have only some of them.
    fn in_memory(&self, usable: &Usable, out: &mut Vec<ClosedRange>) {
        let times = &self.memory.times;
        let from = times.partition_point(|t| *t < self.range.first.as_nanos());
        let to = times.partition_point(|t| *t <= self.range.last.as_nanos());
        if from >= to {
            return;
        }
        let rows = self.memory.slice(from..to);
        let has = |row: u32, field: &FieldId| {
            let column = rows.column(*field);
            column.is_some_and(|c| c.is_present(usize::try_from(row).unwrap_or(0)))
        };
        let is_partial = |row: u32| {
            let mut several = usable.parts.iter().map(|part| &part.definition.fields);
            several.any(|fields| fields.len() > 1 && !fields.iter().all(|field| has(row, field)))
        };
        let all = 0..u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let (mut picked, mut partial): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for row in all {
            match is_partial(row) {
                true => partial.push(row),
                false => picked.push(row),
            }
        }
        for condition in usable
            .answers
            .iter()
            .filter_map(|at| self.conditions.get(*at))
        {
            condition.retain(&rows, &mut picked);
        }
        let instants = picked.iter().chain(&partial).filter_map(|row| {
            let time = rows.times.get(usize::try_from(*row).ok()?)?;
            let time = Timestamp::from_nanos(*time);
            Some(ClosedRange::new(time, time))
        });
        out.extend(instants);
    }
}
