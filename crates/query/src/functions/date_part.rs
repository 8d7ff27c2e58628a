//! `date_part(part, time)`, which is also written `EXTRACT`: the SQL library's, except that
//! seconds, milliseconds and microseconds have their fractions, as in PostgreSQL.

use super::numbers::about_as_float;
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::{Arc, LazyLock};

/// The function.
pub(crate) fn date_part() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(DatePart {
            inner: datetime::date_part(),
        }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    inner: Arc<ScalarUDF>,
}

/// Units of a part per second; `None` = the part is not shorter than a minute.
fn per_second(part: &str) -> Option<f64> {
    let part = part.trim().trim_matches('\'').to_lowercase();
    Some(match part.as_str() {
        "second" | "seconds" | "sec" | "secs" => 1.0,
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => 1e3,
        "microsecond" | "microseconds" | "us" | "usec" | "usecs" => 1e6,
        _ => return None,
    })
}

fn is_epoch(part: &str) -> bool {
    part.trim().trim_matches('\'').eq_ignore_ascii_case("epoch")
}

/// Intervals in seconds: a year has 365.25 days, a remaining month 30.
fn length(intervals: &ArrayRef) -> Result<Float64Array> {
    let intervals = cast(intervals, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    Ok(intervals.unary(|of| {
        let (years, months) = (i64::from(of.months / 12), i64::from(of.months % 12));
        let days = years * 1_461 * 21_600 + (months * 30 + i64::from(of.days)) * 86_400;
        about_as_float(days) + about_as_float(of.nanoseconds) / 1e9
    }))
}

fn has_seconds(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
    )
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        "date_part"
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let ([Some(Some(part)), _], [_, time]) = (
            &args
                .scalar_arguments
                .iter()
                .map(|value| value.map(|value| value.try_as_str().flatten()))
                .collect::<Vec<_>>()
                .as_slice(),
            args.arg_fields,
        ) && per_second(part).is_some()
            && has_seconds(time.data_type())
        {
            let nullable = time.is_nullable();
            return Ok(Arc::new(Field::new(
                self.name(),
                DataType::Float64,
                nullable,
            )));
        }
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [ColumnarValue::Scalar(part), times] = args.args.as_slice()
            && part.try_as_str().flatten().is_some_and(is_epoch)
            && matches!(times.data_type(), DataType::Interval(_))
        {
            return match times {
                ColumnarValue::Scalar(time) => {
                    let made: ArrayRef = Arc::new(length(&time.to_array()?)?);
                    let made = ScalarValue::try_from_array(&made, 0)?;
                    Ok(ColumnarValue::Scalar(made))
                }
                ColumnarValue::Array(times) => Ok(ColumnarValue::Array(Arc::new(length(times)?))),
            };
        }
        let parts = match args.args.first() {
            Some(ColumnarValue::Scalar(part)) => part.try_as_str().flatten().and_then(per_second),
            _ => None,
        };
        let of = args.args.get(1).map(ColumnarValue::data_type);
        let Some(parts) = parts.filter(|_| of.is_some_and(|of| has_seconds(&of))) else {
            return self.inner.invoke_with_args(args);
        };
        let rows = args.number_rows;
        let [_, times] = take_function_args(self.name(), args.args)?;
        match times {
            ColumnarValue::Scalar(time) => {
                let made: ArrayRef = Arc::new(seconds(&time.to_array()?, parts)?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                    &made, 0,
                )?))
            }
            ColumnarValue::Array(times) => {
                debug_assert_eq!(times.len(), rows, "a column has a value for each row");
                Ok(ColumnarValue::Array(Arc::new(seconds(&times, parts)?)))
            }
        }
    }
}

/// The nanoseconds of a unit.
fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The seconds of the last minute, in parts of a second. The seconds of an interval have its sign.
fn seconds(times: &ArrayRef, parts: f64) -> Result<Float64Array> {
    const MINUTE_NS: i64 = 60_000_000_000;
    let made = |ns: i64| about_as_float(ns) * parts / 1e9;
    let signed = |unit: TimeUnit, euclid: bool| -> Result<Float64Array> {
        let numbers = match times.data_type() {
            DataType::Time32(_) => cast(&cast(times, &DataType::Int32)?, &DataType::Int64)?,
            _ => cast(times, &DataType::Int64)?,
        };
        let numbers = numbers.as_primitive::<Int64Type>();
        Ok(numbers.unary(|at| {
            // Subtracting whole minutes first does not change the time within a minute.
            let in_minute = at % (MINUTE_NS / unit_ns(unit));
            let ns = in_minute * unit_ns(unit);
            made(match euclid {
                true => ns.rem_euclid(MINUTE_NS),
                false => ns,
            })
        }))
    };
    match times.data_type() {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            signed(*unit, true)
        }
        DataType::Duration(unit) => signed(*unit, false),
        DataType::Interval(_) => {
            let intervals = cast(times, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            Ok(intervals.unary(|of| made(of.nanoseconds % MINUTE_NS)))
        }
        other => Err(Error::internal(format!("seconds of a value of type {other}")).into()),
    }
}
