//! Typed columns with absent values.
//!
//! Invariants: `values.len()` is the row count; when `presence` is there it has that many bits, and an absent row's slot in
//! `values` holds zero or nothing; no `presence` means every row is present; text slots are always UTF-8.

use crate::value::{FieldType, Value, ValueRef};
use std::ops::Range;

/// A growable list of bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// `len` bits of one value.
    #[must_use]
    pub fn filled(value: bool, len: usize) -> Self {
        let mut bitmap = Bitmap {
            words: vec![if value { u64::MAX } else { 0 }; len.div_ceil(64)],
            len,
        };
        bitmap.clear_slack();
        bitmap
    }

    /// From whole words; bits past `len` are cleared. `None` when there are too few words.
    #[must_use]
    pub fn from_words(mut words: Vec<u64>, len: usize) -> Option<Self> {
        if words.len() < len.div_ceil(64) {
            return None;
        }
        words.truncate(len.div_ceil(64));
        let mut bitmap = Bitmap { words, len };
        bitmap.clear_slack();
        Some(bitmap)
    }

    fn clear_slack(&mut self) {
        let used = self.len % 64;
        if used > 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1u64 << used) - 1;
        }
    }

    /// Number of bits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no bit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, low bit first; bits past the length are zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bit `index`; false beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> bool {
        self.words
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Appends a bit.
    #[inline]
    pub fn push(&mut self, value: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        if value && let Some(last) = self.words.last_mut() {
            *last |= 1u64 << (self.len % 64);
        }
        self.len += 1;
    }

    /// Appends `count` bits of one value.
    pub fn push_many(&mut self, value: bool, count: usize) {
        let before = self.len;
        self.len += count;
        let fill = if value { u64::MAX } else { 0 };
        if value
            && !before.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last |= u64::MAX << (before % 64);
        }
        self.words.resize(self.len.div_ceil(64), fill);
        self.clear_slack();
    }

    /// Appends bits `range` of `other`; bits beyond its end are clear.
    pub fn extend_from(&mut self, other: &Bitmap, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(64);
            self.push_word(other.word_at(at), count);
            at += count;
        }
    }

    /// 64 bits from bit `index` on; clear beyond the end.
    fn word_at(&self, index: usize) -> u64 {
        let word = |i: usize| self.words.get(i).copied().unwrap_or(0);
        let shift = index % 64;
        word(index / 64) >> shift | (word(index / 64 + 1) << 1) << (63 - shift)
    }

    /// Appends the low `count` bits (at most 64) of a word.
    fn push_word(&mut self, word: u64, count: usize) {
        let shift = self.len % 64;
        if shift == 0 {
            self.words.push(word);
        } else {
            if let Some(last) = self.words.last_mut() {
                *last |= word << shift;
            }
            if shift + count > 64 {
                self.words.push(word >> (64 - shift));
            }
        }
        self.len += count;
        self.clear_slack();
    }

    /// Set bits of `range`.
    #[must_use]
    pub fn count_ones_in(&self, range: Range<usize>) -> usize {
        let mut ones = 0;
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(64);
            let word = self.word_at(at) & (u64::MAX >> (64 - count));
            ones += word.count_ones() as usize;
            at += count;
        }
        ones
    }

    /// Number of set bits.
    #[must_use]
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
}

/// Byte strings of any length, end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarBytes {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Default for VarBytes {
    fn default() -> Self {
        VarBytes::new()
    }
}

impl VarBytes {
    /// No strings.
    #[must_use]
    pub fn new() -> Self {
        VarBytes {
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// From the end of each string in `bytes`. `None` when the ends fall or the last is not the end of the bytes.
    #[must_use]
    pub fn from_parts(ends: Vec<u32>, bytes: Vec<u8>) -> Option<Self> {
        let last = ends.last().map_or(0, |end| *end as usize);
        if last != bytes.len() || !ends.is_sorted() {
            return None;
        }
        Some(VarBytes { ends, bytes })
    }

    /// The end of each string in [`VarBytes::bytes`].
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The strings `range`, end to end.
    #[must_use]
    pub fn slice_bytes(&self, range: Range<usize>) -> &[u8] {
        let offset = |index: usize| match index.checked_sub(1) {
            None => 0,
            Some(before) => self
                .ends
                .get(before)
                .map_or(self.bytes.len(), |e| *e as usize),
        };
        self.bytes
            .get(offset(range.start)..offset(range.end))
            .unwrap_or_default()
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All bytes, end to end.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// String `index`; empty beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        let end = self.ends.get(index).map_or(0, |e| *e as usize);
        let start = if index == 0 {
            0
        } else {
            self.ends.get(index - 1).map_or(0, |e| *e as usize)
        };
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Appends strings `range` of `other`; strings beyond its end are empty.
    pub fn extend_from(&mut self, other: &VarBytes, range: Range<usize>) {
        let known = range.start.min(other.len())..range.end.min(other.len());
        let missing = range.len().saturating_sub(known.len());
        let bytes = other.slice_bytes(known.clone());
        let theirs = other.ends.get(known.clone()).unwrap_or_default();
        let from = match known.start.checked_sub(1) {
            None => 0,
            Some(before) => other.ends.get(before).copied().unwrap_or(0),
        };
        match u32::try_from(self.bytes.len() + bytes.len()) {
            Ok(end) => {
                let base = end - bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                self.ends.extend(theirs.iter().map(|e| base + (e - from)));
                self.ends.extend(std::iter::repeat_n(end, missing));
            }
            Err(_) => {
                for index in range {
                    self.push(other.get(index));
                }
            }
        }
    }

    /// Appends a string. The bytes of one column stay below 4 GiB because a batch is at most 16 MiB and a leaf is bounded.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }
}

/// The values of a column, one slot per row.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type it is named for")]
pub enum Values {
    F64(Vec<f64>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Bool(Vec<bool>),
    String(VarBytes),
    Bytes(VarBytes),
}

/// A typed column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    values: Values,
    presence: Option<Bitmap>,
}

macro_rules! each {
    ($values:expr, $v:ident => $body:expr) => {
        match $values {
            Values::F64($v) => $body,
            Values::I64($v) => $body,
            Values::U64($v) => $body,
            Values::Bool($v) => $body,
            Values::String($v) => $body,
            Values::Bytes($v) => $body,
        }
    };
}

impl Values {
    /// No values of this type.
    #[must_use]
    pub fn new(field_type: FieldType) -> Values {
        match field_type {
            FieldType::F64 => Values::F64(Vec::new()),
            FieldType::I64 => Values::I64(Vec::new()),
            FieldType::U64 => Values::U64(Vec::new()),
            FieldType::Bool => Values::Bool(Vec::new()),
            FieldType::String => Values::String(VarBytes::new()),
            FieldType::Bytes => Values::Bytes(VarBytes::new()),
        }
    }

    /// The type.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        match self {
            Values::F64(_) => FieldType::F64,
            Values::I64(_) => FieldType::I64,
            Values::U64(_) => FieldType::U64,
            Values::Bool(_) => FieldType::Bool,
            Values::String(_) => FieldType::String,
            Values::Bytes(_) => FieldType::Bytes,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// True when there is no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Column {
    /// An empty column.
    #[must_use]
    pub fn new(field_type: FieldType) -> Column {
        Column {
            values: Values::new(field_type),
            presence: None,
        }
    }

    /// A column in which every row is absent.
    #[must_use]
    pub fn absent(field_type: FieldType, rows: usize) -> Column {
        let mut column = Column::new(field_type);
        column.push_absent(rows);
        column
    }

    /// From values that are all present.
    #[must_use]
    pub fn from_values(values: Values) -> Column {
        Column {
            values,
            presence: None,
        }
    }

    /// From values and a bitmap of those present. `None` when the lengths differ or text is not UTF-8.
    #[must_use]
    pub fn from_parts(values: Values, presence: Option<Bitmap>) -> Option<Column> {
        if presence.as_ref().is_some_and(|p| p.len() != values.len()) {
            return None;
        }
        if let Values::String(text) = &values {
            let whole = std::str::from_utf8(text.bytes()).ok()?;
            if !text
                .ends
                .iter()
                .all(|end| whole.is_char_boundary(*end as usize))
            {
                return None;
            }
        }
        let presence = presence.filter(|p| p.count_ones() != p.len());
        Some(Column { values, presence })
    }

    /// The type.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        self.values.field_type()
    }

    /// Number of rows.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True when there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slots.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The bitmap of present rows; `None` when every row is present.
    #[must_use]
    pub fn presence(&self) -> Option<&Bitmap> {
        self.presence.as_ref()
    }

    /// True when row `index` has a value.
    #[inline]
    #[must_use]
    pub fn is_present(&self, index: usize) -> bool {
        match &self.presence {
            None => index < self.len(),
            Some(bits) => bits.get(index),
        }
    }

    /// Number of rows that have a value.
    #[must_use]
    pub fn present_count(&self) -> usize {
        self.presence
            .as_ref()
            .map_or(self.len(), Bitmap::count_ones)
    }

    /// The value of row `index`, if it has one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<ValueRef<'_>> {
        if !self.is_present(index) {
            return None;
        }
        Some(match &self.values {
            Values::F64(v) => ValueRef::F64(*v.get(index)?),
            Values::I64(v) => ValueRef::I64(*v.get(index)?),
            Values::U64(v) => ValueRef::U64(*v.get(index)?),
            Values::Bool(v) => ValueRef::Bool(*v.get(index)?),
            Values::String(v) => {
                ValueRef::String(std::str::from_utf8(v.get(index)).unwrap_or_default())
            }
            Values::Bytes(v) => ValueRef::Bytes(v.get(index)),
        })
    }

    /// Appends `count` rows without a value.
    pub fn push_absent(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let len = self.len();
        self.presence
            .get_or_insert_with(|| Bitmap::filled(true, len))
            .push_many(false, count);
        match &mut self.values {
            Values::F64(v) => v.resize(len + count, 0.0),
            Values::I64(v) => v.resize(len + count, 0),
            Values::U64(v) => v.resize(len + count, 0),
            Values::Bool(v) => v.resize(len + count, false),
            Values::String(v) | Values::Bytes(v) => {
                for _ in 0..count {
                    v.push(b"");
                }
            }
        }
    }

    /// Appends a value. False, and nothing happens, when its type is another one.
    pub fn push(&mut self, value: ValueRef<'_>) -> bool {
        match (&mut self.values, value) {
            (Values::F64(v), ValueRef::F64(x)) => v.push(x),
            (Values::I64(v), ValueRef::I64(x)) => v.push(x),
            (Values::U64(v), ValueRef::U64(x)) => v.push(x),
            (Values::Bool(v), ValueRef::Bool(x)) => v.push(x),
            (Values::String(v), ValueRef::String(x)) => v.push(x.as_bytes()),
            (Values::Bytes(v), ValueRef::Bytes(x)) => v.push(x),
            _ => return false,
        }
        if let Some(bits) = &mut self.presence {
            bits.push(true);
        }
        true
    }

    /// Appends rows `range` of `other`, which must have the same type and at least that many rows. When one side is of the
    /// field before it was widened from i64 to f64, the result is f64.
    ///
    /// # Panics
    /// When the types differ in another way, since rows would be lost.
    pub fn extend_from(&mut self, other: &Column, range: Range<usize>) {
        match (self.field_type(), other.field_type()) {
            (FieldType::F64, FieldType::I64) => {
                let widened = other.slice(range.clone()).widened_to_f64();
                return self.extend_from(&widened, 0..range.len());
            }
            (FieldType::I64, FieldType::F64) => {
                let mine = std::mem::replace(self, Column::new(FieldType::F64));
                *self = mine.widened_to_f64();
            }
            (mine, theirs) => assert!(mine == theirs, "a {theirs} column after {mine}"),
        }
        let len = self.len();
        match (&mut self.values, &other.values) {
            (Values::F64(a), Values::F64(b)) => {
                a.extend_from_slice(b.get(range.clone()).unwrap_or_default())
            }
            (Values::I64(a), Values::I64(b)) => {
                a.extend_from_slice(b.get(range.clone()).unwrap_or_default())
            }
            (Values::U64(a), Values::U64(b)) => {
                a.extend_from_slice(b.get(range.clone()).unwrap_or_default())
            }
            (Values::Bool(a), Values::Bool(b)) => {
                a.extend_from_slice(b.get(range.clone()).unwrap_or_default())
            }
            (Values::String(a), Values::String(b)) | (Values::Bytes(a), Values::Bytes(b)) => {
                a.extend_from(b, range.clone());
            }
            _ => return,
        }
        match (&mut self.presence, &other.presence) {
            (None, None) => {}
            (Some(mine), None) => mine.push_many(true, range.len()),
            (mine, Some(theirs)) => {
                let mine = mine.get_or_insert_with(|| Bitmap::filled(true, len));
                mine.extend_from(theirs, range);
            }
        }
    }

    /// Rows `range` as a column of their own.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Column {
        let mut out = Column::new(self.field_type());
        out.extend_from(self, range);
        out.simplify();
        out
    }

    /// The rows at `indices`, in that order.
    #[must_use]
    pub fn gather(&self, indices: &[u32]) -> Column {
        macro_rules! pick {
            ($v:expr) => {
                indices
                    .iter()
                    .filter_map(|i| $v.get(*i as usize).copied())
                    .collect()
            };
        }
        let values = match &self.values {
            Values::F64(v) => Values::F64(pick!(v)),
            Values::I64(v) => Values::I64(pick!(v)),
            Values::U64(v) => Values::U64(pick!(v)),
            Values::Bool(v) => Values::Bool(pick!(v)),
            Values::String(v) | Values::Bytes(v) => {
                let mut out = VarBytes::new();
                for index in indices {
                    out.push(v.get(*index as usize));
                }
                if self.field_type() == FieldType::String {
                    Values::String(out)
                } else {
                    Values::Bytes(out)
                }
            }
        };
        let presence = self.presence.as_ref().map(|bits| {
            let mut out = Bitmap::default();
            for index in indices {
                out.push(bits.get(*index as usize));
            }
            out
        });
        let mut out = Column { values, presence };
        out.simplify();
        out
    }

    /// Drops a bitmap in which every bit is set.
    pub fn simplify(&mut self) {
        if self
            .presence
            .as_ref()
            .is_some_and(|p| p.count_ones() == p.len())
        {
            self.presence = None;
        }
    }

    /// The same rows as `f64`, for a field that was widened. Columns of other types come back unchanged.
    #[must_use]
    pub fn widened_to_f64(self) -> Column {
        match self.values {
            Values::I64(v) => {
                let values = Values::F64(v.into_iter().map(|x| x as f64).collect());
                Column {
                    values,
                    presence: self.presence,
                }
            }
            _ => self,
        }
    }

    /// Bytes this column occupies in memory, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let values = match &self.values {
            Values::F64(v) => v.capacity() * 8,
            Values::I64(v) => v.capacity() * 8,
            Values::U64(v) => v.capacity() * 8,
            Values::Bool(v) => v.capacity(),
            Values::String(v) | Values::Bytes(v) => v.ends.capacity() * 4 + v.bytes.capacity(),
        };
        values + self.presence.as_ref().map_or(0, |p| p.words.capacity() * 8)
    }

    /// Every value, owned; for tests and small results.
    #[must_use]
    pub fn to_values(&self) -> Vec<Option<Value>> {
        (0..self.len())
            .map(|i| self.get(i).map(|v| v.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn integers(values: &[Option<i64>]) -> Column {
        let mut column = Column::new(FieldType::I64);
        for value in values {
            match value {
                Some(v) => assert!(column.push(ValueRef::I64(*v))),
                None => column.push_absent(1),
            }
        }
        column
    }

    #[test]
    fn a_value_of_another_type_is_refused_and_changes_nothing() {
        let mut column = integers(&[Some(1)]);
        assert!(!column.push(ValueRef::F64(1.0)));
        assert_eq!(column.to_values(), [Some(Value::I64(1))]);
    }

    #[test]
    fn slices_gathers_and_joins_keep_values_and_gaps() {
        let column = integers(&[Some(1), None, Some(3), Some(4), None]);
        assert_eq!(column.present_count(), 3);
        assert_eq!(column.slice(1..4), integers(&[None, Some(3), Some(4)]));
        assert!(column.slice(2..4).presence().is_none());
        assert_eq!(
            column.gather(&[4, 0, 2]),
            integers(&[None, Some(1), Some(3)])
        );
        let mut joined = column.slice(0..1);
        joined.extend_from(&column, 1..5);
        assert_eq!(joined, column);
    }

    #[test]
    fn a_widened_column_joins_its_integers() {
        let integers = integers(&[Some(1), None]);
        let floats = Column::from_values(Values::F64(vec![0.5]));
        let (mut a, mut b) = (integers.clone(), floats.clone());
        a.extend_from(&floats, 0..1);
        b.extend_from(&integers, 0..2);
        assert_eq!(
            a.to_values(),
            [Some(Value::F64(1.0)), None, Some(Value::F64(0.5))]
        );
        assert_eq!(
            b.to_values(),
            [Some(Value::F64(0.5)), Some(Value::F64(1.0)), None]
        );
    }

    #[test]
    fn strings_that_split_a_character_are_refused() {
        let text = |ends: &[u32]| VarBytes::from_parts(ends.to_vec(), "aö".into()).unwrap();
        assert!(Column::from_parts(Values::String(text(&[1, 3])), None).is_some());
        assert!(Column::from_parts(Values::String(text(&[2, 3])), None).is_none());
        assert!(Column::from_parts(Values::Bytes(text(&[2, 3])), None).is_some());
        assert!(VarBytes::from_parts(vec![2, 1], vec![0]).is_none());
        assert!(VarBytes::from_parts(vec![2], vec![0]).is_none());
    }

    #[test]
    fn strings_join_by_ranges() {
        let text = VarBytes::from_parts(vec![1, 1, 4, 6], b"abcdef".to_vec()).unwrap();
        let mut out = VarBytes::new();
        out.push(b"x");
        out.extend_from(&text, 1..3);
        out.extend_from(&text, 3..6);
        let found: Vec<&[u8]> = (0..out.len()).map(|i| out.get(i)).collect();
        assert_eq!(found, [b"x".as_slice(), b"", b"bcd", b"ef", b"", b""]);
    }
}
