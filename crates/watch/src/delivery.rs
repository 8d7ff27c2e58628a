//! Schedule of the deliveries of a watch: when an event is sent, and when it is sent again after a
//! failure.
//!
//! Events are sent one after another. A failed delivery is repeated, with pauses that double; after
//! [`ATTEMPTS_MAX`] attempts, or at once if a repetition cannot help, the event becomes a *dead
//! letter* and the next event is sent. While all deliveries fail, each of the next events is tried
//! once.
//!
//! Invariants: an event is delivered at least once, or is a dead letter, or is counted as lost; the
//! number of attempts and of dead letters is bounded.
//! Concurrency: plain data, one owner.

use crate::event::{Event, small, text};
use crate::journal::Journal;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use std::collections::BTreeMap;

/// Maximum number of attempts to deliver an event.
pub const ATTEMPTS_MAX: u32 = 8;
/// Maximum number of dead letters of a watch; the oldest are removed, and counted as lost.
pub const DEAD_MAX: usize = 1_000;
const PAUSE_NS: i64 = 1_000_000_000;
const PAUSE_MAX_NS: i64 = 300_000_000_000;
const REASON_BYTES_MAX: usize = 400;

/// Why a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Reason as text.
    pub reason: String,
    /// True if a repetition cannot help.
    pub is_final: bool,
}

/// An event that could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The event.
    pub event: Event,
    /// Number of attempts.
    pub attempts: u32,
    /// Reason of the last failure.
    pub reason: String,
}

/// Next action of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// No action until the next event.
    Nothing,
    /// No action until this instant.
    Wait(i64),
    /// Send this event.
    Send(Box<Event>),
}

/// State of the deliveries to one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    done: u64,
    lost: u64,
    dead: BTreeMap<u64, Dead>,
    attempts: u32,
    failures: u32,
    not_before_ns: Option<i64>,
    reason: Option<String>,
}

impl Delivery {
    /// The number up to which every event is delivered, a dead letter or lost.
    #[must_use]
    pub fn delivered_up_to(&self) -> u64 {
        self.done
    }

    /// Number of events that were lost: neither delivered nor stored as dead letters.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The dead letters.
    #[must_use]
    pub fn dead(&self) -> &BTreeMap<u64, Dead> {
        &self.dead
    }

    /// Reason of the last attempt's failure; `None` if the last attempt succeeded.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The next action at an instant.
    #[must_use]
    pub fn next(&self, journal: &Journal, now_ns: i64) -> Next {
        let Some(event) = journal.behind(self.done, 1).events.pop() else {
            return Next::Nothing;
        };
        match self.not_before_ns.filter(|at| *at > now_ns) {
            // If the clock was set back, the pause is still at most the longest pause.
            Some(at) if at - now_ns <= PAUSE_MAX_NS => Next::Wait(at),
            _ => Next::Send(Box::new(event)),
        }
    }

    /// Records a failed delivery; returns true when the event is given up.
    pub fn failed(&mut self, failure: &Failure, now_ns: i64) -> bool {
        self.attempts += 1;
        self.failures = self.failures.saturating_add(1);
        let doubled = PAUSE_NS.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        self.not_before_ns = Some(now_ns.saturating_add(doubled.min(PAUSE_MAX_NS)));
        self.reason = Some(failure.reason.clone());
        // After an event that was given up, each of the next events is tried once.
        failure.is_final || self.attempts >= ATTEMPTS_MAX || self.failures > ATTEMPTS_MAX
    }

    /// Number of failed attempts of the current event.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Records that all events up to a number are delivered.
    pub(crate) fn delivered(&mut self, sequence: u64) {
        self.on_to(sequence);
        self.failures = 0;
        self.not_before_ns = None;
        self.reason = None;
    }

    fn on_to(&mut self, sequence: u64) {
        let left_out = sequence.saturating_sub(self.done).saturating_sub(1);
        self.lost = self.lost.saturating_add(left_out);
        self.done = self.done.max(sequence);
        self.attempts = 0;
    }

    /// Skips all events before this number.
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        self.done = self.done.max(sequence);
    }

    /// Adds a dead letter.
    pub(crate) fn died(&mut self, dead: Dead) {
        self.on_to(dead.event.sequence);
        self.dead.insert(dead.event.sequence, dead);
        while self.dead.len() > DEAD_MAX {
            self.dead.pop_first();
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Removes a dead letter, which was delivered or discarded.
    pub(crate) fn buried(&mut self, sequence: u64) {
        self.dead.remove(&sequence);
    }

    /// Builds a dead letter as it is stored, with its reason cut to one line.
    #[must_use]
    pub fn dead_of(event: Event, attempts: u32, reason: &str) -> Dead {
        let mut reason = reason.to_owned();
        if reason.len() > REASON_BYTES_MAX {
            let cut = (0..=REASON_BYTES_MAX)
                .rev()
                .find(|at| reason.is_char_boundary(*at));
            reason.truncate(cut.unwrap_or(0));
        }
        Dead {
            event,
            attempts,
            reason,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.done);
        out.put_varint(self.lost);
        out.put_varint(u64::try_from(self.dead.len()).unwrap_or(u64::MAX));
        for dead in self.dead.values() {
            dead.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Delivery, DecodeError> {
        let mut delivery = Delivery {
            done: from.varint("the last delivered event")?,
            lost: from.varint("the number of lost events")?,
            ..Delivery::default()
        };
        let most = u64::try_from(DEAD_MAX).unwrap_or(u64::MAX);
        for _ in 0..from.varint_up_to(most, "the number of dead letters")? {
            let dead = Dead::decode(from)?;
            delivery.dead.insert(dead.event.sequence, dead);
        }
        Ok(delivery)
    }
}

impl Dead {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.event.encode(out);
        out.put_varint(u64::from(self.attempts));
        out.put_prefixed(self.reason.as_bytes());
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Dead, DecodeError> {
        Ok(Dead {
            event: Event::decode(from)?,
            attempts: small(from, "attempts")?,
            reason: text(from, "a reason")?,
        })
    }
}
