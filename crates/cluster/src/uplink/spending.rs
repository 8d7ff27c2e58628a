//! The budget of an uplink: bytes charged as the sockets count them, its pauses, and the spending
//! that restarts must not forget.
//!
//! Invariants: spending is persisted before what it is for is sent; bytes of other connections over
//! the link are charged within 100 ms. Concurrency: the agent's lock for each call. Failure: what
//! cannot be persisted is not sent.

use super::{LOOK, Uplink, spent_path};
use crate::private;
use crate::socket_bytes::SocketBytes;
use crate::status::UplinkState;
use crate::waiting::blocking;
use headwater_protocol::replication::{Agent, Pause, Spent};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval of charging the bytes of other connections.
const CHARGE: Duration = Duration::from_millis(100);
/// Time before quiet hours at which the connection is closed.
const QUIET_AHEAD: Duration = Duration::from_secs(5);

impl Uplink {
    /// Charges the bytes of the sockets since the last call, in place of what was granted, but for
    /// `unsent` bytes that wait to be sent.
    pub(super) fn settle(&self, unsent: u64) -> Result<(), String> {
        let mut agent = self.agent.lock();
        let bytes = {
            let mut charged = self.charged.lock();
            let total = self.bytes.total();
            total.saturating_sub(std::mem::replace(&mut *charged, total))
        };
        agent.settle(self.now(), bytes, unsent);
        self.keep_ahead(&mut agent)
    }

    /// The pause of the budget that has begun, or begins soon.
    pub(super) fn pause_now(&self) -> Option<Pause> {
        self.agent.lock().pause(self.now(), QUIET_AHEAD)
    }

    /// Counters of sockets that are charged to the budget.
    pub(crate) fn charged_bytes(&self) -> &Arc<SocketBytes> {
        &self.bytes
    }

    /// True in a pause of the budget, and shortly before it.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause_now().is_some()
    }

    /// Charges what other connections over the link have sent and received, for ever.
    pub(super) async fn charge_others(self: &Arc<Self>) {
        let mut is_reported = false;
        loop {
            sleep(CHARGE).await;
            if self.is_connected() || self.bytes.total() == *self.charged.lock() {
                continue;
            }
            let uplink = Arc::clone(self);
            let settled = blocking(move || uplink.settle(0)).await;
            let settled = settled
                .map_err(|e| e.to_string())
                .and_then(|settled| settled);
            if let Err(error) = settled
                && !std::mem::replace(&mut is_reported, true)
            {
                tracing::warn!(why = %error, "sync: bytes of the bus are not charged to the budget");
            }
        }
    }

    /// True in a pause of the budget, which the status then has.
    pub(super) fn rests(&self) -> bool {
        let pause = self.pause_now();
        if let Some(pause) = pause {
            self.set_state(UplinkState::Quiet, None);
            self.link.lock().quiet = Some(pause);
        }
        pause.is_some()
    }

    /// Waits until a pause of the budget begins, so that the status has it before the next try to
    /// connect; for ever in a pause.
    pub(super) async fn until_pause_begins(&self) {
        while self.link.lock().state == UplinkState::Quiet || !self.is_paused() {
            sleep(LOOK).await;
        }
    }

    /// Persists the bytes that may be sent next as sent.
    pub(super) fn keep_ahead(&self, agent: &mut Agent) -> Result<(), String> {
        if let Some(spent) = agent.to_keep() {
            let kept = private::replace_bytes(&spent_path(&self.dir), &spent.encode());
            kept.map_err(|e| e.to_string())?;
            agent.set_persisted(spent);
        }
        Ok(())
    }

    /// Sending has ended: the spending counted ahead is credited.
    pub(super) fn keep_exactly(&self) -> Result<(), String> {
        let mut agent = self.agent.lock();
        let spent = agent.spent();
        if spent == Spent::default() {
            return Ok(());
        }
        let kept = private::replace_bytes(&spent_path(&self.dir), &spent.encode());
        kept.map_err(|e| e.to_string())?;
        agent.set_persisted(spent);
        Ok(())
    }
}
