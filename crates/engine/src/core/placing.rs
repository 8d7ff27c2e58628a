//! Locations of the parts of an open database, which can change while it is open.
//!
//! Invariants: all locations are replaced at once; a reader keeps the version it took. Writes that
//! wait at the entrance have no number yet. Concurrency: one change at a time, whose lock is taken
//! before all others but the entrance; no writer is in the entrance while its write is
//! acknowledged. Failure: none of its own.

use crate::device::reserve::Reserve;
use crate::device::tiers::OwnedTier;
use crate::wal::mirror::Mirror;
use headwater_io::{Env, Files};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;

/// Locations of parts.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// The environment that resolves the locations of the log and the buffers.
    pub(crate) env: Env,
    /// The fast tier, if there is one.
    pub(crate) tier: Option<Arc<OwnedTier>>,
    /// Reserves of space for a full disk, on every medium, if so configured.
    pub(crate) reserves: Vec<Arc<Reserve>>,
    /// The copy in bulk of a log in the fast tier, if configured.
    pub(crate) mirror: Option<Arc<Mirror>>,
}

impl Placed {
    /// True when the log is in a fast tier.
    pub(crate) fn is_log_fast(&self) -> bool {
        self.tier.as_ref().is_some_and(|owned| owned.tier.parts.log)
    }
}

/// Present locations of the parts of an open database.
#[derive(Debug)]
pub(crate) struct Placing {
    now: RwLock<Arc<Placed>>,
    changing: Mutex<()>,
    entrance: RwLock<()>,
    /// The files of tiers, neither guarded nor with a reserve.
    fast_files: Arc<dyn Files>,
}

impl Placing {
    pub(crate) fn new(placed: Placed, fast_files: Arc<dyn Files>) -> Placing {
        Placing {
            now: RwLock::new(Arc::new(placed)),
            changing: Mutex::default(),
            entrance: RwLock::default(),
            fast_files,
        }
    }

    pub(crate) fn now(&self) -> Arc<Placed> {
        Arc::clone(&self.now.read())
    }

    pub(crate) fn set(&self, placed: Placed) {
        *self.now.write() = Arc::new(placed);
    }

    /// Makes this the only change until the guard is dropped.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Enters, for a batch that is being written.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.entrance.read()
    }

    /// Blocks batches until this is dropped.
    pub(crate) fn hold_back(&self) -> RwLockWriteGuard<'_, ()> {
        self.entrance.write()
    }

    pub(crate) fn fast_files(&self) -> &Arc<dyn Files> {
        &self.fast_files
    }
}
