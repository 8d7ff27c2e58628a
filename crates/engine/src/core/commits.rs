//! State that commits of the metadata pass from one to the next.
//!
//! Invariants: one commit at a time, so that definitions reach the metadata in the order of the
//! log; the generation that a commit names as the first needed never decreases. Concurrency:
//! readers of the numbers never wait for a commit.

use crate::common::counters::Counters;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Commits {
    /// Locked while the metadata are changed.
    alone: Mutex<()>,
    counted: Mutex<CountedBytes>,
    /// The first needed log generation in the metadata.
    log_generation: AtomicU64,
    /// The log generation that the next commit may name as the first needed.
    log_cut: AtomicU64,
}

/// Bytes written since opening that are already in the counters.
#[derive(Debug, Default)]
struct CountedBytes {
    log: u64,
    meta: u64,
}

impl Commits {
    /// `log_generation` is the first needed one in the metadata.
    pub(crate) fn new(log_generation: u64) -> Commits {
        Commits {
            alone: Mutex::new(()),
            counted: Mutex::default(),
            log_generation: AtomicU64::new(log_generation),
            log_cut: AtomicU64::new(log_generation),
        }
    }

    /// Makes this the only commit until the guard is dropped.
    pub(crate) fn begin(&self) -> MutexGuard<'_, ()> {
        self.alone.lock()
    }

    /// The first needed log generation in the metadata.
    pub(crate) fn log_generation(&self) -> u64 {
        self.log_generation.load(Ordering::Acquire)
    }

    /// Records that the metadata name this generation as the first needed.
    pub(crate) fn set_log_generation(&self, generation: u64) {
        self.log_generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// Reports that generations before this one are not needed: the next commit may record this.
    pub(crate) fn offer_log_cut(&self, generation: u64) {
        self.log_cut.fetch_max(generation, Ordering::Relaxed);
    }

    pub(crate) fn log_cut(&self) -> u64 {
        self.log_cut.load(Ordering::Relaxed)
    }

    /// Counts the bytes written to the log, given the total since opening.
    pub(crate) fn count_log_bytes(&self, counters: &Counters, all: u64) {
        let mut counted = self.counted.lock();
        counters.bytes(all.saturating_sub(counted.log), 0, 0, 0);
        counted.log = counted.log.max(all);
    }

    /// Counts the bytes written to the metadata, given the total since opening.
    pub(crate) fn count_meta_bytes(&self, counters: &Counters, all: u64) {
        let mut counted = self.counted.lock();
        counters.bytes(0, 0, 0, all.saturating_sub(counted.meta));
        counted.meta = counted.meta.max(all);
    }

    /// Bytes ever written to the log and to the metadata; `log` and `meta` are the bytes since
    /// opening.
    pub(crate) fn bytes_ever(&self, counters: &Counters, log: u64, meta: u64) -> (u64, u64) {
        let counted = self.counted.lock();
        (
            counters.bytes_log() + log.saturating_sub(counted.log),
            counters.bytes_meta() + meta.saturating_sub(counted.meta),
        )
    }
}
