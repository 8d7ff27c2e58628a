//! `time_bucket(width, time [, origin])`: the beginning of the bucket that an instant lies in. It
//! is another name of `date_bin`, with widths also written as `'5m'` or `'1h30m'`; it becomes that
//! function when a statement is planned.

use super::date_bin;
use crate::columns::time_type;
use crate::error::Error;
use crate::text;
use crate::wording::lengths;
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeBucket {
    signature: Signature,
}

impl TimeBucket {
    pub(super) fn new() -> TimeBucket {
        TimeBucket {
            signature: Signature::one_of(
                vec![TypeSignature::Any(2), TypeSignature::Any(3)],
                Volatility::Immutable,
            ),
        }
    }
}

fn wrong(message: &str) -> datafusion::common::DataFusionError {
    Error::invalid_value(format!("time_bucket: {message}"))
        .with_hint("for example: time_bucket('5m', time)")
        .into()
}

/// The width as an interval.
fn width(value: &ScalarValue) -> Result<ScalarValue> {
    let interval = match value.try_as_str() {
        Some(Some(text)) => {
            let width = text::duration_ns(text).map(|ns| IntervalMonthDayNano::new(0, 0, ns));
            let width = width.or_else(|| lengths::read(text)).ok_or_else(|| {
                wrong(&format!(
                    "expected a width such as '5m', '1h30m' or '1 day', found `{text}`"
                ))
            })?;
            ScalarValue::IntervalMonthDayNano(Some(width))
        }
        Some(None) => ScalarValue::IntervalMonthDayNano(None),
        None => value.cast_to(&DataType::Interval(
            arrow::datatypes::IntervalUnit::MonthDayNano,
        ))?,
    };
    Ok(interval)
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.get(1) {
            Some(time @ DataType::Timestamp(TimeUnit::Nanosecond, _)) => Ok(time.clone()),
            _ => Err(wrong("the second argument is a timestamp")),
        }
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let mut own = args.into_iter();
        let (Some(Expr::Literal(first, _)), Some(time)) = (own.next(), own.next()) else {
            return Err(wrong("the width is a constant"));
        };
        let mut arguments = vec![Expr::Literal(width(&first)?, None), time];
        if let Some(origin) = own.next() {
            let Expr::Literal(origin, _) = origin else {
                return Err(wrong("the origin is a constant"));
            };
            arguments.push(Expr::Literal(origin.cast_to(&time_type())?, None));
        }
        Ok(ExprSimplifyResult::Simplified(date_bin().call(arguments)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(wrong("the width and the origin are constants"))
    }
}
