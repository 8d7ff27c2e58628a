//! The tail of a database: records in its log that are not in a state yet, sent to a copy so that
//! it shows the newest events without waiting for a flush.
//!
//! A copy replays the tail after the partitions shown, as opening a database replays the log: an
//! event is left out if and only if a partition shown covers it. So no event is counted twice or
//! lost, for any shown version of any partition.
//!
//! Invariants: only records that are on the disk of the source are sent, without tables that may
//! not leave. A tail is in memory only, within a limit; it is not part of confirmed data, and a
//! copy that has lost it requests it again. Concurrency: plain data; `source` reads log files that
//! may be reused meanwhile, and detects that. Failure: bytes that are not a tail are refused; a
//! tail that cannot be replayed is dropped. Format: docs/format/tail.md.

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

/// A record of a tail: a log record, without data that may not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TailRecord {
    pub(crate) sequence: Sequence,
    pub(crate) kind: RecordKind,
    pub(crate) payload: Arc<[u8]>,
}

/// Overhead of a record where memory is limited.
const RECORD_BYTES: usize = 64;

impl TailRecord {
    /// Approximate memory of the record in bytes.
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

/// Identifies a record that was sent, so that both sides can tell that they mean the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailMark {
    /// Its number in the log.
    pub sequence: u64,
    /// CRC-32C of its kind and its payload, as sent.
    pub crc: u32,
}

/// Extent of a copy's tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailPoint {
    /// Every record up to this one was sent, or left out on purpose.
    pub until: u64,
    /// The last record that was sent.
    pub last: Option<TailMark>,
}

/// A stretch of the log of a database, to be added after the partitions that a copy shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The identity and the incarnation of its database.
    pub(crate) history: (u64, u64),
    /// States from this number on contain every event up to `floor`.
    pub(crate) number: u64,
    pub(crate) floor: Sequence,
    /// The record after which this tail begins; it ends at `until`.
    pub(crate) after: Sequence,
    pub(crate) until: Sequence,
    /// Events up to here were left out: there were too many to send.
    pub(crate) skipped: Option<Sequence>,
    /// There was no record after `until` when it was made.
    pub(crate) is_newest: bool,
    pub(crate) records: Vec<TailRecord>,
}

impl Tail {
    /// True without any record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// True when events were left out, since there were too many to send.
    #[must_use]
    pub fn has_skipped(&self) -> bool {
        self.skipped.is_some()
    }

    /// True when there was nothing more to send when it was made.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.is_newest
    }

    /// True when it begins exactly at this point.
    #[must_use]
    pub fn continues_from(&self, point: &TailPoint) -> bool {
        self.after.0 == point.until
    }

    /// The newest record that it covers.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.until.0
    }
}
