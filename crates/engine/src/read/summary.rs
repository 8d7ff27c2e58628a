//! Rows and aggregates of several fields by bins, in one walk, for grouped queries.
//!
//! Invariants: a bin is returned when it has a row, even a row without any of the requested fields;
//! its rows are counted as a scan would count them. Aged rows count as they did before.

use super::bins::Bins;
use super::gather::{Sink, buckets_and_rows};
use super::merge::{Merge, Source};
use super::single::SingleSnapshot;
use super::view::StreamView;
use super::walk::{Visit, VisitedBucket};
use crate::Result;
use crate::storage::segment::{Partition, Totals, TotalsKey, TypedFields};
use headwater_types::{Aggregate, ClosedRange, FieldId, Rows, StreamName, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A summary to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummarySpec {
    /// The requested instants, both ends included.
    pub range: ClosedRange,
    /// The bins.
    pub bins: Bins,
    /// The fields, in the order of their aggregates; empty = rows only.
    pub fields: Vec<String>,
}

/// A bin that has a row.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryBin {
    /// The number of the bin: bin 0 of [`Bins::Every`] begins at the origin. The bin may start
    /// before the range.
    pub number: i128,
    /// Its rows.
    pub rows: u64,
    /// One aggregate per requested field.
    pub aggregates: Vec<Aggregate>,
}

/// Bins in ascending order, except that bins read from rows follow the buckets of their partition.
struct Collector<'a> {
    spec: &'a SummarySpec,
    fields: &'a [FieldId],
    /// All fields of the table where values expire, otherwise empty.
    expiring: &'a [FieldId],
    rising: Vec<SummaryBin>,
    others: BTreeMap<i128, SummaryBin>,
    /// Set for a single bin over everything: totals of partitions are cached.
    single_bin: Option<SingleBin<'a>>,
}

/// The only bin of a stream, over everything.
struct SingleBin<'a> {
    view: &'a StreamView,
    fields: TypedFields,
    /// Bins collected before the partition that is being read.
    before: Vec<SummaryBin>,
}

impl<'a> SingleBin<'a> {
    /// Collector for these fields; `None` where a definition is missing.
    fn new(view: &'a StreamView, fields: &[FieldId]) -> Option<SingleBin<'a>> {
        let typed = fields
            .iter()
            .map(|id| Some((*id, view.table.field(*id)?.field_type)));
        Some(SingleBin {
            view,
            fields: typed.collect::<Option<_>>()?,
            before: Vec::new(),
        })
    }

    fn key(&self, partition: &Partition) -> TotalsKey {
        TotalsKey {
            segment: partition.id(),
            committed: (partition.record.committed_bytes, partition.record.sequence),
            stream: self.view.stream,
            fields: Arc::clone(&self.fields),
        }
    }
}

impl Collector<'_> {
    fn bin(&mut self, number: i128) -> &mut SummaryBin {
        let fields = self.fields.len();
        let new = || SummaryBin {
            number,
            rows: 0,
            aggregates: vec![Aggregate::EMPTY; fields],
        };
        let newest = self.rising.last().map(|b| b.number);
        if newest.is_none_or(|newest| newest < number) {
            self.rising.push(new());
        }
        let at = match newest {
            Some(newest) if newest > number => {
                self.rising.binary_search_by_key(&number, |b| b.number).ok()
            }
            _ => self.rising.len().checked_sub(1),
        };
        match at.and_then(|at| self.rising.get_mut(at)) {
            Some(bin) => bin,
            None => self.others.entry(number).or_insert_with(new),
        }
    }

    /// Adds rows and aggregates to the only bin.
    fn add_totals(&mut self, rows: u64, aggregates: &[Aggregate]) {
        let bin = self.bin(0);
        bin.rows += rows;
        for (into, aggregate) in bin.aggregates.iter_mut().zip(aggregates) {
            if aggregate.count > 0 {
                into.merge(aggregate);
            }
        }
    }

    fn sorted(self) -> Vec<SummaryBin> {
        let mut all = self.rising;
        if !self.others.is_empty() {
            all.extend(self.others.into_values());
            all.sort_unstable_by_key(|bin| bin.number);
        }
        all
    }

    fn take(&mut self, number: i128, seen: &VisitedBucket<'_>) {
        let fields = self.fields;
        let bin = self.bin(number);
        bin.rows += seen.rows();
        for (field, into) in fields.iter().zip(&mut bin.aggregates) {
            if let Some(aggregate) = seen.aggregate(*field) {
                into.merge(&aggregate);
            }
        }
    }

    /// Adds a bucket whose rows were aged away: only the mean time of its values is known. Its rows
    /// count in the bin of the mean time of its first field.
    fn take_final(&mut self, seen: &VisitedBucket<'_>) {
        if let Some(time) = seen.mean_time()
            && seen.counts_at(time)
        {
            let number = self.spec.bins.of(time);
            self.bin(number).rows += seen.rows();
        }
        let fields = self.fields;
        for (at, field) in fields.iter().enumerate() {
            if let Some(aggregate) = seen.aggregate(*field)
                && let Some(time) = aggregate.mean_time().map(Timestamp::from_nanos)
                && seen.counts_at(time)
            {
                let number = self.spec.bins.of(time);
                if let Some(into) = self.bin(number).aggregates.get_mut(at) {
                    into.merge(&aggregate);
                }
            }
        }
    }
}

impl Sink for Collector<'_> {
    fn visit(&mut self, seen: &VisitedBucket<'_>) -> Visit {
        if seen.is_final {
            self.take_final(seen);
            return Visit::Done;
        }
        let Some(number) = seen.bin(&self.spec.bins) else {
            return Visit::Descend;
        };
        if self.expiring.iter().any(|f| seen.has_expired(*f)) {
            return Visit::Descend;
        }
        self.take(number, seen);
        Visit::Done
    }

    fn remembers(&self) -> bool {
        self.single_bin.is_some()
    }

    fn knows(&mut self, partition: &Partition) -> bool {
        let Some(whole) = &mut self.single_bin else {
            return false;
        };
        if let Some(known) = whole.view.core.store.totals(&whole.key(partition)) {
            self.add_totals(known.rows, &known.aggregates);
            return true;
        }
        // The partition is collected separately.
        whole.before = std::mem::take(&mut self.rising);
        false
    }

    fn learned(&mut self, partition: &Partition) {
        let Some(whole) = &mut self.single_bin else {
            return;
        };
        let own = std::mem::replace(&mut self.rising, std::mem::take(&mut whole.before));
        let (key, store) = (whole.key(partition), &whole.view.core.store);
        let none = || SummaryBin {
            number: 0,
            rows: 0,
            aggregates: vec![Aggregate::EMPTY; key.fields.len()],
        };
        let own = own.into_iter().next().unwrap_or_else(none);
        self.add_totals(own.rows, &own.aggregates);
        let (rows, aggregates) = (own.rows, own.aggregates);
        store.keep_totals(key, Totals { rows, aggregates });
    }

    fn add(&mut self, rows: &Rows) {
        let (bins, fields) = (self.spec.bins, self.fields);
        for (number, range) in bins.stretches(&rows.times) {
            let bin = self.bin(number);
            bin.rows += range.len() as u64;
            for (field, into) in fields.iter().zip(&mut bin.aggregates) {
                if let Some(column) = rows.column(*field) {
                    let aggregate = Aggregate::of(&rows.times, column, range.clone());
                    if aggregate.count > 0 {
                        into.merge(&aggregate);
                    }
                }
            }
        }
    }
}

/// The number of rows in a range, counted from the entries of leaves: only leaves at the ends of
/// the range are read. `None` where rows may replace others, are deleted, expired or aged away.
fn count(view: &StreamView, range: &ClosedRange) -> Result<Option<u64>> {
    if view.now.is_some() {
        return Ok(None);
    }
    let memory = view.memory_rows(range, Some(&[]));
    let mut rows = memory.len() as u64;
    for partition in view.partitions_in(range) {
        let Some(state) = view.state(&partition)? else {
            continue;
        };
        let span = partition.span();
        let keeps = view.table.keeps_duplicates();
        // Memory may have newer values of stored rows, unless all of its rows are after them.
        let stored_to = state.main_end().unwrap_or(Timestamp::MIN).min(span.last);
        let from = memory.times.partition_point(|t| *t < span.first.as_nanos());
        let replaces = memory
            .times
            .get(from)
            .is_some_and(|t| *t <= stored_to.as_nanos());
        if state.is_aged()
            || partition.piece.is_some()
            || view.hidden(&partition).touches(&span)
            || (!keeps && (replaces || !state.late().is_empty()))
        {
            return Ok(None);
        }
        let store = &view.core.store;
        let (whole, cut) = state.rows_in(store, range)?;
        rows += whole;
        let late = state.late().iter().flatten();
        for leaf in cut.iter().chain(late) {
            if leaf.range().intersect(range) == leaf.range() {
                rows += u64::from(leaf.count);
            } else if leaf.range().overlaps(range) {
                let source = Source::leaves(partition.id(), [*leaf]);
                let mut merge = Merge::new(store, &view.table, *range, Some(&[]), vec![source]);
                while let Some(part) = merge.next_rows()? {
                    rows += part.len() as u64;
                }
            }
        }
    }
    Ok(Some(rows))
}

fn summary(view: &StreamView, fields: &[FieldId], spec: &SummarySpec) -> Result<Vec<SummaryBin>> {
    spec.bins.check()?;
    if fields.is_empty()
        && spec.bins == Bins::Whole
        && let Some(rows) = count(view, &spec.range)?
    {
        let bin = SummaryBin {
            number: 0,
            rows,
            aggregates: Vec::new(),
        };
        return Ok(if rows > 0 { vec![bin] } else { Vec::new() });
    }
    let all: Vec<FieldId> = match view.now {
        // A row no longer exists when all its values have expired, not only the requested ones.
        Some(_) => (0..view.table.fields.len())
            .map(|i| FieldId(i as u32))
            .collect(),
        None => Vec::new(),
    };
    let mut wanted = if view.now.is_some() {
        view.fields_to_read(&all)
    } else {
        fields.to_vec()
    };
    wanted.sort_unstable();
    wanted.dedup();
    let mut collector = Collector {
        spec,
        fields,
        expiring: &all,
        rising: Vec::new(),
        others: BTreeMap::new(),
        single_bin: (spec.bins == Bins::Whole)
            .then(|| SingleBin::new(view, fields))
            .flatten(),
    };
    let width = spec.bins.width_ns();
    buckets_and_rows(view, &wanted, &spec.range, width, &mut collector)?;
    let mut bins = collector.sorted();
    // Drops bins without rows and values, made by empty buckets or by aged ones that count in
    // another bin.
    bins.retain(|bin| bin.rows > 0 || bin.aggregates.iter().any(|a| a.count > 0));
    Ok(bins)
}

impl SingleSnapshot {
    /// As `Snapshot::summary`.
    pub(super) fn summary(
        &self,
        stream: &StreamName,
        spec: &SummarySpec,
    ) -> Result<Vec<SummaryBin>> {
        self.summary_found(self.find(stream)?, spec)
    }

    pub(super) fn summary_found(
        &self,
        found: super::single::ResolvedStream<'_>,
        spec: &SummarySpec,
    ) -> Result<Vec<SummaryBin>> {
        let view = self.view(found, &spec.range)?;
        let fields = spec.fields.iter().map(|f| Self::field(&view.table, f));
        let fields: Vec<FieldId> = fields.collect::<Result<_>>()?;
        summary(&view, &fields, spec)
    }
}
