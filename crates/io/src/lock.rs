//! The exclusive lock that keeps two owners out of one database directory.
//!
//! Invariants: at most one [`Lock`] value exists per lock file, over all processes of the machine.
//! Concurrency: taking a lock never waits; dropping it may happen on any thread.
//! Failure: a lock that could not be taken has no effect on its present owner.

use std::fmt;
use std::io;

/// A held lock; dropping it, or the death of the process, releases it.
pub trait Lock: Send + Sync + fmt::Debug {}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds it.
    #[error("the lock is held by {owner_text:?}")]
    Held {
        /// What the owner wrote about itself when it took the lock.
        owner_text: String,
    },
    /// The lock file could not be opened, locked or written.
    #[error("the lock file cannot be used")]
    Io(#[from] io::Error),
}
