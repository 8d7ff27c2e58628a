//! State of an entry while it is checked: its valid rows, and the reasons of the refused ones.

use crate::common::refused::Refused;
use crate::metadata::catalog::Table;
use headwater_types::{Column, FieldId};

/// The still valid rows of an entry.
pub(super) struct EntryCheck {
    pub(super) entry: usize,
    pub(super) rows: usize,
    /// One per row; empty as long as all are valid.
    pub(super) good: Vec<bool>,
    pub(super) refused: Vec<Refused>,
}

impl EntryCheck {
    pub(super) fn is_good(&self, row: usize) -> bool {
        self.good.get(row).is_none_or(|good| *good)
    }

    /// True when a valid row has a value in a column.
    pub(super) fn any_good_in(&self, column: &Column) -> bool {
        (0..column.len()).any(|row| self.is_good(row) && column.is_present(row))
    }

    /// Refuses every row.
    pub(super) fn refuse_all(&mut self, code: &'static str, message: impl Fn() -> String) {
        for row in 0..self.rows {
            self.refuse(row, code, &message);
        }
    }

    pub(super) fn any_good(&self) -> bool {
        (self.good.is_empty() && self.rows > 0) || self.good.contains(&true)
    }

    pub(super) fn refuse(
        &mut self,
        row: usize,
        code: &'static str,
        message: impl FnOnce() -> String,
    ) {
        if self.good.is_empty() {
            self.good.resize(self.rows, true);
        }
        if let Some(good) = self.good.get_mut(row)
            && *good
        {
            *good = false;
            self.refused.push(Refused {
                entry: self.entry,
                row,
                code,
                message: message(),
            });
        }
    }

    pub(super) fn refuse_present(
        &mut self,
        column: &Column,
        code: &'static str,
        message: impl Fn() -> String,
    ) {
        for row in 0..column.len() {
            if column.is_present(row) {
                self.refuse(row, code, &message);
            }
        }
    }
}

/// The field of this name. Entries mostly have their fields in the table's order, so the one at the
/// same position is tried first.
pub(super) fn field_at(table: &Table, at: usize, name: &str) -> Option<FieldId> {
    match table.fields.get(at) {
        Some(field) if field.name == name => u32::try_from(at).ok().map(FieldId),
        _ => table.field_id(name),
    }
}
