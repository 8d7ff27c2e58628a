//! Functions from one series to another: differences, derivatives, cumulative sums.
//!
//! Invariants: results have the times of the input values, except values without a previous value
//! to compare with; *previous* refers to the order of the answer, so that with newest rows first
//! values are compared with newer ones; among several values of one instant only the first is
//! compared.

use super::arithmetic::{finite, from_wide, number, operate};
use headwater::Value;
use headwater_wire::influxql::Operator;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transform {
    /// Change per this many ns; `true`: without decreasing values.
    Derivative(i64, bool),
    /// Change; `true`: without decreasing values.
    Difference(bool),
    /// The mean of this many values.
    MovingAverage(usize),
    CumulativeSum,
    /// Time since the previous value, in this many ns.
    Elapsed(i64),
}

impl Transform {
    /// The number of intervals before the range that the function reads.
    pub(super) fn reach(self) -> u32 {
        match self {
            Transform::CumulativeSum => 0,
            // One interval also for a mean of many values, as in InfluxDB: the averages begin later
            // then.
            _ => 1,
        }
    }

    /// Applies the function to values in the order of the answer.
    pub(super) fn apply(self, points: &[(i64, Value)], descending: bool) -> Vec<(i64, Value)> {
        let is_falling = |v: &Value| number(v.as_ref()).is_none_or(|v| v < 0.0);
        match self {
            Transform::Difference(rising) => advancing(points)
                .filter_map(|((_, a), (t, b))| {
                    let change = operate(Operator::Subtract, b.as_ref(), a.as_ref())?;
                    (!rising || !is_falling(&change)).then_some((*t, change))
                })
                .collect(),
            Transform::Derivative(unit_ns, rising) => advancing(points)
                .filter_map(|((before, a), (t, b))| {
                    let change = number(b.as_ref())? - number(a.as_ref())?;
                    let passed = i128::from(*t) - i128::from(*before);
                    let passed = if descending { -passed } else { passed };
                    let rate = finite(change / (passed as f64 / unit_ns as f64))?;
                    (!rising || !is_falling(&rate)).then_some((*t, rate))
                })
                .collect(),
            Transform::MovingAverage(count) => {
                let numbers: Vec<(i64, f64)> = points
                    .iter()
                    .filter_map(|(t, v)| Some((*t, number(v.as_ref())?)))
                    .collect();
                numbers
                    .windows(count)
                    .filter_map(|window| {
                        let sum: f64 = window.iter().map(|(_, v)| v).sum();
                        Some((window.last()?.0, finite(sum / count as f64)?))
                    })
                    .collect()
            }
            Transform::CumulativeSum => {
                let mut sum: Option<Value> = None;
                let mut out = Vec::with_capacity(points.len());
                for (time, value) in points {
                    let next = match &sum {
                        Some(sum) => operate(Operator::Add, sum.as_ref(), value.as_ref()),
                        None => number(value.as_ref()).map(|_| value.clone()),
                    };
                    if let Some(next) = next {
                        out.push((*time, next.clone()));
                        sum = Some(next);
                    }
                }
                out
            }
            Transform::Elapsed(unit_ns) => points
                .iter()
                .zip(points.iter().skip(1))
                .map(|((before, _), (t, _))| {
                    let passed = i128::from(*t) - i128::from(*before);
                    (*t, from_wide(passed / i128::from(unit_ns)))
                })
                .collect(),
        }
    }
}

/// Each value with the previous one, of another instant.
fn advancing(points: &[(i64, Value)]) -> impl Iterator<Item = (&(i64, Value), &(i64, Value))> {
    let firsts = || {
        let runs = points.chunk_by(|(a, _), (b, _)| a == b);
        runs.filter_map(<[(i64, Value)]>::first)
    };
    firsts().zip(firsts().skip(1))
}
