//! Number of changes of definitions, for programs that prepare something for each of them.
//!
//! Invariants: the number rises with each change; the new number is visible only after the change
//! is.

use super::Catalog;
use std::sync::atomic::Ordering;

impl Catalog {
    /// Number of definitions made, changed or dropped since opening: where it is the same, the
    /// definitions are.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets the number of definitions that were read again above that of the previous ones, which
    /// had so many changes.
    pub(crate) fn come_after(&self, changes: u64) {
        let mut state = self.writing();
        let own = &mut state.state.changes;
        *own = own.saturating_add(changes).saturating_add(1);
    }
}
