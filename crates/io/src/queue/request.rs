//! A request for the medium, and the work that carries it out.
//!
//! Invariants: a [`Request`] describes and owns nothing; the buffer belongs to the [`Work`], which
//! is consumed by whatever happens to it.
//! Concurrency: plain values; work moves to the thread that carries it out.
//! Failure: none of its own.

use std::io;
use std::time::Duration;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the medium to memory.
    Read,
    /// From memory to the medium, and whatever makes it durable.
    Write,
}

/// Purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The commit log, or another write whose durability somebody waits for.
    Log,
    /// A caller waits for it.
    Caller,
    /// Memory is to be stored; nobody waits for this one request.
    Flush,
    /// Compaction of stored data.
    Compaction,
}

/// A request as its set sees it.
///
/// The paper's request names a memory address too: that is the buffer of the [`Work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Number of the stream (device) that the request belongs to.
    pub stream: u64,
    /// Interval between the stream's requests, if it is known.
    pub interval: Option<Duration>,
    /// Location on the medium, in bytes.
    pub place: u64,
    /// Number of bytes; `None` = of unknown duration, as a sync.
    pub length: Option<u64>,
    /// Direction of the transfer.
    pub direction: Direction,
    /// The purpose of the request.
    pub purpose: Purpose,
}

impl Request {
    /// A request that somebody waits for, of a stream whose interval is not known.
    #[must_use]
    pub fn of_caller(stream: u64, place: u64, length: u64, direction: Direction) -> Request {
        Request {
            stream,
            interval: None,
            place,
            length: Some(length),
            direction,
            purpose: Purpose::Caller,
        }
    }

    /// True when it moves no more than so many bytes, and nothing else takes its time.
    #[must_use]
    pub fn is_small(&self, bytes_max: u64) -> bool {
        self.length.is_some_and(|length| length <= bytes_max)
    }
}

/// Work that carries out a request and completes it.
///
/// Work that is dropped, because it panics or another panic takes it along, must complete the
/// request too; a [`crate::Completer`] does.
pub trait Work: Send + 'static {
    /// Carries the request out and answers it.
    fn carry_out(self);

    /// Answers that the request was not carried out, and will not be.
    fn refuse(self, why: io::Error);
}
