//! From aggregates to the values that SQL gives for them.
//!
//! Floats follow Arrow: extremes by total order (NaN is the greatest, unless its sign is negative), a sum or mean with NaN is
//! NaN, and a deviation with anything that is not finite is NaN.

use super::ends::Found;
use super::plan::{Computed, End, Function, Grouped};
use crate::error::{Error, Result};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use headwater::{Aggregate, Extremes, SummaryBin};
use std::sync::Arc;

/// A bin of a group. Where a field has NaN, its extremes by total order were found in the rows.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    pub(super) bin: SummaryBin,
    /// (field, lowest, highest), by total order, of NaN values.
    pub(super) nan: Vec<(usize, f64, f64)>,
    /// What was found at the ends of time that are asked for, in their order.
    pub(super) ends: Vec<Option<Found>>,
}

impl Folded {
    /// A bin without rows.
    pub(super) fn empty(grouped: &Grouped) -> Folded {
        Folded {
            bin: SummaryBin {
                number: 0,
                rows: 0,
                aggregates: vec![Aggregate::EMPTY; grouped.fields.len()],
            },
            nan: Vec::new(),
            ends: vec![None; grouped.ends.len()],
        }
    }

    /// Adds what a later stream has.
    pub(super) fn merge(&mut self, other: Folded, ends: &[End]) {
        let found = self.ends.iter_mut().zip(other.ends).zip(ends);
        for ((mine, theirs), end) in found {
            let better = match (&*mine, &theirs) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some((mine, _)), Some((theirs, _))) if end.last => theirs >= mine,
                (Some((mine, _)), Some((theirs, _))) => theirs < mine,
            };
            if better {
                *mine = theirs;
            }
        }
        self.bin.rows += other.bin.rows;
        for (mine, theirs) in self.bin.aggregates.iter_mut().zip(&other.bin.aggregates) {
            mine.merge(theirs);
        }
        for (field, low, high) in other.nan {
            match self.nan.iter_mut().find(|(f, ..)| *f == field) {
                Some((_, l, h)) => {
                    *l = least(*l, low);
                    *h = greatest(*h, high);
                }
                None => self.nan.push((field, low, high)),
            }
        }
    }

    /// Lowest and highest of a field of floats.
    fn ends(&self, field: usize, aggregate: &Aggregate) -> Option<(f64, f64)> {
        let mut ends: Option<(f64, f64)> = None;
        let mut add = |low: f64, high: f64| {
            ends = Some(match ends {
                None => (low, high),
                Some((l, h)) => (least(l, low), greatest(h, high)),
            });
        };
        if let Extremes::F64(low, high) = aggregate.extremes {
            add(low, high);
        }
        if aggregate.positive_infinite > 0 {
            add(f64::INFINITY, f64::INFINITY);
        }
        if aggregate.negative_infinite > 0 {
            add(f64::NEG_INFINITY, f64::NEG_INFINITY);
        }
        match self.nan.iter().find(|(f, ..)| *f == field) {
            Some((_, low, high)) => add(*low, *high),
            // Their rows have been aged away.
            None if aggregate.nan > 0 => add(f64::NAN, f64::NAN),
            None => {}
        }
        ends
    }
}

pub(super) fn least(a: f64, b: f64) -> f64 {
    if b.total_cmp(&a).is_lt() { b } else { a }
}

pub(super) fn greatest(a: f64, b: f64) -> f64 {
    if b.total_cmp(&a).is_gt() { b } else { a }
}

/// The sum of a mean times a count, with what is not finite.
fn with_infinite(aggregate: &Aggregate, finite: impl FnOnce() -> f64) -> f64 {
    let (plus, minus) = (aggregate.positive_infinite, aggregate.negative_infinite);
    match (aggregate.nan, plus, minus) {
        (0, 0, 0) => finite(),
        (0, _, 0) => f64::INFINITY,
        (0, 0, _) => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}

fn sum_of_floats(aggregate: &Aggregate) -> Option<f64> {
    (aggregate.count > 0).then(|| match aggregate.extremes {
        Extremes::I64(..) | Extremes::U64(..) => aggregate.sum as f64,
        _ => with_infinite(aggregate, || {
            aggregate.mean().unwrap_or_default() * aggregate.finite() as f64
        }),
    })
}

fn mean(aggregate: &Aggregate) -> Option<f64> {
    (aggregate.count > 0).then(|| with_infinite(aggregate, || aggregate.mean().unwrap_or_default()))
}

fn variance(aggregate: &Aggregate, sample: bool) -> Option<f64> {
    let count = aggregate.count;
    if count == 0 || (sample && count == 1) {
        return None;
    }
    if aggregate.finite() < count {
        return Some(f64::NAN);
    }
    let divisor = if sample { count - 1 } else { count };
    Some((aggregate.m2 / divisor as f64).max(0.0))
}

/// A computed column of the bins.
pub(super) fn column(of: Computed, data_type: &DataType, bins: &[Folded]) -> Result<ArrayRef> {
    let (function, field) = match of {
        Computed::End(end) => {
            let absent = ScalarValue::try_new_null(data_type)?;
            let values = bins.iter().map(|b| match b.ends.get(end) {
                Some(Some((_, value))) => value.clone(),
                _ => absent.clone(),
            });
            return Ok(ScalarValue::iter_to_array(values)?);
        }
        Computed::Rows => {
            let rows = bins.iter().map(|b| b.bin.rows as i64);
            return Ok(Arc::new(Int64Array::from_iter_values(rows)));
        }
        Computed::Of(function, field) => (function, field),
    };
    let aggregates = bins.iter().map(|b| {
        let found = b.bin.aggregates.get(field);
        (b, found.copied().unwrap_or(Aggregate::EMPTY))
    });
    let floats = |of: &dyn Fn(&Aggregate) -> Option<f64>| -> ArrayRef {
        Arc::new(Float64Array::from_iter(
            aggregates.clone().map(|(_, a)| of(&a)),
        ))
    };
    Ok(match function {
        Function::Count => Arc::new(Int64Array::from_iter_values(
            aggregates.map(|(_, a)| a.count as i64),
        )),
        Function::Mean => floats(&mean),
        Function::SumOfFloats => floats(&sum_of_floats),
        Function::Variance { sample } => floats(&|a| variance(a, sample)),
        Function::Deviation { sample } => floats(&|a| variance(a, sample).map(f64::sqrt)),
        Function::Sum => match data_type {
            DataType::Float64 => floats(&sum_of_floats),
            // Beyond 64 bits it wraps, as a sum of the rows does.
            DataType::Int64 => Arc::new(Int64Array::from_iter(
                aggregates.map(|(_, a)| (a.count > 0).then_some(a.sum as i64)),
            )),
            DataType::UInt64 => Arc::new(UInt64Array::from_iter(
                aggregates.map(|(_, a)| (a.count > 0).then_some(a.sum as u64)),
            )),
            other => return Err(Error::internal(format!("a sum of type {other}"))),
        },
        Function::Min | Function::Max => {
            let lowest = function == Function::Min;
            let pick = |low, high| if lowest { low } else { high };
            match data_type {
                DataType::Float64 => Arc::new(Float64Array::from_iter(aggregates.map(|(b, a)| {
                    let (low, high) = b.ends(field, &a)?;
                    Some(if lowest { low } else { high })
                }))),
                DataType::Int64 => {
                    Arc::new(Int64Array::from_iter(aggregates.map(
                        |(_, a)| match a.extremes {
                            Extremes::I64(low, high) => Some(pick(low, high)),
                            _ => None,
                        },
                    )))
                }
                DataType::UInt64 => {
                    Arc::new(UInt64Array::from_iter(aggregates.map(
                        |(_, a)| match a.extremes {
                            Extremes::U64(low, high) => Some(if lowest { low } else { high }),
                            _ => None,
                        },
                    )))
                }
                DataType::Boolean => {
                    Arc::new(BooleanArray::from_iter(aggregates.map(
                        |(_, a)| match a.extremes {
                            Extremes::I64(low, high) => Some(pick(low, high) != 0),
                            _ => None,
                        },
                    )))
                }
                other => return Err(Error::internal(format!("an extreme of type {other}"))),
            }
        }
    })
}

/// Where the bins begin. The first instants of a bin may lie before the first instant there is; nobody can tell them then.
pub(super) fn beginnings(bins: &headwater::Bins, folded: &[Folded]) -> Result<ArrayRef> {
    let begins = folded.iter().map(|f| {
        i64::try_from(bins.begin(f.bin.number))
            .map_err(|_| Error::out_of_range("a bin begins before the year 1677"))
    });
    let begins: Vec<i64> = begins.collect::<Result<_>>()?;
    Ok(Arc::new(
        TimestampNanosecondArray::from(begins).with_timezone("UTC"),
    ))
}
