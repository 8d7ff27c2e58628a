//! Pauses between connections to a broker, and what is told of one that has ended.
//!
//! Invariants: after a link that was there the first pause is short; while there is none they grow.
//! The log hears once that the broker is away.
//! Concurrency: plain data, one owner.

use super::Notices;
use std::time::Duration;

/// The first pause after a lost connection, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// The next pause.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    is_told: bool,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            next: PAUSE,
            is_told: false,
        }
    }
}

impl Pauses {
    /// A connection has ended, or was not made; `connects` were counted before it. Says how long to
    /// wait before the next.
    pub(super) fn after(&mut self, notices: &Notices, connects: u64, why: &str) -> Duration {
        notices.heard.set_linked(false);
        notices.figures.connected.set(0);
        notices.figures.failures.inc();
        if notices.figures.connects.get() > connects {
            *self = Pauses::default();
        }
        if !self.is_told {
            self.is_told = true;
            tracing::warn!(
                why,
                "notices: the broker is away; nodes are waited at instead"
            );
        }
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}
