//! Decimal arithmetic of numeric literals: in PostgreSQL they are `numeric`, in the SQL library
//! floats, in which `0.1 + 0.2` is not `0.3`.
//!
//! Invariant: a result is the float nearest to the exact decimal, or there is no result.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;

/// Maximum digits of an operand.
const DIGITS_MAX: usize = 30;
/// Maximum fraction digits of a quotient.
const QUOTIENT_SCALE_MAX: u32 = 18;

/// `mantissa / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    mantissa: i128,
    scale: u32,
}

impl Decimal {
    /// The decimal of a float's shortest text, or of an integer.
    fn of(value: &ScalarValue) -> Option<Decimal> {
        let text = match value {
            ScalarValue::Float64(Some(value)) if value.is_finite() => value.to_string(),
            ScalarValue::Int64(Some(value)) => value.to_string(),
            ScalarValue::UInt64(Some(value)) => value.to_string(),
            _ => return None,
        };
        Decimal::parse(&text)
    }

    fn parse(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.len() + fraction.len() > DIGITS_MAX {
            return None;
        }
        Some(Decimal {
            mantissa: format!("{whole}{fraction}").parse().ok()?,
            scale: u32::try_from(fraction.len()).ok()?,
        })
    }

    /// The same number with `scale` fraction digits, which must not be fewer.
    fn at(self, scale: u32) -> Option<i128> {
        let more = 10_i128.checked_pow(scale.checked_sub(self.scale)?)?;
        self.mantissa.checked_mul(more)
    }

    fn plus(self, other: Decimal, sign: i128) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let more = other.at(scale)?.checked_mul(sign)?;
        let mantissa = self.at(scale)?.checked_add(more)?;
        Some(Decimal { mantissa, scale })
    }

    fn times(self, other: Decimal) -> Option<Decimal> {
        Some(Decimal {
            mantissa: self.mantissa.checked_mul(other.mantissa)?,
            scale: self.scale + other.scale,
        })
    }

    /// The quotient, if it is a finite decimal.
    fn over(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let (dividend, divisor) = (self.at(scale)?, other.at(scale)?);
        (0..=QUOTIENT_SCALE_MAX).find_map(|digits| {
            let dividend = dividend.checked_mul(10_i128.checked_pow(digits)?)?;
            (dividend.checked_rem(divisor)? == 0).then_some(Decimal {
                mantissa: dividend / divisor,
                scale: digits,
            })
        })
    }

    fn float(self) -> Option<f64> {
        let digits = self.mantissa.unsigned_abs().to_string();
        let scale = usize::try_from(self.scale).ok()?;
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if self.mantissa < 0 { "-" } else { "" };
        format!("{sign}{whole}.{fraction}").parse().ok()
    }
}

/// The result of arithmetic of two literals, one of them with a point; `None` = other operands, or
/// the result is not a finite decimal.
pub(super) fn folded(op: Operator, left: &ScalarValue, right: &ScalarValue) -> Option<f64> {
    let is_float = |value: &ScalarValue| matches!(value, ScalarValue::Float64(_));
    if !is_float(left) && !is_float(right) {
        return None;
    }
    let (left, right) = (Decimal::of(left)?, Decimal::of(right)?);
    let made = match op {
        Operator::Plus => left.plus(right, 1),
        Operator::Minus => left.plus(right, -1),
        Operator::Multiply => left.times(right),
        Operator::Divide => left.over(right),
        _ => None,
    };
    made?.float()
}

/// A float rounded to `digits` fraction digits, based on its shortest decimal text: halves away
/// from zero. A decimal has one zero.
pub(super) fn round_to(value: f64, digits: i64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    if digits == 0 {
        return value.round() + 0.0;
    }
    if digits < -300 {
        return 0.0;
    }
    let decimal = Decimal::parse(&value.to_string());
    let rounded = decimal.and_then(|decimal| {
        let less = i64::from(decimal.scale) - digits;
        if less <= 0 {
            return Some(value);
        }
        let unit = 10_i128.checked_pow(u32::try_from(less).ok()?)?;
        let half = (unit / 2) * decimal.mantissa.signum();
        let mantissa = (decimal.mantissa + half) / unit;
        let made = match u32::try_from(digits) {
            Ok(scale) => Decimal { mantissa, scale },
            Err(_) => Decimal {
                mantissa: mantissa
                    .checked_mul(10_i128.checked_pow(u32::try_from(-digits).ok()?)?)?,
                scale: 0,
            },
        };
        made.float()
    });
    // Beyond the supported digits, a small number is rounded to zero, and a large one unchanged.
    rounded.unwrap_or(match value.abs() < 1e-9 {
        true => 0.0,
        false => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(op: Operator, left: f64, right: f64) -> Option<f64> {
        let of = |value| ScalarValue::Float64(Some(value));
        folded(op, &of(left), &of(right))
    }

    #[test]
    fn what_is_written_is_computed_exactly() {
        assert_eq!(float(Operator::Plus, 0.1, 0.2), Some(0.3));
        assert_eq!(float(Operator::Minus, 0.3, 0.1), Some(0.2));
        assert_eq!(float(Operator::Multiply, 1.1, 1.1), Some(1.21));
        assert_eq!(float(Operator::Multiply, -0.07, 100.0), Some(-7.0));
        assert_eq!(float(Operator::Divide, 5.0, 2.0), Some(2.5));
        assert_eq!(float(Operator::Divide, 0.3, 0.1), Some(3.0));
        assert_eq!(float(Operator::Divide, 1.0, 3.0), None);
        assert_eq!(float(Operator::Divide, 1.0, 0.0), None);
        assert_eq!(float(Operator::Plus, 1e300, 1.0), None);
        assert_eq!(float(Operator::Plus, f64::NAN, 1.0), None);
        let whole = ScalarValue::Int64(Some(2));
        assert_eq!(folded(Operator::Plus, &whole, &whole), None);
        assert_eq!(
            folded(Operator::Multiply, &whole, &ScalarValue::Float64(Some(0.1))),
            Some(0.2)
        );
    }

    #[test]
    fn halves_are_rounded_away_from_zero_as_they_are_written() {
        for (value, digits, expected) in [
            (2.5, 0, 3.0),
            (-2.5, 0, -3.0),
            (2.675, 2, 2.68),
            (1.005, 2, 1.01),
            (-1.005, 2, -1.01),
            (0.15, 1, 0.2),
            (1.0, 3, 1.0),
            (1250.0, -2, 1300.0),
            (49.0, -2, 0.0),
            (1e300, 2, 1e300),
            (1e-300, 2, 0.0),
            (123_456_789.125, 2, 123_456_789.13),
        ] {
            assert_eq!(
                round_to(value, digits).to_bits(),
                f64::to_bits(expected),
                "{value} {digits}"
            );
        }
        assert!(round_to(f64::NAN, 2).is_nan());
        assert_eq!(round_to(f64::INFINITY, 2), f64::INFINITY);
    }
}
