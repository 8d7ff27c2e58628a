//! Requests to read streams: conditions on fields, ranges of streams, and directions of time.

use headwater::{ClosedRange, Filter, Snapshot};
use std::sync::Arc;

/// Conditions on the fields of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldConditions {
    /// Every one of these is true.
    pub(super) filters: Vec<Filter>,
    /// At least one of each list is true.
    pub(super) any_of: Vec<Vec<Filter>>,
}

impl FieldConditions {
    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.any_of.is_empty()
    }

    /// The conditions as text, for `EXPLAIN`.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let filters = self.filters.iter().map(crate::text::filter);
        filters.chain(self.any_of.iter().map(|list| {
            let list: Vec<String> = list.iter().map(crate::text::filter).collect();
            match &*list {
                [] => "false".to_owned(),
                list => format!("({})", list.join(" OR ")),
            }
        }))
    }

    /// Names of the indexes that can answer some of the conditions.
    pub(super) fn indexes(
        &self,
        snapshot: &Snapshot,
        table: &str,
    ) -> headwater::Result<Arc<[String]>> {
        if self.is_empty() {
            return Ok(Arc::default());
        }
        let found = snapshot.usable_indexes(table, &self.filters, &self.any_of)?;
        Ok(found.into())
    }
}

/// A range of time of a stream, by the number of the stream among the streams to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamRange {
    pub(super) stream: u32,
    pub(super) range: ClosedRange,
}

/// A direction of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Backwards,
}
