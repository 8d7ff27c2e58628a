//! The metadata: catalog, partitions with committed lengths, log position, counters. One redb
//! database, `meta.redb`.
//!
//! Invariants: one transaction per job makes all of the job's segments visible at once; a segment
//! file that is not in the partitions table is not part of the database; `step_sequence` never
//! decreases. Concurrency: redb's own; writers are serialized by it. Failure: a failed commit
//! leaves the old state; the caller latches the database. Format: docs/format/meta.md.

mod backend;
pub(crate) mod copy;
mod ends;
mod fixed;
mod freed;
mod hashes;
mod indexes;
mod lineage;
mod log;
mod notes;
mod opening;
mod records;
mod removed;
mod snapshots;
mod streams;

pub(crate) use ends::{EndsChange, RetainedFor, SavedEnds};
pub(crate) use fixed::FixedContents;
pub use freed::LostRows;
pub(crate) use indexes::IndexChange;
pub(crate) use lineage::{Lineage, NamedState};
pub(crate) use opening::{new_database, open_database, write_again};
pub(crate) use records::PartitionRecord;
pub(crate) use snapshots::SnapshotChange;

use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::metadata::catalog::{Definition, StreamIndex, Table};
use crate::metadata::ledger::GroupHashes;
use crate::metadata::removed_rows::RemovedChange;
use crate::{Error, ErrorKind, Result};
use backend::FileStats;
use fixed::FixedMeta;
use headwater_codec::{Cursor, PutBytes};
use headwater_io::{Chance, File, Lock};
use lineage::StateNames;
use log::{LOG_NEWEST, raise};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");
const TABLES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tables");
const STREAM_IDS: TableDefinition<'_, &[u8], u32> = TableDefinition::new("stream_ids");
const STREAMS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("streams");
const STREAM_COUNTS: TableDefinition<'_, u32, u64> = TableDefinition::new("stream_counts");
const TAG_KEYS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("tag_keys");
const PARTITIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("partitions");
/// Dropped streams, while the log may still have events of them: the sequence of their end, then
/// their record.
const DROPPED: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("dropped");
/// By name: number of the newest batch, and the sequence of its record.
const ANALYZERS: TableDefinition<'_, u16, &[u8]> = TableDefinition::new("analyzers");
const PRODUCERS: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("producers");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// The version of the whole set of formats of a database without named snapshots.
pub(crate) const FORMAT_VERSION: u64 = 1;
/// Format version of a database with snapshots: older programs would remove the files that
/// snapshots keep.
pub(crate) const WITH_SNAPSHOTS: u64 = 2;
/// Format version of a database with freed rows, with or without snapshots: older programs would
/// treat the freed segments as lost.
pub(crate) const WITH_FREED: u64 = 3;

/// The open metadata.
#[derive(Debug)]
pub(crate) struct Meta {
    backing: Backing,
    path: PathBuf,
    stats: Arc<FileStats>,
    naming: StateNames,
    /// The owner's lock of the file itself. Released after redb has closed the file, by the order
    /// of the fields.
    lock: Option<Box<dyn Lock>>,
}

/// Storage of the metadata.
#[derive(Debug)]
enum Backing {
    /// A file.
    Stored(Database),
    /// Memory, for a database that is made from a state.
    Fixed(Box<FixedMeta>),
}

/// A table as of a transaction; `None` where it was never written.
fn table_of<K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &redb::ReadTransaction,
    of: TableDefinition<'_, K, V>,
) -> Result<Option<redb::ReadOnlyTable<K, V>>> {
    match transaction.open_table(of) {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(Error::meta(error)),
    }
}

/// Changes of a job, committed at once.
#[derive(Debug, Default)]
pub(crate) struct MetaChange {
    pub(crate) step_sequence: Sequence,
    pub(crate) definitions: Vec<(Sequence, Definition)>,
    pub(crate) next_stream: u32,
    pub(crate) partitions: Vec<(SegmentId, PartitionRecord)>,
    /// Hashes of the groups added to partitions.
    pub(crate) hashes: Vec<(SegmentId, Vec<GroupHashes>)>,
    pub(crate) removed: Vec<SegmentId>,
    pub(crate) next_segment: u64,
    pub(crate) log_first_generation: u64,
    /// Generations of log files up to this one have been started; 0 = no news.
    pub(crate) log_newest_generation: u64,
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) producers: Vec<crate::metadata::producers::SavedProducer>,
    /// State of the analyzers of late events, by shard.
    pub(crate) analyzers: Vec<(u16, Vec<u8>)>,
    /// The newest delete of each affected table.
    pub(crate) deletes: Vec<(TableId, Sequence)>,
    /// Deletes to send to copies.
    pub(crate) ends: EndsChange,
    /// Deletes to apply to named snapshots.
    pub(crate) snapshot_ends: EndsChange,
    /// Changed records of rows that a retention removed.
    pub(crate) removed_rows: RemovedChange,
}

impl MetaChange {
    /// True when the change affects the content of a state of the database.
    fn makes_a_state(&self) -> bool {
        !(self.partitions.is_empty() && self.removed.is_empty() && self.definitions.is_empty())
    }
}

impl Meta {
    /// Creates new metadata in `file`, which is empty.
    pub(crate) fn create(
        path: &Path,
        file: Arc<dyn File>,
        shards: u16,
        identity: u64,
    ) -> Result<Meta> {
        let stats = Arc::new(FileStats::default());
        let db = new_database(file, &stats)?;
        let meta = Meta {
            backing: Backing::Stored(db),
            path: path.to_owned(),
            stats,
            naming: StateNames::default(),
            lock: None,
        };
        let transaction = meta.begin_write()?;
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            state
                .insert("format_version", FORMAT_VERSION)
                .map_err(Error::meta)?;
            state
                .insert("shards", u64::from(shards))
                .map_err(Error::meta)?;
            state.insert("identity", identity).map_err(Error::meta)?;
            transaction.open_table(TABLES).map_err(Error::meta)?;
            transaction.open_table(STREAM_IDS).map_err(Error::meta)?;
            transaction.open_table(STREAMS).map_err(Error::meta)?;
            transaction.open_table(STREAM_COUNTS).map_err(Error::meta)?;
            transaction.open_table(TAG_KEYS).map_err(Error::meta)?;
            transaction.open_table(PARTITIONS).map_err(Error::meta)?;
            transaction.open_table(COUNTERS).map_err(Error::meta)?;
            transaction.open_table(DROPPED).map_err(Error::meta)?;
            transaction.open_table(PRODUCERS).map_err(Error::meta)?;
            transaction.open_table(ANALYZERS).map_err(Error::meta)?;
        }
        transaction.commit().map_err(Error::meta)?;
        Ok(meta)
    }

    /// Metadata that never change; `path` names the database in errors.
    pub(crate) fn fixed(path: &Path, contents: FixedContents) -> Meta {
        Meta {
            backing: Backing::Fixed(Box::new(FixedMeta::new(contents))),
            path: path.to_owned(),
            stats: Arc::default(),
            naming: StateNames::default(),
            lock: None,
        }
    }

    /// Opens the metadata in `file`. `None` when its creation was interrupted: it never had any
    /// content.
    pub(crate) fn open(path: &Path, file: Arc<dyn File>) -> Result<Option<Meta>> {
        let len = file.len().map_err(|e| Error::io("read", path, e))?;
        if len == 0 {
            return Ok(None);
        }
        let stats = Arc::new(FileStats::default());
        let db = open_database(path, file, len, &stats)?;
        let meta = Meta {
            backing: Backing::Stored(db),
            path: path.to_owned(),
            stats,
            naming: StateNames::default(),
            lock: None,
        };
        match meta.state("format_version")? {
            None => Ok(None),
            Some(FORMAT_VERSION | WITH_SNAPSHOTS | WITH_FREED) => Ok(Some(meta)),
            Some(other) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{}: format version {other}, this build reads versions {FORMAT_VERSION} to {WITH_FREED}; use the Headwater version that wrote it",
                    path.display()
                ),
            )),
        }
    }

    /// The metadata with the lock of their file, for an owner.
    pub(crate) fn owned(self, lock: Box<dyn Lock>, chance: &Arc<dyn Chance>) -> Meta {
        Meta {
            lock: Some(lock),
            naming: StateNames::by(Arc::clone(chance), false),
            ..self
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a transaction, if the name still refers to the open file. A process that finds
    /// another file under the name owns that file: if both commit, one commit is lost.
    fn begin_write(&self) -> Result<redb::WriteTransaction> {
        if let Some(lock) = &self.lock
            && !lock
                .is_current()
                .map_err(|e| Error::io("look for", &self.path, e))?
        {
            return Err(Error::new(
                ErrorKind::Io,
                format!(
                    "{} was removed or replaced while the database is open, and another process may own it now: writes are refused; close the database and check the folder",
                    self.path.display()
                ),
            ));
        }
        self.stored()?.begin_write().map_err(Error::meta)
    }

    /// The database of the metadata.
    ///
    /// # Errors
    /// `internal` for fixed metadata, which nothing changes.
    fn stored(&self) -> Result<&Database> {
        match &self.backing {
            Backing::Stored(db) => Ok(db),
            Backing::Fixed(_) => Err(Error::internal(
                "the metadata of a state are fixed, and were to be changed",
            )),
        }
    }

    /// A transaction that reads the tables; `None` for fixed metadata.
    fn begin_read(&self) -> Result<Option<redb::ReadTransaction>> {
        match &self.backing {
            Backing::Stored(db) => db.begin_read().map(Some).map_err(Error::meta),
            Backing::Fixed(_) => Ok(None),
        }
    }

    /// A table as of now; `None` where it was never written, and for fixed metadata.
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        of: TableDefinition<'_, K, V>,
    ) -> Result<Option<redb::ReadOnlyTable<K, V>>> {
        match self.begin_read()? {
            Some(transaction) => table_of(&transaction, of),
            None => Ok(None),
        }
    }

    /// A table that every database has.
    fn required<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        of: TableDefinition<'_, K, V>,
    ) -> Result<redb::ReadOnlyTable<K, V>> {
        let transaction = self.stored()?.begin_read().map_err(Error::meta)?;
        transaction.open_table(of).map_err(Error::meta)
    }

    /// Bytes written to the metadata file since opening.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.stats.written.load(Ordering::Relaxed)
    }

    /// Length of the metadata file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.stats.len.load(Ordering::Relaxed)
    }

    fn state(&self, key: &str) -> Result<Option<u64>> {
        if let Backing::Fixed(fixed) = &self.backing {
            return Ok(fixed.state(key));
        }
        let Some(table) = self.table(STATE)? else {
            return Ok(None);
        };
        Ok(table.get(key).map_err(Error::meta)?.map(|v| v.value()))
    }

    pub(crate) fn shards(&self) -> Result<u16> {
        let shards = self.state("shards")?.unwrap_or(1);
        u16::try_from(shards).map_err(|_| self.damaged("a shard count below 65536", shards))
    }

    /// A random number drawn when the database was created, by which backups identify it; 0 = not
    /// set.
    pub(crate) fn identity(&self) -> Result<u64> {
        Ok(self.state("identity")?.unwrap_or(0))
    }

    pub(crate) fn step_sequence(&self) -> Result<Sequence> {
        Ok(Sequence(self.state("step_sequence")?.unwrap_or(0)))
    }

    pub(crate) fn next_segment(&self) -> Result<u64> {
        Ok(self.state("next_segment")?.unwrap_or(1))
    }

    pub(crate) fn next_stream(&self) -> Result<u32> {
        let next = self.state("next_stream")?.unwrap_or(0);
        u32::try_from(next).map_err(|_| self.damaged("a stream number below 2^32", next))
    }

    fn damaged(&self, expected: &str, found: impl std::fmt::Display) -> Error {
        Error::damage(crate::common::error::Damage {
            file: self.path.clone(),
            offset: 0,
            expected: expected.to_owned(),
            found: found.to_string(),
        })
    }

    pub(crate) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let mut out = BTreeMap::new();
        let Backing::Stored(_) = &self.backing else {
            return Ok(out);
        };
        let table = self.required(COUNTERS)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            out.insert(key.value().to_owned(), value.value());
        }
        Ok(out)
    }

    pub(crate) fn tables(&self) -> Result<Vec<Table>> {
        if let Backing::Fixed(fixed) = &self.backing {
            let tables = fixed.tables().iter();
            return Ok(tables.map(|table| Table::clone(table)).collect());
        }
        let table = self.required(TABLES)?;
        let mut out: Vec<Table> = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            let decoded = Table::decode(&mut Cursor::new(value.value()))
                .map_err(|e| self.damaged(e.expected, format!("table record {}", key.value())))?;
            if decoded.id.0 as usize != out.len() {
                return Err(self.damaged("consecutive table numbers", key.value()));
            }
            out.push(decoded);
        }
        Ok(out)
    }

    pub(crate) fn partitions(&self) -> Result<Vec<(SegmentId, PartitionRecord)>> {
        if let Backing::Fixed(fixed) = &self.backing {
            return Ok(fixed.partitions().to_vec());
        }
        let table = self.required(PARTITIONS)?;
        self.partitions_of(&table)
    }

    fn partitions_of(
        &self,
        table: &impl ReadableTable<u64, &'static [u8]>,
    ) -> Result<Vec<(SegmentId, PartitionRecord)>> {
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            let record = PartitionRecord::decode(value.value()).map_err(|e| {
                self.damaged(e.expected, format!("partition record {}", key.value()))
            })?;
            out.push((SegmentId(key.value()), record));
        }
        Ok(out)
    }

    /// State of the analyzers of late events.
    pub(crate) fn analyzers(&self) -> Result<BTreeMap<u16, Vec<u8>>> {
        let Some(table) = self.table(ANALYZERS)? else {
            return Ok(BTreeMap::new());
        };
        let mut out = BTreeMap::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (shard, bytes) = entry.map_err(Error::meta)?;
            out.insert(shard.value(), bytes.value().to_vec());
        }
        Ok(out)
    }

    /// Producers, each with the number of its newest batch and the sequence of its record.
    pub(crate) fn producers(&self) -> Result<Vec<(String, u64, Sequence)>> {
        let Some(table) = self.table(PRODUCERS)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (name, newest) = entry.map_err(Error::meta)?;
            let (number, sequence) = newest.value();
            out.push((name.value().to_owned(), number, Sequence(sequence)));
        }
        Ok(out)
    }

    /// Forgets streams dropped up to a sequence: neither the log nor segments mention them any
    /// more.
    pub(crate) fn forget_dropped(&self, up_to: Sequence) -> Result<()> {
        let gone: Vec<StreamId> = self
            .dropped()?
            .into_iter()
            .filter(|(s, _)| *s <= up_to)
            .map(|(_, r)| r.id)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let transaction = self.begin_write()?;
        {
            let mut table = transaction.open_table(DROPPED).map_err(Error::meta)?;
            for id in gone {
                table.remove(id.0).map_err(Error::meta)?;
            }
        }
        transaction.commit().map_err(Error::meta)
    }

    /// Forgets the streams of a dropped table without stored data.
    pub(crate) fn forget_streams_of(&self, table: TableId) -> Result<()> {
        let records = self.streams_of(table)?;
        if records.is_empty() {
            return Ok(());
        }
        let transaction = self.begin_write()?;
        {
            let mut ids = transaction.open_table(STREAM_IDS).map_err(Error::meta)?;
            let mut streams = transaction.open_table(STREAMS).map_err(Error::meta)?;
            let mut counts = transaction.open_table(STREAM_COUNTS).map_err(Error::meta)?;
            for record in records {
                ids.remove(&*record.key).map_err(Error::meta)?;
                streams.remove(record.id.0).map_err(Error::meta)?;
            }
            counts.insert(table.0, 0).map_err(Error::meta)?;
        }
        self.name_state(&transaction)?;
        transaction.commit().map_err(Error::meta)
    }

    /// Commits a job, completely or not at all.
    pub(crate) fn commit(&self, change: &MetaChange) -> Result<()> {
        let transaction = self.begin_write()?;
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            let old = state
                .get("step_sequence")
                .map_err(Error::meta)?
                .map_or(0, |v| v.value());
            state
                .insert("step_sequence", old.max(change.step_sequence.0))
                .map_err(Error::meta)?;
            let old = state
                .get("next_segment")
                .map_err(Error::meta)?
                .map_or(1, |v| v.value());
            state
                .insert("next_segment", old.max(change.next_segment))
                .map_err(Error::meta)?;
            raise(
                &mut state,
                "log_first_generation",
                change.log_first_generation,
            )?;
            if change.log_newest_generation > 0 {
                raise(&mut state, LOG_NEWEST, change.log_newest_generation)?;
            }
            if !change.definitions.is_empty() {
                let old = state
                    .get("next_stream")
                    .map_err(Error::meta)?
                    .map_or(0, |v| v.value());
                state
                    .insert("next_stream", old.max(u64::from(change.next_stream)))
                    .map_err(Error::meta)?;
            }
        }
        if change.makes_a_state() || self.naming.renews() {
            self.name_state(&transaction)?;
        }
        self.commit_definitions(&transaction, &change.definitions)?;
        self.commit_deletes(&transaction, &change.deletes)?;
        self.commit_ends(&transaction, &change.ends, RetainedFor::Copies)?;
        self.commit_ends(&transaction, &change.snapshot_ends, RetainedFor::Snapshots)?;
        self.commit_removed(&transaction, &change.removed_rows)?;
        self.commit_hashes(&transaction, change)?;
        {
            let mut partitions = transaction.open_table(PARTITIONS).map_err(Error::meta)?;
            for id in &change.removed {
                partitions.remove(id.0).map_err(Error::meta)?;
            }
            for (id, record) in &change.partitions {
                partitions
                    .insert(id.0, record.encode().as_slice())
                    .map_err(Error::meta)?;
            }
            let mut counters = transaction.open_table(COUNTERS).map_err(Error::meta)?;
            for (name, value) in &change.counters {
                counters
                    .insert(name.as_str(), *value)
                    .map_err(Error::meta)?;
            }
        }
        if !change.analyzers.is_empty() {
            let mut analyzers = transaction.open_table(ANALYZERS).map_err(Error::meta)?;
            for (shard, bytes) in &change.analyzers {
                analyzers
                    .insert(shard, bytes.as_slice())
                    .map_err(Error::meta)?;
            }
        }
        if !change.producers.is_empty() {
            let mut producers = transaction.open_table(PRODUCERS).map_err(Error::meta)?;
            for (name, newest) in &change.producers {
                match newest {
                    Some((number, sequence)) => {
                        producers
                            .insert(name.as_str(), (*number, sequence.0))
                            .map_err(Error::meta)?;
                    }
                    None => drop(producers.remove(name.as_str()).map_err(Error::meta)?),
                }
            }
        }
        transaction.commit().map_err(Error::meta)
    }

    fn commit_definitions(
        &self,
        transaction: &redb::WriteTransaction,
        definitions: &[(Sequence, Definition)],
    ) -> Result<()> {
        if definitions.is_empty() {
            return Ok(());
        }
        let mut tables = transaction.open_table(TABLES).map_err(Error::meta)?;
        let mut ids = transaction.open_table(STREAM_IDS).map_err(Error::meta)?;
        let mut streams = transaction.open_table(STREAMS).map_err(Error::meta)?;
        let mut counts = transaction.open_table(STREAM_COUNTS).map_err(Error::meta)?;
        let mut tag_keys = transaction.open_table(TAG_KEYS).map_err(Error::meta)?;
        let mut bytes = Vec::new();
        let mut dropped = transaction.open_table(DROPPED).map_err(Error::meta)?;
        let mut added: BTreeMap<u32, i64> = BTreeMap::new();
        let mut seen_keys: std::collections::BTreeSet<Vec<u8>> = std::collections::BTreeSet::new();
        for (sequence, definition) in definitions {
            bytes.clear();
            match definition {
                Definition::Dropped(record) => {
                    bytes.put_varint(sequence.0);
                    record.encode(&mut bytes);
                    let known = streams.remove(record.id.0).map_err(Error::meta)?.is_some();
                    let successor = ids
                        .get(&*record.key)
                        .map_err(Error::meta)?
                        .is_some_and(|id| id.value() != record.id.0);
                    if !successor {
                        ids.remove(&*record.key).map_err(Error::meta)?;
                    }
                    dropped
                        .insert(record.id.0, bytes.as_slice())
                        .map_err(Error::meta)?;
                    if known {
                        *added.entry(record.table.0).or_default() -= 1;
                    }
                }
                Definition::Table(table) => {
                    table.encode(&mut bytes);
                    tables
                        .insert(table.id.0, bytes.as_slice())
                        .map_err(Error::meta)?;
                }
                Definition::Stream(record) => {
                    record.encode(&mut bytes);
                    let new = streams
                        .insert(record.id.0, bytes.as_slice())
                        .map_err(Error::meta)?
                        .is_none();
                    ids.insert(&*record.key, record.id.0).map_err(Error::meta)?;
                    if new {
                        *added.entry(record.table.0).or_default() += 1;
                    }
                    for key in record.tag_keys() {
                        let mut tag = record.table.0.to_le_bytes().to_vec();
                        tag.put_prefixed(key.as_bytes());
                        if !seen_keys.contains(&tag) {
                            tag_keys.insert(tag.as_slice(), ()).map_err(Error::meta)?;
                            seen_keys.insert(tag);
                        }
                    }
                }
            }
        }
        for (table, count) in added {
            let old = counts
                .get(table)
                .map_err(Error::meta)?
                .map_or(0, |v| v.value());
            counts
                .insert(table, old.saturating_add_signed(count))
                .map_err(Error::meta)?;
        }
        Ok(())
    }
}
