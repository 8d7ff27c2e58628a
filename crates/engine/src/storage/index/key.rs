//! Encodes values as keys whose bytes have the order of the values, and conditions as ranges of
//! keys.
//!
//! Invariants: if a value is not above another, its key is not above the other's; so the key of a
//! row that meets a condition is in the range of the condition. Different values may have the same
//! key (long text is truncated): a row in a range is a candidate.

use headwater_codec::entries::KEY_BYTES_MAX;
use headwater_types::{Column, FieldId, ValueRef};
use std::cmp::Ordering;

/// Bytes of a text that precedes other fields in a key.
const INNER_TEXT_BYTES: usize = 16;
/// First byte of the keys of an index over several fields, for rows with values in all of them.
const COMPLETE: u8 = 1;
/// The key of rows that have no value in some of the fields: another version of such a row may have
/// the missing values, so these rows are always candidates.
const PARTIAL: [u8; 1] = [0];

/// A bound of the values that meet conditions on a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ValueBound<'a> {
    pub(crate) value: ValueRef<'a>,
    /// True when the value itself meets the conditions.
    pub(crate) inclusive: bool,
}

/// The bounds of the conditions on a field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FieldBounds<'a> {
    pub(crate) low: Option<ValueBound<'a>>,
    pub(crate) high: Option<ValueBound<'a>>,
    /// True when both bounds are the same value.
    pub(crate) is_equal: bool,
}

/// A bound of a range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Edge {
    bytes: Vec<u8>,
    /// Keys are compared as a whole; otherwise only their prefix of the length of the edge.
    full_key: bool,
    inclusive: bool,
}

impl Edge {
    fn compare(&self, key: &[u8]) -> Ordering {
        match self.full_key {
            true => key.cmp(&self.bytes),
            false => key.iter().take(self.bytes.len()).cmp(&self.bytes),
        }
    }
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyRange {
    low: Edge,
    high: Edge,
}

impl KeyRange {
    /// The range of the keys of rows that meet conditions, for an index over these fields; `None`
    /// without a condition on the first field.
    pub(crate) fn of<'a>(
        fields: &[FieldId],
        bounds: impl Fn(FieldId) -> FieldBounds<'a>,
    ) -> Option<KeyRange> {
        let mut prefix = Vec::new();
        if fields.len() > 1 {
            prefix.push(COMPLETE);
        }
        let mut range = None;
        for (position, field) in fields.iter().enumerate() {
            let found = bounds(*field);
            if found.low.is_none() && found.high.is_none() {
                break;
            }
            let is_last = position + 1 == fields.len();
            let edge = |bound: Option<ValueBound<'a>>| edge(&prefix, bound, is_last);
            range = Some(KeyRange {
                low: edge(found.low),
                high: edge(found.high),
            });
            let Some(value) = found.low.filter(|_| found.is_equal) else {
                break;
            };
            put_component(value.value, is_last, &mut prefix);
        }
        range
    }

    /// The range of the key of rows that have no value in some of the fields.
    pub(crate) fn partial() -> KeyRange {
        let edge = Edge {
            bytes: PARTIAL.to_vec(),
            full_key: true,
            inclusive: true,
        };
        KeyRange {
            low: edge.clone(),
            high: edge,
        }
    }

    /// Position of a key relative to the range: below it, in it, above it.
    pub(crate) fn position(&self, key: &[u8]) -> Ordering {
        match self.low.compare(key) {
            Ordering::Less => return Ordering::Less,
            Ordering::Equal if !self.low.inclusive => return Ordering::Less,
            _ => {}
        }
        match self.high.compare(key) {
            Ordering::Greater => Ordering::Greater,
            Ordering::Equal if !self.high.inclusive => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}

fn edge(prefix: &[u8], bound: Option<ValueBound<'_>>, is_last: bool) -> Edge {
    let mut bytes = prefix.to_vec();
    let Some(bound) = bound else {
        return Edge {
            bytes,
            full_key: false,
            inclusive: true,
        };
    };
    let is_exact = put_component(bound.value, is_last, &mut bytes);
    Edge {
        bytes,
        full_key: is_last,
        inclusive: bound.inclusive || !is_exact,
    }
}

/// Makes the key of a row, for an index over the fields with these columns. False for a row without
/// a value in an index over one field: the row meets no condition.
pub(crate) fn put_row_key(columns: &[Option<&Column>], row: usize, out: &mut Vec<u8>) -> bool {
    out.clear();
    if columns.len() > 1 {
        out.push(COMPLETE);
    }
    for (position, column) in columns.iter().enumerate() {
        let Some(value) = column.and_then(|column| column.get(row)) else {
            out.clear();
            out.extend_from_slice(&PARTIAL);
            return columns.len() > 1;
        };
        put_component(value, position + 1 == columns.len(), out);
    }
    true
}

/// Appends a value to the other components of a key; true when no other value has these bytes.
fn put_component(value: ValueRef<'_>, is_last: bool, out: &mut Vec<u8>) -> bool {
    match value {
        ValueRef::F64(v) => out.extend_from_slice(&float(v).to_be_bytes()),
        ValueRef::I64(v) => {
            out.extend_from_slice(&(v.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        ValueRef::U64(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Bool(v) => out.push(u8::from(v)),
        ValueRef::String(v) => return put_text(v.as_bytes(), is_last, out),
        ValueRef::Bytes(v) => return put_text(v, is_last, out),
    }
    true
}

fn put_text(text: &[u8], is_last: bool, out: &mut Vec<u8>) -> bool {
    if is_last {
        let room = KEY_BYTES_MAX.saturating_sub(out.len());
        out.extend(text.iter().take(room));
        return text.len() < room;
    }
    let padding = INNER_TEXT_BYTES.saturating_sub(text.len());
    out.extend(text.iter().take(INNER_TEXT_BYTES));
    out.extend(std::iter::repeat_n(0, padding));
    false
}

/// A float as an integer with the same order: -0 as 0, every NaN above all numbers.
fn float(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    match bits >> 63 {
        0 => bits | (1 << 63),
        _ => !bits,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn key(value: ValueRef<'_>, is_last: bool) -> Vec<u8> {
        let mut out = Vec::new();
        put_component(value, is_last, &mut out);
        out
    }

    fn between<'a>(low: (ValueRef<'a>, bool), high: (ValueRef<'a>, bool)) -> FieldBounds<'a> {
        let bound = |(value, inclusive)| Some(ValueBound { value, inclusive });
        FieldBounds {
            low: bound(low),
            high: bound(high),
            is_equal: low == high,
        }
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_the_values(a: f64, b: f64, i: i64, j: i64) {
            if a < b {
                prop_assert!(key(ValueRef::F64(a), true) < key(ValueRef::F64(b), true));
            }
            prop_assert_eq!(i.cmp(&j), key(ValueRef::I64(i), true).cmp(&key(ValueRef::I64(j), true)));
        }

        #[test]
        fn a_text_that_meets_a_condition_lies_in_its_range(texts in prop::collection::vec("[ab\0]{0,3}x{0,70}", 3)) {
            let [value, low, high] = &texts[..] else { unreachable!() };
            for is_last in [true, false] {
                let fields = [FieldId(0), FieldId(1)];
                let fields = if is_last { &fields[..1] } else { &fields[..] };
                let bounds = between((ValueRef::String(low), false), (ValueRef::String(high), true));
                let range = KeyRange::of(fields, |field| match field {
                    FieldId(0) => bounds,
                    _ => FieldBounds::default(),
                });
                let column = |text: &str| Column::from_values(headwater_types::Values::String(
                    headwater_types::VarBytes::from_parts(vec![text.len() as u32], text.as_bytes().to_vec()).unwrap()));
                let (first, second) = (column(value), column("z"));
                let columns = [Some(&first), Some(&second)];
                let mut bytes = Vec::new();
                prop_assert!(put_row_key(&columns[..fields.len()], 0, &mut bytes));
                if value > low && value <= high {
                    prop_assert_eq!(range.unwrap().position(&bytes), Ordering::Equal);
                }
            }
        }
    }

    #[test]
    fn zeros_are_one_and_nan_is_above_all() {
        assert_eq!(float(-0.0), float(0.0));
        assert!(float(f64::INFINITY) < float(f64::NAN));
        assert_eq!(float(-f64::NAN), float(f64::NAN));
    }

    #[test]
    fn what_is_not_asked_for_lies_outside() {
        let range = KeyRange::of(&[FieldId(3)], |_| {
            between((ValueRef::I64(4), false), (ValueRef::I64(9), false))
        });
        let place = |v| {
            range
                .as_ref()
                .map(|r| r.position(&key(ValueRef::I64(v), true)))
        };
        assert_eq!(place(4), Some(Ordering::Less));
        assert_eq!(place(5), Some(Ordering::Equal));
        assert_eq!(place(9), Some(Ordering::Greater));
        let equal = KeyRange::of(&[FieldId(3)], |_| {
            between(
                (ValueRef::String("ab"), true),
                (ValueRef::String("ab"), true),
            )
        });
        let place = |v| {
            equal
                .as_ref()
                .map(|r| r.position(&key(ValueRef::String(v), true)))
        };
        assert_eq!(place("ab"), Some(Ordering::Equal));
        assert_eq!(place("abc"), Some(Ordering::Greater));
        assert!(KeyRange::of(&[FieldId(3)], |_| FieldBounds::default()).is_none());
    }
}
