//! Persistent state of a watch, and the changes of that state.
//!
//! Invariant: the same changes applied to the same initial state give the same result, so a file of
//! changes represents the state. Concurrency: plain data, one owner. Failure: invalid bytes, and
//! changes that cannot follow on the state, are errors that name the offset.

use crate::delivery::{Dead, Delivery};
use crate::event::Event;
use crate::journal::Journal;
use crate::state::{State, Step};
use headwater_codec::{Cursor, DecodeError, PutBytes};

/// Number of sequence numbers to skip when the last reported one is unknown.
pub(crate) const LEAP: u64 = 1 << 20;

/// Persisted state of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// Distinguishes the sequence numbers of this database from the numbers before a restore.
    pub epoch: u64,
    /// Reported matches.
    pub state: State,
    /// The newest events.
    pub journal: Journal,
    /// Progress of the web hook, or of the topic.
    pub delivery: Delivery,
}

/// A change of the persisted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A round reported events.
    Step(Step),
    /// All events up to this number are delivered.
    Delivered(u64),
    /// An event is a dead letter.
    Died(Dead),
    /// A dead letter was delivered after all, or discarded.
    Buried(u64),
}

impl Persisted {
    /// State of a new watch, which searches from this time on.
    #[must_use]
    pub fn new(epoch: u64, since_ns: i64) -> Persisted {
        Persisted {
            epoch,
            state: State::new(since_ns),
            journal: Journal::default(),
            delivery: Delivery::default(),
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Step(step) => {
                self.state.apply(step);
                for event in &step.events {
                    self.journal.push(Event::clone(event));
                }
            }
            Change::Delivered(sequence) => self.delivery.delivered(*sequence),
            Change::Died(dead) => self.delivery.died(dead.clone()),
            Change::Buried(sequence) => self.delivery.buried(*sequence),
        }
    }

    /// Whether a decoded change can follow on this state.
    pub(crate) fn can_apply(&self, change: &Change) -> bool {
        match change {
            Change::Step(step) => step.follows(&self.state),
            Change::Delivered(sequence) => *sequence <= self.state.sequence(),
            Change::Died(dead) => dead.event.sequence <= self.state.sequence(),
            Change::Buried(_) => true,
        }
    }

    /// Continues with numbers that were never reported, when the last reported number is unknown.
    pub(crate) fn leap(&mut self) {
        self.state.leap(LEAP);
        self.journal = Journal::starting_after(self.state.sequence());
        self.delivery.skip_to(self.state.sequence());
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.epoch);
        self.state.encode(&mut out);
        self.journal.encode(&mut out);
        self.delivery.encode(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Persisted, DecodeError> {
        let mut from = Cursor::new(bytes);
        let kept = Persisted {
            epoch: from.u64("an epoch")?,
            state: State::decode(&mut from)?,
            journal: Journal::decode(&mut from)?,
            delivery: Delivery::decode(&mut from)?,
        };
        from.finish()?;
        Ok(kept)
    }
}

impl Change {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Step(step) => {
                out.push(2);
                step.encode(out);
            }
            Change::Delivered(sequence) => {
                out.push(3);
                out.put_varint(*sequence);
            }
            Change::Died(dead) => {
                out.push(4);
                dead.encode(out);
            }
            Change::Buried(sequence) => {
                out.push(5);
                out.put_varint(*sequence);
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Change, DecodeError> {
        let mut from = Cursor::new(bytes);
        let change = match from.u8("a kind of change")? {
            2 => Change::Step(Step::decode(&mut from)?),
            3 => Change::Delivered(from.varint("a number")?),
            4 => Change::Died(Dead::decode(&mut from)?),
            5 => Change::Buried(from.varint("a number")?),
            _ => return Err(from.expected("2 to 5: a kind of change")),
        };
        from.finish()?;
        Ok(change)
    }
}
