//! Ends of a range: its first and its last value, and its first and its last row.
//!
//! Invariant: each is the value or row that a scan of the range returns first or last (`ends`); the
//! newest value of all, the most frequent request, is known without a leaf (`last`). Failure:
//! `not_found` for an unknown stream or field, `corrupt` for damage that is met.

use super::ends::{self, End, RangeEnd};
use super::last;
use super::single::{ResolvedStream, SingleSnapshot};
use super::view::StreamView;
use crate::Result;
use headwater_types::{ClosedRange, FieldId, StreamName, Timestamp, Value};

/// The value of a field at one end of a range. Most requests are for the newest value of all, which
/// is known without a leaf.
fn end_of(
    view: &StreamView,
    field: FieldId,
    range: &ClosedRange,
    side: RangeEnd,
) -> Result<Option<End>> {
    let fields = [field];
    if side == RangeEnd::Last && view.now.is_none() && reaches_all_that_is_stored(view, range) {
        let newest = last::newest(view, &fields)?.pop().flatten();
        match newest {
            Some((time, _)) if time > range.last => {}
            newest => return Ok(newest.filter(|(time, _)| range.contains(*time))),
        }
    }
    Ok(ends::values(view, &fields, range, side)?.pop().flatten())
}

fn reaches_all_that_is_stored(view: &StreamView, range: &ClosedRange) -> bool {
    let behind = range.last.as_nanos().checked_add(1);
    behind.is_none_or(|behind| {
        let behind = ClosedRange::nanos(behind, i64::MAX);
        view.partitions_in(&behind).is_empty()
    })
}

impl SingleSnapshot {
    /// As `Snapshot::first_in`.
    pub(super) fn first_in(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        self.end_found(self.find(stream)?, field, range, RangeEnd::First)
    }

    /// As `Snapshot::last_in`.
    pub(super) fn last_in(
        &self,
        stream: &StreamName,
        field: &str,
        range: ClosedRange,
    ) -> Result<Option<(Timestamp, Value)>> {
        self.end_found(self.find(stream)?, field, range, RangeEnd::Last)
    }

    /// As `Snapshot::first_row_in`.
    pub(super) fn first_row_in(
        &self,
        stream: &StreamName,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        self.row_found(self.find(stream)?, range, RangeEnd::First)
    }

    /// As `Snapshot::last_row_in`.
    pub(super) fn last_row_in(
        &self,
        stream: &StreamName,
        range: ClosedRange,
    ) -> Result<Option<Timestamp>> {
        self.row_found(self.find(stream)?, range, RangeEnd::Last)
    }

    pub(super) fn end_found(
        &self,
        found: ResolvedStream<'_>,
        field: &str,
        range: ClosedRange,
        side: RangeEnd,
    ) -> Result<Option<(Timestamp, Value)>> {
        let view = self.view(found, &range)?;
        let field = Self::field(&view.table, field)?;
        end_of(&view, field, &range, side)
    }

    pub(super) fn row_found(
        &self,
        found: ResolvedStream<'_>,
        range: ClosedRange,
        side: RangeEnd,
    ) -> Result<Option<Timestamp>> {
        let view = self.view(found, &range)?;
        ends::row(&view, &range, side)
    }
}
