//! What every part of an open database shares.
//!
//! Lock order (`producers` stands before the log's state): `compacting`, then a shard's `stepping`,
//! then `commit` or `pin_files`, then `door`, then the catalog, then a shard's `state`, then the
//! log's state. `compacting`, `stepping`, `commit` and `pin_files` are held over I/O, but only
//! steps take them; the catalog's lock is held over look-ups in the metadata while streams are
//! defined; no other lock is held over I/O.

use crate::catalog::Catalog;
use crate::clock::ClockGuard;
use crate::counters::Counters;
use crate::guard::Guard;
use crate::ids::{SegmentId, Sequence, ShardIndex, TableId};
use crate::log::Log;
use crate::meta::Meta;
use crate::pins::PinFiles;
use crate::producers::Producers;
use crate::reserve::Reserve;
use crate::segment::Store;
use crate::shard::Shard;
use crate::{Options, Result};
use headwater_io::{Env, Lock};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) catalog: Catalog,
    pub(crate) meta: Arc<Meta>,
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) shards: Vec<Shard>,
    pub(crate) counters: Counters,
    /// Space for a full disk, if it is set.
    pub(crate) reserve: Option<Arc<Reserve>>,
    /// Who numbers batches.
    pub(crate) producers: Producers,
    /// Bytes of events in memory, over all shards, without what is pinned.
    pub(crate) memory_bytes: AtomicUsize,
    pub(crate) next_segment: AtomicU64,
    /// Streams with this number or a higher one were defined since opening: nothing of them was stored before.
    pub(crate) first_new_stream: u32,
    /// The log generation that the next commit may name as the first needed.
    pub(crate) log_cut: AtomicU64,
    /// Serializes commits, so that definitions reach the metadata in the order of the log.
    pub(crate) commit: Mutex<CommitState>,
    pub(crate) work: Work,
    /// Who decides on the policy for late data; held for no other lock.
    pub(crate) late_choice: Mutex<crate::late::PolicyChoice>,
    pub(crate) clock_guard: ClockGuard,
    /// A day since 1970 UTC, and bytes written for compaction on it.
    pub(crate) compacted: Mutex<(u64, u64)>,
    /// Held while partitions are rewritten: they take no groups meanwhile, so a flush of everything waits for it.
    pub(crate) compacting: Mutex<()>,
    /// Held for reading while a write is checked against what has ended and gets its number; held for writing while
    /// something is ended. So no row is accepted for what is gone.
    pub(crate) door: RwLock<()>,
    /// Rises when a delete has been put before every shard, and before its record is published.
    pub(crate) deletes: AtomicU64,
    /// Where pinned memory goes when it is much; held while it goes there, and for no other lock but
    /// a shard's `state`.
    pub(crate) pin_files: Mutex<PinFiles>,
    /// What must hold for files to be changed.
    pub(crate) guard: Arc<Guard>,
    /// Nothing of some partition can be read.
    pub(crate) any_unreadable: AtomicBool,
    /// Bytes of the log when events were last stored for its sake, while it is kept for unreadable
    /// partitions.
    pub(crate) log_stored: AtomicU64,
    /// Partitions that a rewriting did not change, with the footer they had then.
    pub(crate) settled: Mutex<HashMap<SegmentId, u64>>,
    /// Nothing is compacted in the background before this moment of the monotonic clock: there was
    /// no space for it.
    pub(crate) compact_from: Mutex<Duration>,
    /// Partitions that are due for aging while rows for them are in memory, and since when (monotonic time).
    pub(crate) filling: Mutex<HashMap<(TableId, SegmentId), Duration>>,
    /// Partitions with damage, which a rewrite would lose.
    pub(crate) uncompactable: Mutex<HashSet<SegmentId>>,
    pub(crate) _lock: Option<Box<dyn Lock>>,
}

/// What commits remember.
#[derive(Debug, Default)]
pub(crate) struct CommitState {
    pub(crate) log_bytes_counted: u64,
    pub(crate) meta_bytes_counted: u64,
    /// The first log generation needed, as the metadata says it.
    pub(crate) log_generation: u64,
}

/// Signals between writers and workers.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) lock: Mutex<()>,
    /// A worker may have something to do.
    pub(crate) wanted: Condvar,
    /// Memory was freed.
    pub(crate) freed: Condvar,
    /// Why the last step failed, for writers that wait for memory.
    pub(crate) step_error: Mutex<Option<crate::Error>>,
    pub(crate) stop: AtomicBool,
    /// There are worker threads; otherwise writers do the work.
    pub(crate) threads: AtomicBool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("dir", &self.options.dir)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// The shard a stream belongs to, by its key bytes. Fixed for the life of the database.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardIndex {
        shard_number(key, self.shards.len())
    }

    pub(crate) fn shard(&self, index: ShardIndex) -> Result<&Shard> {
        self.shards.get(usize::from(index.0)).ok_or_else(|| {
            crate::Error::internal(format!("shard {} of {}", index.0, self.shards.len()))
        })
    }

    /// Fails with `full` while the disk is full and the reserve given up.
    pub(crate) fn check_space(&self) -> Result<()> {
        self.reserve.as_ref().map_or(Ok(()), |r| r.check())
    }

    /// Adds to the bytes of memory in use.
    pub(crate) fn memory_changed(&self, change: isize) {
        if change >= 0 {
            self.memory_bytes
                .fetch_add(change.unsigned_abs(), Ordering::Relaxed);
        } else {
            self.memory_bytes
                .fetch_sub(change.unsigned_abs(), Ordering::Relaxed);
            let _held = self.work.lock.lock();
            self.work.freed.notify_all();
        }
    }

    /// Bytes of events at which workers begin to flush: half of the budget. The rest is for caches and for flushes.
    pub(crate) fn flush_bytes(&self) -> usize {
        self.options.memory_budget_bytes / 2
    }

    /// The oldest sequence that replay would still need, given what memory holds now.
    pub(crate) fn first_needed(&self) -> Sequence {
        let published = self.log.published();
        let in_memory = self
            .shards
            .iter()
            .filter_map(|s| s.state.lock().first_sequence())
            .min();
        let deletes = self
            .shards
            .iter()
            .filter_map(|s| s.state.lock().tombstones.first().map(|t| t.sequence))
            .min();
        let parked = self
            .shards
            .iter()
            .filter_map(|s| s.state.lock().parked.first)
            .min();
        let defined = self.catalog.first_pending();
        let numbered = self.producers.first_unsaved();
        let mut needed = Sequence(published.0 + 1);
        for sequence in [in_memory, parked, deletes, defined, numbered]
            .into_iter()
            .flatten()
        {
            needed = needed.min(sequence);
        }
        needed
    }
}

/// The shard of a stream in a database of so many shards.
pub(crate) fn shard_number(key: &[u8], shards: usize) -> ShardIndex {
    ShardIndex((key_hash(key) % shards.max(1) as u64) as u16)
}

/// FNV-1a with a final mix: the same on every machine and in every version.
fn key_hash(key: &[u8]) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            let mut x = self.0;
            x ^= x >> 33;
            x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
            x ^ (x >> 33)
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_shard_hash_never_changes() {
        assert_eq!(super::key_hash(b""), 17058014651485797458);
        assert_eq!(
            super::key_hash(b"\0\0\0\0\x07station\x03EWR"),
            598710967963814304
        );
    }
}
