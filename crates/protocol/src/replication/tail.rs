//! The newest events, sent along before a flush stores them: the copy's side, and the source's.
//!
//! One request suffices: the source delays the answer until there are new events, and the copy then
//! requests the events after the answer. So no messages are sent while no rows are written, and at
//! most one answer is in flight.
//!
//! Invariants: sent events are on the device of the source, and within its budget; a source that
//! falls behind omits the oldest events, never the newest; a copy that receives another range of
//! events than it requested replaces its own with it. Concurrency: plain data, one owner each.
//! Failure: a lost request or answer is requested again; bytes that are not a tail are ignored, and
//! requested again later.

use crate::replication::budget::Budget;
use crate::replication::message::Message;
use crate::replication::source::Source;
use headwater_engine::{LogLocation, RemoteCopy, Result, Rules, Tail, TailPoint, TailRequest};
use headwater_types::Now;
use headwater_types::invariant::wide;
use std::time::Duration;

/// Time after which an unanswered request is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Bytes of an answer, about.
const ANSWER_BYTES: usize = 256 << 10;
/// Maximum bytes of a backlog; beyond it the oldest events are omitted, and arrive with a state.
const BACKLOG_BYTES: usize = 1 << 20;
/// Approximate bytes of a message besides its payload.
const MESSAGE_BYTES: u64 = 40;

/// Requests the newest events of a copy's source.
#[derive(Clone, Debug, Default)]
pub(crate) struct TailAsker {
    is_wanted: bool,
    request: u64,
    asked: Option<Duration>,
}

impl TailAsker {
    /// The source sends newest events, or does not.
    pub(crate) fn set_wanted(&mut self, is_wanted: bool, request: u64) {
        if is_wanted != self.is_wanted {
            *self = TailAsker {
                is_wanted,
                request,
                asked: None,
            };
        }
    }

    /// The next message to send, if any.
    pub(crate) fn next(&mut self, now: Now, copy: &RemoteCopy) -> Option<Message> {
        let is_due = self.asked.is_none_or(|at| at + ASK_AGAIN <= now.monotonic);
        if !self.is_wanted || !is_due {
            return None;
        }
        self.asked = Some(now.monotonic);
        self.request = self.request.wrapping_add(1);
        Some(Message::AskTail {
            request: self.request,
            state: copy.state().name().sequence,
            known: copy.tail_point(),
        })
    }

    /// Processes the answer to the request.
    pub(crate) fn take(&mut self, request: u64, bytes: &[u8], copy: &RemoteCopy) {
        if !self.is_wanted || request != self.request {
            return;
        }
        // Bytes that are not a tail, or are of another history, are requested again after the
        // timeout.
        if let Ok(tail) = Tail::decode(bytes)
            && copy.take_tail(tail)
        {
            self.asked = None;
        }
    }
}

/// The request that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: u64,
    state: u64,
    known: Option<TailPoint>,
}

/// Sends the newest events of a database.
#[derive(Debug, Default)]
pub(crate) struct TailSender {
    /// Minimum time between two answers; `None` = newest events are not sent.
    every: Option<Duration>,
    waiting: Option<Waiting>,
    place: Option<LogLocation>,
    answered: Option<Duration>,
    /// The number of the state when it was answered last.
    number: Option<u64>,
    bytes: u64,
}

impl TailSender {
    pub(crate) fn set_every(&mut self, every: Option<Duration>) {
        self.every = every;
    }

    /// Bytes that were sent since the start.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets the waiting request.
    pub(crate) fn reset(&mut self) {
        (self.waiting, self.number) = (None, None);
    }

    pub(crate) fn ask(&mut self, request: u64, state: u64, known: Option<TailPoint>) {
        self.waiting = Some(Waiting {
            request,
            state,
            known,
        });
    }

    /// New events, if a request waits for them and they may be sent.
    pub(crate) fn answer(
        &mut self,
        db: &dyn Source,
        now: Now,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Option<Message>> {
        let (Some(every), Some(waiting)) = (self.every, self.waiting) else {
            return Ok(None);
        };
        if self.answered.is_some_and(|at| now.monotonic < at + every) {
            return Ok(None);
        }
        let ask = TailRequest {
            known: waiting.known,
            state: waiting.state,
            bytes_max: ANSWER_BYTES,
            backlog_max: BACKLOG_BYTES,
        };
        let number = db.number()?;
        let mut place = self.place;
        let Some(tail) = db.tail(&ask, rules, &mut place)? else {
            return Ok(None);
        };
        let goes_on = waiting.known.is_some_and(|known| tail.goes_on_from(&known));
        if tail.is_empty() && goes_on && self.number == Some(number) {
            // No event was written since; the omitted events need not be read again.
            self.place = place;
            return Ok(None);
        }
        let bytes = tail.encode();
        let size = wide(bytes.len()) + MESSAGE_BYTES;
        if budget.take(now, size).is_err() {
            return Ok(None);
        }
        self.place = place;
        (self.waiting, self.answered) = (None, Some(now.monotonic));
        self.number = Some(number);
        self.bytes += size;
        Ok(Some(Message::Tail {
            request: waiting.request,
            bytes,
        }))
    }
}
