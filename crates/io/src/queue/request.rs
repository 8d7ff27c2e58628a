//! What a request carries, and what is done for it.
//!
//! Invariants: a [`Request`] describes and owns nothing; the buffer belongs to the [`Work`], which
//! is consumed by whatever happens to it.
//! Concurrency: plain values; work moves to the thread that carries it out.
//! Failure: none of its own.

use std::io;
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the medium to memory.
    Read,
    /// From memory to the medium, and whatever makes it durable.
    Write,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The commit log, or another write whose durability somebody waits for.
    Log,
    /// Somebody waits for it.
    Caller,
    /// Memory is to be stored; nobody waits for this one request.
    Flush,
    /// What is stored is to become tidier.
    Compaction,
}

/// A request as its set sees it.
///
/// The paper's request names a memory address too: that is the buffer of the [`Work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Whose request it is: the number of a stream (device).
    pub stream: u64,
    /// How far apart the stream's requests are, if that is known.
    pub interval: Option<Duration>,
    /// Where on the medium, in bytes.
    pub place: u64,
    /// How many bytes; `None` = no telling how long it takes, as for a sync.
    pub length: Option<u64>,
    /// Which way the bytes go.
    pub direction: Direction,
    /// What the request is for.
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

/// What is done for a request. It answers whoever asked by itself.
///
/// Work that is dropped, because it panics or another panic takes it along, must answer too; a
/// [`crate::Completer`] does.
pub trait Work: Send + 'static {
    /// Carries the request out and answers it.
    fn carry_out(self);

    /// Answers that the request was not carried out, and will not be.
    fn refuse(self, why: io::Error);
}
