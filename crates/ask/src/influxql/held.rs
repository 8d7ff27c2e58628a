//! Rows that are not stored, but were answered by another question.
//!
//! Invariants: they rise by time; an interval that began before what was asked for belongs to its
//! beginning.

use super::field::ReadField;
use headwater::{ClosedRange, Column, ScanChunk};

/// Rows that are not stored: what another question answered, by time.
#[derive(Debug)]
pub(super) struct HeldRows {
    pub(super) names: Vec<String>,
    pub(super) rows: ScanChunk,
    /// The beginning of what was asked for.
    pub(super) since: i64,
}

impl HeldRows {
    /// The rows of a range, with the columns that are read.
    pub(super) fn of(&self, read: &[ReadField], range: ClosedRange) -> ScanChunk {
        let times = &self.rows.times;
        let at = |time: &i64| (*time).max(self.since);
        let first = times.partition_point(|time| at(time) < range.first.as_nanos());
        let last = times.partition_point(|time| at(time) <= range.last.as_nanos());
        let rows = first..last.max(first);
        let column = |field: &ReadField| {
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
