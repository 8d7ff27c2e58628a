//! Casts to text as PostgreSQL writes values: `2024-05-01 12:00:00+00`, `01:30:00`, `1e+300`. The
//! SQL library writes `2024-05-01T12:00:00Z`, `1 hours 30 mins`, `1e300`.

use crate::error::Error;
use crate::value_texts::{instant_ns, put_float, put_instant, put_span, span};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

/// A value as text.
pub(crate) fn text_form(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(TextForm {
            signature: Signature::any(1, Volatility::Immutable),
        }))
    });
    FUNCTION.call(vec![value])
}

/// Whether values of a type are converted to text by [`text_form`].
pub(crate) fn has_text_form(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Timestamp(..)
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::Float32
            | DataType::Float64
            | DataType::Boolean
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextForm {
    signature: Signature,
}

fn put_value(array: &dyn Array, row: usize, bytes: &mut Vec<u8>) -> Result<()> {
    match array.data_type() {
        DataType::Timestamp(_, zone) => {
            let at = instant_ns(array, row).unwrap_or_default();
            put_instant(at, zone.as_ref().map(|_| 0), bytes);
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            if let Some(span) = span(array, row) {
                put_span(span, bytes);
            }
        }
        DataType::Float32 => put_float(array.as_primitive::<Float32Type>().value(row), bytes),
        DataType::Float64 => put_float(array.as_primitive::<Float64Type>().value(row), bytes),
        // In a list `t` and `f`; a cast writes the whole word.
        DataType::Boolean => bytes.push(match array.as_boolean().value(row) {
            true => b't',
            false => b'f',
        }),
        other => return Err(Error::internal(format!("no text form of {other}")).into()),
    }
    Ok(())
}

fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    let mut made = StringBuilder::with_capacity(values.len(), values.len() * 24);
    let mut bytes = Vec::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            made.append_null();
            continue;
        }
        bytes.clear();
        put_value(values, row, &mut bytes)?;
        made.append_value(String::from_utf8_lossy(&bytes));
    }
    Ok(Arc::new(made.finish()))
}

impl ScalarUDFImpl for TextForm {
    fn name(&self) -> &str {
        "text_form"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Scalar(value)) => {
                let made = texts(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                    &made, 0,
                )?))
            }
            Some(ColumnarValue::Array(values)) => Ok(ColumnarValue::Array(texts(values)?)),
            None => Err(Error::internal("a text of nothing").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use arrow::datatypes::IntervalMonthDayNano;

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        const AT: i64 = 1_714_564_800_123_456_000;
        let interval = |months, days, ns| {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, ns)))
        };
        for (value, expected) in [
            (
                ScalarValue::TimestampNanosecond(Some(AT), None),
                "2024-05-01 12:00:00.123456",
            ),
            (
                ScalarValue::TimestampNanosecond(Some(AT), Some("UTC".into())),
                "2024-05-01 12:00:00.123456+00",
            ),
            (
                interval(14, -3, 5_400_000_000_000),
                "1 year 2 mons -3 days +01:30:00",
            ),
            (interval(-1, 0, 5_400_000_000_000), "-1 mons +01:30:00"),
            (interval(0, 0, 0), "00:00:00"),
            (interval(0, 1, 0), "1 day"),
            (
                ScalarValue::DurationNanosecond(Some(-1_500_000_000)),
                "-00:00:01.5",
            ),
            (ScalarValue::Float64(Some(1.0)), "1"),
            (ScalarValue::Float64(Some(1e300)), "1e+300"),
            (ScalarValue::Float64(Some(1.5e-7)), "1.5e-07"),
            (ScalarValue::Float64(Some(f64::NEG_INFINITY)), "-Infinity"),
            (ScalarValue::Boolean(Some(true)), "t"),
        ] {
            let made = texts(&value.to_array().unwrap()).unwrap();
            assert_eq!(made.as_string::<i32>().value(0), expected, "{value}");
        }
    }
}
