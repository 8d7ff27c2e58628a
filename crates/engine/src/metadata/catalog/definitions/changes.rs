//! Number of changes of definitions, for programs that cache data derived from definitions.
//!
//! Invariants: the number increases with each change; the new number is visible only after the
//! change is.

use super::Catalog;
use std::sync::atomic::Ordering;

impl Catalog {
    /// Number of definitions made, changed or dropped since opening: equal numbers mean equal
    /// definitions.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets the number of changes of newly loaded definitions above `changes`, the number of the
    /// previous ones.
    pub(crate) fn come_after(&self, changes: u64) {
        let mut state = self.writing();
        let own = &mut state.state.changes;
        *own = own.saturating_add(changes).saturating_add(1);
    }
}
