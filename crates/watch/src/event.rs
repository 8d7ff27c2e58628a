//! Events of a watch, and their ids.
//!
//! Invariants: an event's sequence number counts the events of its watch without gaps; its id
//! identifies a version of a match, so that a receiver recognises a repeated event. Concurrency:
//! plain data. Failure: invalid bytes are an error that names the offset.

use headwater_codec::{Cursor, DecodeError, PutBytes};
use sha2::{Digest, Sha256};

/// Position of a row in a partition: its time, and the number of earlier rows with the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The time of the row, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Number of rows of the same time and partition before this row.
    pub skip: u32,
}

/// Identity of a match: at most one match begins at a row of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The values of the partition, as a JSON array.
    pub partition: String,
    /// The first row.
    pub first: Position,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A match, or a stream that has had no rows for the duration of the watch.
    Match,
    /// A reported match is no longer true: rows arrived late, were replaced or deleted.
    Retraction,
    /// A stream that was absent has rows again.
    Return,
}

impl EventKind {
    /// Name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Match => "match",
            EventKind::Retraction => "retraction",
            EventKind::Return => "return",
        }
    }

    fn byte(self) -> u8 {
        match self {
            EventKind::Match => 1,
            EventKind::Retraction => 2,
            EventKind::Return => 3,
        }
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counts the events of a watch, from 1.
    pub sequence: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// The match that the event reports.
    pub key: Key,
    /// Version of the match, from 1.
    pub version: u32,
    /// The time of the last row.
    pub last_ns: i64,
    /// Position at which the search continued after the match.
    pub next: Position,
    /// Time of the report, by the wall clock.
    pub reported_ns: i64,
    /// Result row of the statement, as a JSON object.
    pub row: String,
}

/// Maximum bytes of text in an event.
const TEXT_MAX: u64 = 1 << 24;

impl Event {
    /// The id of the event; a match and its retraction have the same id.
    #[must_use]
    pub fn id(&self, watch: u64) -> String {
        id_of(watch, &self.key, self.version)
    }

    /// Approximate memory of the event, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        128 + self.key.partition.len() + self.row.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.sequence);
        out.push(self.kind.byte());
        out.put_prefixed(self.key.partition.as_bytes());
        put_position(out, self.key.first);
        out.put_varint(u64::from(self.version));
        out.put_i64(self.last_ns);
        put_position(out, self.next);
        out.put_i64(self.reported_ns);
        out.put_prefixed(self.row.as_bytes());
    }

    pub(crate) fn decode(from: &mut Cursor<'_>) -> Result<Event, DecodeError> {
        let sequence = from.varint("the number of an event")?;
        let kind = match from.u8("a kind of event")? {
            1 => EventKind::Match,
            2 => EventKind::Retraction,
            3 => EventKind::Return,
            _ => return Err(from.expected("1, 2 or 3: a kind of event")),
        };
        Ok(Event {
            sequence,
            kind,
            key: Key {
                partition: text(from, "a partition")?,
                first: position(from)?,
            },
            version: small(from, "a version")?,
            last_ns: from.i64("the time of a last row")?,
            next: position(from)?,
            reported_ns: from.i64("the time of an event's report")?,
            row: text(from, "a row")?,
        })
    }
}

pub(crate) fn text(from: &mut Cursor<'_>, what: &'static str) -> Result<String, DecodeError> {
    let text = from.text(what)?;
    match u64::try_from(text.len()).is_ok_and(|len| len <= TEXT_MAX) {
        true => Ok(text.to_owned()),
        false => Err(from.expected("a shorter text")),
    }
}

pub(crate) fn small(from: &mut Cursor<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let number = from.varint(what)?;
    u32::try_from(number).map_err(|_| from.expected("a number of 32 bits"))
}

pub(crate) fn put_position(out: &mut Vec<u8>, position: Position) {
    out.put_i64(position.time_ns);
    out.put_varint(u64::from(position.skip));
}

pub(crate) fn position(from: &mut Cursor<'_>) -> Result<Position, DecodeError> {
    Ok(Position {
        time_ns: from.i64("the time of a row")?,
        skip: small(from, "rows of the same time")?,
    })
}

/// The id of a version of a match: 32 hexadecimal digits.
#[must_use]
pub fn id_of(watch: u64, key: &Key, version: u32) -> String {
    let mut bytes = Vec::new();
    bytes.put_u64(watch);
    bytes.put_prefixed(key.partition.as_bytes());
    put_position(&mut bytes, key.first);
    bytes.put_varint(u64::from(version));
    let hash = Sha256::digest(&bytes);
    crate::signature::hex(hash.get(..16).unwrap_or(&hash))
}

/// Digest that differs between two answers about one match.
pub(crate) fn digest(last_ns: i64, row: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(last_ns.to_le_bytes());
    hash.update(row.as_bytes());
    hash.finalize().into()
}
