//! The points of one series: raw or per interval, and their rates.

use super::combine::{Number, Points};
use super::{Evaluator, Member};
use crate::error::{Error, ok_if_found};
use crate::fold::{Bucket, Buckets, Fold, first, first_and_last, last};
use crate::windows::{Windows, narrow};
use headwater::{ClosedRange, ScanSpec, Sum, Value, ValueRef};
use headwater_wire::opentsdb::{Aggregator, Downsample, DownsampleFill, Rate, SubQuestion, VALUE};

impl Evaluator<'_> {
    /// The points of a series, counted in the budget.
    pub(super) fn points(
        &self,
        range: ClosedRange,
        query: &SubQuestion,
        member: &Member,
    ) -> Result<Points, Error> {
        let points = match &query.downsample {
            Some(downsample) => self.downsampled(range, downsample, member)?,
            None => self.rows(range, member)?,
        };
        Ok(match &query.rate {
            Some(rate) => rates(&points, rate),
            None => points,
        })
    }

    fn rows(&self, range: ClosedRange, member: &Member) -> Result<Points, Error> {
        let spec = ScanSpec {
            range: range.intersect(&member.extent),
            fields: Some(vec![VALUE.to_owned()]),
            ..ScanSpec::default()
        };
        let mut out = Points::new();
        let Some(scan) = ok_if_found(self.snapshot.scan(&member.stream, &spec))? else {
            return Ok(out);
        };
        for chunk in scan {
            self.budget.check()?;
            let chunk = chunk?;
            let Some(column) = chunk.columns.first() else {
                continue;
            };
            self.budget.take_values(column.present_count())?;
            for (row, time) in chunk.times.iter().enumerate() {
                if let Some(value) = column.get(row).and_then(number) {
                    out.push((*time, value));
                }
            }
        }
        Ok(out)
    }

    fn downsampled(
        &self,
        range: ClosedRange,
        downsample: &Downsample,
        member: &Member,
    ) -> Result<Points, Error> {
        let windows = match downsample.every_ns {
            None => Windows::whole(range),
            Some(every_ns) => Windows::every(range, every_ns, 0, None),
        };
        let ends = matches!(downsample.function, Aggregator::First | Aggregator::Last);
        let fold = Fold {
            fields: vec![VALUE.to_owned()],
            ends: if ends {
                first_and_last(VALUE)
            } else {
                Vec::new()
            },
            ..Fold::default()
        };
        let mut buckets = Buckets::default();
        let stream = (&member.stream, member.extent);
        fold.add_named(self.snapshot, stream, &windows, self.budget, &mut buckets)?;
        // Memory of buckets is counted while they are read; points need less.
        let there = buckets
            .iter()
            .filter_map(|(n, bucket)| Some((narrow(n), of_bucket(downsample.function, bucket)?)));
        let empty = match downsample.fill {
            DownsampleFill::None => {
                return Ok(there.map(|(n, v)| (windows.start(n), v)).collect());
            }
            DownsampleFill::Nan => Number::Float(f64::NAN),
            DownsampleFill::Null => Number::Null,
            DownsampleFill::Zero => Number::Integer(0),
        };
        let (first, last) = windows.numbers(range.first.as_nanos(), range.last.as_nanos());
        let count = usize::try_from(i128::from(last) - i128::from(first) + 1);
        let count = count.unwrap_or(usize::MAX);
        self.budget.take_values(count)?;
        let mut there = there.peekable();
        if there.peek().is_none() {
            return Ok(Points::new());
        }
        let filled = (first..=last).map(|n| {
            let value = there.next_if(|(number, _)| *number == n);
            (windows.start(n), value.map_or(empty, |(_, v)| v))
        });
        let filled = filled.collect();
        let is_whole = there.next().is_none();
        assert!(is_whole, "every bucket lies in an interval of the range");
        Ok(filled)
    }
}

/// A value of a row.
fn number(value: ValueRef<'_>) -> Option<Number> {
    Some(match value {
        ValueRef::F64(v) => Number::Float(v),
        ValueRef::I64(v) => Number::Integer(v.into()),
        ValueRef::U64(v) => Number::Integer(v.into()),
        ValueRef::Bool(v) => Number::Integer(v.into()),
        ValueRef::String(_) | ValueRef::Bytes(_) => return None,
    })
}

fn of_bucket(function: Aggregator, bucket: &Bucket) -> Option<Number> {
    let a = bucket.aggregate(0);
    let value = |value: &Value| number(value.as_ref());
    match function {
        Aggregator::Avg => a.mean().map(Number::Float),
        Aggregator::Count => Some(Number::Integer(a.count.into())),
        Aggregator::Dev => a.stddev().map(Number::Float),
        Aggregator::Sum | Aggregator::ZimSum => a.sum().map(|sum| match sum {
            Sum::Integer(sum) => Number::Integer(sum),
            Sum::Float(sum) => Number::Float(sum),
        }),
        Aggregator::Min | Aggregator::MimMin => a.extremes.min().as_ref().and_then(value),
        Aggregator::Max | Aggregator::MimMax => a.extremes.max().as_ref().and_then(value),
        Aggregator::First => first(bucket).and_then(|e| value(e.value.as_ref()?)),
        Aggregator::Last => last(bucket).and_then(|e| value(e.value.as_ref()?)),
        Aggregator::None => None,
    }
}

/// Changes per second between points, at the time of the later one.
fn rates(points: &[(i64, Number)], rate: &Rate) -> Points {
    let there: Vec<(i64, f64)> = points
        .iter()
        .filter_map(|(t, v)| Some((*t, v.float()?)))
        .collect();
    let mut out = Points::with_capacity(there.len());
    for ((before, a), (time, b)) in there.iter().zip(there.iter().skip(1)) {
        let seconds = (i128::from(*time) - i128::from(*before)) as f64 / 1e9;
        let mut change = b - a;
        let fell = rate.counter && change < 0.0;
        if fell {
            if rate.drop_resets {
                continue;
            }
            // The counter wrapped around at its largest value.
            change += rate.counter_max.unwrap_or(i64::MAX as f64);
        }
        let mut value = change / seconds;
        // The counter did not wrap around: it restarted at zero.
        if fell && rate.reset_value.is_some_and(|reset| value > reset) {
            value = 0.0;
        }
        if value.is_finite() {
            out.push((*time, Number::Float(value)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_begin_again() {
        const S: i64 = 1_000_000_000;
        let points: Points = [(0, 90), (10, 100), (20, 5), (30, 15)]
            .map(|(t, v)| (t * S, Number::Integer(v)))
            .to_vec();
        let of = |rate: Rate| -> Vec<f64> {
            let found = rates(&points, &rate);
            found.iter().filter_map(|(_, v)| v.float()).collect()
        };
        assert_eq!(of(Rate::default()), [1.0, -9.5, 1.0]);
        let counter = Rate {
            counter: true,
            counter_max: Some(105.0),
            ..Rate::default()
        };
        assert_eq!(of(counter), [1.0, 1.0, 1.0]);
        let reset = Rate {
            counter: true,
            reset_value: Some(1e6),
            ..Rate::default()
        };
        assert_eq!(of(reset), [1.0, 0.0, 1.0]);
        // An increasing value has no upper limit of its rate.
        let low = Rate {
            counter: true,
            counter_max: Some(105.0),
            reset_value: Some(0.5),
            ..Rate::default()
        };
        assert_eq!(of(low), [1.0, 0.0, 1.0]);
        let dropped = Rate {
            counter: true,
            drop_resets: true,
            ..Rate::default()
        };
        assert_eq!(of(dropped), [1.0, 1.0]);
    }
}
