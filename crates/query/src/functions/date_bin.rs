//! `date_bin(width, time [, origin])`: the beginning of the bin that contains an instant.
//!
//! The SQL library's function of this name returns NULL if a bin begins, or the instant is, more
//! than 292 years from the origin or from 1970, so that all such rows are in one group; and it
//! accepts widths that are not positive. Here every instant has its bin; a bin that begins before
//! the first representable instant is an error. Widths of months are computed by the library.

use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampNanosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAY_NS: i128 = 86_400_000_000_000;

/// The function.
pub(crate) fn date_bin() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(DateBin {
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    signature: Signature,
}

/// The type in which instants of a type are computed.
fn instant(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()),
        DataType::Date32 | DataType::Date64 | DataType::Null => {
            DataType::Timestamp(TimeUnit::Nanosecond, None)
        }
        of if of.is_string() => DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Time32(_) | DataType::Time64(_) => of.clone(),
        _ => return None,
    })
}

fn wrong(what: &str, found: &DataType) -> Error {
    let found = headwater_columnar::type_name(found);
    Error::type_mismatch(format!("date_bin: {what}, found {found}"))
        .with_hint("for example: date_bin(interval '5 minutes', time)")
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        "date_bin"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (width, time, origin) = match types {
            [width, time] => (width, time, None),
            [width, time, origin] => (width, time, Some(origin)),
            _ => {
                return Err(Error::type_mismatch(format!(
                    "date_bin takes a width, an instant and an origin, found {} arguments",
                    types.len()
                ))
                .into());
            }
        };
        let is_width = matches!(
            width,
            DataType::Interval(_) | DataType::Duration(_) | DataType::Null
        ) || width.is_string();
        if !is_width {
            return Err(wrong("the width must be an interval", width).into());
        }
        let Some(time) = instant(time) else {
            return Err(wrong("the second argument must be a timestamp", time).into());
        };
        let mut taken = vec![INTERVAL, time.clone()];
        if let Some(origin) = origin {
            if instant(origin).is_none() {
                return Err(wrong("the origin must be a timestamp", origin).into());
            }
            taken.push(time);
        }
        Ok(taken)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.get(1).and_then(instant) {
            Some(of) => Ok(of),
            None => Err(Error::internal("date_bin without an instant").into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let months = |width: &IntervalMonthDayNano| width.months != 0;
        let by_library = match args.args.as_slice() {
            [
                ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))),
                ..,
            ] => months(width),
            _ => false,
        };
        if by_library || !matches!(args.return_field.data_type(), DataType::Timestamp(..)) {
            if let Some(ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width)))) =
                args.args.first()
                && (width.months < 0 || (width.months == 0 && width_ns(*width)? <= 0))
            {
                return Err(not_positive().into());
            }
            return datetime::date_bin().invoke_with_args(args);
        }
        let constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let wanted = args.return_field.data_type();
        let mut arrays = Vec::with_capacity(3);
        for (at, arg) in args.args.iter().enumerate() {
            let array = match (at, arg) {
                (0, ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(_))) => {
                    arg.to_array(1)?
                }
                (0, _) => cast(&arg.to_array(rows)?, &INTERVAL)?,
                _ => cast(&arg.to_array(rows)?, wanted)?,
            };
            arrays.push(array);
        }
        let (Some(widths), Some(times)) = (arrays.first(), arrays.get(1)) else {
            return Err(Error::internal("date_bin without its arguments").into());
        };
        let made = bins(widths, times, arrays.get(2))?;
        let made: ArrayRef = Arc::new(made.with_data_type(wanted.clone()));
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        let constant = |of: Option<&ExprProperties>| {
            of.is_none_or(|of| of.sort_properties == SortProperties::Singleton)
        };
        Ok(match input {
            [width, time, rest @ ..] if constant(Some(width)) && constant(rest.first()) => {
                time.sort_properties
            }
            _ => SortProperties::Unordered,
        })
    }
}

fn not_positive() -> Error {
    Error::invalid_value("date_bin: the width must be greater than zero")
}

fn width_ns(width: IntervalMonthDayNano) -> Result<i128> {
    if width.months != 0 {
        return Err(Error::unsupported("date_bin: a width of months must be a constant").into());
    }
    Ok(i128::from(width.days) * DAY_NS + i128::from(width.nanoseconds))
}

fn bins(
    widths: &ArrayRef,
    times: &ArrayRef,
    origins: Option<&ArrayRef>,
) -> Result<PrimitiveArray<TimestampNanosecondType>> {
    let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
    let times = times.as_primitive::<TimestampNanosecondType>();
    let origins = origins.map(|origins| origins.as_primitive::<TimestampNanosecondType>());
    let one = match widths.len() {
        1 if widths.is_null(0) => {
            return Ok(PrimitiveArray::new_null(times.len()));
        }
        1 => Some(width_ns(widths.value(0))?),
        _ => None,
    };
    let begin = |row: usize, time: i64| -> Result<Option<i64>> {
        let width = match one {
            Some(width) => width,
            None if widths.is_null(row) => return Ok(None),
            None => width_ns(widths.value(row))?,
        };
        if width <= 0 {
            return Err(not_positive().into());
        }
        let origin = match origins {
            None => 0,
            Some(origins) if origins.is_null(row) => return Ok(None),
            Some(origins) => i128::from(origins.value(row)),
        };
        let time = i128::from(time);
        let begin = time - (time - origin).rem_euclid(width);
        match i64::try_from(begin) {
            Ok(begin) => Ok(Some(begin)),
            Err(_) => Err(Error::out_of_range("a bin begins before the year 1677").into()),
        }
    };
    let rows = times.iter().enumerate();
    rows.map(|(row, time)| match time {
        Some(time) => begin(row, time),
        None => Ok(None),
    })
    .collect()
}
