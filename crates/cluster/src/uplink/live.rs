//! Newest events of an edge, sent before a flush stores them, and the times of sending them, from
//! which the cloud knows how late they are.
//!
//! Invariants, concurrency and failure: as in the uplink.

use super::Uplink;
use crate::error::{ClusterError, ClusterErrorKind};
use crate::frame::Note;
use headwater_protocol::replication::Message;
use std::time::Duration;

/// Interval of reports about times.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Milliseconds of a time.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Uplink {
    /// Time until there may be newest events to send; `None` = the cloud does not wait for them.
    pub(super) fn live_wait(&self) -> Option<Duration> {
        if self.settings.live.is_none() || self.origin.is_relayed() {
            return None;
        }
        let due = self.agent.lock().live_due()?;
        Some(due.saturating_sub(self.env.clock.monotonic()))
    }

    /// The newest events, if the cloud waits for them, and the report of their times.
    pub(super) fn live(&self) -> Result<Option<(Message, Option<Note>)>, ClusterError> {
        if self.settings.live.is_none() || self.origin.is_relayed() {
            return Ok(None);
        }
        let (mut agent, now) = (self.agent.lock(), self.now());
        let found = self.origin.with(&mut |source| agent.live(source, now))?;
        let kept = self.keep_ahead(&mut agent);
        kept.map_err(|text| ClusterError::new(ClusterErrorKind::Io, text))?;
        let report = agent.live_times().map(|times| Note::Live {
            sent_ns: self.env.clock.now().as_nanos(),
            held_ms: millis(times.held),
            waited_ms: times.waited.map(millis),
        });
        Ok(found.map(|found| (found, report)))
    }
}
