//! Rows of one stream: times and columns side by side.

use crate::column::Column;
use crate::value::FieldId;
use std::ops::Range;

/// Rows of one stream. `times` are nanoseconds since 1970; every column has `times.len()` rows.
///
/// A field without a column is absent in every row. Columns are ordered by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Nanoseconds since 1970 UTC, one per row.
    pub times: Vec<i64>,
    /// The columns, by field, in rising order of the field.
    pub columns: Vec<(FieldId, Column)>,
}

impl Rows {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True when there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The column of a field.
    #[must_use]
    pub fn column(&self, field: FieldId) -> Option<&Column> {
        self.columns
            .binary_search_by_key(&field, |(f, _)| *f)
            .ok()
            .and_then(|i| self.columns.get(i))
            .map(|(_, c)| c)
    }

    /// Rows `range` of `other` appended; columns that one side lacks are filled with absent values.
    pub fn extend_from(&mut self, other: &Rows, range: Range<usize>) {
        let before = self.len();
        for (field, theirs) in &other.columns {
            match self.columns.binary_search_by_key(field, |(f, _)| *f) {
                Ok(at) => {
                    if let Some((_, mine)) = self.columns.get_mut(at) {
                        mine.extend_from(theirs, range.clone());
                    }
                }
                Err(at) => {
                    let mut column = Column::absent(theirs.field_type(), before);
                    column.extend_from(theirs, range.clone());
                    self.columns.insert(at, (*field, column));
                }
            }
        }
        self.times
            .extend_from_slice(other.times.get(range.clone()).unwrap_or_default());
        let rows = self.len();
        for (_, column) in &mut self.columns {
            let missing = rows - column.len();
            column.push_absent(missing);
        }
    }

    /// Rows `range` as rows of their own.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Rows {
        Rows {
            times: self.times.get(range.clone()).unwrap_or_default().to_vec(),
            columns: self
                .columns
                .iter()
                .map(|(f, c)| (*f, c.slice(range.clone())))
                .collect(),
        }
    }

    /// The rows at `indices`, in that order.
    #[must_use]
    pub fn gather(&self, indices: &[u32]) -> Rows {
        Rows {
            times: indices
                .iter()
                .filter_map(|i| self.times.get(*i as usize).copied())
                .collect(),
            columns: self
                .columns
                .iter()
                .map(|(f, c)| (*f, c.gather(indices)))
                .collect(),
        }
    }

    /// Bytes these rows occupy in memory, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.times.capacity() * 8
            + self
                .columns
                .iter()
                .map(|(_, c)| c.heap_bytes() + 48)
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::column::Values;
    use crate::value::Value;

    fn rows(times: &[i64], field: u32, values: &[i64]) -> Rows {
        Rows {
            times: times.to_vec(),
            columns: vec![(
                FieldId(field),
                Column::from_values(Values::I64(values.to_vec())),
            )],
        }
    }

    #[test]
    fn joining_fills_columns_that_one_side_lacks() {
        let mut all = rows(&[1, 2], 5, &[10, 20]);
        all.extend_from(&rows(&[3, 4, 5], 2, &[30, 40, 50]), 1..3);
        assert_eq!(all.times, [1, 2, 4, 5]);
        let values = |field| all.column(FieldId(field)).unwrap().to_values();
        let some = |v| Some(Value::I64(v));
        assert_eq!(values(2), [None, None, some(40), some(50)]);
        assert_eq!(values(5), [some(10), some(20), None, None]);
        assert_eq!(all.slice(1..3).gather(&[1]).times, [4]);
        assert!(all.column(FieldId(3)).is_none());
    }
}
