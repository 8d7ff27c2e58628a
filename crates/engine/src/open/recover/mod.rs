//! Opens a database and repairs it after a crash, without help; each action is logged in one line.
//!
//! 1 open the metadata; 2 check that every segment named in the metadata exists and is long enough;
//! 3 replay the log; 4 delete segment files that the metadata do not name, truncate the rest to
//! their committed lengths. Each kind of opener makes a plan ([`OpeningPlan`]), and [`assemble`]
//! carries it out. Invariants: an event of the log is skipped if and only if a committed cover
//! contains it; no other condition matters. Where the covers of a partition cannot be read, all
//! events of its span are replayed, and they are not stored: see [`crate::read::unreadable`].
//! Failure: a log record that was once synced and is missing is damage (kind `corrupt`), not
//! something to repair silently. A damaged segment makes its partition unreadable; the database
//! opens without it. No file is removed or truncated before everything has been checked, so that a
//! database that does not open keeps all data for a repair.

mod assembly;
mod copy_tail;
mod files;
mod indexes;
mod media;
mod metadata;
mod owner;
mod plan;
mod replayed_log;
mod retained_deletes;
mod saved_state;
mod segments;
mod watermark;

pub(crate) use assembly::assemble;
pub(crate) use media::{announcer, fast_index_config};
pub(crate) use owner::open;
pub(crate) use plan::{
    CarriedRecords, Devices, LogPlan, Opening, OpeningPlan, Role, SegmentAccess, SegmentCheck,
    SegmentPlan,
};

use crate::common::error::Damage;
use crate::common::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::core::shard::Shard;
use crate::core::{Ends, NewestDeletes};
use crate::metadata::catalog::{
    AddedFields, Catalog, Definition, StreamIndex, StreamRecord, Table,
};
use crate::metadata::producers::Producers;
use crate::metadata::removed_rows::Removed;
use crate::metadata::tables::Meta;
use crate::storage::segment::{Cover, Covers, Store};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::RecordKind;
use crate::{Error, ErrorKind, Result};
use copy_tail::VisibleTail;
use headwater_codec::light::decode_rows;
use headwater_codec::{Cursor, DecodeError};
use headwater_types::{Producer, Rows, Timestamp};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Counts of the actions of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records read from the log.
    pub log_records: u64,
    /// Events restored to memory.
    pub events_replayed: u64,
    /// True when bytes of a torn log tail were ignored.
    pub torn_tail: bool,
    /// Segment files removed because no commit names them.
    pub files_removed: u64,
    /// Segment files truncated to their committed length.
    pub files_truncated: u64,
    /// Partitions that cannot be read, because their files are missing, truncated or damaged.
    pub partitions_unreadable: u64,
}

/// Replay of records into the state of a database that is being opened.
struct Replayer<'a> {
    producers: &'a Producers,
    newest_deletes: &'a NewestDeletes,
    removed: &'a Removed,
    ends: [&'a Ends; 2],
    catalog: &'a Catalog,
    meta: &'a Meta,
    store: &'a Store,
    shards: &'a [Shard],
    covers: Option<Covers>,
    parked_bytes_max: usize,
    streams: HashMap<StreamId, (TableId, ShardIndex)>,
    /// Set when the only log is the tail of a copy, which may contain unknown streams; and the
    /// visible part of that tail.
    tail: Option<VisibleTail>,
    memory: usize,
    events: u64,
}

impl Replayer<'_> {
    fn record(
        &mut self,
        sequence: Sequence,
        kind: u8,
        payload: &[u8],
        path: &Path,
        offset: u64,
    ) -> Result<()> {
        let mut cursor = Cursor::new(payload);
        let damaged = |e: DecodeError| Error::decode(path, offset + 32, e);
        match RecordKind::from_number(kind) {
            Some(RecordKind::Table) => {
                let table = Table::decode(&mut cursor).map_err(damaged)?;
                let tables = self.catalog.table_count();
                if table.id.0 as usize > tables {
                    return Err(Error::damage(Damage {
                        file: path.to_owned(),
                        offset,
                        expected: format!("a table with a number up to {tables}"),
                        found: format!("table {}", table.id.0),
                    }));
                }
                self.catalog
                    .replay(self.meta, sequence, Definition::Table(Arc::new(table)))
            }
            Some(RecordKind::Fields) => {
                let added = AddedFields::decode(&mut cursor).map_err(damaged)?;
                let found = format!("fields from {} on for table {}", added.first, added.table.0);
                if self.catalog.replay_fields(sequence, added)? {
                    return Ok(());
                }
                Err(Error::damage(Damage {
                    file: path.to_owned(),
                    offset,
                    expected: "fields that follow those of a defined table".into(),
                    found,
                }))
            }
            Some(RecordKind::Streams) => {
                let count = cursor
                    .varint_up_to(payload.len() as u64, "stream count")
                    .map_err(damaged)?;
                for _ in 0..count {
                    let record = StreamRecord::decode(&mut cursor).map_err(damaged)?;
                    if self.catalog.table(record.table).is_none() {
                        return Err(Error::damage(Damage {
                            file: path.to_owned(),
                            offset,
                            expected: "a stream of a defined table".into(),
                            found: format!("stream {} of table {}", record.id.0, record.table.0),
                        }));
                    }
                    self.streams.insert(record.id, (record.table, record.shard));
                    self.catalog.replay(
                        self.meta,
                        sequence,
                        Definition::Stream(Arc::new(record)),
                    )?;
                }
                Ok(())
            }
            Some(RecordKind::Delete) => {
                let record = DeleteRecord::decode(&mut cursor).map_err(damaged)?;
                self.delete(sequence, &record)
            }
            Some(kind @ (RecordKind::Write | RecordKind::NumberedWrite)) => {
                if kind == RecordKind::NumberedWrite {
                    let name = cursor.text("producer").map_err(damaged)?.to_owned();
                    let number = cursor.varint("batch number").map_err(damaged)?;
                    let producer = Producer { name, number };
                    self.producers.lock().put(&producer, sequence);
                }
                let count = cursor
                    .varint_up_to(payload.len() as u64, "entry count")
                    .map_err(damaged)?;
                for _ in 0..count {
                    let id = cursor
                        .varint_up_to(u64::from(u32::MAX), "stream id")
                        .map_err(damaged)?;
                    let rows = decode_rows(&mut cursor).map_err(damaged)?;
                    self.rows(sequence, StreamId(id as u32), rows, path, offset)?;
                }
                Ok(())
            }
            None => Err(Error::damage(Damage {
                file: path.to_owned(),
                offset,
                expected: "a record kind that this version supports".into(),
                found: format!("kind {kind}"),
            })),
        }
    }

    fn rows(
        &mut self,
        sequence: Sequence,
        stream: StreamId,
        rows: Rows,
        path: &Path,
        offset: u64,
    ) -> Result<()> {
        if self.covers.is_none() {
            self.covers = Some(self.read_covers(Sequence(sequence.0.saturating_sub(1)))?);
        }
        let known = self.covers.iter().flat_map(|c| c.of_stream(stream));
        let covers: Vec<&Cover> = known.filter(|c| c.sequence >= sequence).collect();
        let rows = if covers.is_empty() {
            rows
        } else {
            let kept: Vec<u32> = (0u32..)
                .zip(&rows.times)
                .filter(|(_, t)| {
                    !covers
                        .iter()
                        .any(|c| c.range.contains(Timestamp::from_nanos(**t)))
                })
                .map(|(row, _)| row)
                .collect();
            if kept.is_empty() {
                return Ok(());
            }
            rows.gather(&kept)
        };
        let Some((table, shard)) = self.shard_of(stream, path, offset)? else {
            return Ok(());
        };
        let rows = match self.without_removed(rows, table, shard, sequence) {
            rows if rows.is_empty() => return Ok(()),
            rows => rows,
        };
        let Some(shard) = self.shards.get(usize::from(shard.0)) else {
            return Err(Error::internal(
                "replay: a stream refers to an unknown shard",
            ));
        };
        if self.tail.is_some() {
            self.check_fields(table, &rows)?;
        }
        let rows = match &mut self.tail {
            None => rows,
            Some(tail) => tail.shown(self.store, shard, (stream, table), rows)?,
        };
        let rows = {
            let mut state = shard.state.lock();
            state
                .admit(table, rows, sequence, self.parked_bytes_max)
                .rows
        };
        if rows.is_empty() {
            return Ok(());
        }
        let watermark = self.watermark(shard, stream, table)?;
        let mut state = shard.state.lock();
        self.events += rows.len() as u64;
        let separate = state.separates();
        let (_, change) = state.with_stream(stream, table, |memory| {
            memory.watermark = watermark;
            memory.watermark_known = true;
            memory.insert(rows, sequence, separate)
        });
        self.memory = self.memory.saturating_add_signed(change);
        Ok(())
    }

    /// Rows without the rows that a retention removed.
    fn without_removed(
        &self,
        rows: Rows,
        table: TableId,
        shard: ShardIndex,
        sequence: Sequence,
    ) -> Rows {
        let marks = self.removed.of_table(table, shard);
        let is_gone = |time: i64| {
            let time = Timestamp::from_nanos(time);
            marks.iter().any(|mark| mark.removes(time, sequence))
        };
        if !rows.times.iter().any(|time| is_gone(*time)) {
            return rows;
        }
        let kept = (0u32..).zip(&rows.times).filter(|(_, t)| !is_gone(**t));
        let kept: Vec<u32> = kept.map(|(row, _)| row).collect();
        rows.gather(&kept)
    }

    /// Reads the covers of the segments for the records after `after`. A segment whose covers
    /// cannot be read becomes unreadable.
    fn read_covers(&self, after: Sequence) -> Result<Covers> {
        let mut covers = Vec::new();
        for shard in self.shards {
            let partitions = Arc::clone(&shard.state.lock().partitions);
            let readable = partitions.all().filter(|p| p.unreadable.is_none());
            for partition in readable.filter(|p| p.record.sequence > after) {
                match self.store.covers(partition.id(), &partition.record, after) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        shard.state.lock().set_unreadable(partition, error);
                    }
                    found => covers.extend(found?),
                }
            }
        }
        Ok(Covers::of(covers))
    }

    fn delete(&mut self, sequence: Sequence, record: &DeleteRecord) -> Result<()> {
        self.newest_deletes.note(record.table, sequence);
        for ends in self.ends {
            ends.note(sequence, record);
        }
        let tombstone = record.tombstone(sequence);
        for shard in self.shards {
            shard.state.lock().add_tombstone(&tombstone);
        }
        if record.drops_streams {
            self.drop_streams(sequence, record)?;
        }
        Ok(())
    }

    fn drop_streams(&mut self, sequence: Sequence, record: &DeleteRecord) -> Result<()> {
        for stream in record.streams.as_deref().unwrap_or_default() {
            if self.catalog.is_dropped(*stream) {
                continue;
            }
            let pending = self.catalog.pending_stream(*stream);
            let known = match pending {
                Some(record) => Some(record),
                None => self.meta.streams(&[*stream])?.pop(),
            };
            if let Some(known) = known {
                self.catalog
                    .replay(self.meta, sequence, Definition::Dropped(Arc::new(known)))?;
            }
        }
        Ok(())
    }

    /// The shard and stream of a stream's events; `None` if the stream was dropped.
    fn shard_of(
        &mut self,
        stream: StreamId,
        path: &Path,
        offset: u64,
    ) -> Result<Option<(TableId, ShardIndex)>> {
        if let Some(place) = self.streams.get(&stream) {
            return Ok(Some(*place));
        }
        let Some(record) = self.meta.streams(&[stream])?.pop() else {
            if self.tail.is_some() || self.catalog.is_dropped(stream) {
                return Ok(None);
            }
            return Err(Error::damage(Damage {
                file: path.to_owned(),
                offset,
                expected: "a defined stream".into(),
                found: format!("stream {}", stream.0),
            }));
        };
        self.streams.insert(stream, (record.table, record.shard));
        Ok(Some((record.table, record.shard)))
    }
}
