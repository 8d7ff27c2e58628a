//! What commits of the metadata remember from one to the next.
//!
//! Invariants: one commit at a time, so that definitions reach the metadata in the order of the
//! log; the generation that a commit names as the first needed never falls.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Commits {
    /// Held while the metadata are changed.
    state: Mutex<CommitState>,
    /// The log generation that the next commit may name as the first needed.
    log_cut: AtomicU64,
}

/// As of the newest commit.
#[derive(Debug)]
pub(crate) struct CommitState {
    log_bytes_counted: u64,
    meta_bytes_counted: u64,
    log_generation: u64,
}

impl Commits {
    /// `log_generation` is the first one needed, as the metadata say it.
    pub(crate) fn new(log_generation: u64) -> Commits {
        Commits {
            state: Mutex::new(CommitState {
                log_bytes_counted: 0,
                meta_bytes_counted: 0,
                log_generation,
            }),
            log_cut: AtomicU64::new(log_generation),
        }
    }

    /// Makes this the only commit until the guard is dropped.
    pub(crate) fn begin(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }

    /// The first log generation needed, as the metadata say it.
    pub(crate) fn log_generation(&self) -> u64 {
        self.state.lock().log_generation
    }

    /// Generations before this one are not needed: the next commit may say so.
    pub(crate) fn offer_log_cut(&self, generation: u64) {
        self.log_cut.fetch_max(generation, Ordering::Relaxed);
    }

    pub(crate) fn log_cut(&self) -> u64 {
        self.log_cut.load(Ordering::Relaxed)
    }
}

impl CommitState {
    /// Bytes of the log that were not counted before, of all that were written since opening.
    pub(crate) fn uncounted_log_bytes(&self, all: u64) -> u64 {
        all - self.log_bytes_counted
    }

    /// As [`CommitState::uncounted_log_bytes`], and counts them.
    pub(crate) fn count_log_bytes(&mut self, all: u64) -> u64 {
        let new = self.uncounted_log_bytes(all);
        self.log_bytes_counted = all;
        new
    }

    /// Bytes of the metadata that were not counted before, of all that were written since opening.
    pub(crate) fn uncounted_meta_bytes(&self, all: u64) -> u64 {
        all - self.meta_bytes_counted
    }

    /// As [`CommitState::uncounted_meta_bytes`], and counts them.
    pub(crate) fn count_meta_bytes(&mut self, all: u64) -> u64 {
        let new = self.uncounted_meta_bytes(all);
        self.meta_bytes_counted = all;
        new
    }

    /// The metadata name this generation as the first needed.
    pub(crate) fn set_log_generation(&mut self, generation: u64) {
        self.log_generation = generation;
    }
}
