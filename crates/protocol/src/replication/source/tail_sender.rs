//! Answers with the newest events of a source, before a flush stores them.
//!
//! An answer is delayed until there are new events, and the copy then requests the events after it.
//!
//! Invariants: sent events are on the device of the source, and within its budget; a source that
//! falls behind omits the oldest events, never the newest. Concurrency: plain data, one owner.
//! Failure: a lost answer is requested again.

use super::Source;
use super::send_budget::Budget;
use crate::replication::message::Message;
use headwater_engine::{LogLocation, ReplicationRules, Result, TailPoint, TailRequest};
use headwater_types::Now;
use headwater_types::invariant::wide;
use std::time::Duration;

/// Bytes of an answer, about.
const ANSWER_BYTES: usize = 256 << 10;
/// Maximum bytes of a backlog; beyond it the oldest events are omitted, and arrive with a state.
const BACKLOG_BYTES: usize = 1 << 20;
/// Longest and shortest time after which new events are looked for again.
const RETRY_MAX: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Approximate bytes of a message besides its payload.
const MESSAGE_BYTES: u64 = 40;

/// Times of an answer, by the monotonic clock of the source alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveTimes {
    /// Time from the arrival of the request to the answer.
    pub held: Duration,
    /// Longest time that an event of the answer has waited: since all events were sent last;
    /// `None` = unknown, as for the first answer.
    pub waited: Option<Duration>,
}

/// The request that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: u64,
    since: Duration,
    state: u64,
    known_end: Option<TailPoint>,
}

/// Sends the newest events of a database.
#[derive(Debug, Default)]
pub(crate) struct TailSender {
    /// Minimum time between two answers; `None` = newest events are not sent.
    every: Option<Duration>,
    waiting: Option<Waiting>,
    location: Option<LogLocation>,
    answered: Option<Duration>,
    /// When new events were last looked for.
    tried: Option<Duration>,
    /// The number of the state when it was answered last.
    number: Option<u64>,
    bytes: u64,
    /// When every event was sent, or on its way.
    whole_at: Option<Duration>,
    /// Times of the last answer.
    times: Option<LiveTimes>,
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
        (self.whole_at, self.times) = (None, None);
    }

    /// Times of the last answer.
    pub(crate) fn times(&self) -> Option<LiveTimes> {
        self.times
    }

    pub(crate) fn set_request(
        &mut self,
        now: Now,
        (request, state): (u64, u64),
        known_end: Option<TailPoint>,
    ) {
        self.waiting = Some(Waiting {
            request,
            since: now.monotonic,
            state,
            known_end,
        });
    }

    /// Time from which on an answer may be found; `None` without a request.
    pub(crate) fn due(&self) -> Option<Duration> {
        let every = self.every.filter(|_| self.waiting.is_some())?;
        let retry = (every / 4).clamp(RETRY_MIN, RETRY_MAX);
        let after = |at: Option<Duration>, wait| at.map_or(Duration::ZERO, |at| at + wait);
        Some(after(self.answered, every).max(after(self.tried, retry)))
    }

    /// New events, if a request waits for them and they may be sent.
    pub(crate) fn answer(
        &mut self,
        db: &dyn Source,
        now: Now,
        rules: &ReplicationRules,
        budget: &mut Budget,
    ) -> Result<Option<Message>> {
        let (Some(every), Some(waiting)) = (self.every, self.waiting) else {
            return Ok(None);
        };
        if self.answered.is_some_and(|at| now.monotonic < at + every) {
            return Ok(None);
        }
        self.tried = Some(now.monotonic);
        let ask = TailRequest {
            last_point: waiting.known_end,
            state: waiting.state,
            bytes_max: ANSWER_BYTES,
            backlog_max: BACKLOG_BYTES,
        };
        let number = db.number()?;
        let mut place = self.location;
        let Some(tail) = db.tail(&ask, rules, &mut place)? else {
            return Ok(None);
        };
        let goes_on = waiting
            .known_end
            .is_some_and(|known| tail.continues_from(&known));
        if tail.is_empty() && goes_on && self.number == Some(number) {
            // No event was written since; the omitted events need not be read again.
            self.location = place;
            self.whole_at = Some(now.monotonic);
            return Ok(None);
        }
        let bytes = tail.encode();
        let size = wide(bytes.len()) + MESSAGE_BYTES;
        if budget.take(now, size).is_err() {
            return Ok(None);
        }
        self.location = place;
        (self.waiting, self.answered) = (None, Some(now.monotonic));
        self.number = Some(number);
        self.bytes += size;
        self.times = Some(LiveTimes {
            held: now.monotonic.saturating_sub(waiting.since),
            waited: self.whole_at.map(|at| now.monotonic.saturating_sub(at)),
        });
        if tail.is_newest() {
            self.whole_at = Some(now.monotonic);
        }
        Ok(Some(Message::Tail {
            request: waiting.request,
            bytes,
        }))
    }
}
