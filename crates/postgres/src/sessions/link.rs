//! A connection's two directions: messages in, messages out, and waiting that can be cut short.
//!
//! Invariant: during a wait, the client's bytes are read up to a limit, so that a disconnect is
//! noticed. No bytes are sent while a row is being encoded.

use super::cancel::Registered;
use super::errors::{Failure, error, fatal, of_malformed};
use crate::messages::{Message, Writer, message};
use headwater_query::Holder;
use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::Instant;

/// Messages that were taken in ahead, at most, in bytes.
const AHEAD: usize = 64 << 10;
/// Messages are sent when this number of bytes is buffered.
pub(super) const FLUSH: usize = 64 << 10;

/// Time that a client may still read when the server stops.
const LAST: Duration = Duration::from_secs(1);

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

pub(super) struct Link<S> {
    reader: ReadHalf<S>,
    stream: WriteHalf<S>,
    input: Vec<u8>,
    /// Messages that are to be sent.
    pub(super) out: Writer,
    pub(super) registered: Registered,
    /// Maximum bytes of a message.
    message_max: u32,
    /// The time that a client may be silent, or not read.
    idle: Duration,
    stopping: watch::Receiver<bool>,
    /// When the statement that runs must end.
    deadline: Option<Instant>,
    /// The slot of the statement whose answer is being sent, while it has one.
    holder: Weak<Holder>,
    /// When that answer must have been taken.
    send_until: Option<Instant>,
}

impl<S: Stream> Link<S> {
    pub(super) fn new(
        stream: S,
        input: Vec<u8>,
        registered: Registered,
        message_max: usize,
        idle: Duration,
        stopping: watch::Receiver<bool>,
    ) -> Link<S> {
        let (reader, stream) = tokio::io::split(stream);
        Link {
            reader,
            stream,
            input,
            out: Writer::default(),
            registered,
            message_max: u32::try_from(message_max).unwrap_or(i32::MAX as u32),
            idle,
            stopping,
            deadline: None,
            holder: Weak::new(),
            send_until: None,
        }
    }

    /// The next message. Pending output is sent first, if the client has not sent more already.
    pub(super) async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            match message(&self.input, self.message_max) {
                Ok(Some((message, taken))) => {
                    self.input.drain(..taken);
                    self.input.shrink_to(AHEAD);
                    // The answers to many messages in a row are not buffered until their end.
                    if self.out.bytes().len() >= FLUSH {
                        self.flush().await?;
                    }
                    return Ok(message);
                }
                Ok(None) => {}
                Err(why) => return Err(of_malformed(&why).into()),
            }
            self.flush().await?;
            let stopped = async {
                // An error means that the sender was dropped, which is a stop too.
                let _ = self.stopping.wait_for(|stop| *stop).await;
            };
            let read = tokio::select! {
                biased;
                () = stopped => {
                    return Err(fatal("57P01", "terminating connection: the server is shutting down").into());
                }
                read = self.reader.read_buf(&mut self.input) => read?,
                () = tokio::time::sleep(self.idle) => {
                    return Err(fatal("57P05", "terminating connection due to idle timeout").into());
                }
            };
            if read == 0 {
                return Err(Failure::Disconnected(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The next message of a copy, unless the statement is cancelled or takes too long.
    pub(super) async fn next_of_copy(&mut self) -> Result<Message, Failure> {
        // Sent before the cancellable wait, so that no byte is sent twice.
        self.flush().await?;
        let deadline = self.deadline;
        let cancel = Arc::clone(&self.registered.cancel);
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.requested() => {
                Err(error("57014", "canceling statement due to user request").into())
            }
            () = late => {
                Err(error("57014", "canceling statement due to statement timeout").into())
            }
            message = self.next() => message,
        }
    }

    /// Starts a statement: from now on it can be cancelled, and must end within `limit`.
    pub(super) fn begin(&mut self, limit: Option<Duration>) {
        self.registered.cancel.begin();
        self.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    }

    /// Waits for a part of a statement, unless it is cancelled, takes too long, or the client
    /// disconnects.
    pub(super) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::pin!(work);
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(late);
        let cancel = Arc::clone(&self.registered.cancel);
        let cancelled = cancel.requested();
        tokio::pin!(cancelled);
        loop {
            let room = self.input.len() < AHEAD;
            tokio::select! {
                biased;
                () = &mut cancelled => {
                    return Err(error("57014", "canceling statement due to user request").into());
                }
                () = &mut late => {
                    return Err(error("57014", "canceling statement due to statement timeout").into());
                }
                done = &mut work => return Ok(done),
                read = self.reader.read_buf(&mut self.input), if room => {
                    if read? == 0 {
                        return Err(Failure::Disconnected(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
        }
    }

    /// Marks the output from now on as the answer of the statement with this slot.
    pub(super) fn sends_for(&mut self, holder: &Arc<Holder>, limit: Duration) {
        self.holder = Arc::downgrade(holder);
        self.send_until = Instant::now().checked_add(limit);
    }

    /// Sends pending output. A client that does not read for long is disconnected: during a
    /// statement when the statement's time is up, or its slot is needed. No error is sent to such a
    /// client, since it does not read.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.out.bytes().is_empty() {
            return Ok(());
        }
        let holder = self.holder.upgrade();
        if let Some(holder) = &holder {
            holder.stalls();
        }
        // A session may have a shorter time limit.
        let deadline = self.deadline.into_iter().chain(self.send_until).min();
        let cancel = Arc::clone(&self.registered.cancel);
        let given_up = async {
            let Some(holder) = &holder else {
                return std::future::pending().await;
            };
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => "the statement has timed out",
                () = holder.over() => "another statement needs its slot",
                () = cancel.requested() => "the statement was cancelled",
            }
        };
        let mut stopping = self.stopping.clone();
        let stopped = async {
            // An error means that the sender was dropped, which is a stop too.
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(LAST).await;
        };
        let sent = async {
            let mut from = 0;
            while let Some(rest) = self.out.bytes().get(from..).filter(|rest| !rest.is_empty()) {
                match self.stream.write(rest).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => from += written,
                }
                if let Some(holder) = &holder {
                    holder.stalls();
                }
            }
            self.stream.flush().await
        };
        let why = tokio::select! {
            biased;
            sent = sent => {
                sent?;
                if let Some(holder) = &holder {
                    holder.goes_on();
                }
                self.out.clear();
                return Ok(());
            }
            why = given_up => why,
            () = stopped => "the server is shutting down",
            () = tokio::time::sleep(self.idle) => "it was idle for too long",
        };
        let why = format!("a client that did not read its answer was disconnected: {why}");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Sends pending output, and closes the connection.
    pub(super) async fn close(mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.shutdown().await
    }
}
