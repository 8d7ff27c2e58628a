//! Requests for the newest events of a source, before a flush stores them.
//!
//! One request suffices: the source delays the answer until there are new events, and the copy then
//! requests the events after the answer. So no messages are sent while no rows are written, and at
//! most one answer is in flight.
//!
//! Invariant: a copy that receives another range of events than it requested replaces its own with
//! it. Concurrency: plain data, one owner. Failure: a lost request or answer is requested again;
//! bytes that are not a tail are ignored, and requested again later.

use crate::replication::message::Message;
use headwater_engine::{RemoteCopy, Tail};
use headwater_types::Now;
use std::time::Duration;

/// Time after which an unanswered request is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Requests the newest events of a copy's source.
#[derive(Clone, Debug, Default)]
pub(crate) struct TailRequester {
    is_enabled: bool,
    request: u64,
    requested_at: Option<Duration>,
}

impl TailRequester {
    /// The source sends newest events, or does not.
    pub(crate) fn set_enabled(&mut self, is_enabled: bool, request: u64) {
        if is_enabled != self.is_enabled {
            *self = TailRequester {
                is_enabled,
                request,
                requested_at: None,
            };
        }
    }

    /// The next message to send, if any.
    pub(crate) fn next(&mut self, now: Now, copy: &RemoteCopy) -> Option<Message> {
        let is_due = self
            .requested_at
            .is_none_or(|at| at + ASK_AGAIN <= now.monotonic);
        if !self.is_enabled || !is_due {
            return None;
        }
        self.requested_at = Some(now.monotonic);
        self.request = self.request.wrapping_add(1);
        Some(Message::AskTail {
            request: self.request,
            state: copy.state().name().sequence,
            known_end: copy.tail_point(),
        })
    }

    /// Processes the answer to the request.
    pub(crate) fn receive(&mut self, request: u64, bytes: &[u8], copy: &RemoteCopy) {
        if !self.is_enabled || request != self.request {
            return;
        }
        // Bytes that are not a tail, or are of another history, are requested again after the
        // timeout.
        if let Ok(tail) = Tail::decode(bytes)
            && copy.take_tail(tail)
        {
            self.requested_at = None;
        }
    }
}
