//! Counts the rows that filters read in vain, and the rows that indexes spare, for tables that
//! create indexes automatically.
//!
//! Invariants: counting changes no answer. Concurrency: a scan has its own counts and reports them
//! when it ends.

use super::filter::{Clause, Condition};
use super::indexed::Usable;
use super::view::StreamView;
use crate::common::ids::TableId;
use crate::core::Core;
use headwater_types::FieldId;
use std::fmt;
use std::sync::Arc;

/// Number of rows that a scan reads of a table, and of rows that match, where an index over a field
/// could have served the scan.
pub(super) struct Counting {
    core: Arc<Core>,
    key: (TableId, FieldId),
    rows: u64,
    found: u64,
}

impl Counting {
    /// `None` where indexes are not chosen by use, where no index could serve the scan, or where an
    /// existing index may.
    pub(super) fn of(
        view: &StreamView,
        conditions: &[Clause],
        usable: &[Usable],
    ) -> Option<Counting> {
        let indexes = &view.core.indexes;
        if conditions.is_empty() || !usable.is_empty() || !indexes.counts(view.table.id) {
            return None;
        }
        let single = conditions.iter().filter_map(Clause::single);
        let mut ends = single.filter_map(|condition| Some((condition, condition.bounds()?)));
        let first = ends.next()?;
        // An index over the field of an equality narrows the most.
        let (condition, _): (&Condition, _) = match first.1.is_equal {
            true => first,
            false => ends.find(|(_, bounds)| bounds.is_equal).unwrap_or(first),
        };
        Some(Counting {
            key: (view.table.id, condition.field),
            core: Arc::clone(&view.core),
            rows: 0,
            found: 0,
        })
    }

    pub(super) fn record(&mut self, rows: usize, found: usize) {
        self.rows += headwater_types::invariant::wide(rows);
        self.found += headwater_types::invariant::wide(found);
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting")
            .field("place", &self.key)
            .finish_non_exhaustive()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let now = self.core.env.clock.monotonic();
        let mut demand = self.core.indexes.demand();
        demand.read(self.key, self.rows, self.found, now);
    }
}

/// Records that indexes whose first fields are these have spared a scan this number of rows.
pub(super) fn spared(view: &StreamView, fields: &[FieldId], rows: u64) {
    let now = view.core.env.clock.monotonic();
    let mut demand = view.core.indexes.demand();
    for field in fields {
        demand.spared((view.table.id, *field), rows, now);
    }
}
