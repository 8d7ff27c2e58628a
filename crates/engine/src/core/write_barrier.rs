//! The barrier between writers and deletes, drops and retention.
//!
//! Invariants: a row is never accepted for data that has ended. A writer is inside the barrier from
//! its last look at the definitions until its record has its number and is in memory; a delete, a
//! drop or a retention closes it meanwhile.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct WriteBarrier {
    lock: RwLock<()>,
    /// Increases when a delete has been added to every shard, before its record is published.
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

    /// The number of deletes since opening. If it is the same before and after reading the shards,
    /// there was no delete in between.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes.load(Ordering::Acquire)
    }

    /// Counts a delete that was added to every shard.
    pub(crate) fn note_delete(&self) {
        self.deletes.fetch_add(1, Ordering::Release);
    }
}
