//! Consequences of unreadable partitions for the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct UnreadablePartitions {
    any: AtomicBool,
    /// Bytes of the log when events were last stored to shorten it, while it is kept for unreadable
    /// partitions.
    log_stored: AtomicU64,
}

impl UnreadablePartitions {
    pub(crate) fn new(any: bool) -> UnreadablePartitions {
        UnreadablePartitions {
            any: AtomicBool::new(any),
            log_stored: AtomicU64::new(0),
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn note_one(&self) {
        self.any.store(true, Ordering::Release);
    }

    /// True when a log of this many bytes is longer than it should be, so that events are stored to
    /// shorten it. While the log is kept for partitions that cannot be read, which flushes do not
    /// change, only the bytes since the last such flush count.
    pub(crate) fn is_log_too_long(&self, live_bytes: u64, bytes_max: u64) -> bool {
        if !self.any() {
            return live_bytes > bytes_max;
        }
        let stored = self.log_stored.load(Ordering::Relaxed).min(live_bytes);
        let is_longer = live_bytes - stored > bytes_max;
        if is_longer {
            self.log_stored.store(live_bytes, Ordering::Relaxed);
        }
        is_longer
    }
}
