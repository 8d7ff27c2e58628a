//! The socket of an uplink: one message at a time is handed to it, so that newest events and notes
//! go before the ranges that wait.
//!
//! Invariants: at most one message of the queue is in the socket's buffers of this process. While
//! more than [`READ_BELOW`] bytes wait, nothing is received. Concurrency: one owner; waiting for an
//! event may be abandoned. Failure: a socket that takes nothing for [`SEND_MAX`] is stuck.

use super::SEND_MAX;
use crate::dial::Dialled;
use crate::frame::message;
use futures_util::{SinkExt, StreamExt};
use headwater_protocol::replication::{Message, SendQueue};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::Message as Frame;

/// Waiting bytes from which on nothing is received.
const READ_BELOW: u64 = 4 << 20;

/// Event of the socket.
pub(super) enum Event {
    Received(Frame),
    /// A message of the queue is with the system.
    Written,
    Ended(String),
}

/// A message that the socket is taking.
struct Writing {
    since: Instant,
    /// Its bytes, as the budget has granted them.
    bytes: u64,
}

pub(super) struct Outbox {
    connection: Dialled,
    queue: SendQueue,
    writing: Option<Writing>,
}

impl Outbox {
    pub(super) fn new(connection: Dialled) -> Outbox {
        Outbox {
            connection,
            queue: SendQueue::default(),
            writing: None,
        }
    }

    /// Adds a message to the queue.
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push(message);
    }

    /// Granted bytes that are not with the system yet.
    pub(super) fn unsent(&self) -> u64 {
        let writing = self.writing.as_ref().map_or(0, |writing| writing.bytes);
        self.queue.bytes() + writing
    }

    /// True if the socket takes nothing any more.
    pub(super) fn is_stuck(&self) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| writing.since.elapsed() > SEND_MAX)
    }

    /// Waits for a received frame, or writes a message of the queue.
    pub(super) async fn event(&mut self) -> Event {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.queue.bytes() < READ_BELOW
            && let Poll::Ready(frame) = self.connection.poll_next_unpin(cx)
        {
            return Poll::Ready(match frame {
                Some(Ok(frame)) => Event::Received(frame),
                Some(Err(error)) => Event::Ended(error.to_string()),
                None => Event::Ended("the cloud has ended the connection".to_owned()),
            });
        }
        self.poll_write(cx).map(|written| match written {
            Ok(()) => Event::Written,
            Err(error) => Event::Ended(error.to_string()),
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.writing.is_none() {
            if self.queue.is_empty() {
                return Poll::Pending;
            }
            ready!(self.connection.poll_ready_unpin(cx))?;
            let before = self.queue.bytes();
            let Some(next) = self.queue.pop() else {
                return Poll::Pending;
            };
            self.connection.start_send_unpin(message(&next))?;
            self.writing = Some(Writing {
                since: Instant::now(),
                bytes: before.saturating_sub(self.queue.bytes()),
            });
        }
        ready!(self.connection.poll_flush_unpin(cx))?;
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    /// Sends a frame before all messages of the queue.
    pub(super) async fn send(&mut self, frame: Frame) -> Result<(), String> {
        match timeout(SEND_MAX, self.connection.send(frame)).await {
            Ok(Ok(())) => {
                self.writing = None;
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the cloud does not read what is sent".to_owned()),
        }
    }

    /// Closes the connection.
    pub(super) async fn close(&mut self, within: Duration) {
        let _ = timeout(within, self.connection.close(None)).await;
    }
}
