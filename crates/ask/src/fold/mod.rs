//! The fold: the aggregates of one stream after another, merged by intervals.
//!
//! Every language that queries many streams in time bins uses the fold: InfluxQL and OpenTSDB with
//! windows on the clock of a time zone, SQL's grouped queries with the engine's own bins.
//!
//! Invariants: values from the pyramid and values from rows give the same numbers, as the engine's
//! law 3 says of tiles and scans; buckets are sorted ascending by number; among equal instants,
//! `first` is from the first stream and `last` from the last one; memory in use is reported to a
//! [`Meter`]. Concurrency: a [`Fold`] is plain data; threads that share the streams of a query
//! merge their buckets at the end.

mod rows;

use crate::budget::Budget;
use crate::error::{Error, Result, ok_if_found};
use crate::values::compare;
use crate::windows::Windows;
use headwater::{
    Aggregate, AggregateSpec, Bins, ClosedRange, Column, Ieee, ScanSpec, Snapshot, StreamHandle,
    StreamName, SummarySpec, Value, ValueRef, Values,
};
use rows::Rows;
use std::cmp::Ordering;

/// Maximum number of intervals of a stream that are built before their memory is counted.
const STRETCH_INTERVALS: i128 = 200_000;

/// Number of values that a [`Budget`] counts for a bucket.
pub(crate) const BUCKET_VALUES: usize = 6;

/// Value that a query reads at an end of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndOf {
    /// The instant of a row.
    Time,
    /// The nearest present value of a field; among equal instants from the first or the last
    /// stream.
    Field(String),
    /// The nearest present value of a field; among equal instants the greatest of all streams.
    Greatest(String),
    /// The value of a field in the row itself; may be missing.
    InRow(String),
    /// A tag of the row's stream; may be missing.
    Tag(String),
}

/// The earliest or the latest row, or present value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// True for the latest, false for the earliest.
    pub last: bool,
    /// Value to read at this end.
    pub of: EndOf,
}

/// The row at an end of time.
#[derive(Clone, Debug, PartialEq)]
pub struct EndValue {
    /// Instant of the row, ns since 1970.
    pub time: i64,
    /// The value; `None` if only the instant was requested, or the row has no value there.
    pub value: Option<Value>,
}

/// Whether a value replaces another one of the same instant: the greater value wins; for booleans,
/// false at the first end and true at the last.
pub(crate) fn goes_before(last: bool, new: ValueRef<'_>, held: ValueRef<'_>) -> bool {
    if let (ValueRef::Bool(new), ValueRef::Bool(held)) = (new, held) {
        return new != held && new == last;
    }
    compare(new, held) == Some(Ordering::Greater)
}

/// The ends for languages that request the first and last values of one field.
pub(crate) fn first_and_last(field: &str) -> Vec<End> {
    let end = |last| End {
        last,
        of: EndOf::Greatest(field.to_owned()),
    };
    vec![end(false), end(true)]
}

/// The first of [`first_and_last`].
pub(crate) fn first(bucket: &Bucket) -> Option<&EndValue> {
    bucket.ends.first()?.as_ref()
}

/// The last of [`first_and_last`].
pub(crate) fn last(bucket: &Bucket) -> Option<&EndValue> {
    bucket.ends.get(1)?.as_ref()
}

/// Aggregates and ends of an interval.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Number of rows, if requested.
    pub rows: u64,
    /// Aggregates, one per field.
    pub aggregates: Vec<Aggregate>,
    /// (field, lowest, highest), by total order, of NaN values, if requested.
    pub nan: Vec<(usize, f64, f64)>,
    /// The rows at the requested ends, in the order of the request.
    pub ends: Vec<Option<EndValue>>,
}

impl Bucket {
    /// The aggregate of a field.
    #[must_use]
    pub fn aggregate(&self, field: usize) -> Aggregate {
        let found = self.aggregates.get(field).copied();
        found.unwrap_or(Aggregate::EMPTY)
    }

    /// Merges the bucket of a later stream.
    fn merge(&mut self, other: Bucket, ends: &[End]) {
        let found = self.ends.iter_mut().zip(other.ends).zip(ends);
        for ((mine, theirs), end) in found {
            let better = match (&*mine, &theirs) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(mine), Some(theirs))
                    if mine.time == theirs.time && matches!(end.of, EndOf::Greatest(_)) =>
                {
                    let values = theirs.value.as_ref().zip(mine.value.as_ref());
                    values.is_some_and(|(new, held)| {
                        goes_before(end.last, new.as_ref(), held.as_ref())
                    })
                }
                (Some(mine), Some(theirs)) if end.last => theirs.time >= mine.time,
                (Some(mine), Some(theirs)) => theirs.time < mine.time,
            };
            if better {
                *mine = theirs;
            }
        }
        self.rows += other.rows;
        for (mine, theirs) in self.aggregates.iter_mut().zip(&other.aggregates) {
            mine.merge(theirs);
        }
        for (field, low, high) in other.nan {
            match self.nan.iter_mut().find(|(f, ..)| *f == field) {
                Some((_, l, h)) => {
                    *l = Ieee::least(*l, low);
                    *h = Ieee::greatest(*h, high);
                }
                None => self.nan.push((field, low, high)),
            }
        }
    }
}

/// Non-empty intervals, sorted ascending by number.
#[derive(Clone, Debug, Default)]
pub struct Buckets(Vec<(i128, Bucket)>);

impl Buckets {
    /// Buckets of one interval.
    #[must_use]
    pub fn one(number: i128, bucket: Bucket) -> Buckets {
        Buckets(vec![(number, bucket)])
    }

    /// True when there are no buckets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of buckets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Numbers and buckets.
    pub fn iter(&self) -> impl Iterator<Item = (i128, &Bucket)> {
        self.0.iter().map(|(number, bucket)| (*number, bucket))
    }

    /// The number of the first bucket.
    #[must_use]
    pub fn first(&self) -> Option<i128> {
        self.0.first().map(|(number, _)| *number)
    }

    /// Adds a bucket, which usually is after the others.
    fn add(&mut self, number: i128, bucket: Bucket, ends: &[End]) {
        if self.0.last().is_none_or(|(last, _)| *last < number) {
            self.0.push((number, bucket));
            return;
        }
        match self.0.binary_search_by_key(&number, |(n, _)| *n) {
            Ok(at) => {
                if let Some((_, mine)) = self.0.get_mut(at) {
                    mine.merge(bucket, ends);
                }
            }
            Err(at) => self.0.insert(at, (number, bucket)),
        }
    }

    /// Merges the buckets of a later stream, or of a later part of the streams.
    pub fn merge(&mut self, more: Buckets, ends: &[End]) {
        if self.0.is_empty() {
            *self = more;
            return;
        }
        let mut merged = Vec::with_capacity(self.0.len().max(more.0.len()));
        let mut theirs = more.0.into_iter().peekable();
        for (number, mut mine) in std::mem::take(&mut self.0) {
            while let Some(other) = theirs.next_if(|(n, _)| *n < number) {
                merged.push(other);
            }
            if let Some((_, other)) = theirs.next_if(|(n, _)| *n == number) {
                mine.merge(other, ends);
            }
            merged.push((number, mine));
        }
        merged.extend(theirs);
        let rises = merged.is_sorted_by(|(a, _), (b, _)| a < b);
        assert!(rises, "buckets rise by number");
        self.0 = merged;
    }
}

impl IntoIterator for Buckets {
    type Item = (i128, Bucket);
    type IntoIter = std::vec::IntoIter<(i128, Bucket)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Limits of a fold: its memory, and whether it continues.
pub trait Meter {
    /// Error that ends the fold.
    type Error;

    /// Called before each stream: false ends the fold without an error, since the client no longer
    /// waits.
    ///
    /// # Errors
    /// After the deadline.
    fn goes_on(&self) -> std::result::Result<bool, Self::Error>;

    /// Reserves memory for `buckets` buckets of one stream, before they are merged with the others.
    ///
    /// # Errors
    /// When the memory is exhausted.
    fn reserve(&self, buckets: usize) -> std::result::Result<(), Self::Error>;

    /// Reports that `kept` of the reserved buckets are new and stay.
    ///
    /// # Errors
    /// When the memory is exhausted.
    fn settle(&self, reserved: usize, kept: usize) -> std::result::Result<(), Self::Error>;

    /// Converts an error of the engine.
    fn refused(error: headwater::Error) -> Self::Error;
}

impl Meter for Budget {
    type Error = Error;

    fn goes_on(&self) -> Result<bool> {
        self.check().map(|()| true)
    }

    fn reserve(&self, _: usize) -> Result<()> {
        // Intervals of one stream are bounded by [`Windows::numbers`].
        Ok(())
    }

    fn settle(&self, _: usize, kept: usize) -> Result<()> {
        self.take_values(kept.saturating_mul(BUCKET_VALUES))
    }

    fn refused(error: headwater::Error) -> Error {
        error.into()
    }
}

/// Aggregates and ends that a query reads from each stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fold {
    /// Fields that are aggregated.
    pub fields: Vec<String>,
    /// True if rows are counted too, and intervals of rows without any of the fields are included.
    pub rows: bool,
    /// First and last values and rows. If intervals are subdivided, of the one field only.
    pub ends: Vec<End>,
    /// Indexes of the fields whose NaN values are collected, since their order matters.
    pub nan: Vec<usize>,
    /// True if the table keeps rows of equal instants.
    pub retains_duplicates: bool,
}

impl Fold {
    /// An empty bucket.
    #[must_use]
    pub fn empty_bucket(&self) -> Bucket {
        Bucket {
            rows: 0,
            aggregates: vec![Aggregate::EMPTY; self.fields.len()],
            nan: Vec::new(),
            ends: vec![None; self.ends.len()],
        }
    }

    /// Approximate bytes of a bucket.
    #[must_use]
    pub fn bucket_bytes(&self) -> usize {
        size_of::<(i128, Bucket)>()
            + self.fields.len() * size_of::<Aggregate>()
            + self.ends.len() * size_of::<Option<EndValue>>()
    }

    /// Adds a stream; false when the client no longer waits. A stream or a field that does not
    /// exist adds nothing.
    ///
    /// # Errors
    /// Errors of the meter and of the engine.
    pub fn add<M: Meter>(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        windows: &Windows,
        meter: &M,
        into: &mut Buckets,
    ) -> std::result::Result<bool, M::Error> {
        if !meter.goes_on()? {
            return Ok(false);
        }
        let more = self.of_stream(snapshot, stream, windows);
        let more = ok_if_found(more).map_err(M::refused)?.unwrap_or_default();
        self.take(more, meter, into)?;
        Ok(true)
    }

    /// Adds the stream of that name, if it has events.
    ///
    /// # Errors
    /// Errors of the budget and of the engine.
    pub(crate) fn add_named(
        &self,
        snapshot: &Snapshot,
        (stream, extent): (&StreamName, ClosedRange),
        windows: &Windows,
        budget: &Budget,
        into: &mut Buckets,
    ) -> Result<()> {
        let windows = windows.within(extent);
        if windows.range.is_empty() {
            return Ok(());
        }
        let Some(handle) = ok_if_found(snapshot.handle(stream))? else {
            return Ok(());
        };
        if windows.intervals() <= STRETCH_INTERVALS {
            self.add(snapshot, &handle, &windows, budget, into)?;
            return Ok(());
        }
        self.add_in_stretches(snapshot, &handle, windows, budget, into)
    }

    /// Adds the non-empty intervals of a long range, part by part: if there may be many, the range
    /// is halved, so that few intervals are built before they are counted.
    fn add_in_stretches(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        windows: Windows,
        budget: &Budget,
        into: &mut Buckets,
    ) -> Result<()> {
        let mut waiting = vec![windows];
        while let Some(stretch) = waiting.pop() {
            budget.check()?;
            if stretch.intervals() > STRETCH_INTERVALS
                && i128::from(self.values_in(snapshot, stream, stretch.range)?) > STRETCH_INTERVALS
            {
                let (first, last) = halves(stretch.range);
                waiting.extend([stretch.within(last), stretch.within(first)]);
                continue;
            }
            let more = ok_if_found(self.of_stream(snapshot, stream, &stretch))?.unwrap_or_default();
            self.take(more, budget, into)?;
        }
        Ok(())
    }

    /// An upper bound for the number of values of the fields.
    fn values_in(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        range: ClosedRange,
    ) -> Result<u64> {
        let spec = AggregateSpec {
            range,
            bins: Bins::Whole,
            first_last: false,
        };
        let mut most = 0;
        for field in &self.fields {
            let bins = ok_if_found(stream.aggregate(snapshot, field, &spec))?.unwrap_or_default();
            let count: u64 = bins.iter().map(|bin| bin.aggregate.count).sum();
            most = most.max(count);
        }
        Ok(most)
    }

    /// Merges one stream's buckets. Also for rows that were read already and folded by
    /// [`Fold::fold_rows`].
    ///
    /// # Errors
    /// Errors of the meter.
    pub(crate) fn take<M: Meter>(
        &self,
        more: Buckets,
        meter: &M,
        into: &mut Buckets,
    ) -> std::result::Result<(), M::Error> {
        let (before, count) = (into.len(), more.len());
        meter.reserve(count)?;
        into.merge(more, &self.ends);
        meter.settle(count, into.len() - before)
    }

    /// Adds some rows of a stream to its buckets; the fold is of one field.
    pub(crate) fn fold_rows(
        &self,
        times: &[i64],
        column: &Column,
        windows: &Windows,
        into: &mut Buckets,
    ) {
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
                let end = |end: &End| {
                    let row = if end.last { last } else { first };
                    Some(EndValue {
                        time: *times.get(row)?,
                        value: Some(column.get(row)?.to_owned()),
                    })
                };
                let bucket = Bucket {
                    rows: 0,
                    aggregates: vec![Aggregate::of(times, column, rows.clone())],
                    nan: Vec::new(),
                    ends: self.ends.iter().map(end).collect(),
                };
                into.add(number.into(), bucket, &self.ends);
            }
            from = rows.end;
        }
    }

    fn of_stream(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        windows: &Windows,
    ) -> headwater::Result<Buckets> {
        match self.fields.as_slice() {
            [field] if !self.rows => self.one_field(snapshot, stream, field, windows),
            [] if !self.rows => self.ends_alone(snapshot, stream, windows.range),
            _ => self.rows_and_fields(snapshot, stream, windows),
        }
    }

    /// Folds one field, as the front ends of time series need it.
    fn one_field(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        field: &str,
        windows: &Windows,
    ) -> headwater::Result<Buckets> {
        let mut out = Buckets::default();
        for (range, bins) in windows.bins() {
            let spec = AggregateSpec {
                range,
                bins,
                first_last: !self.ends.is_empty(),
            };
            for bin in stream.aggregate(snapshot, field, &spec)? {
                let (first, last) = (bin.first, bin.last);
                let end = |end: &End| {
                    let found = if end.last { &last } else { &first };
                    found.as_ref().map(|(time, value)| EndValue {
                        time: time.as_nanos(),
                        value: Some(value.clone()),
                    })
                };
                let bucket = Bucket {
                    rows: 0,
                    aggregates: vec![bin.aggregate],
                    nan: Vec::new(),
                    ends: self.ends.iter().map(end).collect(),
                };
                // A bin may begin before the range for which it was requested.
                let begins = bin.start.max(range.first).as_nanos();
                out.add(windows.number(begins).into(), bucket, &self.ends);
            }
        }
        Ok(out)
    }

    /// Folds rows and several fields in one pass, as SQL needs them.
    fn rows_and_fields(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        windows: &Windows,
    ) -> headwater::Result<Buckets> {
        let mut out = Buckets::default();
        for (range, bins) in windows.bins() {
            let spec = SummarySpec {
                range,
                bins,
                fields: self.fields.clone(),
            };
            for bin in stream.summary(snapshot, &spec)? {
                let span = span(&bins, bin.number, &range);
                let nan = self.nan_extremes(snapshot, stream, &bin.aggregates, span)?;
                let ends = self.ends_in(snapshot, stream, span)?;
                let bucket = Bucket {
                    rows: bin.rows,
                    aggregates: bin.aggregates,
                    nan,
                    ends,
                };
                let number = windows.number_of(bin.number, span.first);
                out.add(number, bucket, &self.ends);
            }
        }
        Ok(out)
    }

    /// The rows at the ends only; empty without rows.
    fn ends_alone(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        range: ClosedRange,
    ) -> headwater::Result<Buckets> {
        let ends = self.ends_in(snapshot, stream, range)?;
        let mut out = Buckets::default();
        let is_there = ends.iter().any(Option::is_some)
            || ok_if_found(stream.last_row_in(snapshot, range))?
                .flatten()
                .is_some();
        if is_there {
            let bucket = Bucket {
                ends,
                ..self.empty_bucket()
            };
            out.add(0, bucket, &self.ends);
        }
        Ok(out)
    }

    fn ends_in(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        range: ClosedRange,
    ) -> headwater::Result<Vec<Option<EndValue>>> {
        let mut rows = Rows::new(snapshot, stream, range);
        let mut out = Vec::with_capacity(self.ends.len());
        for end in &self.ends {
            out.push(match &end.of {
                EndOf::Field(field) | EndOf::Greatest(field) => {
                    let end = match end.last {
                        true => stream.last_in(snapshot, field, range),
                        false => stream.first_in(snapshot, field, range),
                    };
                    ok_if_found(end)?.flatten().map(|(time, value)| EndValue {
                        time: time.as_nanos(),
                        value: Some(value),
                    })
                }
                EndOf::Time => rows.end(end.last)?.map(|time| EndValue {
                    time: time.as_nanos(),
                    value: None,
                }),
                EndOf::InRow(field) => match rows.end(end.last)? {
                    None => None,
                    Some(time) => Some(EndValue {
                        time: time.as_nanos(),
                        value: rows.value(field, end.last, time, self.retains_duplicates)?,
                    }),
                },
                EndOf::Tag(key) => rows.end(end.last)?.map(|time| EndValue {
                    time: time.as_nanos(),
                    value: stream
                        .name()
                        .tag(key)
                        .map(|tag| Value::String(tag.to_owned())),
                }),
            });
        }
        Ok(out)
    }

    /// The extremes of NaN values by total order, if requested: an aggregate only counts them, and
    /// their sign decides whether they sort before or after all numbers.
    fn nan_extremes(
        &self,
        snapshot: &Snapshot,
        stream: &StreamHandle,
        aggregates: &[Aggregate],
        range: ClosedRange,
    ) -> headwater::Result<Vec<(usize, f64, f64)>> {
        let mut out = Vec::new();
        for (field, aggregate) in aggregates.iter().enumerate() {
            if aggregate.nan == 0 || !self.nan.contains(&field) {
                continue;
            }
            let spec = ScanSpec {
                range,
                fields: self.fields.get(field).map(|f| vec![f.clone()]),
                ..ScanSpec::default()
            };
            let mut ends: Option<(f64, f64)> = None;
            for chunk in stream.scan(snapshot, &spec)? {
                let chunk = chunk?;
                let Some(column) = chunk.columns.first() else {
                    continue;
                };
                let Values::F64(values) = column.values() else {
                    continue;
                };
                for (row, value) in values.iter().enumerate() {
                    if value.is_nan() && column.is_present(row) {
                        let (low, high) = ends.unwrap_or((*value, *value));
                        ends = Some((Ieee::least(low, *value), Ieee::greatest(high, *value)));
                    }
                }
            }
            out.extend(ends.map(|(low, high)| (field, low, high)));
        }
        Ok(out)
    }
}

fn halves(range: ClosedRange) -> (ClosedRange, ClosedRange) {
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    let middle = i64::midpoint(first, last);
    let next = middle.saturating_add(1);
    (
        ClosedRange::nanos(first, middle),
        ClosedRange::nanos(next, last),
    )
}

/// The span of a bin within the requested range.
fn span(bins: &Bins, number: i128, range: &ClosedRange) -> ClosedRange {
    if *bins == Bins::Whole {
        return *range;
    }
    let clamp = |at: i128| at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    let (first, next) = (bins.begin(number), bins.begin(number + 1));
    ClosedRange::nanos(clamp(first), clamp(next - 1)).intersect(range)
}

#[cfg(test)]
mod tests;
