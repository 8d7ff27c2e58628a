//! How often definitions have changed, for those who prepare something for each of them.
//!
//! Invariants: the number rises with each change; it is told once the change can be seen.

use super::Catalog;
use std::sync::atomic::Ordering;

impl Catalog {
    /// How often a definition was made, changed or dropped since opening: where it is the same, the
    /// definitions are.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Makes definitions that were read anew others than those that were known before, of which
    /// there were so many changes.
    pub(crate) fn come_after(&self, changes: u64) {
        let mut state = self.writing();
        let own = &mut state.state.changes;
        *own = own.saturating_add(changes).saturating_add(1);
    }
}
