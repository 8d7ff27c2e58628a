//! Pauses between connections to a broker, and log lines about lost connections.
//!
//! Invariants: after an established link the first pause is short; without a link pauses grow. An
//! unreachable broker is logged once. Concurrency: plain data, one owner.

use super::Notices;
use std::time::Duration;

/// The first pause after a lost connection, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Backoff between connections.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    is_reported: bool,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            next: PAUSE,
            is_reported: false,
        }
    }
}

impl Pauses {
    /// Handles a connection that was ended for a pause of the budget of the link.
    pub(super) fn begin_pause(&mut self, notices: &Notices) {
        notices.received.set_linked(false);
        notices.metrics.connected.set(0);
        *self = Pauses::default();
        tracing::info!("notices: no connection while the budget of the link to the cloud pauses");
    }

    /// Handles a connection that has ended, or failed; `connects` were counted before it. Returns
    /// the pause before the next.
    pub(super) fn after(&mut self, notices: &Notices, connects: u64, why: &str) -> Duration {
        notices.received.set_linked(false);
        notices.metrics.connected.set(0);
        notices.metrics.failures.inc();
        if notices.metrics.connects.get() > connects {
            *self = Pauses::default();
        }
        if !self.is_reported {
            self.is_reported = true;
            tracing::warn!(
                why,
                "notices: the broker is not reachable; nodes are polled instead"
            );
        }
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}
