//! Rows that are not stored, but were answered by another question.
//!
//! Invariants: they rise by time; an interval that began before what was asked for belongs to its
//! beginning.

use super::field::ReadField;
use headwater::{ClosedRange, Column, FieldType, ScanChunk, ValueRef};

/// Rows that are not stored: what another question answered, by time.
#[derive(Debug)]
pub(super) struct HeldRows {
    pub(super) names: Vec<String>,
    pub(super) rows: ScanChunk,
    /// Tags that are read as texts, and those without a value.
    pub(super) tags: Vec<(String, String)>,
    pub(super) empty_tags: Vec<String>,
    /// The beginning of what was asked for.
    pub(super) since: i64,
}

impl HeldRows {
    /// A tag as a column of so many rows.
    fn tag(&self, name: &str, rows: usize) -> Column {
        let found = self.tags.iter().find(|(key, _)| key == name);
        let empty = self.empty_tags.iter().any(|key| key == name).then_some("");
        let Some(value) = found.map(|(_, value)| value.as_str()).or(empty) else {
            return Column::absent(FieldType::String, rows);
        };
        let mut column = Column::with_capacity(FieldType::String, rows);
        for _ in 0..rows {
            column.push(ValueRef::String(value));
        }
        column
    }

    /// The rows of a range, with the columns that are read.
    pub(super) fn of(&self, read: &[ReadField], range: ClosedRange) -> ScanChunk {
        let times = &self.rows.times;
        let at = |time: &i64| (*time).max(self.since);
        let first = times.partition_point(|time| at(time) < range.first.as_nanos());
        let last = times.partition_point(|time| at(time) <= range.last.as_nanos());
        let rows = first..last.max(first);
        let column = |field: &ReadField| {
            if field.is_tag {
                return self.tag(&field.name, rows.len());
            }
            let at = self.names.iter().position(|name| *name == field.name);
            match at.and_then(|at| self.rows.columns.get(at)) {
                Some(column) => field.read(&column.slice(rows.clone())),
                None => Column::absent(field.field_type(), rows.len()),
            }
        };
        ScanChunk {
            columns: read.iter().map(column).collect(),
            times: times
                .get(rows.clone())
                .map_or_else(Vec::new, <[i64]>::to_vec),
        }
    }
}
