//! Numbers of a request's parameters, with all their digits.
//!
//! A JSON parser makes floats of numbers that exceed 64 bits. The text of the request has all
//! digits, so large numbers are parsed from the text.
//!
//! Invariant: a returned value is the number as written, or the float that prints with the same
//! digits.

use headwater_query::datafusion::scalar::ScalarValue;
use headwater_query::{Decimal, decimal};

/// Digits that every float of 64 bits preserves.
const FLOAT_DIGITS: usize = 15;

/// Numbers within the value of a key of a JSON object, in their order. The text must have been
/// parsed as an object before.
pub(super) fn within<'t>(object: &'t str, key: &str) -> Vec<&'t str> {
    let bytes = object.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut deep, mut inside, mut is_key) = (0, 0usize, false, false);
    while let Some(byte) = bytes.get(at) {
        let begin = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(byte) = bytes.get(at) {
                    at += if *byte == b'\\' { 2 } else { 1 };
                    if *byte == b'"' {
                        break;
                    }
                }
                if deep == 1 && is_key {
                    let text = object.get(begin..at).map(serde_json::from_str::<String>);
                    inside = text.is_some_and(|name| name.is_ok_and(|name| name == key));
                    is_key = false;
                }
            }
            b'{' | b'[' => {
                deep += 1;
                is_key = deep == 1;
            }
            b'}' | b']' => deep = deep.saturating_sub(1),
            b',' if deep == 1 => is_key = true,
            b'-' | b'0'..=b'9' => {
                let ends = |b: &u8| !matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                let rest = bytes.iter().skip(at);
                at = rest
                    .clone()
                    .position(ends)
                    .map_or(bytes.len(), |end| at + end);
                if inside && deep > 0 {
                    found.extend(object.get(begin..at));
                }
            }
            _ => {}
        }
    }
    found
}

/// The value of a number; `None` = more digits than any type has.
pub(super) fn value(text: &str) -> Option<ScalarValue> {
    if let Ok(value) = text.parse() {
        return Some(ScalarValue::Int64(Some(value)));
    }
    if let Ok(value) = text.parse() {
        return Some(ScalarValue::UInt64(Some(value)));
    }
    let whole = !text.contains(['.', 'e', 'E']);
    if !whole && let Ok(float) = text.parse::<f64>() {
        let digits = significant(text);
        if digits.0.len() <= FLOAT_DIGITS || significant(&format!("{float:e}")) == digits {
            return Some(ScalarValue::Float64(Some(float)));
        }
    }
    match decimal(text)? {
        Decimal::Exact(value) => Some(value),
        Decimal::TooLong => None,
    }
}

/// The digits of a number without zeros around them, and the power of ten of the last of them.
fn significant(text: &str) -> (String, i64) {
    let unsigned = text.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let zeros = length(&digits).saturating_sub(length(kept));
    let exponent = exponent.parse::<i64>().unwrap_or(0);
    let power = exponent
        .saturating_sub(length(fraction))
        .saturating_add(zeros);
    let kept = kept.trim_start_matches('0');
    match kept.is_empty() {
        true => (String::new(), 0),
        false => (kept.to_owned(), power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_key_are_found() {
        for (text, wanted) in [
            (
                r#"{"sql":"1","parameters":[1,-2.5e+3,"4",true,[5,null]],"rows_max":6}"#,
                &["1", "-2.5e+3", "5"][..],
            ),
            (r#"{"rows_max":6,"p\u0061rameters":[ 7 ]}"#, &["7"]),
            (r#"{"sql":"\"parameters\":[8]","parameters":[]}"#, &[]),
            (r#"{"parameters":[{"parameters":9}],"x":[10]}"#, &["9"]),
        ] {
            assert_eq!(within(text, "parameters"), wanted, "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let thirty = "123456789012345678901234567890";
        assert_eq!(value("7"), Some(ScalarValue::Int64(Some(7))));
        assert_eq!(
            value("18446744073709551615"),
            Some(ScalarValue::UInt64(Some(u64::MAX)))
        );
        assert_eq!(value("0.1"), Some(ScalarValue::Float64(Some(0.1))));
        assert_eq!(
            value("1.7976931348623157e308"),
            Some(ScalarValue::Float64(Some(f64::MAX)))
        );
        for text in [
            thirty,
            "0.123456789012345678901234567891",
            "-9007199254740993.5",
        ] {
            assert_eq!(value(text).map(|v| v.to_string()).as_deref(), Some(text));
        }
        assert_eq!(value(&"9".repeat(80)), None);
    }
}
