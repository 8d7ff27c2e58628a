//! The barrier between writers and deletes, drops and retention.
//!
//! Invariants: no row is accepted for data that has ended. A writer is inside the barrier from its
//! last look at the definitions until its record has its number and is in memory; a delete, a drop
//! or a retention closes it meanwhile.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct WriteBarrier {
    lock: RwLock<()>,
    /// Rises when a delete has been put before every shard, and before its record is published.
    deletes: AtomicU64,
}

impl WriteBarrier {
    /// Enters, as a writer.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read()
    }

    /// Closes the barrier to writers while data is ended.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write()
    }

    /// The number of deletes since opening. Where it is the same before and after a look at the
    /// shards, no delete came in between.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes.load(Ordering::Acquire)
    }

    /// One more delete stands before every shard.
    pub(crate) fn note_delete(&self) {
        self.deletes.fetch_add(1, Ordering::Release);
    }
}
