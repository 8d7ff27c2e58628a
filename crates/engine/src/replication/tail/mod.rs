//! The tail of a database: what was written to its log and is in no state yet, sent along to a copy
//! so that it shows the newest events without waiting for a flush.
//!
//! A copy replays the tail behind what it shows, as opening a database replays the log: an event is
//! left out if and only if what is shown covers it. So nothing is counted twice and nothing gets
//! lost, whichever version of whichever partition is shown.
//!
//! Invariants: only records that are on the disk of the source are sent, and nothing of a table
//! that may not leave. A tail is in memory only, within a limit; it is not part of what is
//! confirmed, and a copy that has lost it requests it again.
//! Concurrency: plain data; `source` reads log files that may be used again meanwhile, and notices.
//! Failure: bytes that are no tail are refused; a tail that cannot be replayed is dropped. Format:
//! docs/format/tail.md.

mod filter;
mod format;
mod received;
mod source;

#[cfg(fuzzing)]
pub(crate) use format::fuzz;
pub(crate) use received::ReceivedTail;
pub(crate) use source::tail;
pub use source::{LogLocation, TailRequest};

use crate::common::ids::Sequence;
use crate::wal::RecordKind;
use headwater_codec::checksum::{crc32c, crc32c_append};
use std::sync::Arc;

/// A record of a tail: one of the log, without what may not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TailRecord {
    pub(crate) sequence: Sequence,
    pub(crate) kind: RecordKind,
    pub(crate) payload: Arc<[u8]>,
}

/// Overhead of a record where memory is bounded.
const RECORD_BYTES: usize = 64;

impl TailRecord {
    /// The memory that it takes, about.
    fn bytes(&self) -> usize {
        self.payload.len() + RECORD_BYTES
    }

    /// True for events, false for definitions and deletes.
    pub(crate) fn has_events(&self) -> bool {
        matches!(self.kind, RecordKind::Write | RecordKind::NumberedWrite)
    }

    /// Distinguishes it from another record of the same number.
    fn mark(&self) -> TailMark {
        TailMark {
            sequence: self.sequence.0,
            crc: crc32c_append(crc32c(&[self.kind.number()]), &self.payload),
        }
    }
}

/// A record that was sent, so that both sides can tell that they mean the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailMark {
    /// Its number in the log.
    pub sequence: u64,
    /// CRC-32C of its kind and its payload, as they were sent.
    pub crc: u32,
}

/// Extent of a copy's tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailPoint {
    /// Every record up to this one was sent, or left out on purpose.
    pub until: u64,
    /// The last one that was sent.
    pub last: Option<TailMark>,
}

/// A stretch of the log of a database, to be put behind what a copy shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The identity and the incarnation of its database.
    pub(crate) history: (u64, u64),
    /// States from this number on hold every event up to `floor`.
    pub(crate) number: u64,
    pub(crate) floor: Sequence,
    /// The records behind this one, up to `until`.
    pub(crate) after: Sequence,
    pub(crate) until: Sequence,
    /// Of events, those up to here were left out: there were too many to send.
    pub(crate) skipped: Option<Sequence>,
    /// There was nothing behind `until` when it was made.
    pub(crate) is_newest: bool,
    pub(crate) records: Vec<TailRecord>,
}

impl Tail {
    /// True when it says nothing but how far the log is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Events were left out, since there were too many to send.
    #[must_use]
    pub fn has_skipped(&self) -> bool {
        self.skipped.is_some()
    }

    /// There was nothing more to send when it was made.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.is_newest
    }

    /// True when it begins where this ends, not before and not later.
    #[must_use]
    pub fn goes_on_from(&self, point: &TailPoint) -> bool {
        self.after.0 == point.until
    }

    /// Up to which record it goes.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.until.0
    }
}
