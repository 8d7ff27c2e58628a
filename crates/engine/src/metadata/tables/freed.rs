//! Segments whose rows were freed.
//!
//! Invariants: a database with such segments has the format [`WITH_FREED`], which older programs
//! refuse; without any the format is the earlier one. Format: docs/format/meta.md,
//! docs/format/stub.md.

use super::{FORMAT_VERSION, Meta, STATE, WITH_FREED, WITH_SNAPSHOTS};
use crate::common::ids::SegmentId;
use crate::{Error, Result};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// By segment: a version, and the number of bytes committed when its rows were freed. Missing until
/// the first was freed.
const FREED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("freed");
const RECORD_VERSION: u8 = 1;

fn encode(base: u64) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION];
    out.put_varint(base);
    out
}

fn decode(bytes: &[u8]) -> std::result::Result<u64, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    if cursor.u8("version of a freed segment")? != RECORD_VERSION {
        return Err(cursor.fail("the record of a freed segment of version 1"));
    }
    let base = cursor.varint("length of the segment")?;
    cursor.finish()?;
    Ok(base)
}

impl Meta {
    /// Segments whose rows were freed, by number, each with its bytes at that time.
    pub(crate) fn freed(&self) -> Result<Vec<(SegmentId, u64)>> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        let table = match transaction.open_table(FREED) {
            Ok(table) => table,
            // No segment was ever freed.
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(Error::meta(error)),
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

    /// Records which segments have freed rows, and which do not any more; durable when it returns.
    /// No other thread may change the metadata meanwhile.
    pub(crate) fn change_freed(
        &self,
        added: &[(SegmentId, u64)],
        gone: &[SegmentId],
    ) -> Result<()> {
        let without = match self.has_snapshots()? {
            true => WITH_SNAPSHOTS,
            false => FORMAT_VERSION,
        };
        let transaction = self.begin_write()?;
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
    fn the_format_is_a_later_one_as_long_as_rows_are_freed() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 1, 7).unwrap();
        let version = || meta.state("format_version").unwrap().unwrap();
        assert!(meta.freed().unwrap().is_empty());
        let (one, two) = (SegmentId(1), SegmentId(2));
        meta.change_freed(&[(one, 64), (two, 1 << 40)], &[])
            .unwrap();
        assert_eq!(version(), WITH_FREED);
        assert_eq!(meta.freed().unwrap(), [(one, 64), (two, 1 << 40)]);
        // Making and ending a snapshot does not restore an earlier format.
        let made = SnapshotChange {
            made: Some((1, b"record".to_vec(), b"state".to_vec())),
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&made).unwrap();
        assert_eq!(version(), WITH_FREED);
        meta.change_freed(&[], &[one, two]).unwrap();
        assert_eq!(version(), WITH_SNAPSHOTS);
        meta.change_freed(&[(one, 64)], &[]).unwrap();
        let gone = SnapshotChange {
            gone: vec![1],
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&gone).unwrap();
        assert_eq!(version(), WITH_FREED);
        meta.change_freed(&[], &[one]).unwrap();
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
