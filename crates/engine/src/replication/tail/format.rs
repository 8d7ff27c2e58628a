//! The bytes of a tail: docs/format/tail.md.
//!
//! Invariants: accepted bytes give records of known kinds with ascending numbers in the range of
//! the tail. The contents of a record are checked when it is replayed.

use super::{Tail, TailRecord};
use crate::common::ids::Sequence;
use crate::wal::RecordKind;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;

const MAGIC: [u8; 6] = *b"HWTAIL";
const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;
const NEWEST: u8 = 1;
const SKIPPED: u8 = 2;

impl Tail {
    /// Encodes the tail.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u8(VERSION);
        let newest = if self.is_newest { NEWEST } else { 0 };
        let skipped = if self.skipped.is_some() { SKIPPED } else { 0 };
        out.put_u8(newest | skipped);
        let (identity, incarnation) = self.history;
        out.put_u64(identity);
        out.put_u64(incarnation);
        out.put_varint(self.number);
        out.put_varint(self.floor.0);
        out.put_varint(self.after.0);
        out.put_varint(self.until.0.saturating_sub(self.after.0));
        if let Some(skipped) = self.skipped {
            out.put_varint(skipped.0);
        }
        out.put_varint(wide(self.records.len()));
        let mut before = self.after.0;
        for record in &self.records {
            out.put_varint(record.sequence.0.saturating_sub(before));
            out.put_u8(record.kind.number());
            out.put_prefixed(&record.payload);
            before = record.sequence.0;
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// The tail of these bytes.
    ///
    /// # Errors
    /// A description of the expected content, and the position.
    pub fn decode(bytes: &[u8]) -> Result<Tail, DecodeError> {
        let wrong = |expected| DecodeError {
            expected,
            offset: 0,
        };
        let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(wrong("a tail of at least four bytes"));
        };
        let mut cursor = Cursor::new(body);
        if cursor.take(MAGIC.len(), "the magic of a tail")? != MAGIC {
            return Err(wrong("the magic of a tail"));
        }
        if cursor.u8("version of a tail")? != VERSION {
            return Err(wrong("a tail of version 1"));
        }
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(wrong("a tail with a valid checksum"));
        }
        let flags = cursor.u8("flags of a tail")?;
        if flags & !(NEWEST | SKIPPED) != 0 {
            return Err(cursor.expected("flags of a tail from 0 to 3"));
        }
        let history = (cursor.u64("identity")?, cursor.u64("incarnation")?);
        let number = cursor.varint("number of a state")?;
        let floor = Sequence(cursor.varint("newest sequence of the state")?);
        let after = cursor.varint("the sequence before a tail")?;
        let length = cursor.varint("the length of a tail")?;
        let Some(until) = after.checked_add(length) else {
            return Err(cursor.expected("a tail that ends at a sequence"));
        };
        let skipped = match flags & SKIPPED {
            0 => None,
            _ => {
                let up_to = cursor.varint("a sequence of the tail")?;
                if up_to > until {
                    return Err(cursor.expected("events left out within the tail"));
                }
                Some(Sequence(up_to))
            }
        };
        let count = cursor.varint_up_to(wide(cursor.remaining()), "number of records")?;
        let mut records = Vec::new();
        let mut before = after;
        for _ in 0..count {
            let record = record(&mut cursor, before, until)?;
            before = record.sequence.0;
            records.push(record);
        }
        if cursor.remaining() != 0 {
            return Err(cursor.expected("the end of a tail"));
        }
        Ok(Tail {
            history,
            number,
            floor,
            after: Sequence(after),
            until: Sequence(until),
            skipped,
            is_newest: flags & NEWEST != 0,
            records,
        })
    }
}

fn record(cursor: &mut Cursor<'_>, before: u64, until: u64) -> Result<TailRecord, DecodeError> {
    let step = cursor.varint("a step of sequences")?;
    let sequence = before.checked_add(step).filter(|s| *s <= until);
    let Some(sequence) = sequence.filter(|_| step > 0) else {
        return Err(cursor.expected("ascending sequences within the tail"));
    };
    let kind = RecordKind::from_number(cursor.u8("kind of a record")?);
    // The producer of a batch does not leave.
    let Some(kind) = kind.filter(|kind| *kind != RecordKind::NumberedWrite) else {
        return Err(cursor.expected("a record kind of a tail"));
    };
    Ok(TailRecord {
        sequence: Sequence(sequence),
        kind,
        payload: cursor.prefixed("a record")?.into(),
    })
}

/// Decodes the bytes of a tail, for fuzzing; `repair` puts the right checksum in first.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair && let Some((body, crc)) = bytes.split_last_chunk_mut::<CRC_BYTES>() {
        *crc = crc32c(body).to_le_bytes();
    }
    if let Ok(tail) = Tail::decode(&bytes) {
        assert_eq!(Tail::decode(&tail.encode()), Ok(tail));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tail() -> Tail {
        let record = |sequence, kind, payload: &[u8]| TailRecord {
            sequence: Sequence(sequence),
            kind,
            payload: payload.into(),
        };
        Tail {
            history: (1, 2),
            number: 3,
            floor: Sequence(299),
            after: Sequence(300),
            until: Sequence(310),
            skipped: Some(Sequence(304)),
            is_newest: true,
            records: vec![
                record(302, RecordKind::Streams, &[9, 9]),
                record(305, RecordKind::Write, &[0]),
            ],
        }
    }

    /// Format: docs/format/tail.md.
    #[test]
    fn a_tail_has_these_bytes() {
        let bytes = tail().encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "48575441494c01030100000000000000020000000000000003ab02ac020ab002020203020909",
                "03010100ee0b7755",
            )
        );
        assert_eq!(Tail::decode(&bytes), Ok(tail()));
    }

    #[test]
    fn other_bytes_are_no_tail() {
        let bytes = tail().encode();
        for cut in 0..bytes.len() {
            assert!(Tail::decode(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Tail::decode(&changed).is_err());
            fuzz(&changed, true);
        }
        let refused = |change: &dyn Fn(&mut Tail)| {
            let mut changed = tail();
            change(&mut changed);
            assert!(Tail::decode(&changed.encode()).is_err());
        };
        refused(&|t| t.until = Sequence(304));
        refused(&|t| t.records[1].sequence = Sequence(302));
        refused(&|t| t.records[0].kind = RecordKind::NumberedWrite);
        refused(&|t| t.skipped = Some(Sequence(311)));
    }
}
