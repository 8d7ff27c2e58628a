//! A request for the medium, and the work that carries it out.
//!
//! Invariants: a [`Request`] is only a description; the buffer belongs to the [`Work`], which is
//! consumed whether it is done, refused or dropped. Concurrency: plain values; work moves to the
//! thread that carries it out. Failure: none of its own.

use std::io;
use std::time::Duration;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the medium to memory.
    Read,
    /// From memory to the medium, including syncs.
    Write,
}

/// Purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The commit log, or another write with a caller that waits for its durability.
    Log,
    /// A caller waits for it.
    Caller,
    /// Flush of memory; no caller waits for this single request.
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
    /// Interval between the stream's requests, if known.
    pub interval: Option<Duration>,
    /// Location on the medium, in bytes.
    pub offset: u64,
    /// Number of bytes; `None` = of unknown duration, such as a sync.
    pub length: Option<u64>,
    /// Direction of the transfer.
    pub direction: Direction,
    /// The purpose of the request.
    pub purpose: Purpose,
}

impl Request {
    /// A request with a waiting caller, of a stream with unknown interval.
    #[must_use]
    pub fn of_caller(stream: u64, offset: u64, length: u64, direction: Direction) -> Request {
        Request {
            stream,
            interval: None,
            offset,
            length: Some(length),
            direction,
            purpose: Purpose::Caller,
        }
    }

    /// Whether the request moves at most `bytes_max` bytes, and has a known duration.
    #[must_use]
    pub fn is_small(&self, bytes_max: u64) -> bool {
        self.length.is_some_and(|length| length <= bytes_max)
    }
}

/// Work that carries out a request and completes it.
///
/// Work that is dropped, because it or another caller panics, must complete the request too; a
/// [`crate::Completer`] does.
pub trait Work: Send + 'static {
    /// Carries the request out and answers it.
    fn carry_out(self);

    /// Answers that the request was not carried out, and will not be.
    fn refuse(self, why: io::Error);
}
