//! Temporal aggregates and tiles: inner buckets from the pyramid, edges and dirty buckets from
//! rows.
//!
//! Source: EVENT paper, section 2 (temporal aggregation on the TAB+-tree); RESPAWN paper, section
//! III-A (tiles).

use super::bins::Bins;
use super::ends::{self, RangeEnd};
use super::gather::{self, Sink};
use super::view::StreamView;
use super::walk::{Visit, VisitedBucket};
use crate::Result;
use headwater_types::{Aggregate, ClosedRange, FieldId, Rows, TILE_BUCKETS, Timestamp, Value};
use std::collections::BTreeMap;

/// Number of bins to allocate in advance: the buckets of a tile.
const BINS_AHEAD: i128 = TILE_BUCKETS as i128;

/// An aggregation to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregateSpec {
    /// The requested instants, both ends included.
    pub range: ClosedRange,
    /// The bins.
    pub bins: Bins,
    /// Return the first and the last value of each bin too. For bins of a few leaves or less this
    /// reads every row of the range. Absent where only aggregates are retained.
    pub first_last: bool,
}

/// A bin that has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Bin {
    /// Its first instant, or the start of the range if that is later.
    pub start: Timestamp,
    /// Count, extremes, mean, deviation and mean time.
    pub aggregate: Aggregate,
    /// Time and value of the earliest event, if requested.
    pub first: Option<(Timestamp, Value)>,
    /// Time and value of the latest event, if requested.
    pub last: Option<(Timestamp, Value)>,
}

/// The bins that have a value, with their numbers.
pub(crate) fn aggregate(
    view: &StreamView,
    field: FieldId,
    spec: &AggregateSpec,
) -> Result<Vec<(i128, Bin)>> {
    spec.bins.check()?;
    let bins = by_bin(view, field, spec)?;
    let mut ends = match spec.first_last {
        true => Ends::find(view, field, spec, &bins)?,
        false => Ends::default(),
    };
    Ok(bins
        .into_iter()
        .map(|(number, aggregate)| {
            let bin = Bin {
                start: spec.bins.start(number, &spec.range),
                aggregate,
                first: ends.first.remove(&number),
                last: ends.last.remove(&number),
            };
            (number, bin)
        })
        .collect())
}

/// Average number of values per bin from which on first and last values are looked up bin by bin:
/// below it, reading all rows once is faster.
const SEARCHED: u64 = 8_192;

#[derive(Default)]
struct Ends {
    first: BTreeMap<i128, (Timestamp, Value)>,
    last: BTreeMap<i128, (Timestamp, Value)>,
}

impl Ends {
    fn find(
        view: &StreamView,
        field: FieldId,
        spec: &AggregateSpec,
        bins: &[(i128, Aggregate)],
    ) -> Result<Ends> {
        let mut ends = Ends::default();
        let values: u64 = bins.iter().map(|(_, aggregate)| aggregate.count).sum();
        if values / SEARCHED < bins.len() as u64 {
            let read = view.fields_to_read(&[field]);
            gather::rows(view, &read, &spec.range, &mut |rows| {
                ends.add(rows, field, &spec.bins);
            })?;
            return Ok(ends);
        }
        for (number, _) in bins {
            let first = spec.bins.start(*number, &spec.range);
            let range = ClosedRange::new(first, spec.bins.end(*number)).intersect(&spec.range);
            let end = |side| -> Result<Option<(Timestamp, Value)>> {
                Ok(ends::values(view, &[field], &range, side)?.pop().flatten())
            };
            if let Some(first) = end(RangeEnd::First)? {
                ends.first.insert(*number, first);
                ends.last
                    .extend(end(RangeEnd::Last)?.map(|last| (*number, last)));
            }
        }
        Ok(ends)
    }

    fn add(&mut self, rows: &Rows, field: FieldId, bins: &Bins) {
        let Some(column) = rows.column(field) else {
            return;
        };
        for (row, time) in rows.times.iter().enumerate() {
            if let Some(value) = column.get(row) {
                let at = Timestamp::from_nanos(*time);
                let bin = bins.of(at);
                self.first
                    .entry(bin)
                    .or_insert_with(|| (at, value.to_owned()));
                self.last.insert(bin, (at, value.to_owned()));
            }
        }
    }
}

/// Aggregates by bin. Bins arrive in ascending order, except that bins read from rows follow the
/// buckets of their partition.
#[derive(Default)]
struct ByBin {
    rising: Vec<(i128, Aggregate)>,
    /// Bins that are not in `rising` and are before its end.
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
            None => self.rising.push((bin, *aggregate)),
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

    /// Adds a bucket whose rows were aged away: only the mean time of its values is known.
    fn add_final(&mut self, seen: &VisitedBucket<'_>) {
        if let Some(aggregate) = seen.aggregate(self.field)
            && let Some(time) = aggregate.mean_time().map(Timestamp::from_nanos)
            && seen.counts_at(time)
        {
            self.merge(self.spec.of(time), &aggregate);
        }
    }
}

impl Sink for Collector {
    /// Accepts a bucket that is inside one bin and has no expired value; other buckets must be
    /// descended into.
    fn visit(&mut self, seen: &VisitedBucket<'_>) -> Visit {
        if seen.is_final {
            self.add_final(seen);
            return Visit::Done;
        }
        let Some(bin) = seen.bin(&self.spec) else {
            return Visit::Descend;
        };
        if seen.has_expired(self.field) {
            return Visit::Descend;
        }
        if let Some(aggregate) = seen.aggregate(self.field) {
            self.merge(bin, &aggregate);
        }
        Visit::Done
    }

    fn add(&mut self, rows: &Rows) {
        let Some(column) = rows.column(self.field) else {
            return;
        };
        for (bin, range) in self.spec.stretches(&rows.times) {
            let aggregate = Aggregate::of(&rows.times, column, range);
            if aggregate.count > 0 {
                self.merge(bin, &aggregate);
            }
        }
    }
}

/// The aggregates of a field by bin number, ascending.
pub(crate) fn by_bin(
    view: &StreamView,
    field: FieldId,
    spec: &AggregateSpec,
) -> Result<Vec<(i128, Aggregate)>> {
    let read = view.fields_to_read(&[field]);
    let mut collector = Collector::new(field, spec.bins);
    let width = spec.bins.width_ns();
    let (first, last) = (spec.range.first.as_nanos(), spec.range.last.as_nanos());
    let bins = (i128::from(last) - i128::from(first)).max(0) / width.max(1) + 1;
    collector.bins.rising.reserve(bins.min(BINS_AHEAD) as usize);
    gather::buckets_and_rows(view, &read, &spec.range, width, &mut collector)?;
    Ok(collector.bins.sorted())
}
