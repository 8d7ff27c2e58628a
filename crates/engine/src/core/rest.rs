//! Decides when an idle database is to rest.
//!
//! Invariants: a rest is due once for a stretch without writes, and only when much was written
//! since the last one: a client that occasionally writes a row does not cause a flush for each.
//! Concurrency: no other lock is taken under it.

use crate::common::ids::Sequence;
use parking_lot::Mutex;
use std::time::Duration;

/// Minimum growth of the log in bytes since the last rest, unless it grew by one of its files.
const WRITTEN_BYTES_MIN: u64 = 1 << 20;

/// Detects a stretch without writes.
#[derive(Debug)]
pub(crate) struct IdleDetector {
    /// Idle time before a rest; `None` = never.
    after: Option<Duration>,
    least: u64,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// The newest record, and the time since when it has been the newest.
    newest: Option<(Sequence, Duration)>,
    /// Bytes written to the log at the last rest; `None` before the first one.
    written: Option<u64>,
}

impl IdleDetector {
    pub(crate) fn new(after: Option<Duration>, log_file_bytes: u64) -> IdleDetector {
        IdleDetector {
            after,
            least: WRITTEN_BYTES_MIN.min(log_file_bytes),
            watched: Mutex::default(),
        }
    }

    /// True when there were no writes for long enough, and enough before. Called repeatedly, with
    /// the newest record, the bytes of the log on its medium and the bytes written to it since the
    /// opening.
    pub(crate) fn is_due(&self, newest: Sequence, log: (u64, u64), now: Duration) -> bool {
        let Some(after) = self.after else {
            return false;
        };
        let (on_medium, written) = log;
        let mut watched = self.watched.lock();
        match watched.newest {
            Some((sequence, since)) if sequence == newest => {
                let grown = match watched.written {
                    Some(before) => written.saturating_sub(before),
                    // Bytes of the previous run.
                    None => on_medium.max(written),
                };
                grown >= self.least && now.saturating_sub(since) >= after
            }
            _ => {
                watched.newest = Some((newest, now));
                false
            }
        }
    }

    /// Notes the start of a rest; if it fails, it is not retried for the same bytes.
    pub(crate) fn note(&self, written: u64) {
        self.watched.lock().written = Some(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_due_once_after_much_was_written_and_then_nothing() {
        let rest = IdleDetector::new(Some(at(30)), 8 * MIB);
        let due = |record, written, seconds| {
            rest.is_due(Sequence(record), (8 * MIB, written), at(seconds))
        };
        assert!(!due(1, 2 * MIB, 100));
        assert!(!due(1, 2 * MIB, 129));
        assert!(due(1, 2 * MIB, 130));
        rest.note(2 * MIB);
        assert!(!due(1, 2 * MIB, 500));
        // A little is not worth it, and it adds up.
        assert!(!due(2, 2 * MIB + 100, 501) && !due(2, 2 * MIB + 100, 900));
        assert!(!due(3, 3 * MIB, 901) && due(3, 3 * MIB, 931));
    }

    #[test]
    fn files_of_the_run_before_are_looked_at_once_and_none_means_never() {
        let rest = IdleDetector::new(Some(at(30)), 8 * MIB);
        assert!(!rest.is_due(Sequence(7), (8 * MIB, 0), at(0)));
        assert!(rest.is_due(Sequence(7), (8 * MIB, 0), at(30)));
        rest.note(0);
        assert!(!rest.is_due(Sequence(7), (8 * MIB, 0), at(90)));
        let never = IdleDetector::new(None, 8 * MIB);
        assert!(!never.is_due(Sequence(7), (8 * MIB, MIB), at(0)));
        assert!(!never.is_due(Sequence(7), (8 * MIB, MIB), at(900)));
    }
}
