//! Temporal aggregates and tiles: inner buckets from the pyramid, edges and disturbed buckets from rows.
//!
//! Source: EVENT paper, section 2 (temporal aggregation on the TAB+-tree); RESPAWN paper, section III-A (tiles).

use super::merge::{Merge, Source};
use super::view::{StreamView, run_sources};
use super::walk::{Seen, Visit, Walk};
use crate::{Error, Result};
use headwater_codec::{Aggregate, ClosedRange, FieldId, Level, Rows, Timestamp, Value};
use std::collections::BTreeMap;

/// How a range is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bins {
    /// Not at all: one bin.
    Whole,
    /// Bins of equal width; one begins at `origin_ns`.
    Every {
        /// Width, above 0.
        width_ns: i64,
        /// An instant at which a bin begins.
        origin_ns: i64,
    },
    /// Buckets of a level of the pyramid.
    Level(Level),
}

/// What to aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregateSpec {
    /// The instants wanted, both ends included.
    pub range: ClosedRange,
    /// The bins.
    pub bins: Bins,
    /// Give the first and the last value of each bin too; this reads every row of the range. Where only aggregates are kept there
    /// is neither.
    pub first_last: bool,
}

/// One bin that holds a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Bin {
    /// Where it begins: its first instant, or that of the range if that is later.
    pub start: Timestamp,
    /// Count, extremes, mean, deviation and mean time.
    pub aggregate: Aggregate,
    /// Time and value of the earliest event, if asked for.
    pub first: Option<(Timestamp, Value)>,
    /// Time and value of the latest event, if asked for.
    pub last: Option<(Timestamp, Value)>,
}

impl Bins {
    /// The number of the bin; narrow bins far from their origin need more than 64 bits.
    fn of(&self, time: i64) -> i128 {
        match self {
            Bins::Whole => 0,
            Bins::Every {
                width_ns,
                origin_ns,
            } => match time.checked_sub(*origin_ns) {
                // A division of 128 bits costs several times as much.
                Some(distance) => i128::from(distance.div_euclid(*width_ns)),
                None => {
                    let distance = i128::from(time) - i128::from(*origin_ns);
                    distance.div_euclid(i128::from(*width_ns))
                }
            },
            Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
        }
    }

    fn start(&self, bin: i128, range: &ClosedRange) -> Timestamp {
        let start = match self {
            Bins::Whole => i128::from(range.first.as_nanos()),
            Bins::Every {
                width_ns,
                origin_ns,
            } => bin * i128::from(*width_ns) + i128::from(*origin_ns),
            Bins::Level(level) => level.bucket_start_wide(bin as i64),
        };
        let least = i128::from(range.first.as_nanos());
        Timestamp::from_nanos(start.max(least) as i64)
    }

    /// The last instant of a bin.
    fn end(&self, bin: i128) -> i64 {
        let end = match self {
            Bins::Whole => i128::from(i64::MAX),
            Bins::Every {
                width_ns,
                origin_ns,
            } => (bin + 1) * i128::from(*width_ns) + i128::from(*origin_ns) - 1,
            Bins::Level(level) => level.bucket_start_wide(bin as i64 + 1) - 1,
        };
        end.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    fn width_ns(&self) -> i128 {
        match self {
            Bins::Whole => i128::MAX,
            Bins::Every { width_ns, .. } => i128::from(*width_ns),
            Bins::Level(level) => level.bucket_start_wide(1),
        }
    }
}

pub(crate) fn aggregate(
    view: &StreamView,
    field: FieldId,
    spec: &AggregateSpec,
) -> Result<Vec<Bin>> {
    if let Bins::Every { width_ns, .. } = spec.bins
        && width_ns <= 0
    {
        return Err(Error::invalid(format!(
            "a bin must be wider than 0 ns, found {width_ns}"
        )));
    }
    let mut ends = Ends::default();
    let bins = if spec.first_last {
        let mut collector = Collector::new(field, spec.bins);
        let whole = walk_rows(view, field, &spec.range, &mut |rows| {
            collector.add(rows);
            ends.add(rows, field, &spec.bins);
        });
        whole?;
        add_aged(view, spec, &mut collector)?;
        collector.bins.sorted()
    } else {
        by_bin(view, field, spec)?
    };
    Ok(bins
        .into_iter()
        .map(|(number, aggregate)| Bin {
            start: spec.bins.start(number, &spec.range),
            aggregate,
            first: ends.first.remove(&number),
            last: ends.last.remove(&number),
        })
        .collect())
}

#[derive(Default)]
struct Ends {
    first: BTreeMap<i128, (Timestamp, Value)>,
    last: BTreeMap<i128, (Timestamp, Value)>,
}

impl Ends {
    fn add(&mut self, rows: &Rows, field: FieldId, bins: &Bins) {
        let Some(column) = rows.column(field) else {
            return;
        };
        for (row, time) in rows.times.iter().enumerate() {
            if let Some(value) = column.get(row) {
                let bin = bins.of(*time);
                let at = Timestamp::from_nanos(*time);
                self.first
                    .entry(bin)
                    .or_insert_with(|| (at, value.to_owned()));
                self.last.insert(bin, (at, value.to_owned()));
            }
        }
    }
}

/// Aggregates by bin. They are found in rising order but for what is read from rows, which comes after the buckets of its
/// partition.
#[derive(Default)]
struct ByBin {
    rising: Vec<(i128, Aggregate)>,
    /// Bins that are not in `rising` and lie before its end.
    others: BTreeMap<i128, Aggregate>,
}

impl ByBin {
    fn merge(&mut self, bin: i128, aggregate: &Aggregate) {
        let newest = self.rising.last_mut();
        let known = match newest {
            Some((newest, known)) if *newest == bin => Some(known),
            Some((newest, _)) if bin < *newest => {
                let found = self.rising.binary_search_by_key(&bin, |(b, _)| *b);
                match found.ok().and_then(|at| self.rising.get_mut(at)) {
                    Some((_, known)) => Some(known),
                    None => Some(self.others.entry(bin).or_insert(Aggregate::EMPTY)),
                }
            }
            _ => None,
        };
        match known {
            Some(known) => known.merge(aggregate),
            None => {
                let mut first = Aggregate::EMPTY;
                first.merge(aggregate);
                self.rising.push((bin, first));
            }
        }
    }

    fn sorted(self) -> Vec<(i128, Aggregate)> {
        let mut all = self.rising;
        if !self.others.is_empty() {
            all.extend(self.others);
            all.sort_unstable_by_key(|(bin, _)| *bin);
        }
        all
    }
}

struct Collector {
    field: FieldId,
    spec: Bins,
    bins: ByBin,
}

impl Collector {
    fn new(field: FieldId, spec: Bins) -> Collector {
        Collector {
            field,
            spec,
            bins: ByBin::default(),
        }
    }

    fn merge(&mut self, bin: i128, aggregate: &Aggregate) {
        self.bins.merge(bin, aggregate);
    }

    /// Takes a bucket that lies in one bin and of which nothing has expired; others must be looked into.
    fn visit(&mut self, seen: &Seen<'_>) -> Visit {
        if seen.is_final {
            self.add_final(seen);
            return Visit::Done;
        }
        let bin = self.spec.of(seen.span.first.as_nanos());
        if self.spec.of(seen.span.last.as_nanos()) != bin || seen.has_expired(self.field) {
            return Visit::Descend;
        }
        if let Some(aggregate) = seen.aggregate(self.field) {
            self.merge(bin, &aggregate);
        }
        Visit::Done
    }

    /// Takes a bucket whose rows have gone: all that is known is when its values came on average.
    fn add_final(&mut self, seen: &Seen<'_>) {
        if let Some(aggregate) = seen.aggregate(self.field)
            && let Some(time) = aggregate.mean_time()
            && seen.counts_at(time)
        {
            self.merge(self.spec.of(time), &aggregate);
        }
    }

    fn add(&mut self, rows: &Rows) {
        let Some(column) = rows.column(self.field) else {
            return;
        };
        let mut start = 0;
        while let Some(time) = rows.times.get(start) {
            let bin = self.spec.of(*time);
            let last = self.spec.end(bin);
            let end = start
                + rows
                    .times
                    .get(start..)
                    .unwrap_or_default()
                    .partition_point(|t| *t <= last);
            let aggregate = Aggregate::of(&rows.times, column, start..end);
            if aggregate.count > 0 {
                self.merge(bin, &aggregate);
            }
            start = end;
        }
    }
}

/// Hands out all rows of a field in a range.
fn walk_rows(
    view: &StreamView,
    field: FieldId,
    range: &ClosedRange,
    each: &mut impl FnMut(&Rows),
) -> Result<()> {
    let fields = view.fields_to_read(&[field]);
    let memory = view.memory_rows(range, Some(&fields));
    let mut done = Done::new(range);
    for partition in view.partitions_in(range) {
        let span = partition.record.span().intersect(range);
        done.memory_before(&memory, Some(&span), &mut |rows| each(&view.settled(rows)));
        let sources = match view.state(&partition)? {
            Some(state) => run_sources(view, &partition, &state, &span),
            None => Vec::new(),
        };
        merged(view, field, span, sources, &memory, each)?;
    }
    done.memory_before(&memory, None, &mut |rows| each(&view.settled(rows)));
    Ok(())
}

/// How far memory outside of partitions was handed out.
struct Done {
    next: Option<i64>,
    last: i64,
}

impl Done {
    fn new(range: &ClosedRange) -> Done {
        Done {
            next: (!range.is_empty()).then(|| range.first.as_nanos()),
            last: range.last.as_nanos(),
        }
    }

    fn memory_before(
        &mut self,
        memory: &Rows,
        span: Option<&ClosedRange>,
        each: &mut impl FnMut(&Rows),
    ) {
        let Some(first) = self.next else { return };
        let from = memory.times.partition_point(|t| *t < first);
        let to = match span {
            Some(span) => memory.times.partition_point(|t| *t < span.first.as_nanos()),
            None => memory.times.partition_point(|t| *t <= self.last),
        };
        if from < to {
            if from == 0 && to == memory.len() {
                each(memory);
            } else {
                each(&memory.slice(from..to));
            }
        }
        self.next = span.and_then(|s| s.last.as_nanos().checked_add(1));
    }
}

fn merged(
    view: &StreamView,
    field: FieldId,
    span: ClosedRange,
    mut sources: Vec<Source>,
    memory: &Rows,
    each: &mut impl FnMut(&Rows),
) -> Result<()> {
    let from = memory.times.partition_point(|t| *t < span.first.as_nanos());
    let to = memory.times.partition_point(|t| *t <= span.last.as_nanos());
    if from < to {
        sources.push(Source::rows(memory.slice(from..to)));
    }
    let fields = view.fields_to_read(&[field]);
    let mut merge = Merge::new(&view.core.store, &view.table, span, Some(&fields), sources);
    while let Some(rows) = merge.next_rows()? {
        each(&view.settled(&rows));
    }
    Ok(())
}

/// Adds the buckets of what has been aged, for which there are no rows.
fn add_aged(view: &StreamView, spec: &AggregateSpec, collector: &mut Collector) -> Result<()> {
    for partition in view.partitions_in(&spec.range) {
        let Some(state) = view.state(&partition)?.filter(|s| s.is_aged()) else {
            continue;
        };
        let span = partition.record.span().intersect(&spec.range);
        let Some(walk) = Walk::new(view, &partition, &state, span, &[])? else {
            continue;
        };
        walk.run(&mut |seen| collector.visit(seen))?;
    }
    Ok(())
}

/// The aggregates of a field by bin number, rising.
pub(crate) fn by_bin(
    view: &StreamView,
    field: FieldId,
    spec: &AggregateSpec,
) -> Result<Vec<(i128, Aggregate)>> {
    let range = &spec.range;
    let fields = view.fields_to_read(&[field]);
    let memory = view.memory_rows(range, Some(&fields));
    let mut collector = Collector::new(field, spec.bins);
    let mut done = Done::new(range);
    for partition in view.partitions_in(range) {
        let span = partition.record.span().intersect(range);
        done.memory_before(&memory, Some(&span), &mut |rows| {
            collector.add(&view.settled(rows))
        });
        let Some(state) = view.state(&partition)? else {
            merged(view, field, span, Vec::new(), &memory, &mut |rows| {
                collector.add(rows)
            })?;
            continue;
        };
        let walk = Walk::new(view, &partition, &state, span, &memory.times)?.filter(|walk| {
            walk.is_aged() || walk.base().bucket_start_wide(1) <= spec.bins.width_ns()
        });
        let to_read = match walk {
            None => vec![span],
            Some(walk) => walk
                .no_wider_than(spec.bins.width_ns())
                .run(&mut |seen| collector.visit(seen))?,
        };
        for part in to_read {
            let sources = run_sources(view, &partition, &state, &part);
            merged(view, field, part, sources, &memory, &mut |rows| {
                collector.add(rows)
            })?;
        }
    }
    done.memory_before(&memory, None, &mut |rows| {
        collector.add(&view.settled(rows))
    });
    Ok(collector.bins.sorted())
}
