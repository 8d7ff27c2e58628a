//! Quotas of the memory that sessions retain between their statements: bytes of prepared statements
//! and of parameters, and cursors.
//!
//! Invariants: a session may always retain a little; all sessions together retain no more than
//! these allowances and a bound of the whole server. The end of a session releases its share.
//! Concurrency: one counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that a session may always retain, regardless of other sessions.
const FREE: usize = 256 << 10;
/// Bytes that a session may retain at most.
const SESSION_MAX: usize = 16 << 20;
/// Bytes that all sessions may retain in addition to the free allowances.
const ALL_MAX: usize = 128 << 20;
/// Cursors of all sessions whose rows are being computed.
const CURSORS_MAX: usize = 64;

/// Memory and cursors of all sessions.
#[derive(Debug)]
pub(super) struct Quota {
    bytes: AtomicUsize,
    cursors: Arc<Semaphore>,
}

impl Quota {
    pub(super) fn new() -> Arc<Quota> {
        Arc::new(Quota {
            bytes: AtomicUsize::new(0),
            cursors: Arc::new(Semaphore::new(CURSORS_MAX)),
        })
    }

    /// A slot for a cursor; `None` = the limit is reached.
    pub(super) fn cursor(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.cursors).try_acquire_owned().ok()
    }
}

/// Memory of one session.
#[derive(Debug)]
pub(super) struct SessionMemory {
    quota: Arc<Quota>,
    /// Bytes counted against the bound of the whole server.
    counted: usize,
}

impl SessionMemory {
    pub(super) fn new(quota: &Arc<Quota>) -> SessionMemory {
        SessionMemory {
            quota: Arc::clone(quota),
            counted: 0,
        }
    }

    /// Sets the bytes that the session retains, if the quota allows; otherwise the previous value
    /// remains.
    ///
    /// # Errors
    /// The quota that is used up.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), String> {
        if bytes > SESSION_MAX {
            return Err(format!(
                "prepared statements and parameters of this session take {bytes} bytes; at most {SESSION_MAX} are allowed: close some"
            ));
        }
        let wanted = bytes.saturating_sub(FREE);
        let more = wanted.saturating_sub(self.counted);
        let all = &self.quota.bytes;
        let added = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more)
                .filter(|sum| more == 0 || *sum <= ALL_MAX)
        });
        if added.is_err() {
            return Err(format!(
                "prepared statements and parameters of all sessions take all {ALL_MAX} bytes allowed: close some"
            ));
        }
        all.fetch_sub(self.counted.saturating_sub(wanted), Ordering::Relaxed);
        self.counted = wanted;
        Ok(())
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.quota.bytes.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn sessions_keep_what_is_free_and_share_what_is_not() {
        let quota = Quota::new();
        let mut hoards: Vec<SessionMemory> = (0..16).map(|_| SessionMemory::new(&quota)).collect();
        let granted = hoards
            .iter_mut()
            .filter_map(|share| share.set(SESSION_MAX).ok())
            .count();
        assert_eq!(granted, 8);
        assert!(hoards[0].set(SESSION_MAX + 1).is_err());
        let mut small = SessionMemory::new(&quota);
        assert_eq!(small.set(FREE), Ok(()));
        assert!(small.set(SESSION_MAX).is_err());
        hoards[0].set(0).unwrap();
        assert_eq!(small.set(SESSION_MAX), Ok(()));
        drop((hoards, small));
        assert_eq!(quota.bytes.load(Ordering::Relaxed), 0);
    }
}
