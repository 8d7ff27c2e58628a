//! Messages of a source that wait to be sent: newest events, names of states and challenges go
//! before ranges that wait, and never after them.
//!
//! Invariants: answers to requests, and reports of missing ranges, keep their order. Concurrency:
//! plain data. Failure: a queue that is dropped costs its messages, which are requested again.

use super::{challenge, missing_reports};
use crate::replication::message::{Digest, Message};
use headwater_types::invariant::wide;
use std::collections::VecDeque;

/// Approximate bytes of a message besides its payload.
const MESSAGE_BYTES: u64 = 40;

/// The queue.
#[derive(Debug, Default)]
pub struct SendQueue {
    first: VecDeque<Message>,
    others: VecDeque<Message>,
    bytes: u64,
}

/// Bytes of a message that the budget has granted.
fn granted(message: &Message) -> u64 {
    match message {
        Message::Bytes { bytes, .. }
        | Message::State { bytes, .. }
        | Message::Tail { bytes, .. } => wide(bytes.len()) + MESSAGE_BYTES,
        Message::Digests { digests, .. } => {
            wide(size_of::<Digest>()) * wide(digests.len()) + MESSAGE_BYTES
        }
        Message::MissingRanges { .. } => missing_reports::size(message),
        Message::Challenge { ranges, .. } => challenge::size(ranges.len()),
        _ => 0,
    }
}

impl SendQueue {
    /// Adds a message.
    pub fn push(&mut self, message: Message) {
        self.bytes = self.bytes.saturating_add(granted(&message));
        match message {
            Message::Tail { .. } | Message::Hello(_) | Message::Challenge { .. } => {
                self.first.push_back(message)
            }
            message => self.others.push_back(message),
        }
    }

    /// Takes the next message to send.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.first.pop_front().or_else(|| self.others.pop_front())?;
        self.bytes = self.bytes.saturating_sub(granted(&message));
        Some(message)
    }

    /// Bytes of the waiting messages that the budget has granted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(offset: u64) -> Message {
        Message::Bytes {
            request: 1,
            segment: 2,
            offset,
            bytes: vec![0; 100],
        }
    }

    #[test]
    fn newest_events_go_before_ranges_that_wait() {
        let mut queue = SendQueue::default();
        let tail = Message::Tail {
            request: 9,
            bytes: vec![1; 10],
        };
        for message in [
            bytes(0),
            bytes(100),
            Message::Done { request: 1 },
            tail.clone(),
        ] {
            queue.push(message);
        }
        assert_eq!(queue.bytes(), 140 + 140 + 50);
        let sent: Vec<Message> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(
            sent,
            [tail, bytes(0), bytes(100), Message::Done { request: 1 }]
        );
        assert!(queue.is_empty() && queue.bytes() == 0);
    }
}
