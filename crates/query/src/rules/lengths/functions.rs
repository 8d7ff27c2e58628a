//! The functions that [`super::Lengths`] puts into plans. A statement cannot call them by name.

use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, DurationNanosecondArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationNanosecondType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

const DAY_NS: i128 = 86_400_000_000_000;

/// The type of a length.
pub(super) const LENGTH: DataType = DataType::Duration(TimeUnit::Nanosecond);
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Length of a duration or an interval.
pub(super) fn length_of(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Length));
    FUNCTION.call(vec![value])
}

/// A duration as days and the remainder.
pub(super) fn days_and_rest(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::DaysAndRest));
    FUNCTION.call(vec![value])
}

fn function(work: Work) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(OfLength {
        signature: Signature::any(1, Volatility::Immutable),
        work,
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Length,
    DaysAndRest,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfLength {
    signature: Signature,
    work: Work,
}

impl ScalarUDFImpl for OfLength {
    fn name(&self) -> &str {
        match self.work {
            Work::Length => "length_of_time",
            Work::DaysAndRest => "days_and_rest",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.work {
            Work::Length => LENGTH,
            Work::DaysAndRest => INTERVAL,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        let work = |array: &ArrayRef| -> Result<ArrayRef> {
            Ok(match self.work {
                Work::Length => Arc::new(lengths(array)?),
                Work::DaysAndRest => Arc::new(apart(array)?),
            })
        };
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(work(&array)?),
            ColumnarValue::Scalar(value) => {
                let array = work(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            }
        })
    }
}

/// The length of a constant, as a constant.
pub(super) fn length(value: &ScalarValue) -> Result<ScalarValue> {
    let lengths = lengths(&value.to_array()?)?;
    Ok(ScalarValue::DurationNanosecond(
        lengths.is_valid(0).then(|| lengths.value(0)),
    ))
}

/// The length of a constant written as text, such as `1 day`.
pub(super) fn length_of_text(text: &str) -> Result<ScalarValue> {
    let interval = crate::rewrites::lengths::read(text).ok_or_else(|| {
        Error::invalid_value(format!("`{text}` is not an interval"))
            .with_hint("for example: interval '1 day', interval '90 minutes'")
    })?;
    length(&ScalarValue::IntervalMonthDayNano(Some(interval)))
}

fn too_long() -> Error {
    Error::out_of_range("an interval is longer than 292 years")
}

fn of_interval(interval: IntervalMonthDayNano) -> std::result::Result<i64, Error> {
    if interval.months != 0 {
        let months = interval.months;
        return Err(Error::invalid_value(format!(
            "an interval of {months} months cannot be compared: months differ in length"
        ))
        .with_hint("write days, as in interval '30 days', or compare instants, as in max(time) > min(time) + interval '1 month'"));
    }
    let ns = i128::from(interval.days) * DAY_NS + i128::from(interval.nanoseconds);
    i64::try_from(ns).map_err(|_| too_long())
}

/// Nanoseconds of a duration's unit.
fn unit_ns(array: &dyn Array) -> Result<i128> {
    match array.data_type() {
        DataType::Duration(TimeUnit::Second) => Ok(1_000_000_000),
        DataType::Duration(TimeUnit::Millisecond) => Ok(1_000_000),
        DataType::Duration(TimeUnit::Microsecond) => Ok(1_000),
        DataType::Duration(TimeUnit::Nanosecond) => Ok(1),
        other => Err(Error::internal(format!("a length of time of type {other}")).into()),
    }
}

fn lengths(array: &ArrayRef) -> Result<DurationNanosecondArray> {
    if matches!(array.data_type(), DataType::Interval(_)) {
        let intervals = cast(array, &INTERVAL)?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        return Ok(intervals.try_unary::<_, DurationNanosecondType, Error>(of_interval)?);
    }
    let unit = unit_ns(array)?;
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    Ok(numbers.try_unary::<_, DurationNanosecondType, Error>(|n| {
        i64::try_from(i128::from(n) * unit).map_err(|_| too_long())
    })?)
}

fn apart(array: &ArrayRef) -> Result<IntervalMonthDayNanoArray> {
    let unit = unit_ns(array)?;
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    Ok(
        numbers.try_unary::<_, IntervalMonthDayNanoType, Error>(|n| {
            let ns = i128::from(n) * unit;
            let days = i32::try_from(ns / DAY_NS).map_err(|_| too_long())?;
            // The remainder is less than a day.
            Ok(IntervalMonthDayNano::new(0, days, (ns % DAY_NS) as i64))
        })?,
    )
}
