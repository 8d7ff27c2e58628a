//! Typed columns with absent values.
//!
//! Invariants: `values.len()` is the row count; if `presence` is set, it has that many bits, and an
//! absent row's slot in `values` is zero or empty; without `presence` every row is present; text
//! slots are always UTF-8.

mod bitmap;
mod var_bytes;

#[cfg(test)]
mod tests;

pub use bitmap::Bitmap;
pub use var_bytes::VarBytes;

use crate::value::{FieldType, Value, ValueRef};
use std::ops::Range;

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

    /// Whether there are no slots.
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

    /// An empty column with capacity for `rows` values (for text: for their ends).
    #[must_use]
    pub fn with_capacity(field_type: FieldType, rows: usize) -> Column {
        let mut column = Column::new(field_type);
        match &mut column.values {
            Values::F64(v) => v.reserve_exact(rows),
            Values::I64(v) => v.reserve_exact(rows),
            Values::U64(v) => v.reserve_exact(rows),
            Values::Bool(v) => v.reserve_exact(rows),
            Values::String(v) | Values::Bytes(v) => v.reserve_exact(rows),
        }
        column
    }

    /// A column in which every row is absent.
    #[must_use]
    pub fn absent(field_type: FieldType, rows: usize) -> Column {
        let mut column = Column::new(field_type);
        column.push_absent(rows);
        column
    }

    /// Column of values that are all present.
    #[must_use]
    pub fn from_values(values: Values) -> Column {
        Column {
            values,
            presence: None,
        }
    }

    /// Column of values and a bitmap of present rows. `None` if the lengths differ or text is not
    /// UTF-8.
    #[must_use]
    pub fn from_parts(values: Values, presence: Option<Bitmap>) -> Option<Column> {
        if presence.as_ref().is_some_and(|p| p.len() != values.len()) {
            return None;
        }
        if let Values::String(text) = &values {
            let whole = std::str::from_utf8(text.bytes()).ok()?;
            if !text
                .ends()
                .iter()
                .all(|end| whole.is_char_boundary(*end as usize))
            {
                return None;
            }
        }
        let presence = presence.filter(|p| p.count_ones() != p.len());
        Some(Column { values, presence })
    }

    /// The slots and the bitmap of present rows, by value: for callers that hand the column on in
    /// another form.
    #[must_use]
    pub fn into_parts(self) -> (Values, Option<Bitmap>) {
        (self.values, self.presence)
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

    /// Whether the column has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slots.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Bitmap of present rows; `None` if every row is present.
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

    /// Appends a value. False, without a change, if its type differs from the column's.
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

    /// Appends rows `range` of `other`, which must have the same type and at least that many rows.
    /// If one of the two is from before the field was widened from i64 to f64, the result is f64.
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

    /// Drops the rows from `count` on.
    pub fn truncate(&mut self, count: usize) {
        each!(&mut self.values, v => v.truncate(count));
        if let Some(bits) = &mut self.presence {
            bits.truncate(count);
        }
        self.simplify();
    }

    /// Rows `range` as a column of their own.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Column {
        let mut out = Column::new(self.field_type());
        out.extend_from(self, range);
        out.simplify();
        out
    }

    /// The rows at `indices`, in that order. Each is the index of a row.
    #[must_use]
    pub fn gather(&self, indices: &[u32]) -> Column {
        macro_rules! pick {
            ($v:expr) => {
                indices
                    .iter()
                    .map(|i| $v.get(*i as usize).copied().unwrap_or_default())
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

    /// The same rows as `f64`, for a field that was widened. Columns of other types are returned
    /// unchanged.
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
            Values::String(v) | Values::Bytes(v) => v.heap_bytes(),
        };
        values + self.presence.as_ref().map_or(0, Bitmap::heap_bytes)
    }

    /// Every value, owned; for tests and small results.
    #[must_use]
    pub fn to_values(&self) -> Vec<Option<Value>> {
        (0..self.len())
            .map(|i| self.get(i).map(|v| v.to_owned()))
            .collect()
    }
}
