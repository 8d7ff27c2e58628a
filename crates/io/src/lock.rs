//! The exclusive lock that keeps two owners out of one database directory.
//!
//! Invariants: at most one [`Lock`] value exists per lock file, over all processes of the machine.
//! Concurrency: taking a lock never waits; dropping it may happen on any thread.
//! Failure: a lock that could not be taken has no effect on its present owner.

use std::fmt;
use std::io;

/// A held lock; dropping it, or the death of the process, releases it.
pub trait Lock: Send + Sync + fmt::Debug {
    /// True when the path it was taken by still names the file that is locked. A lock belongs to
    /// the file: once the name was removed, or stands for another file, somebody else may hold a
    /// lock of the same name.
    ///
    /// # Errors
    /// Whatever the medium reports; a missing name is `Ok(false)`.
    fn is_current(&self) -> io::Result<bool>;
}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner holds it.
    #[error("the lock is held by {owner_text:?}")]
    Held {
        /// Text that the owner wrote about itself when it took the lock.
        owner_text: String,
    },
    /// This process holds it.
    #[error("the lock is held by this process, as {owner_text:?}")]
    HeldHere {
        /// Text that the owner wrote about itself when it took the lock.
        owner_text: String,
    },
    /// The lock file could not be opened, locked or written.
    #[error("the lock file cannot be used")]
    Io(#[from] io::Error),
}
