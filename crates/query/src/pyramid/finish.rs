//! Conversion of aggregates to SQL values.
//!
//! Floats follow IEEE 754, as a computation over the rows would: see [`Aggregate::ieee`].

use super::plan::{Computed, Function};
use crate::error::{Error, Result};
use crate::functions::sum_too_large;
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use headwater::{Aggregate, Extremes, Sum, Value};
use headwater_ask::{Bucket, EndValue};
use std::sync::Arc;

/// Lowest and highest of a field of floats; NaN, whatever its sign, is above all numbers.
fn extremes(bucket: &Bucket, field: usize) -> Option<(f64, f64)> {
    bucket.aggregate(field).ieee().extremes(None)
}

/// A sum of integers in 64 bits; a sum that does not fit is an error, as in a computation over the
/// rows.
fn fitting<T>(of: &Aggregate, fits: impl Fn(i128) -> Option<T>) -> Result<Option<T>> {
    if of.count == 0 {
        return Ok(None);
    }
    fits(of.sum).map(Some).ok_or_else(sum_too_large)
}

/// Value of an end.
fn scalar(value: &Value) -> ScalarValue {
    match value {
        Value::F64(v) => ScalarValue::from(*v),
        Value::I64(v) => ScalarValue::from(*v),
        Value::U64(v) => ScalarValue::from(*v),
        Value::Bool(v) => ScalarValue::from(*v),
        Value::String(v) => ScalarValue::from(v.as_str()),
        Value::Bytes(v) => ScalarValue::Binary(Some(v.clone())),
    }
}

/// A computed column of the bins.
pub(super) fn column(
    of: Computed,
    data_type: &DataType,
    bins: &[(i128, Bucket)],
) -> Result<ArrayRef> {
    let (function, field) = match of {
        Computed::End(end) => {
            let is_time = matches!(data_type, DataType::Timestamp(..));
            // Values of tags are texts until the column is cast to its type.
            let plain = match data_type {
                DataType::Dictionary(_, of) => of,
                of => of,
            };
            let absent = ScalarValue::try_new_null(plain)?;
            let values = bins.iter().map(|(_, b)| match b.ends.get(end) {
                Some(Some(EndValue {
                    value: Some(value), ..
                })) => scalar(value),
                Some(Some(found)) if is_time => {
                    ScalarValue::TimestampNanosecond(Some(found.time), Some("UTC".into()))
                }
                _ => absent.clone(),
            });
            return Ok(ScalarValue::iter_to_array(values)?);
        }
        Computed::Rows => {
            let rows = bins.iter().map(|(_, b)| b.rows as i64);
            return Ok(Arc::new(Int64Array::from_iter_values(rows)));
        }
        Computed::Of(function, field) => (function, field),
    };
    let aggregates = bins.iter().map(|(_, b)| (b, b.aggregate(field)));
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
            DataType::Int64 => {
                let sums = aggregates.map(|(_, a)| fitting(&a, |sum| i64::try_from(sum).ok()));
                Arc::new(sums.collect::<Result<Int64Array>>()?)
            }
            DataType::UInt64 => {
                let sums = aggregates.map(|(_, a)| fitting(&a, |sum| u64::try_from(sum).ok()));
                Arc::new(sums.collect::<Result<UInt64Array>>()?)
            }
            other => return Err(Error::internal(format!("a sum of type {other}"))),
        },
        Function::Min | Function::Max => {
            let lowest = function == Function::Min;
            let pick = |low, high| if lowest { low } else { high };
            match data_type {
                DataType::Float64 => Arc::new(Float64Array::from_iter(aggregates.map(|(b, _)| {
                    let (low, high) = extremes(b, field)?;
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

/// Beginnings of the bins. A bin that begins before the first representable instant is an error.
pub(super) fn beginnings(bins: &headwater::Bins, folded: &[(i128, Bucket)]) -> Result<ArrayRef> {
    let begins = folded.iter().map(|(number, _)| {
        i64::try_from(bins.begin(*number))
            .map_err(|_| Error::out_of_range("a bin begins before the year 1677"))
    });
    let begins: Vec<i64> = begins.collect::<Result<_>>()?;
    Ok(Arc::new(
        TimestampNanosecondArray::from(begins).with_timezone("UTC"),
    ))
}
