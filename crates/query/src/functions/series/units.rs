//! Units of time as people write them.

use super::points::seconds;
use crate::error::Error;
use crate::rewrites::lengths;
use crate::text;
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{Result, ScalarValue};

const DAY_NS: i64 = 86_400_000_000_000;

/// The seconds of a unit of time: `'hour'`, `'5m'`, `interval '1 day'`.
pub(in crate::functions) fn unit_seconds(value: &ScalarValue) -> Result<f64> {
    let length = match value {
        ScalarValue::IntervalMonthDayNano(length) => *length,
        value => value.try_as_str().flatten().and_then(|written| {
            let ns = text::duration_ns(written).map(|ns| IntervalMonthDayNano::new(0, 0, ns));
            let ns = ns.or_else(|| lengths::read(written));
            ns.or_else(|| lengths::read(&format!("1 {written}")))
        }),
    };
    let ns = length
        .filter(|length| length.months == 0)
        .and_then(|length| {
            let days = i64::from(length.days).checked_mul(DAY_NS)?;
            days.checked_add(length.nanoseconds).filter(|ns| *ns > 0)
        });
    ns.map(|ns| seconds(0, ns)).ok_or_else(|| {
        Error::invalid_value(format!(
            "expected a unit of time such as 'second', 'hour' or '5m', found {value}"
        ))
        .into()
    })
}
