//! The exclusive lock that prevents two owners of one database directory.
//!
//! Invariants: at most one [`Lock`] value exists per lock file, over all processes of the machine.
//! Concurrency: acquiring a lock never waits; dropping it may happen on any thread. Failure: a
//! failed acquisition has no effect on the present owner.

use std::fmt;
use std::io;

/// An acquired lock; dropping it, or the end of the process, releases it.
pub trait Lock: Send + Sync + fmt::Debug {
    /// Whether the path with which it was acquired still names the locked file. A lock belongs to
    /// the file: once the name was removed, or refers to another file, another process may hold a
    /// lock of the same name.
    ///
    /// # Errors
    /// Errors of the medium; a missing name is `Ok(false)`.
    fn is_current(&self) -> io::Result<bool>;
}

/// Reason why a lock could not be acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner holds the lock.
    #[error("the lock is held by {owner_text:?}")]
    Held {
        /// Text that the owner wrote about itself when it acquired the lock.
        owner_text: String,
    },
    /// This process holds the lock.
    #[error("the lock is held by this process, as {owner_text:?}")]
    HeldHere {
        /// Text that the owner wrote about itself when it acquired the lock.
        owner_text: String,
    },
    /// The lock file could not be opened, locked or written.
    #[error("the lock file cannot be used")]
    Io(#[from] io::Error),
}
