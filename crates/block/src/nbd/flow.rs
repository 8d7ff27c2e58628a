//! Flow of one connection: accepted requests, and replies that wait to be sent.
//!
//! Invariants: requests and their bytes are bounded; an admitted request is released once, when its
//! reply was sent or discarded. Concurrency: one thread admits, one sends, any thread replies;
//! replying never waits. Failure: after a failure of sending, replies are discarded and no more
//! requests are admitted.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::message::REQUEST_BYTES_MAX;

const REQUESTS_MAX: usize = 256;

/// A reply: its header, and the data after it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// Weight with which the request was admitted.
    pub(crate) weight: u32,
}

/// The requests of a connection.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    state: Mutex<State>,
    /// Signalled when a request fits, or the connection ends.
    room: Condvar,
    /// Signalled when there is a reply, or there will be no more.
    to_send: Condvar,
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: usize,
    bytes: u64,
    has_ended: bool,
    is_broken: bool,
}

impl Flow {
    /// Waits for space for a request of `weight` bytes; false if the connection has failed.
    pub(crate) fn admit(&self, weight: u32) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_broken {
                return false;
            }
            let fits = state.bytes + u64::from(weight) <= u64::from(REQUEST_BYTES_MAX);
            if state.requests < REQUESTS_MAX && (state.bytes == 0 || fits) {
                state.requests += 1;
                state.bytes += u64::from(weight);
                return true;
            }
            self.room.wait(&mut state);
        }
    }

    /// Queues a reply to a request that was admitted.
    pub(crate) fn reply(&self, reply: Reply) {
        self.state.lock().replies.push_back(reply);
        self.to_send.notify_one();
    }

    /// The next reply to be sent; waits for it. `None` if there will be no more.
    pub(crate) fn next_reply(&self) -> Option<Reply> {
        let mut state = self.state.lock();
        loop {
            if let Some(reply) = state.replies.pop_front() {
                return Some(reply);
            }
            if state.has_ended && state.requests == 0 {
                return None;
            }
            self.to_send.wait(&mut state);
        }
    }

    /// A reply was sent, or thrown away.
    pub(crate) fn sent(&self, weight: u32) {
        let mut state = self.state.lock();
        assert!(state.requests > 0, "a request is released once");
        state.requests -= 1;
        state.bytes -= u64::from(weight);
        self.room.notify_one();
    }

    /// No request follows.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.to_send.notify_one();
    }

    /// Marks the connection as failed for sending.
    pub(crate) fn break_off(&self) {
        self.state.lock().is_broken = true;
        self.room.notify_one();
    }
}
