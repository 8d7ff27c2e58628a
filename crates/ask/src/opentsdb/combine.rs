//! Combines several series into one, with a point at every instant at which one of them has a
//! point.
//!
//! Invariant: if the aggregator interpolates, a series contributes from its first to its last
//! point, with linear interpolation between points; otherwise only with its own points. Sums and
//! extremes of integers are exact.

use crate::budget::Budget;
use crate::error::Error;
use headwater_wire::opentsdb::Aggregator;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
    /// An interval without a value.
    Null,
}

impl Number {
    /// The number as a float; `None` if missing.
    pub(super) fn float(self) -> Option<f64> {
        match self {
            Number::Integer(v) => Some(v as f64),
            Number::Float(v) if v.is_nan() => None,
            Number::Float(v) => Some(v),
            Number::Null => None,
        }
    }
}

/// Points sorted by time in ns.
pub(super) type Points = Vec<(i64, Number)>;

/// Combines the points of all series.
///
/// # Errors
/// When the budget is exhausted.
pub(super) fn combine(
    mut series: Vec<Points>,
    aggregator: Aggregator,
    may_interpolate: bool,
    budget: &Budget,
) -> Result<Points, Error> {
    if let [points] = series.as_slice()
        && !matches!(aggregator, Aggregator::Count | Aggregator::Dev)
        && points.is_sorted_by(|before, after| before.0 < after.0)
    {
        return Ok(series.pop().unwrap_or_default());
    }
    let mut times: Vec<i64> = series.iter().flatten().map(|(time, _)| *time).collect();
    times.sort_unstable();
    times.dedup();
    let interpolates = may_interpolate && aggregator.interpolates();
    let mut cursors = vec![0usize; series.len()];
    let mut out = Points::with_capacity(times.len());
    let mut values: Vec<Number> = Vec::with_capacity(series.len());
    for (turn, time) in times.into_iter().enumerate() {
        if turn % 1_024 == 0 {
            budget.check()?;
        }
        values.clear();
        let mut empty = None;
        for (points, cursor) in series.iter().zip(&mut cursors) {
            let begun = *cursor;
            // A table that keeps duplicates has several points at an instant.
            while let Some((_, value)) = points.get(*cursor).filter(|(at, _)| *at == time) {
                *cursor += 1;
                match value.float() {
                    Some(_) => values.push(*value),
                    None => empty = Some(*value),
                }
            }
            let (before, next) = (begun.checked_sub(1), points.get(begun));
            if let (Some(next), true, true) = (next, *cursor == begun, interpolates) {
                let before = before.and_then(|at| points.get(at));
                values.extend(before.and_then(|before| between(*before, *next, time)));
            }
        }
        match aggregate(aggregator, &values) {
            Some(value) => out.push((time, value)),
            // All series are empty at that instant.
            None => out.extend(empty.map(|value| (time, value))),
        }
    }
    Ok(out)
}

fn between(a: (i64, Number), b: (i64, Number), at: i64) -> Option<Number> {
    let (from, to) = (a.1.float()?, b.1.float()?);
    let width = (i128::from(b.0) - i128::from(a.0)) as f64;
    let share = (i128::from(at) - i128::from(a.0)) as f64 / width;
    Some(Number::Float(from + (to - from) * share))
}

/// Aggregates several values; `None` without values.
fn aggregate(aggregator: Aggregator, values: &[Number]) -> Option<Number> {
    let first = *values.first()?;
    let last = *values.last()?;
    let integers: Option<Vec<i128>> = values
        .iter()
        .map(|v| match v {
            Number::Integer(v) => Some(*v),
            _ => None,
        })
        .collect();
    let floats = || values.iter().filter_map(|v| v.float());
    let count = values.len() as f64;
    Some(match aggregator {
        Aggregator::Count => Number::Integer(values.len() as i128),
        Aggregator::First | Aggregator::None => first,
        Aggregator::Last => last,
        Aggregator::Sum | Aggregator::ZimSum => {
            let whole = integers.and_then(|list| {
                list.iter()
                    .try_fold(0i128, |sum, value| sum.checked_add(*value))
            });
            whole.map_or_else(|| Number::Float(floats().sum()), Number::Integer)
        }
        Aggregator::Min | Aggregator::MimMin => match integers.and_then(|l| l.into_iter().min()) {
            Some(value) => Number::Integer(value),
            None => Number::Float(floats().fold(f64::INFINITY, f64::min)),
        },
        Aggregator::Max | Aggregator::MimMax => match integers.and_then(|l| l.into_iter().max()) {
            Some(value) => Number::Integer(value),
            None => Number::Float(floats().fold(f64::NEG_INFINITY, f64::max)),
        },
        Aggregator::Avg => Number::Float(floats().sum::<f64>() / count),
        Aggregator::Dev => {
            let mean = floats().sum::<f64>() / count;
            let squares: f64 = floats().map(|v| (v - mean) * (v - mean)).sum();
            Number::Float((squares / count).sqrt())
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::budget::{CancelToken, Deadline};

    fn points(list: &[(i64, i128)]) -> Points {
        let numbers = list.iter().map(|(t, v)| (*t, Number::Integer(*v)));
        numbers.collect()
    }

    #[test]
    fn what_lies_between_points_counts_or_not() {
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let series = || {
            vec![
                points(&[(0, 10), (10, 20), (30, 40)]),
                points(&[(5, 1), (10, 3), (20, 5)]),
            ]
        };
        let of = |aggregator, may| combine(series(), aggregator, may, &budget).unwrap();
        let (i, f) = (Number::Integer, Number::Float);
        assert_eq!(
            of(Aggregator::Sum, true),
            [
                (0, i(10)),
                (5, f(16.0)),
                (10, i(23)),
                (20, f(35.0)),
                (30, i(40))
            ]
        );
        assert_eq!(
            of(Aggregator::Sum, false),
            [(0, i(10)), (5, i(1)), (10, i(23)), (20, i(5)), (30, i(40))]
        );
        assert_eq!(of(Aggregator::ZimSum, true), of(Aggregator::Sum, false));
        assert_eq!(of(Aggregator::Max, true)[1], (5, f(15.0)));
        assert_eq!(of(Aggregator::MimMax, true)[1], (5, i(1)));
        assert_eq!(of(Aggregator::Count, true)[2], (10, i(2)));
        assert_eq!(of(Aggregator::Avg, true)[2], (10, f(11.5)));
        assert_eq!(of(Aggregator::Dev, true)[2], (10, f(8.5)));
        // An interval in which all series are empty stays empty.
        let empty = vec![vec![(0, Number::Null)], vec![(0, Number::Null)]];
        assert_eq!(
            combine(empty, Aggregator::Sum, false, &budget).unwrap(),
            [(0, Number::Null)]
        );
    }

    #[test]
    fn several_points_of_an_instant_all_count_and_the_later_ones_are_there() {
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let series = || {
            vec![
                points(&[(0, 10), (0, 1), (10, 20), (20, 30)]),
                points(&[(5, 1), (20, 2), (20, 3)]),
            ]
        };
        let of = |aggregator, may| combine(series(), aggregator, may, &budget).unwrap();
        let i = Number::Integer;
        assert_eq!(
            of(Aggregator::Sum, false),
            [(0, i(11)), (5, i(1)), (10, i(20)), (20, i(35))]
        );
        assert_eq!(of(Aggregator::Count, false)[3], (20, i(3)));
        let alone = vec![points(&[(0, 10), (0, 1)])];
        let alone = combine(alone, Aggregator::Sum, false, &budget).unwrap();
        assert_eq!(alone, [(0, i(11))]);
        // Between the last of several points and the next.
        assert_eq!(of(Aggregator::Max, true)[1], (5, Number::Float(10.5)));
    }
}
