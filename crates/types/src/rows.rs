//! Rows of one stream: times and columns side by side.

use crate::column::Column;
use crate::value::FieldId;
use std::ops::Range;

/// Approximate overhead of an allocation beyond the bytes requested: a header and rounding up.
const ALLOCATION_BYTES: usize = 16;

/// Rows of one stream. `times` are nanoseconds since 1970; every column has `times.len()` rows.
///
/// A field without a column is absent in every row. Columns are ordered by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Nanoseconds since 1970 UTC, one per row.
    pub times: Vec<i64>,
    /// Columns by field, sorted by field.
    pub columns: Vec<(FieldId, Column)>,
}

impl Rows {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are no rows.
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

    /// Rows `range` of `other` appended; columns that are missing on one side are filled with
    /// absent values.
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

    /// These rows and then `later`'s, in vectors no larger than they need be. Types must agree as
    /// for [`Rows::extend_from`].
    #[must_use]
    pub fn joined(&self, later: &Rows) -> Rows {
        let rows = self.len() + later.len();
        let fields = self.columns.len().max(later.columns.len());
        let mut out = Rows {
            times: Vec::with_capacity(rows),
            columns: Vec::with_capacity(fields),
        };
        for (field, column) in &self.columns {
            let mut copy = Column::with_capacity(column.field_type(), rows);
            copy.extend_from(column, 0..column.len());
            out.columns.push((*field, copy));
        }
        out.times.extend_from_slice(&self.times);
        out.extend_from(later, 0..later.len());
        out
    }

    /// Drops the rows from `count` on.
    pub fn truncate(&mut self, count: usize) {
        self.times.truncate(count);
        for (_, column) in &mut self.columns {
            column.truncate(count);
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

    /// The rows at `indices`, in that order. Each is the index of a row.
    #[must_use]
    pub fn gather(&self, indices: &[u32]) -> Rows {
        const STRETCH_ROWS: usize = 8;
        let stretches = indices.chunk_by(|a, b| a + 1 == *b);
        if stretches.clone().count() * STRETCH_ROWS <= indices.len() {
            // Mostly adjacent rows: whole ranges are copied.
            let mut out = Rows {
                times: Vec::with_capacity(indices.len()),
                columns: Vec::with_capacity(self.columns.len()),
            };
            for (field, column) in &self.columns {
                let empty = Column::with_capacity(column.field_type(), indices.len());
                out.columns.push((*field, empty));
            }
            for stretch in stretches {
                let from = stretch.first().map_or(0, |i| *i as usize);
                out.extend_from(self, from..from + stretch.len());
            }
            for (_, column) in &mut out.columns {
                column.simplify();
            }
            return out;
        }
        Rows {
            times: indices
                .iter()
                .map(|i| self.times.get(*i as usize).copied().unwrap_or_default())
                .collect(),
            columns: self
                .columns
                .iter()
                .map(|(f, c)| (*f, c.gather(indices)))
                .collect(),
        }
    }

    /// Approximate bytes that these rows occupy in memory, including the allocator's overhead.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let slots = self.columns.capacity() * size_of::<(FieldId, Column)>();
        let columns = self
            .columns
            .iter()
            .map(|(_, c)| c.heap_bytes() + ALLOCATION_BYTES);
        self.times.capacity() * 8 + slots + 2 * ALLOCATION_BYTES + columns.sum::<usize>()
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
    fn joined_rows_take_no_more_memory_than_they_need() {
        let one = rows(&[1], 5, &[10]);
        let both = one
            .joined(&rows(&[2], 5, &[20]))
            .joined(&rows(&[3], 2, &[30]));
        assert_eq!(both.times, [1, 2, 3]);
        assert_eq!((both.times.capacity(), both.columns.len()), (3, 2));
        let mut grown = one.clone();
        grown.extend_from(&rows(&[2], 5, &[20]), 0..1);
        grown.extend_from(&rows(&[3], 2, &[30]), 0..1);
        assert_eq!(both, grown);
        assert!(both.heap_bytes() <= grown.heap_bytes());
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

    #[test]
    fn picking_neighbours_gives_what_picking_each_gives() {
        let times: Vec<i64> = (0..100).collect();
        let mut all = rows(&times[..60], 1, &times[..60]);
        all.extend_from(&rows(&times[60..], 4, &times[60..]), 0..40);
        let stretches: Vec<u32> = (3..40).chain(10..30).chain(50..90).collect();
        let every_other: Vec<u32> = (0..100).step_by(2).collect();
        for indices in [stretches, every_other, (0..20).collect(), Vec::new()] {
            let picked = all.gather(&indices);
            let expected: Vec<i64> = indices.iter().map(|i| i64::from(*i)).collect();
            assert_eq!(picked.times, expected);
            for (field, column) in &picked.columns {
                let one_by_one = all.column(*field).unwrap().gather(&indices);
                assert_eq!(column.to_values(), one_by_one.to_values());
                let absent = column.present_count() < column.len();
                assert_eq!(column.presence().is_some(), absent);
            }
        }
    }
}
