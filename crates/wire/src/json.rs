//! JSON text, value by value, for answers too large to build as a tree first.
//!
//! Invariants: each push appends one whole JSON value; numbers read back to the same bits; a float
//! that is not finite is `null`; bytes are text, `0x` and base-16 digits. Pushing cannot fail: the
//! only writer is a vector.

use headwater_types::{Extremes, Sum, ValueRef};
use std::io::Write;

/// A text, in quotes and escaped.
///
/// ```
/// let mut out = Vec::new();
/// headwater_wire::json::push_str(&mut out, "a\"b");
/// assert_eq!(out, br#""a\"b""#);
/// ```
pub fn push_str(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// A float with the digits needed to read the same float back, or `null`.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    let _ = serde_json::to_writer(out, &value);
}

/// A float or `null`.
pub fn push_optional_f64(out: &mut Vec<u8>, value: Option<f64>) {
    match value {
        Some(value) => push_f64(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

/// An integer, exact.
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    let _ = serde_json::to_writer(out, &value);
}

/// An unsigned integer, exact.
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    let _ = serde_json::to_writer(out, &value);
}

/// A wide integer, exact.
pub fn push_i128(out: &mut Vec<u8>, value: i128) {
    let _ = write!(out, "{value}");
}

/// An integer as text: an instant in nanoseconds, which a JavaScript number could not represent.
///
/// ```
/// let mut out = Vec::new();
/// headwater_wire::json::push_integer_text(&mut out, 1_700_000_000_000_000_001);
/// assert_eq!(out, b"\"1700000000000000001\"");
/// ```
pub fn push_integer_text(out: &mut Vec<u8>, value: i64) {
    out.push(b'"');
    push_i64(out, value);
    out.push(b'"');
}

/// A value of a field.
pub fn push_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::F64(v) => push_f64(out, v),
        ValueRef::I64(v) => push_i64(out, v),
        ValueRef::U64(v) => push_u64(out, v),
        ValueRef::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        ValueRef::String(v) => push_str(out, v),
        ValueRef::Bytes(v) => {
            out.extend_from_slice(b"\"0x");
            for byte in v {
                let _ = write!(out, "{byte:02x}");
            }
            out.push(b'"');
        }
    }
}

/// The smallest or the largest value, or `null`.
pub fn push_extreme(out: &mut Vec<u8>, extremes: Extremes, is_max: bool) {
    match if is_max {
        extremes.max()
    } else {
        extremes.min()
    } {
        Some(value) => push_value(out, value.as_ref()),
        None => out.extend_from_slice(b"null"),
    }
}

/// A sum with all its digits, or `null` where it is absent or not finite.
pub fn push_sum(out: &mut Vec<u8>, sum: Option<Sum>) {
    match sum {
        Some(Sum::Integer(sum)) => push_i128(out, sum),
        Some(Sum::Float(sum)) => push_f64(out, sum),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends the end of a list of streams: their number, the number in each table, and the stream
/// after which the list continues.
pub fn push_streams_end(
    out: &mut Vec<u8>,
    total: u64,
    tables: &[(String, u64)],
    next: Option<&str>,
) {
    out.extend_from_slice(b"],\"total\":");
    push_u64(out, total);
    out.extend_from_slice(b",\"tables\":[");
    for (index, (table, streams)) in tables.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"table\":");
        push_str(out, table);
        out.extend_from_slice(b",\"streams\":");
        push_u64(out, *streams);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"next\":");
    match next {
        Some(next) => push_str(out, next),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_keep_all_their_digits() {
        for (value, expected) in [
            (ValueRef::F64(0.1), "0.1"),
            (ValueRef::F64(-0.0), "-0.0"),
            (ValueRef::F64(f64::NAN), "null"),
            (ValueRef::I64(i64::MIN), "-9223372036854775808"),
            (ValueRef::U64(u64::MAX), "18446744073709551615"),
            (ValueRef::Bool(true), "true"),
            (ValueRef::String("é\n"), "\"é\\n\""),
            (ValueRef::Bytes(&[0xab, 0]), "\"0xab00\""),
        ] {
            assert_eq!(text(|out| push_value(out, value)), expected);
        }
        assert_eq!(text(|out| push_i128(out, i128::MAX)), i128::MAX.to_string());
        let extremes = Extremes::I64(-1, i64::MAX);
        assert_eq!(
            text(|out| push_extreme(out, extremes, true)),
            i64::MAX.to_string()
        );
    }

    proptest! {
        #[test]
        fn floats_and_texts_read_back(bits: u64, any: String) {
            let value = f64::from_bits(bits);
            // Not parsed by serde_json, which may be wrong in the last bit.
            let back = text(|out| push_f64(out, value)).parse::<f64>().ok();
            prop_assert_eq!(back.map(f64::to_bits), value.is_finite().then_some(bits));
            let back: String = serde_json::from_str(&text(|out| push_str(out, &any))).unwrap();
            prop_assert_eq!(back, any);
        }
    }
}
