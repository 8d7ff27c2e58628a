//! Segments whose rows were freed.
//!
//! Invariants: a database with such segments has the format [`WITH_FREED`], which older programs
//! refuse; without any the format is the earlier one. Format: docs/format/meta.md,
//! docs/format/stub.md.

use super::{FORMAT_VERSION, Meta, STATE, WITH_FREED, WITH_SNAPSHOTS};
use crate::common::ids::SegmentId;
use crate::{Error, Result};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::ClosedRange;
use redb::{ReadableTable, TableDefinition};

/// By segment: a version, and the number of bytes committed when its rows were freed. Missing until
/// the first was freed.
const FREED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("freed");
const RECORD_VERSION: u8 = 1;
/// Under [`LOST_ROWS`]: the rows that were freed though nobody was known to have them. Missing
/// until the first were.
const LOST: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lost");
const LOST_ROWS: &str = "rows";
const LOST_VERSION: u8 = 1;

/// Rows that were freed though nobody was known to have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRows {
    /// Partitions that lost their rows.
    pub partitions: u64,
    /// Number of the rows, as far as partitions count them: rows that replace each other count.
    pub rows: u64,
    /// Bytes that were freed.
    pub bytes: u64,
    /// Span of the partitions; `None` when nothing was lost.
    pub span: Option<ClosedRange>,
}

impl LostRows {
    /// The sum of two losses.
    #[must_use]
    pub fn and(self, other: LostRows) -> LostRows {
        let span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some(ClosedRange::new(a.first.min(b.first), a.last.max(b.last))),
            (one, None) | (None, one) => one,
        };
        LostRows {
            partitions: self.partitions.saturating_add(other.partitions),
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
            span,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![LOST_VERSION];
        for number in [self.partitions, self.rows, self.bytes] {
            out.put_varint(number);
        }
        let span = self.span.unwrap_or(ClosedRange::EMPTY);
        out.put_i64(span.first.as_nanos());
        out.put_i64(span.last.as_nanos());
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<LostRows, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of the lost rows")? != LOST_VERSION {
            return Err(cursor.expected("a record of lost rows of version 1"));
        }
        let partitions = cursor.varint("lost partitions")?;
        let rows = cursor.varint("lost rows")?;
        let bytes = cursor.varint("lost bytes")?;
        let first = cursor.i64("first lost instant")?;
        let last = cursor.i64("last lost instant")?;
        cursor.finish()?;
        let span = ClosedRange::nanos(first, last);
        Ok(LostRows {
            partitions,
            rows,
            bytes,
            span: (!span.is_empty()).then_some(span),
        })
    }
}

fn encode(base: u64) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION];
    out.put_varint(base);
    out
}

fn decode(bytes: &[u8]) -> std::result::Result<u64, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    if cursor.u8("version of a freed segment")? != RECORD_VERSION {
        return Err(cursor.expected("the record of a freed segment of version 1"));
    }
    let base = cursor.varint("length of the segment")?;
    cursor.finish()?;
    Ok(base)
}

impl Meta {
    /// Segments whose rows were freed, by number, each with its bytes at that time.
    pub(crate) fn freed(&self) -> Result<Vec<(SegmentId, u64)>> {
        let Some(table) = self.table(FREED)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (id, record) = entry.map_err(Error::meta)?;
            let base = decode(record.value())
                .map_err(|e| self.damaged(e.expected, format!("freed segment {}", id.value())))?;
            out.push((SegmentId(id.value()), base));
        }
        Ok(out)
    }

    /// The rows that were lost so far.
    pub(crate) fn lost_rows(&self) -> Result<LostRows> {
        let Some(table) = self.table(LOST)? else {
            return Ok(LostRows::default());
        };
        match table.get(LOST_ROWS).map_err(Error::meta)? {
            None => Ok(LostRows::default()),
            Some(record) => LostRows::decode(record.value())
                .map_err(|e| self.damaged(e.expected, "lost rows".to_owned())),
        }
    }

    /// Records which segments have freed rows, and which do not any more; durable when it returns.
    /// `lost` = all rows that were lost by then, if that has changed. No other thread may change
    /// the metadata meanwhile.
    pub(crate) fn change_freed(
        &self,
        added: &[(SegmentId, u64)],
        gone: &[SegmentId],
        lost: Option<&LostRows>,
    ) -> Result<()> {
        let without = match self.has_snapshots()? {
            true => WITH_SNAPSHOTS,
            false => FORMAT_VERSION,
        };
        let transaction = self.begin_write()?;
        if let Some(lost) = lost {
            let mut table = transaction.open_table(LOST).map_err(Error::meta)?;
            table
                .insert(LOST_ROWS, lost.encode().as_slice())
                .map_err(Error::meta)?;
        }
        {
            let mut table = transaction.open_table(FREED).map_err(Error::meta)?;
            for (id, base) in added {
                table
                    .insert(id.0, encode(*base).as_slice())
                    .map_err(Error::meta)?;
            }
            for id in gone {
                table.remove(id.0).map_err(Error::meta)?;
            }
            let version = match table.first().map_err(Error::meta)? {
                Some(_) => WITH_FREED,
                None => without,
            };
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            state
                .insert("format_version", version)
                .map_err(Error::meta)?;
        }
        transaction.commit().map_err(Error::meta)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::metadata::tables::SnapshotChange;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;

    #[test]
    fn the_record_of_lost_rows_has_these_bytes() {
        let lost = LostRows {
            partitions: 2,
            rows: 300,
            bytes: 1,
            span: Some(ClosedRange::nanos(-1, 5)),
        };
        let mut golden = vec![1, 2, 0xac, 2, 1];
        golden.extend((-1_i64).to_le_bytes());
        golden.extend(5_i64.to_le_bytes());
        assert_eq!(lost.encode(), golden);
        assert_eq!(LostRows::decode(&golden).unwrap(), lost);
        let none = LostRows::default();
        assert_eq!(LostRows::decode(&none.encode()).unwrap(), none);
        for end in 0..golden.len() {
            assert!(LostRows::decode(golden.get(..end).unwrap()).is_err());
        }
        golden.push(0);
        assert!(LostRows::decode(&golden).is_err());
        assert_eq!(lost.and(none), lost);
        assert_eq!(none.and(lost).and(lost).rows, 600);
    }

    #[test]
    fn the_format_is_a_later_one_as_long_as_rows_are_freed() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 1, 7).unwrap();
        let version = || meta.state("format_version").unwrap().unwrap();
        assert!(meta.freed().unwrap().is_empty());
        let (one, two) = (SegmentId(1), SegmentId(2));
        meta.change_freed(&[(one, 64), (two, 1 << 40)], &[], None)
            .unwrap();
        assert_eq!(version(), WITH_FREED);
        assert_eq!(meta.freed().unwrap(), [(one, 64), (two, 1 << 40)]);
        // Making and ending a snapshot does not restore an earlier format.
        let made = SnapshotChange {
            created: Some((1, b"record".to_vec(), b"state".to_vec())),
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&made).unwrap();
        assert_eq!(version(), WITH_FREED);
        meta.change_freed(&[], &[one, two], None).unwrap();
        assert_eq!(version(), WITH_SNAPSHOTS);
        meta.change_freed(&[(one, 64)], &[], None).unwrap();
        let gone = SnapshotChange {
            forgotten: vec![1],
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&gone).unwrap();
        assert_eq!(version(), WITH_FREED);
        meta.change_freed(&[], &[one], None).unwrap();
        assert_eq!(version(), FORMAT_VERSION);
    }

    #[test]
    fn a_record_comes_back_and_a_bad_one_is_refused() {
        for base in [0, 300, u64::MAX] {
            let bytes = encode(base);
            assert_eq!(decode(&bytes), Ok(base));
            for len in 0..bytes.len() {
                assert!(decode(&bytes[..len]).is_err());
            }
        }
        assert!(decode(&[2, 0]).is_err() && decode(&[1, 0, 0]).is_err());
    }
}
