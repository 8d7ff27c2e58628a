//! The newest events of a watch, for readers that reconnect and continue after a sequence number.
//!
//! Invariants: events are sorted by sequence number, without gaps; a journal is bounded, and
//! reports dropped events as a gap. Concurrency: plain data, one owner.

use crate::event::Event;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use std::collections::VecDeque;

/// Maximum number of events in a journal.
pub const EVENTS_MAX: usize = 10_000;
/// Maximum bytes of the events in a journal.
const BYTES_MAX: usize = 4 << 20;

/// The newest events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    events: VecDeque<Event>,
    bytes: usize,
    newest: u64,
}

/// Events after a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Number of events that were dropped before these events.
    pub missed: u64,
    /// The number of the newest event so far.
    pub newest: u64,
    /// The events that follow.
    pub events: Vec<Event>,
}

impl Journal {
    /// A journal without events, which starts after this number.
    pub(crate) fn starting_after(newest: u64) -> Journal {
        Journal {
            newest,
            ..Journal::default()
        }
    }

    /// Adds an event, and removes the oldest events above the limits.
    pub fn push(&mut self, event: Event) {
        self.bytes += event.bytes();
        self.newest = event.sequence;
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            if let Some(gone) = self.events.pop_front() {
                self.bytes -= gone.bytes();
            }
        }
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether the journal has no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// At most `most` events after a sequence number.
    #[must_use]
    pub fn behind(&self, after: u64, most: usize) -> Behind {
        let newer = |event: &&Event| event.sequence > after;
        let first = self.events.iter().find(newer).map(|event| event.sequence);
        Behind {
            missed: first.map_or(0, |first| first - after - 1),
            newest: self.newest,
            events: self
                .events
                .iter()
                .filter(newer)
                .take(most)
                .cloned()
                .collect(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.newest);
        out.put_varint(u64::try_from(self.events.len()).unwrap_or(u64::MAX));
        for event in &self.events {
            event.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Journal, DecodeError> {
        let mut journal = Journal {
            newest: from.varint("the number of the newest event")?,
            ..Journal::default()
        };
        let most = u64::try_from(EVENTS_MAX).unwrap_or(u64::MAX);
        for _ in 0..from.varint_up_to(most, "the number of retained events")? {
            journal.push(Event::decode(from)?);
        }
        Ok(journal)
    }
}
