//! Memory of events, and its limit.
//!
//! Invariants: the thread that changes the contents of memory records the change here; events that
//! only older snapshots see do not count.

use crate::Options;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct MemoryUse {
    /// Bytes of events, over all shards, of definitions that are not in the metadata yet, and of
    /// running jobs.
    bytes: AtomicUsize,
    budget_bytes: usize,
}

impl MemoryUse {
    pub(crate) fn new(options: &Options, bytes: usize) -> MemoryUse {
        MemoryUse {
            bytes: AtomicUsize::new(bytes),
            budget_bytes: options.memory_budget_bytes,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes at which workers begin to flush: half of the budget. The rest is for caches and for
    /// flushes.
    pub(crate) fn flush_bytes(&self) -> usize {
        self.budget_bytes / 2
    }

    /// True when workers must flush.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.bytes() >= self.flush_bytes()
    }

    /// True while a writer may add to it.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() < self.flush_bytes() + self.flush_bytes() / 2
    }

    /// Adds to, or subtracts from, the bytes in use.
    pub(super) fn change(&self, change: isize) {
        if change >= 0 {
            self.bytes
                .fetch_add(change.unsigned_abs(), Ordering::Relaxed);
        } else {
            self.bytes
                .fetch_sub(change.unsigned_abs(), Ordering::Relaxed);
        }
    }
}
