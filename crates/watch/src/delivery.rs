//! When an event goes where it is to be delivered, and what happens when it is not taken.
//!
//! Events go one after the other. One that is not taken is tried again, with pauses that double;
//! after [`ATTEMPTS_MAX`] attempts, or at once where trying again cannot help, it becomes a *dead
//! letter* and the next one goes. While nothing is taken, the next ones are tried once each.
//!
//! Invariants: an event is delivered at least once, or is a dead letter, or is counted as lost; the
//! number of attempts and of dead letters is bounded.
//! Concurrency: plain data, one owner.

use crate::event::{Event, small, text};
use crate::journal::Journal;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use std::collections::BTreeMap;

/// Attempts to deliver an event, at most.
pub const ATTEMPTS_MAX: u32 = 8;
/// Most dead letters of a watch; the oldest go, and are counted as lost.
pub const DEAD_MAX: usize = 1_000;
const PAUSE_NS: i64 = 1_000_000_000;
const PAUSE_MAX_NS: i64 = 300_000_000_000;
const REASON_BYTES_MAX: usize = 400;

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// Trying again cannot help.
    pub is_final: bool,
}

/// An event that could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The event.
    pub event: Event,
    /// Number of attempts.
    pub attempts: u32,
    /// Why it was not taken the last time.
    pub reason: String,
}

/// Next action of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until there is another event.
    Nothing,
    /// Nothing until this instant.
    Wait(i64),
    /// This event goes.
    Send(Box<Event>),
}

/// The state of one way to deliver.
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
    /// Up to which number everything is delivered, dead or lost.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Events that were neither delivered nor are dead letters.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The dead letters.
    #[must_use]
    pub fn dead(&self) -> &BTreeMap<u64, Dead> {
        &self.dead
    }

    /// Why the last attempt failed; `None` when it did not.
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
            // A clock that was set back does not stop it for longer than the longest pause.
            Some(at) if at - now_ns <= PAUSE_MAX_NS => Next::Wait(at),
            _ => Next::Send(Box::new(event)),
        }
    }

    /// An event was not taken: true when it is given up.
    pub fn failed(&mut self, failure: &Failure, now_ns: i64) -> bool {
        self.attempts += 1;
        self.failures = self.failures.saturating_add(1);
        let doubled = PAUSE_NS.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        self.not_before_ns = Some(now_ns.saturating_add(doubled.min(PAUSE_MAX_NS)));
        self.reason = Some(failure.reason.clone());
        // Behind one that was given up, others are tried once each.
        failure.is_final || self.attempts >= ATTEMPTS_MAX || self.failures > ATTEMPTS_MAX
    }

    /// Number of failed attempts of the current event.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Everything up to a number is delivered.
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

    /// Nothing before this number is to be delivered.
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        self.done = self.done.max(sequence);
    }

    /// An event is a dead letter.
    pub(crate) fn died(&mut self, dead: Dead) {
        self.on_to(dead.event.sequence);
        self.dead.insert(dead.event.sequence, dead);
        while self.dead.len() > DEAD_MAX {
            self.dead.pop_first();
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// A dead letter was delivered, or discarded.
    pub(crate) fn buried(&mut self, sequence: u64) {
        self.dead.remove(&sequence);
    }

    /// A dead letter as it is stored, with its reason cut to a line.
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
            done: from.varint("up to where it is delivered")?,
            lost: from.varint("how many were lost")?,
            ..Delivery::default()
        };
        let most = u64::try_from(DEAD_MAX).unwrap_or(u64::MAX);
        for _ in 0..from.varint_up_to(most, "how many dead letters there are")? {
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
