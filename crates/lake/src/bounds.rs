//! Statistics of the values of a column of a file: their number, and bounds.
//!
//! Invariants: no value is outside the bounds; NaN is counted and excluded from the bounds, and of
//! two zeros the negative one is the smaller, as Iceberg defines. Bounds of texts are cut to
//! [`CUT`] characters, and of bytes to as many bytes: the upper bound is then raised, or absent.

use crate::error::{LakeError, Result};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray,
    Float64Array, StringArray,
};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use headwater_types::invariant::wide;
use std::cmp::Ordering;

/// Characters of a text, or bytes of others, in a bound.
const CUT: usize = 16;

/// A value that bounds others.
#[derive(Clone, Debug, PartialEq)]
enum Bound {
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Decimal(i128),
    Text(String),
    Bytes(Vec<u8>),
}

impl Bound {
    fn order(&self, other: &Bound) -> Ordering {
        match (self, other) {
            (Bound::Bool(a), Bound::Bool(b)) => a.cmp(b),
            (Bound::Int(a), Bound::Int(b)) => a.cmp(b),
            (Bound::Long(a), Bound::Long(b)) => a.cmp(b),
            (Bound::Double(a), Bound::Double(b)) => a.total_cmp(b),
            (Bound::Decimal(a), Bound::Decimal(b)) => a.cmp(b),
            (Bound::Text(a), Bound::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Bound::Bytes(a), Bound::Bytes(b)) => a.cmp(b),
            // A column has values of one type.
            _ => Ordering::Equal,
        }
    }

    /// Iceberg's encoding of a single value.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Bound::Bool(value) => vec![u8::from(*value)],
            Bound::Int(value) => value.to_le_bytes().to_vec(),
            Bound::Long(value) => value.to_le_bytes().to_vec(),
            Bound::Double(value) => value.to_le_bytes().to_vec(),
            Bound::Decimal(value) => shortest(*value),
            Bound::Text(value) => value.as_bytes().to_vec(),
            Bound::Bytes(value) => value.clone(),
        }
    }

    fn lower(&self) -> Vec<u8> {
        match self {
            Bound::Text(text) => text.chars().take(CUT).collect::<String>().into_bytes(),
            Bound::Bytes(bytes) => bytes.iter().take(CUT).copied().collect(),
            _ => self.bytes(),
        }
    }

    /// Upper bound; `None` if no short value is large enough.
    fn upper(&self) -> Option<Vec<u8>> {
        match self {
            Bound::Text(text) if text.chars().nth(CUT).is_some() => raised_text(text),
            Bound::Bytes(bytes) if bytes.len() > CUT => raised_bytes(bytes),
            _ => Some(self.bytes()),
        }
    }
}

/// Two's complement, big-endian, in the fewest bytes.
fn shortest(value: i128) -> Vec<u8> {
    let all = value.to_be_bytes();
    let fill = if value < 0 { 0xff } else { 0 };
    let is_negative = |byte: u8| byte >= 0x80;
    let mut bytes = all.as_slice();
    while let [first, second, ..] = bytes
        && *first == fill
        && is_negative(*second) == (value < 0)
    {
        bytes = bytes.get(1..).unwrap_or(bytes);
    }
    bytes.to_vec()
}

/// A text of at most [`CUT`] characters, not less than any text that starts with the cut text.
fn raised_text(text: &str) -> Option<Vec<u8>> {
    let mut chars: Vec<char> = text.chars().take(CUT).collect();
    while let Some(last) = chars.pop() {
        // Numbers between the two ranges of characters are not characters.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

fn raised_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut short: Vec<u8> = bytes.iter().take(CUT).copied().collect();
    while let Some(last) = short.pop() {
        if let Some(next) = last.checked_add(1) {
            short.push(next);
            return Some(short);
        }
    }
    None
}

/// Statistics of the values of one column so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Number of values, absent ones included.
    pub(crate) values: u64,
    pub(crate) nulls: u64,
    /// Number of NaNs; `None` = the column has no floats.
    pub(crate) nans: Option<u64>,
    least: Option<Bound>,
    most: Option<Bound>,
}

impl Bounds {
    pub(crate) fn lower(&self) -> Option<Vec<u8>> {
        self.least.as_ref().map(Bound::lower)
    }

    pub(crate) fn upper(&self) -> Option<Vec<u8>> {
        self.most.as_ref().and_then(Bound::upper)
    }

    /// Adds the values of an array.
    pub(crate) fn take(&mut self, array: &ArrayRef) -> Result<()> {
        self.values += wide(array.len());
        self.nulls += wide(array.null_count());
        match array.data_type() {
            DataType::Timestamp(..) => {
                let values = array.as_primitive::<TimestampMicrosecondType>();
                self.extremes(values.iter().flatten(), Bound::Long);
            }
            DataType::Int32 => {
                self.extremes(
                    array.as_primitive::<Int32Type>().iter().flatten(),
                    Bound::Int,
                );
            }
            DataType::Int64 => {
                self.extremes(
                    array.as_primitive::<Int64Type>().iter().flatten(),
                    Bound::Long,
                );
            }
            DataType::Float64 => self.floats(array.as_primitive::<Float64Type>()),
            DataType::Decimal128(..) => {
                let values: &Decimal128Array = array.as_primitive::<Decimal128Type>();
                self.extremes(values.iter().flatten(), Bound::Decimal);
            }
            DataType::Boolean => {
                let values: &BooleanArray = array.as_boolean();
                self.extremes(values.iter().flatten(), Bound::Bool);
            }
            DataType::Utf8 => self.texts(array.as_string::<i32>()),
            DataType::Binary => {
                let values: &BinaryArray = array.as_binary::<i32>();
                self.extremes(values.iter().flatten(), |v| Bound::Bytes(v.to_vec()));
            }
            DataType::Dictionary(..) => {
                // Every text of the dictionary of a batch occurs there.
                let values: &DictionaryArray<Int32Type> = array.as_dictionary::<Int32Type>();
                self.texts(values.values().as_string::<i32>());
            }
            other => {
                return Err(LakeError::internal(format!(
                    "bounds of a column of {other}"
                )));
            }
        }
        Ok(())
    }

    fn floats(&mut self, values: &Float64Array) {
        let nans = values.iter().flatten().filter(|v| v.is_nan()).count();
        self.nans = Some(self.nans.unwrap_or(0) + wide(nans));
        let numbers = || values.iter().flatten().filter(|v| !v.is_nan());
        let ends = [
            numbers().min_by(f64::total_cmp),
            numbers().max_by(f64::total_cmp),
        ];
        ends.into_iter()
            .flatten()
            .for_each(|v| self.put(Bound::Double(v)));
    }

    fn texts(&mut self, values: &StringArray) {
        self.extremes(values.iter().flatten(), |v| Bound::Text(v.to_owned()));
    }

    fn extremes<T: Ord + Copy>(
        &mut self,
        values: impl Iterator<Item = T>,
        bound: impl Fn(T) -> Bound,
    ) {
        let ends = values.fold(None, |ends: Option<(T, T)>, value| match ends {
            None => Some((value, value)),
            Some((least, most)) => Some((least.min(value), most.max(value))),
        });
        if let Some((least, most)) = ends {
            self.put(bound(least));
            self.put(bound(most));
        }
    }

    fn put(&mut self, value: Bound) {
        let is_less = |known: &Bound| value.order(known) == Ordering::Less;
        let is_more = |known: &Bound| value.order(known) == Ordering::Greater;
        if self.least.as_ref().is_none_or(is_less) {
            self.least = Some(value.clone());
        }
        if self.most.as_ref().is_none_or(is_more) {
            self.most = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::Arc;

    #[test]
    fn decimals_take_as_few_bytes_as_hold_them() {
        assert_eq!(shortest(0), [0]);
        assert_eq!(shortest(127), [127]);
        assert_eq!(shortest(128), [0, 128]);
        assert_eq!(shortest(-1), [0xff]);
        assert_eq!(shortest(-129), [0xff, 0x7f]);
        let most = shortest(i128::from(u64::MAX));
        assert_eq!(most, [0, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn floats_are_bounded_without_nan_and_zeros_have_signs() {
        let mut bounds = Bounds::default();
        let values = Float64Array::from(vec![Some(0.0), None, Some(f64::NAN), Some(-0.0)]);
        bounds.take(&(Arc::new(values) as ArrayRef)).unwrap();
        assert_eq!((bounds.values, bounds.nulls, bounds.nans), (4, 1, Some(1)));
        assert_eq!(bounds.lower().unwrap(), (-0.0f64).to_le_bytes());
        assert_eq!(bounds.upper().unwrap(), 0.0f64.to_le_bytes());
        let mut only = Bounds::default();
        let values = Float64Array::from(vec![f64::NAN]);
        only.take(&(Arc::new(values) as ArrayRef)).unwrap();
        assert_eq!((only.lower(), only.upper()), (None, None));
    }

    #[test]
    fn bounds_of_long_texts_are_cut_and_still_bounds() {
        let text = "abcdefghijklmnop".to_owned() + "\u{10ffff}";
        let mut bounds = Bounds::default();
        let values = StringArray::from(vec![text.as_str()]);
        bounds.take(&(Arc::new(values) as ArrayRef)).unwrap();
        assert_eq!(bounds.lower().unwrap(), b"abcdefghijklmnop");
        assert_eq!(bounds.upper().unwrap(), b"abcdefghijklmnoq");
        let last = "\u{10ffff}".repeat(17);
        assert_eq!(raised_text(&last), None);
        assert_eq!(raised_bytes(&[0xff; 17]), None);
        assert_eq!(
            raised_bytes(&[[1].as_slice(), &[0xff; 16]].concat()),
            Some(vec![2])
        );
    }
}
