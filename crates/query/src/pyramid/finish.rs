//! From aggregates to the values that SQL gives for them.
//!
//! Floats follow IEEE 754, as computing with the rows would: the rule is [`Aggregate::ieee`]'s.

use super::ends::Found;
use super::plan::{Computed, End, Function, Grouped};
use crate::error::{Error, Result};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use headwater::{Aggregate, Extremes, Ieee, Sum, SummaryBin};
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
                    *l = Ieee::least(*l, low);
                    *h = Ieee::greatest(*h, high);
                }
                None => self.nan.push((field, low, high)),
            }
        }
    }

    /// Lowest and highest of a field of floats. Without a look at the rows, since they have been
    /// aged away, NaN is taken as positive.
    fn extremes(&self, field: usize, aggregate: &Aggregate) -> Option<(f64, f64)> {
        let nan = self.nan.iter().find(|(f, ..)| *f == field);
        aggregate
            .ieee()
            .extremes(nan.map(|(_, low, high)| (*low, *high)))
    }
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
        Function::Mean => floats(&|a| a.ieee().mean()),
        Function::SumOfFloats => floats(&|a| a.ieee().sum().map(Sum::as_f64)),
        Function::Variance { sample } => floats(&|a| match sample {
            true => a.ieee().sample_variance(),
            false => a.ieee().variance(),
        }),
        Function::Deviation { sample } => floats(&|a| match sample {
            true => a.ieee().sample_stddev(),
            false => a.ieee().stddev(),
        }),
        Function::Sum => match data_type {
            DataType::Float64 => floats(&|a| a.ieee().sum().map(Sum::as_f64)),
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
                    let (low, high) = b.extremes(field, &a)?;
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
