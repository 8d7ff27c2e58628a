//! The units of unsynced changes, numbered over all files in the order in which they were written.
//!
//! Invariants: a change is counted once, however many names its file has. Concurrency: a plain
//! value. Failure: none.

use std::collections::BTreeMap;

/// Number of units of each change, by the number of the change.
#[derive(Debug, Default)]
pub(super) struct Units(BTreeMap<u64, usize>);

impl Units {
    /// Adds a change.
    pub(super) fn add(&mut self, change: u64, units: usize) {
        self.0.insert(change, units);
    }

    /// All units.
    pub(super) fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// The number of a change's first unit.
    pub(super) fn first_of(&self, change: u64) -> usize {
        self.0.range(..change).map(|(_, units)| units).sum()
    }
}
