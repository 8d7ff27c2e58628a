//! The budget of the link to the cloud (`uplink/spending`), for the connections of a bus over the
//! same link.
//!
//! Invariants: what is counted here is charged like the bytes of the uplink, within 100 ms. While
//! the budget pauses, no other connection is open. Concurrency: cheap calls from any thread.
//! Failure: bytes of the 100 ms before a kill are not charged.

use crate::socket_bytes::SocketBytes;
use crate::uplink::Uplink;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval of checks for pauses.
const LOOK: Duration = Duration::from_millis(100);

/// The budget of an uplink.
#[derive(Clone, Debug)]
pub struct BusBudget(Arc<Uplink>);

impl BusBudget {
    /// The budget of this uplink.
    #[must_use]
    pub fn of(uplink: &Arc<Uplink>) -> BusBudget {
        BusBudget(Arc::clone(uplink))
    }

    /// Counters of sockets, which are charged to the budget.
    pub(crate) fn bytes(&self) -> &Arc<SocketBytes> {
        self.0.charged_bytes()
    }

    /// Waits until a pause begins.
    pub(crate) async fn until_paused(&self) {
        while !self.0.is_paused() {
            sleep(LOOK).await;
        }
    }

    /// Waits until no pause is in effect.
    pub(crate) async fn until_open(&self) {
        while self.0.is_paused() {
            sleep(LOOK).await;
        }
    }
}
