//! The index of a copy on disk: the newest state, the partitions shown, and the locations of
//! present ranges in packs. One redb database, `copy.redb`.
//!
//! Invariants: a range that the index names was synced before; the partitions shown change in one
//! transaction. Bytes of a pack after its end in the index have no meaning. Concurrency: redb's
//! own; only one [`crate::RemoteCopy`] has it open. Failure: a failed transaction may be on the
//! disk nevertheless. Format: docs/format/copy.md.

use super::pack::{Present, pack_dir};
use super::retained::{Cause, Deleted, RetainedChange, RetainedPartition};
use crate::common::error::Damage;
use crate::common::ids::{SegmentId, Sequence};
use crate::metadata::tables::{PartitionRecord, new_database, open_database};
use crate::replication::state::{State, StatePartition};
use crate::replication::subscriptions::Pin;
use crate::storage::tombstone::DeleteRecord;
use crate::{Error, ErrorKind, Result};
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_io::{Env, OpenMode};
use headwater_types::ClosedRange;
use headwater_types::invariant::wide;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("copy");
const STATES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("states");
const SHOWN: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("shown");
/// By segment and offset: length, and location in the pack.
const RANGES: TableDefinition<'_, (u64, u64), (u64, u64)> = TableDefinition::new("ranges");
/// Valid bytes of each pack.
const PACKS: TableDefinition<'_, u64, u64> = TableDefinition::new("packs");

/// By number. Missing until the first pin.
const PINS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("pins");

/// By segment: the deletes in a partition shown in an earlier version. Missing until the first such
/// partition.
const DELETED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("deleted");
/// By segment: retained data that the source has removed. Missing until the first such data.
const RETAINED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("kept");

const VERSION: &str = "format_version";
const FORMAT_VERSION: u64 = 1;
const NEWEST: &str = "newest";

pub(super) fn index_path(dir: &Path) -> PathBuf {
    dir.join("copy.redb")
}

/// The present ranges of each segment, and the end of its pack.
pub(super) type Packs = BTreeMap<SegmentId, (Vec<Present>, u64)>;

#[derive(Debug)]
pub(super) struct Index {
    db: Database,
    path: PathBuf,
}

/// The contents of an index.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: State,
    pub(super) shown: Vec<StatePartition>,
    pub(super) packs: Packs,
    pub(super) pins: BTreeMap<u64, Pin>,
    pub(super) retained: BTreeMap<SegmentId, RetainedPartition>,
    pub(super) deleted: BTreeMap<SegmentId, Vec<Deleted>>,
}

/// Stored rows of an index, without the rows of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawIndex {
    pub(super) state: Vec<u8>,
    pub(super) shown: Vec<(u64, Vec<u8>)>,
    pub(super) deleted: Vec<(u64, Vec<u8>)>,
    pub(super) retained: Vec<(u64, Vec<u8>)>,
    pub(super) pins: Vec<(u64, Vec<u8>)>,
}

fn encode(partition: &StatePartition) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_prefixed(&partition.record.encode());
    out.put_varint(wide(partition.footers.len()));
    for (offset, bytes) in &*partition.footers {
        out.put_varint(*offset);
        out.put_varint(u64::from(*bytes));
    }
    out
}

fn decode(id: SegmentId, bytes: &[u8]) -> std::result::Result<StatePartition, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let record = PartitionRecord::decode(cursor.prefixed("partition record")?)?;
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of footers")?;
    let mut footers = Vec::new();
    for _ in 0..count {
        let offset = cursor.varint("offset of a footer")?;
        let Ok(bytes) = u32::try_from(cursor.varint("length of a footer")?) else {
            return Err(cursor.expected("a footer below 4 GiB"));
        };
        footers.push((offset, bytes));
    }
    cursor.finish()?;
    Ok(StatePartition {
        id,
        record,
        footers: footers.into(),
        // Partitions shown are not proven.
        uppers: Arc::default(),
    })
}

const RETAINED_VERSION: u8 = 1;

fn encode_retained(retained: &RetainedPartition) -> Vec<u8> {
    let mut out = vec![RETAINED_VERSION];
    out.put_prefixed(&encode(&retained.partition));
    out.put_varint(wide(retained.stretches.len()));
    for (cause, range) in &retained.stretches {
        out.put_u8(cause.code());
        out.put_i64(range.first.as_nanos());
        out.put_i64(range.last.as_nanos());
    }
    put_deletes(&retained.deletes, &mut out);
    out
}

fn put_deletes(deletes: &[Deleted], out: &mut Vec<u8>) {
    out.put_varint(wide(deletes.len()));
    for (sequence, record) in deletes {
        out.put_varint(sequence.0);
        out.put_prefixed(&record.encode());
    }
}

fn deletes(cursor: &mut Cursor<'_>) -> std::result::Result<Vec<Deleted>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of deletes")?;
    let mut deletes = Vec::new();
    for _ in 0..count {
        let sequence = Sequence(cursor.varint("sequence of a delete")?);
        let mut bytes = Cursor::new(cursor.prefixed("delete record")?);
        deletes.push((sequence, DeleteRecord::decode(&mut bytes)?));
    }
    Ok(deletes)
}

fn decode_retained(
    id: SegmentId,
    bytes: &[u8],
) -> std::result::Result<RetainedPartition, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    if cursor.u8("version of retained data")? != RETAINED_VERSION {
        return Err(cursor.expected("retained data of version 1"));
    }
    let partition = decode(id, cursor.prefixed("retained partition")?)?;
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of stretches")?;
    let mut stretches = Vec::new();
    for _ in 0..count {
        let code = cursor.u8("retention reason")?;
        let cause = Cause::of_code(code).ok_or_else(|| cursor.expected("1 or 2"))?;
        let (first, last) = (cursor.i64("first instant")?, cursor.i64("last instant")?);
        stretches.push((cause, ClosedRange::nanos(first, last)));
    }
    let deletes = deletes(&mut cursor)?;
    cursor.finish()?;
    Ok(RetainedPartition {
        partition,
        stretches,
        deletes,
    })
}

/// True when no pack exists.
fn has_no_packs(env: &Env, dir: &Path) -> Result<bool> {
    let folder = pack_dir(dir);
    match env.files.list(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        names => Ok(names.map_err(|e| Error::io("list", &folder, e))?.is_empty()),
    }
}

impl Index {
    /// Creates the index of a copy with only a state.
    pub(super) fn create(env: &Env, dir: &Path, state: &State) -> Result<Index> {
        let path = index_path(dir);
        let file = env
            .files
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        // The name first: the name of a file with contents survives.
        env.files
            .sync_dir(dir)
            .map_err(|e| Error::io("sync", dir, e))?;
        let db = new_database(file, &Arc::default())?;
        let index = Index { db, path };
        let transaction = index.db.begin_write().map_err(Error::meta)?;
        {
            let mut numbers = transaction.open_table(NUMBERS).map_err(Error::meta)?;
            numbers
                .insert(VERSION, FORMAT_VERSION)
                .map_err(Error::meta)?;
            let mut states = transaction.open_table(STATES).map_err(Error::meta)?;
            states
                .insert(NEWEST, state.encode().as_slice())
                .map_err(Error::meta)?;
            transaction.open_table(SHOWN).map_err(Error::meta)?;
            transaction.open_table(RANGES).map_err(Error::meta)?;
            transaction.open_table(PACKS).map_err(Error::meta)?;
        }
        transaction.commit().map_err(Error::meta)?;
        Ok(index)
    }

    /// Creates an index with these contents in one transaction: before its commit there is no
    /// index.
    pub(super) fn create_with(
        env: &Env,
        dir: &Path,
        raw: &RawIndex,
        packs: &Packs,
    ) -> Result<Index> {
        let path = index_path(dir);
        let file = env.files.open(&path, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("create", &path, e))?;
        let synced = env.files.sync_dir(dir);
        synced.map_err(|e| Error::io("sync", dir, e))?;
        let db = new_database(file, &Arc::default())?;
        let index = Index { db, path };
        let transaction = index.db.begin_write().map_err(Error::meta)?;
        {
            let mut numbers = transaction.open_table(NUMBERS).map_err(Error::meta)?;
            let put = numbers.insert(VERSION, FORMAT_VERSION);
            put.map_err(Error::meta)?;
            let mut states = transaction.open_table(STATES).map_err(Error::meta)?;
            let put = states.insert(NEWEST, raw.state.as_slice());
            put.map_err(Error::meta)?;
            let tables = [
                (SHOWN, &raw.shown),
                (DELETED, &raw.deleted),
                (RETAINED, &raw.retained),
                (PINS, &raw.pins),
            ];
            for (table, rows) in tables {
                let mut table = transaction.open_table(table).map_err(Error::meta)?;
                for (key, value) in rows {
                    table.insert(key, value.as_slice()).map_err(Error::meta)?;
                }
            }
            let mut ranges = transaction.open_table(RANGES).map_err(Error::meta)?;
            let mut ends = transaction.open_table(PACKS).map_err(Error::meta)?;
            for (id, (present, end)) in packs {
                ends.insert(id.0, end).map_err(Error::meta)?;
                for range in present {
                    let put = ranges.insert((id.0, range.offset), (range.bytes, range.pack_offset));
                    put.map_err(Error::meta)?;
                }
            }
        }
        transaction.commit().map_err(Error::meta)?;
        Ok(index)
    }

    /// The stored rows, without the rows of ranges.
    pub(super) fn raw(&self) -> Result<RawIndex> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        let states = transaction.open_table(STATES).map_err(Error::meta)?;
        let state = states.get(NEWEST).map_err(Error::meta)?;
        let state = state.ok_or_else(|| self.damaged("a state", "none".to_owned()))?;
        let rows = |table: TableDefinition<'static, u64, &'static [u8]>| {
            let table = match transaction.open_table(table) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(error) => return Err(Error::meta(error)),
            };
            let rows = table.iter().map_err(Error::meta)?;
            let rows = rows.map(|row| {
                let (key, value) = row.map_err(Error::meta)?;
                Ok((key.value(), value.value().to_vec()))
            });
            rows.collect()
        };
        Ok(RawIndex {
            state: state.value().to_vec(),
            shown: rows(SHOWN)?,
            deleted: rows(DELETED)?,
            retained: rows(RETAINED)?,
            pins: rows(PINS)?,
        })
    }

    /// Opens the index of a copy; `None` when there is no index, or its creation was interrupted.
    pub(super) fn open(env: &Env, dir: &Path) -> Result<Option<Index>> {
        let path = index_path(dir);
        let file = match env.files.open(&path, OpenMode::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        if len == 0 {
            return Ok(None);
        }
        let db = match open_database(&path, file, len, &Arc::default()) {
            // Its creation was interrupted, or no data is lost: a copy without packs is empty.
            Err(error) if error.kind() == ErrorKind::Corrupt && has_no_packs(env, dir)? => {
                return Ok(None);
            }
            opened => opened?,
        };
        let index = Index { db, path };
        match index.version()? {
            Some(FORMAT_VERSION) => Ok(Some(index)),
            Some(other) => Err(Error::invalid(format!(
                "{}: format version {other} of a copy, this build reads version {FORMAT_VERSION}; use the Headwater version that wrote it",
                index.path.display()
            ))),
            None if has_no_packs(env, dir)? => Ok(None),
            // A file that is too short to be an index is opened as an empty one.
            None => Err(index.damaged("the format version of a copy", "none".to_owned())),
        }
    }

    fn version(&self) -> Result<Option<u64>> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        match transaction.open_table(NUMBERS) {
            Ok(table) => Ok(table
                .get(VERSION)
                .map_err(Error::meta)?
                .map(|version| version.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(Error::meta(error)),
        }
    }

    fn damaged(&self, expected: &str, found: String) -> Error {
        Error::damage(Damage {
            file: self.path.clone(),
            offset: 0,
            expected: expected.to_owned(),
            found,
        })
    }

    pub(super) fn load(&self) -> Result<Loaded> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        let states = transaction.open_table(STATES).map_err(Error::meta)?;
        let bytes = states.get(NEWEST).map_err(Error::meta)?;
        let bytes = bytes.ok_or_else(|| self.damaged("a state", "none".to_owned()))?;
        let state = State::decode(bytes.value(), None)?;
        let mut shown = Vec::new();
        let table = transaction.open_table(SHOWN).map_err(Error::meta)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (id, partition) = entry.map_err(Error::meta)?;
            let partition = decode(SegmentId(id.value()), partition.value()).map_err(|e| {
                self.damaged(
                    e.expected,
                    format!("visible part of segment {}", id.value()),
                )
            })?;
            shown.push(partition);
        }
        let mut packs = Packs::new();
        let table = transaction.open_table(PACKS).map_err(Error::meta)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (id, end) = entry.map_err(Error::meta)?;
            packs.insert(SegmentId(id.value()), (Vec::new(), end.value()));
        }
        let table = transaction.open_table(RANGES).map_err(Error::meta)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            let ((id, offset), (bytes, pack_offset)) = (key.value(), value.value());
            let end = pack_offset.checked_add(bytes);
            match packs.get_mut(&SegmentId(id)) {
                Some((ranges, counted)) if end.is_some_and(|end| end <= *counted) => {
                    ranges.push(Present {
                        offset,
                        bytes,
                        pack_offset,
                    });
                }
                _ => {
                    return Err(self.damaged(
                        "a range inside its pack",
                        format!("{bytes} bytes at {pack_offset} of pack {id}"),
                    ));
                }
            }
        }
        Ok(Loaded {
            state,
            shown,
            packs,
            pins: self.pins(&transaction)?,
            retained: self.retained(&transaction)?,
            deleted: self.deleted(&transaction)?,
        })
    }

    fn pins(&self, transaction: &redb::ReadTransaction) -> Result<BTreeMap<u64, Pin>> {
        let table = match transaction.open_table(PINS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(Error::meta(error)),
        };
        let mut pins = BTreeMap::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (number, pin) = entry.map_err(Error::meta)?;
            let pin = Pin::decode(pin.value())
                .map_err(|e| self.damaged(e.expected, format!("pin {}", number.value())))?;
            pins.insert(number.value(), pin);
        }
        Ok(pins)
    }

    fn retained(
        &self,
        transaction: &redb::ReadTransaction,
    ) -> Result<BTreeMap<SegmentId, RetainedPartition>> {
        let table = match transaction.open_table(RETAINED) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(Error::meta(error)),
        };
        let mut all = BTreeMap::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (id, retained) = entry.map_err(Error::meta)?;
            let id = SegmentId(id.value());
            let retained = decode_retained(id, retained.value())
                .map_err(|e| self.damaged(e.expected, format!("retained data of {}", id.0)))?;
            all.insert(id, retained);
        }
        Ok(all)
    }

    fn deleted(
        &self,
        transaction: &redb::ReadTransaction,
    ) -> Result<BTreeMap<SegmentId, Vec<Deleted>>> {
        let table = match transaction.open_table(DELETED) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(Error::meta(error)),
        };
        let mut all = BTreeMap::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (id, bytes) = entry.map_err(Error::meta)?;
            let id = SegmentId(id.value());
            let mut cursor = Cursor::new(bytes.value());
            let read = deletes(&mut cursor).and_then(|all| cursor.finish().map(|()| all));
            let read =
                read.map_err(|e| self.damaged(e.expected, format!("deletes of {}", id.0)))?;
            all.insert(id, read);
        }
        Ok(all)
    }

    fn commit_retained(
        &self,
        transaction: &redb::WriteTransaction,
        change: &RetainedChange,
    ) -> Result<()> {
        if change.is_empty() {
            return Ok(());
        }
        let mut table = transaction.open_table(RETAINED).map_err(Error::meta)?;
        for id in &change.removed {
            table.remove(id.0).map_err(Error::meta)?;
        }
        for part in &change.put {
            table
                .insert(part.partition.id.0, encode_retained(part).as_slice())
                .map_err(Error::meta)?;
        }
        Ok(())
    }

    /// Stores a pin, or removes it.
    pub(super) fn put_pin(&self, number: u64, pin: Option<&Pin>) -> Result<()> {
        let transaction = self.db.begin_write().map_err(Error::meta)?;
        {
            let mut pins = transaction.open_table(PINS).map_err(Error::meta)?;
            match pin {
                Some(pin) => drop(
                    pins.insert(number, pin.encode().as_slice())
                        .map_err(Error::meta)?,
                ),
                None => drop(pins.remove(number).map_err(Error::meta)?),
            }
        }
        transaction.commit().map_err(Error::meta)
    }

    /// Adds ranges that are synced, and the new ends of their packs.
    pub(super) fn put_ranges(&self, new: &Packs) -> Result<()> {
        let transaction = self.db.begin_write().map_err(Error::meta)?;
        {
            let mut ranges = transaction.open_table(RANGES).map_err(Error::meta)?;
            let mut packs = transaction.open_table(PACKS).map_err(Error::meta)?;
            for (id, (present, end)) in new {
                packs.insert(id.0, end).map_err(Error::meta)?;
                for range in present {
                    ranges
                        .insert((id.0, range.offset), (range.bytes, range.pack_offset))
                        .map_err(Error::meta)?;
                }
            }
        }
        transaction.commit().map_err(Error::meta)
    }

    /// Forgets ranges of a segment, by their offsets.
    pub(super) fn forget_ranges(&self, id: SegmentId, offsets: &[u64]) -> Result<()> {
        let transaction = self.db.begin_write().map_err(Error::meta)?;
        {
            let mut ranges = transaction.open_table(RANGES).map_err(Error::meta)?;
            for offset in offsets {
                ranges.remove((id.0, *offset)).map_err(Error::meta)?;
            }
        }
        transaction.commit().map_err(Error::meta)
    }

    /// Stores a new state, if any, the partitions shown and the changes of retained data; removed
    /// packs are forgotten.
    pub(super) fn put_shown(
        &self,
        state: Option<&State>,
        (shown, deleted, retained): (
            &[StatePartition],
            &BTreeMap<SegmentId, Vec<Deleted>>,
            &RetainedChange,
        ),
        gone: &[SegmentId],
    ) -> Result<()> {
        let transaction = self.db.begin_write().map_err(Error::meta)?;
        {
            if let Some(state) = state {
                let mut states = transaction.open_table(STATES).map_err(Error::meta)?;
                states
                    .insert(NEWEST, state.encode().as_slice())
                    .map_err(Error::meta)?;
            }
            let mut table = transaction.open_table(SHOWN).map_err(Error::meta)?;
            table.retain(|_, _| false).map_err(Error::meta)?;
            for partition in shown {
                table
                    .insert(partition.id.0, encode(partition).as_slice())
                    .map_err(Error::meta)?;
            }
            self.commit_retained(&transaction, retained)?;
            let mut table = transaction.open_table(DELETED).map_err(Error::meta)?;
            table.retain(|_, _| false).map_err(Error::meta)?;
            for (id, deletes) in deleted {
                let mut bytes = Vec::new();
                put_deletes(deletes, &mut bytes);
                table.insert(id.0, bytes.as_slice()).map_err(Error::meta)?;
            }
            let mut ranges = transaction.open_table(RANGES).map_err(Error::meta)?;
            let mut packs = transaction.open_table(PACKS).map_err(Error::meta)?;
            for id in gone {
                packs.remove(id.0).map_err(Error::meta)?;
                ranges
                    .retain_in((id.0, 0)..=(id.0, u64::MAX), |_, _| false)
                    .map_err(Error::meta)?;
            }
        }
        transaction.commit().map_err(Error::meta)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The stored rows of an index, table by table: key and value.
    fn rows(index: &Index) -> Vec<u8> {
        let transaction = index.db.begin_read().unwrap();
        let mut out = Vec::new();
        for row in transaction.open_table(NUMBERS).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_prefixed(key.value().as_bytes());
            out.put_u64(value.value());
        }
        for row in transaction.open_table(STATES).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_prefixed(key.value().as_bytes());
            out.put_prefixed(value.value());
        }
        for row in transaction.open_table(SHOWN).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_u64(key.value());
            out.put_prefixed(value.value());
        }
        for row in transaction.open_table(RANGES).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            let ((id, offset), (bytes, place)) = (key.value(), value.value());
            for number in [id, offset, bytes, place] {
                out.put_u64(number);
            }
        }
        for row in transaction.open_table(PACKS).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_u64(key.value());
            out.put_u64(value.value());
        }
        for row in transaction.open_table(PINS).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_u64(key.value());
            out.put_prefixed(value.value());
        }
        for row in transaction.open_table(DELETED).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_u64(key.value());
            out.put_prefixed(value.value());
        }
        for row in transaction.open_table(RETAINED).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            out.put_u64(key.value());
            out.put_prefixed(value.value());
        }
        out
    }

    #[test]
    fn what_a_copy_holds_comes_back_and_its_bytes_do_not_change() {
        let env = Env::memory();
        let dir = Path::new("/copy");
        env.files.create_dir_all(&pack_dir(dir)).unwrap();
        assert!(Index::open(&env, dir).unwrap().is_none());
        let (before, after) = crate::replication::state::tests::two();
        let index = Index::create(&env, dir, &before).unwrap();
        let present = |offset, bytes, pack_offset| Present {
            offset,
            bytes,
            pack_offset,
        };
        let four = (vec![present(64, 100, 0), present(900, 70, 100)], 170);
        let six = (vec![present(300, 40, 0)], 40);
        let packs = Packs::from([(SegmentId(4), four.clone()), (SegmentId(6), six)]);
        index.put_ranges(&packs).unwrap();
        let gone = [SegmentId(6)];
        let mut partitions = before.partitions.iter();
        let (first, last) = (partitions.next().unwrap(), partitions.next_back().unwrap());
        let part = RetainedPartition {
            partition: last.clone(),
            stretches: vec![
                (Cause::Cut, ClosedRange::nanos(1, 9)),
                (Cause::Aged, ClosedRange::nanos(20, 30)),
            ],
            deletes: before.deletes.clone(),
        };
        let deleted = BTreeMap::from([(first.id, before.deletes.clone())]);
        let change = RetainedChange {
            put: vec![part.clone()],
            removed: vec![SegmentId(9)],
        };
        assert!(index.load().unwrap().retained.is_empty());
        index
            .put_shown(
                Some(&after),
                (&before.partitions[..1], &deleted, &change),
                &gone,
            )
            .unwrap();
        let pin = Pin {
            table: "weather".into(),
            tags: vec![("id".into(), "7".into())],
            range: ClosedRange::nanos(5, 9),
            until: None,
        };
        assert!(index.load().unwrap().pins.is_empty());
        for number in [4, 5] {
            index.put_pin(number, Some(&pin)).unwrap();
        }
        index.put_pin(4, None).unwrap();
        crate::golden::check("copy", &rows(&index));
        drop(index);
        let index = Index::open(&env, dir).unwrap().unwrap();
        let loaded = index.load().unwrap();
        assert_eq!(loaded.state, after);
        assert_eq!(loaded.shown, before.partitions[..1]);
        assert_eq!(loaded.packs, Packs::from([(SegmentId(4), four)]));
        assert_eq!(loaded.pins, BTreeMap::from([(5, pin)]));
        assert_eq!(loaded.retained, BTreeMap::from([(part.partition.id, part)]));
        assert_eq!(loaded.deleted, deleted);
        index.forget_ranges(SegmentId(4), &[64]).unwrap();
        let left = index.load().unwrap().packs;
        let left = left.get(&SegmentId(4)).unwrap();
        assert_eq!(*left, (vec![present(900, 70, 100)], 170));
    }
}
