//! Rows of a leaf, shared with the cache of decoded leaves if they are in it.

use super::format::LeafEntry;
use crate::memory::{in_table_type, rows_between};
use crate::metadata::catalog::Table;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Column, FieldId, Rows};
use std::ops::Range;
use std::sync::Arc;

/// Rows of a stream in a leaf, in the types they were written with.
#[derive(Debug)]
pub(crate) struct LeafColumns {
    times: Arc<Vec<i64>>,
    /// By field. A field that is not in the list has no value in the leaf.
    columns: Vec<(FieldId, Arc<Column>)>,
    /// The rows of `times` and `columns` that belong to the result.
    rows: Range<usize>,
}

impl LeafColumns {
    pub(super) fn new(
        times: Arc<Vec<i64>>,
        mut columns: Vec<(FieldId, Arc<Column>)>,
        rows: Range<usize>,
    ) -> LeafColumns {
        columns.sort_by_key(|(field, _)| *field);
        LeafColumns {
            rows: rows.start.min(times.len())..rows.end.min(times.len()),
            times,
            columns,
        }
    }

    pub(super) fn of(rows: Rows) -> LeafColumns {
        let columns = rows.columns.into_iter().map(|(f, c)| (f, Arc::new(c)));
        LeafColumns {
            rows: 0..rows.times.len(),
            columns: columns.collect(),
            times: Arc::new(rows.times),
        }
    }

    /// Only the rows in a range.
    pub(crate) fn within(mut self, range: &ClosedRange) -> LeafColumns {
        let inside = rows_between(self.times(), range);
        let start = self.rows.start;
        self.rows = start + inside.start..start + inside.end;
        self
    }

    /// The positions of the rows in [`LeafColumns::column`].
    pub(crate) fn rows(&self) -> &Range<usize> {
        &self.rows
    }

    pub(crate) fn times(&self) -> &[i64] {
        part_of(&self.times, self.rows.clone(), "rows of a leaf")
    }

    /// A column; only [`LeafColumns::rows`] of it belong to the result.
    pub(crate) fn column(&self, field: FieldId) -> Option<&Column> {
        let found = self.columns.iter().find(|(f, _)| *f == field);
        found.map(|(_, column)| &**column)
    }

    /// True when every column has the current type of its field in the table.
    pub(crate) fn are_of(&self, table: &Table) -> bool {
        self.columns.iter().all(|(field, column)| {
            let known = table.field(*field);
            known.is_none_or(|f| f.field_type == column.field_type())
        })
    }

    /// A copy of the rows, in the current types of the table.
    pub(crate) fn into_rows(self, table: &Table) -> Rows {
        let all = self.rows == (0..self.times.len());
        let rows = self.rows;
        let columns = self.columns.into_iter().map(|(field, column)| {
            let own = match all {
                true => Arc::unwrap_or_clone(column),
                false => column.slice(rows.clone()),
            };
            (field, own)
        });
        let columns = columns.collect();
        let times = match all {
            true => Arc::unwrap_or_clone(self.times),
            false => part_of(&self.times, rows, "rows of a leaf").to_vec(),
        };
        in_table_types(Rows { times, columns }, table)
    }
}

/// The rows in the current types of the table.
pub(super) fn in_table_types(rows: Rows, table: &Table) -> Rows {
    let columns = rows.columns.into_iter();
    let columns = columns.map(|(f, c)| (f, in_table_type(c, table, f)));
    Rows {
        times: rows.times,
        columns: columns.collect(),
    }
}

/// Rows of a stream's entry as rows of its leaf.
pub(super) fn rows_in_leaf(entry: &LeafEntry, rows: &Range<usize>) -> Range<usize> {
    let start = entry.row_start as usize;
    start + rows.start..start + rows.end.min(entry.count as usize)
}

/// Number of pages of these rows of a leaf.
pub(super) fn pages_of(rows: &Range<usize>) -> u64 {
    let first = rows.start / headwater_codec::leaf::PAGE_ROWS;
    let end = rows.end.div_ceil(headwater_codec::leaf::PAGE_ROWS);
    end.saturating_sub(first) as u64
}
