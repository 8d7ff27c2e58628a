//! Comparison of values in query languages: integers exactly, texts that are numbers as numbers if
//! a number is required.
//!
//! Invariant: values of different kinds are never compared.

use headwater::ValueRef;
use std::cmp::Ordering;

/// A value as a float. A text that is a number counts as one, since some clients write numbers in
/// quotes.
pub(crate) fn number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::F64(v) => Some(v),
        ValueRef::I64(v) => Some(v as f64),
        ValueRef::U64(v) => Some(v as f64),
        ValueRef::String(text) => text.trim().parse().ok().filter(|v: &f64| v.is_finite()),
        ValueRef::Bool(_) | ValueRef::Bytes(_) => None,
    }
}

/// A value as an integer.
pub(crate) fn integer(value: ValueRef<'_>) -> Option<i128> {
    match value {
        ValueRef::I64(v) => Some(v.into()),
        ValueRef::U64(v) => Some(v.into()),
        _ => None,
    }
}

/// The order of two values; `None` when they cannot be compared.
pub(crate) fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    match (a, b) {
        (ValueRef::String(a), ValueRef::String(b)) => Some(a.cmp(b)),
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
        (ValueRef::Bytes(a), ValueRef::Bytes(b)) => Some(a.cmp(b)),
        (ValueRef::String(_), _) | (_, ValueRef::String(_)) => None,
        (a, b) => match (integer(a), integer(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => number(a)?.partial_cmp(&number(b)?),
        },
    }
}
