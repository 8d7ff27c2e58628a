//! Decimal literals, with all their digits.
//!
//! Invariant: a returned value is exactly the number that was written.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, i256};
use datafusion::common::ScalarValue;

/// A parsed number.
#[derive(Clone, Debug, PartialEq)]
pub enum Decimal {
    /// A decimal with as many fraction digits as were written.
    Exact(ScalarValue),
    /// A number with more digits than decimals support.
    TooLong,
}

/// Parses `-12.50` or `1.25e3`; `None` = not a number.
#[must_use]
pub fn decimal(text: &str) -> Option<Decimal> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let most = usize::from(DECIMAL256_MAX_PRECISION);
    let written = i32::try_from(fraction.len()).ok()?;
    let scale = written.saturating_sub(exponent);
    let zeros = usize::try_from(scale.saturating_neg()).unwrap_or(0);
    let scale = usize::try_from(scale).unwrap_or(0);
    digits = digits.trim_start_matches('0').to_owned();
    if digits.is_empty() {
        digits.push('0');
    } else if zeros > most {
        return Some(Decimal::TooLong);
    } else {
        digits.extend(std::iter::repeat_n('0', zeros));
    }
    let precision = digits.len().max(scale);
    if precision > most {
        return Some(Decimal::TooLong);
    }
    let signed = match negative {
        true => format!("-{digits}"),
        false => digits,
    };
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    Some(Decimal::Exact(
        match precision <= DECIMAL128_MAX_PRECISION {
            true => ScalarValue::Decimal128(signed.parse().ok(), precision, scale),
            false => ScalarValue::Decimal256(i256::from_string(&signed), precision, scale),
        },
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let nines = "9".repeat(38);
        for (text, value, precision, scale) in [
            ("1.25", 125, 3, 2),
            ("-1.50", -150, 3, 2),
            ("+7", 7, 1, 0),
            (".5", 5, 1, 1),
            ("0.001", 1, 3, 3),
            ("1.25e3", 1250, 4, 0),
            ("1.25E-3", 125, 5, 5),
            ("0", 0, 1, 0),
            ("0e99", 0, 1, 0),
            ("00012", 12, 2, 0),
            (nines.as_str(), 10i128.pow(38) - 1, 38, 0),
        ] {
            let wanted = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(decimal(text), Some(Decimal::Exact(wanted)), "{text}");
        }
        let long = "1".repeat(50);
        match decimal(&long) {
            Some(Decimal::Exact(value)) => assert_eq!(value.to_string(), long),
            other => panic!("{other:?}"),
        }
        for text in ["1e77", "1e999999999", "0.1e-80", &"9".repeat(77)] {
            assert_eq!(decimal(text), Some(Decimal::TooLong), "{text}");
        }
        for text in [
            "", ".", "e5", "1e", "1.2.3", "0x1", "1 2", "--1", "NaN", "1_0",
        ] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
