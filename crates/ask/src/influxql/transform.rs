//! Functions from one series to another: differences, derivatives, sums so far.
//!
//! Invariant: what comes out has the times of what went in, without those that have nothing before
//! them to compare with.

use super::arithmetic::{finite, from_wide, number, operate};
use headwater::Value;
use headwater_wire::influxql::Operator;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transform {
    /// Change in this many ns; `true`: without falling values.
    Derivative(i64, bool),
    /// Change; `true`: without falling values.
    Difference(bool),
    /// The mean of so many values.
    MovingAverage(usize),
    CumulativeSum,
    /// Time since the value before, in this many ns.
    Elapsed(i64),
}

impl Transform {
    /// Of values by time.
    pub(super) fn apply(self, points: &[(i64, Value)]) -> Vec<(i64, Value)> {
        let pairs = || points.iter().zip(points.iter().skip(1));
        let is_falling = |v: &Value| number(v.as_ref()).is_none_or(|v| v < 0.0);
        match self {
            Transform::Difference(rising) => pairs()
                .filter_map(|((_, a), (t, b))| {
                    let change = operate(Operator::Subtract, b.as_ref(), a.as_ref())?;
                    (!rising || !is_falling(&change)).then_some((*t, change))
                })
                .collect(),
            Transform::Derivative(unit_ns, rising) => pairs()
                .filter_map(|((before, a), (t, b))| {
                    let change = number(b.as_ref())? - number(a.as_ref())?;
                    let passed = i128::from(*t) - i128::from(*before);
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
            Transform::Elapsed(unit_ns) => pairs()
                .map(|((before, _), (t, _))| {
                    let passed = i128::from(*t) - i128::from(*before);
                    (*t, from_wide(passed / i128::from(unit_ns)))
                })
                .collect(),
        }
    }
}
