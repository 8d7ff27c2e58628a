//! Aggregates of a field over intervals, of one stream after another, from the pyramid or from rows.
//!
//! Invariant: both ways give the same numbers, as the engine's law 3 says of tiles and scans.

use crate::budget::Budget;
use crate::error::{Error, found};
use crate::windows::Windows;
use headwater::{
    Aggregate, AggregateSpec, Bin, Bins, ClosedRange, Column, Snapshot, StreamName, Timestamp,
    Value,
};
use std::collections::BTreeMap;

/// Values that a bucket stands for when memory is counted.
const BUCKET_VALUES: usize = 6;

/// The earliest or the latest value of an interval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) time: i64,
    pub(crate) value: Value,
}

impl End {
    fn of((time, value): (Timestamp, Value)) -> End {
        End {
            time: time.as_nanos(),
            value,
        }
    }
}

/// What is known of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) aggregate: Aggregate,
    pub(crate) first: Option<End>,
    pub(crate) last: Option<End>,
}

impl Bucket {
    const EMPTY: Bucket = Bucket {
        aggregate: Aggregate::EMPTY,
        first: None,
        last: None,
    };

    /// Of equal times the one of the first stream stays first, and that of the last one last.
    fn take(&mut self, aggregate: &Aggregate, first: Option<End>, last: Option<End>) {
        self.aggregate.merge(aggregate);
        if let Some(end) = first
            && self.first.as_ref().is_none_or(|f| end.time < f.time)
        {
            self.first = Some(end);
        }
        if let Some(end) = last
            && self.last.as_ref().is_none_or(|l| end.time >= l.time)
        {
            self.last = Some(end);
        }
    }
}

/// Intervals that hold a value, by number.
pub(crate) type Buckets = BTreeMap<i64, Bucket>;

fn bucket<'a>(
    buckets: &'a mut Buckets,
    number: i64,
    budget: &Budget,
) -> Result<&'a mut Bucket, Error> {
    use std::collections::btree_map::Entry;
    match buckets.entry(number) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            budget.take_values(BUCKET_VALUES)?;
            Ok(entry.insert(Bucket::EMPTY))
        }
    }
}

/// What reading a series needs.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) windows: &'a Windows,
    pub(crate) budget: &'a Budget,
}

impl Reading<'_> {
    /// Adds a stream's aggregates. `extent` is where the stream has events; `ends` asks for first and last values too.
    ///
    /// # Errors
    /// When the budget is used up or there are too many intervals, and what the engine says. A field that is not there adds
    /// nothing.
    pub(crate) fn take(
        &self,
        stream: &StreamName,
        field: &str,
        extent: ClosedRange,
        ends: bool,
        buckets: &mut Buckets,
    ) -> Result<(), Error> {
        self.budget.check()?;
        let windows = self.windows.within(extent);
        if windows.range.is_empty() {
            return Ok(());
        }
        let (first, last) = (windows.range.first, windows.range.last);
        windows.numbers(first.as_nanos(), last.as_nanos())?;
        if ends && !windows.is_divided() {
            return self.take_whole(stream, field, windows.range, buckets);
        }
        for (range, bins) in windows.bins() {
            for bin in self.bins(stream, field, range, bins, ends)? {
                let number = windows.number(bin.start.as_nanos());
                let (first, last) = (bin.first.map(End::of), bin.last.map(End::of));
                bucket(buckets, number, self.budget)?.take(&bin.aggregate, first, last);
            }
        }
        Ok(())
    }

    fn bins(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
        bins: Bins,
        first_last: bool,
    ) -> Result<Vec<Bin>, Error> {
        self.budget.check()?;
        let spec = AggregateSpec {
            range,
            bins,
            first_last,
        };
        Ok(found(self.snapshot.aggregate(stream, field, &spec))?.unwrap_or_default())
    }

    /// The aggregate of a range, and its ends without reading all of its rows.
    fn take_whole(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
        buckets: &mut Buckets,
    ) -> Result<(), Error> {
        let whole = self.bins(stream, field, range, Bins::Whole, false)?;
        let Some(whole) = whole.first() else {
            return Ok(());
        };
        let count = whole.aggregate.count;
        let first = self.end(stream, field, range, count, false)?;
        let last = self.end(stream, field, range, count, true)?;
        bucket(buckets, 0, self.budget)?.take(&whole.aggregate, first, last);
        Ok(())
    }

    /// The newest or the earliest value of a range: the range is divided until the part that holds it has few of its `count` values.
    fn end(
        &self,
        stream: &StreamName,
        field: &str,
        mut range: ClosedRange,
        mut count: u64,
        newest: bool,
    ) -> Result<Option<End>, Error> {
        // Each turn goes on with a 64th of the range, so that eleven reach a nanosecond.
        while count > FEW {
            let length = i128::from(range.last.as_nanos()) - i128::from(range.first.as_nanos()) + 1;
            let width_ns = i64::try_from(length / 64).unwrap_or(i64::MAX).max(1);
            let origin_ns = range.first.as_nanos().rem_euclid(width_ns);
            let divided = Bins::Every {
                width_ns,
                origin_ns,
            };
            let parts = self.bins(stream, field, range, divided, false)?;
            let part = if newest { parts.last() } else { parts.first() };
            let Some(part) = part else {
                return Ok(None);
            };
            count = part.aggregate.count;
            // The part behind it begins at the next multiple of the width.
            let start = part.start.as_nanos();
            let next =
                (i128::from(start) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)) + 1;
            let next = next * i128::from(width_ns) + i128::from(origin_ns) - 1;
            let part = ClosedRange::nanos(start, i64::try_from(next).unwrap_or(i64::MAX));
            let part = part.intersect(&range);
            if part == range {
                break;
            }
            range = part;
        }
        let bin = self.bins(stream, field, range, Bins::Whole, true)?.pop();
        let end = bin.and_then(|bin| if newest { bin.last } else { bin.first });
        Ok(end.map(End::of))
    }
}

/// Rows that are read rather than looked for.
const FEW: u64 = 2_048;

/// Adds rows that were read already, by time.
///
/// # Errors
/// When the budget is used up or there are too many intervals.
pub(crate) fn take_rows(
    times: &[i64],
    column: &Column,
    windows: &Windows,
    budget: &Budget,
    buckets: &mut Buckets,
) -> Result<(), Error> {
    let mut from = 0;
    while let Some(start) = times.get(from) {
        let number = windows.number(*start);
        let rest = times.get(from..).unwrap_or_default();
        let same = rest.iter().take_while(|t| windows.number(**t) == number);
        let rows = from..from + same.count();
        let mut present = rows.clone().filter(|row| column.is_present(*row));
        let first = present.next();
        let last = present.next_back().or(first);
        if let (Some(first), Some(last)) = (first, last) {
            let aggregate = Aggregate::of(times, column, rows.clone());
            let end = |row: usize| {
                Some(End {
                    time: *times.get(row)?,
                    value: column.get(row)?.to_owned(),
                })
            };
            bucket(buckets, number, budget)?.take(&aggregate, end(first), end(last));
        }
        from = rows.end;
    }
    Ok(())
}
