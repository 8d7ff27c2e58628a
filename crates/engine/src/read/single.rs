//! A consistent view of one database.

use super::aggregate::{self, AggregateSpec, Bin};
use super::bins::Bins;
use super::filter::{Clause, Filter};
use super::indexed;
use super::last::{self, LastValue};
use super::scan::{ScanSpec, SingleScan};
use super::view::StreamView;
use crate::common::ids::{Sequence, ShardIndex, StreamId};
use crate::core::Core;
use crate::core::shard::{Shard, ShardSnapshot};
use crate::memory::StreamMemory;
use crate::memory::chunk::Chunk;
use crate::memory::pins::{PinnedRows, SnapshotPoint};
use crate::metadata::catalog::{Table, Tables, decode_stream_key, stream_key};
use crate::metadata::clock::ClockReading;
use crate::{Error, Result};
use headwater_types::{Aggregate, ClosedRange, FieldId, FieldType, Level, StreamName, Timestamp};
use std::sync::Arc;

/// A view of one database: see [`crate::Snapshot`].
#[derive(Debug)]
pub(crate) struct SingleSnapshot {
    pub(super) core: Arc<Core>,
    sequence: Sequence,
    pub(super) shards: Vec<ShardSnapshot>,
    pub(super) tables: Arc<Tables>,
    /// The instant up to which values have expired, by table; `None` = no table has values that
    /// expire.
    now: Option<ClockReading>,
    /// The number of changes to definitions that the snapshot sees; `None` when a change was in
    /// progress while it was opened.
    definitions: Option<u64>,
}

impl Drop for SingleSnapshot {
    fn drop(&mut self) {
        for (shard, seen) in self.core.shards.iter().zip(&self.shards) {
            let closed = SnapshotPoint {
                version: seen.version,
                sequence: self.sequence,
            };
            let files = shard.state.lock().close_snapshot(closed);
            // Without the lock: the last owner of a file removes it when dropped.
            drop(files);
        }
    }
}

impl SingleSnapshot {
    pub(crate) fn open(core: Arc<Core>) -> SingleSnapshot {
        loop {
            let deletes = core.write_barrier.deletes();
            let definitions = core.catalog.changes();
            // Shards first, the sequence afterwards: every job in the shards' versions is then at
            // or below the sequence.
            let shards: Vec<ShardSnapshot> = core
                .shards
                .iter()
                .map(|s| s.state.lock().open_snapshot())
                .collect();
            let sequence = core.log.published();
            for (shard, seen) in core.shards.iter().zip(&shards) {
                let mut state = shard.state.lock();
                state.snapshots.set_sequence(seen.version, sequence);
            }
            let tables = core.catalog.tables();
            let now = tables.expire.then(|| core.moment());
            let snapshot = SingleSnapshot {
                core: Arc::clone(&core),
                sequence,
                shards,
                tables,
                now,
                definitions: Some(definitions).filter(|d| *d == core.catalog.changes()),
            };
            // A concurrent delete may be at or below the sequence and still be missing in a shard's
            // list.
            if core.write_barrier.deletes() == deletes {
                return snapshot;
            }
        }
    }

    /// As `Snapshot::sequence`.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence.0
    }

    /// As `Snapshot::definitions`.
    pub(super) fn definitions(&self) -> Option<u64> {
        self.definitions
    }

    pub(super) fn table(&self, name: &str) -> Result<&Arc<Table>> {
        self.tables.iter().find(|t| t.name == name).ok_or_else(|| {
            let known: Vec<&str> = self
                .tables
                .iter()
                .map(|t| t.name.as_str())
                .take(10)
                .collect();
            Error::not_found(format!(
                "no table `{name}`; there are: {}",
                known.join(", ")
            ))
        })
    }

    pub(super) fn field(table: &Table, name: &str) -> Result<FieldId> {
        table.field_id(name).ok_or_else(|| {
            let known: Vec<&str> = table
                .fields
                .iter()
                .map(|f| f.name.as_str())
                .take(20)
                .collect();
            Error::not_found(format!(
                "table `{}` has no field `{name}`; it has: {}",
                table.name,
                known.join(", ")
            ))
        })
    }

    /// As `Snapshot::streams`.
    pub(super) fn streams(
        &self,
        table: &str,
        tags: &[(String, String)],
    ) -> Result<Vec<StreamName>> {
        let table = self.table(table)?;
        let catalog = &self.core.catalog;
        let mut records = catalog.streams_of(&*self.core.meta, table.id, Some(self.sequence))?;
        // A dropped stream and its successor have the same name.
        records.dedup_by(|b, a| a.key == b.key);
        let mut out = Vec::new();
        for record in records {
            let name = decode_stream_key(&table.name, &record.key)
                .map_err(|e| Error::decode(self.core.meta.path(), 0, e))?;
            if tags.iter().all(|(key, value)| name.tag(key) == Some(value)) {
                out.push(name);
            }
        }
        Ok(out)
    }

    /// Key bytes of the streams of a table, sorted.
    pub(super) fn stream_keys(&self, table: &Table) -> Result<Vec<Box<[u8]>>> {
        let catalog = &self.core.catalog;
        let records = catalog.streams_of(&*self.core.meta, table.id, Some(self.sequence))?;
        let mut keys: Vec<Box<[u8]>> = records.into_iter().map(|record| record.key).collect();
        // A dropped stream and its successor have the same name.
        keys.dedup();
        Ok(keys)
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// True for a snapshot of the same open database.
    pub(super) fn is_of_core(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    pub(super) fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    pub(super) fn at(&self) -> Sequence {
        self.sequence
    }

    /// Looks up a stream by name.
    pub(super) fn find(&self, name: &StreamName) -> Result<ResolvedStream<'_>> {
        let table = self.table(name.table())?;
        let mut key = Vec::with_capacity(64);
        stream_key(table.id, name.tags(), &mut key);
        let stream = self
            .core
            .catalog
            .find_stream_at(&*self.core.meta, &key, self.sequence)?;
        let stream = stream.ok_or_else(|| Error::not_found(format!("no stream `{name}`")))?;
        let shard_index = self.core.shards.of_key(&key);
        let shard = self.core.shards.get(shard_index)?;
        let Some(snapshot) = self.shards.get(usize::from(shard_index.0)) else {
            return Err(Error::internal("a snapshot without one of the shards"));
        };
        Ok(ResolvedStream {
            table,
            stream,
            shard_index,
            shard,
            snapshot,
        })
    }

    /// The view of a stream, with its events in memory that may be in `range`.
    ///
    /// # Errors
    /// When events that were stored after the snapshot was opened were moved to a file that cannot
    /// be read.
    pub(super) fn view(
        &self,
        found: ResolvedStream<'_>,
        range: &ClosedRange,
    ) -> Result<StreamView> {
        let chunks = self.chunks_to_read(&found, range)?;
        let ResolvedStream {
            table,
            stream,
            snapshot,
            ..
        } = found;
        let deletes = self.deletes(snapshot, table, stream);
        Ok(StreamView {
            core: Arc::clone(&self.core),
            sequence: self.sequence,
            partitions: Arc::clone(&snapshot.partitions),
            chunks: remaining(chunks, table, &deletes),
            now: match &self.now {
                Some(now) if table.lifetime.expires => Some(now.of(table.id)),
                _ => None,
            },
            table: Arc::clone(table),
            stream,
            deletes,
        })
    }

    /// The events of a stream in memory that may be in a range. Versions are merged as far as an
    /// earlier reader has done it, or here when there are too many of them.
    pub(super) fn chunks_to_read(
        &self,
        found: &ResolvedStream<'_>,
        range: &ClosedRange,
    ) -> Result<Vec<Arc<Chunk>>> {
        if found.table.keeps_duplicates() || self.has_deletes(found) {
            return found.chunks(range);
        }
        let (stream, version) = (found.stream, found.snapshot.version);
        let mut held = Vec::new();
        let mut due = [None, None];
        if let Some(memory) = found.shard.state.lock().memory(stream) {
            held = memory.visible_merged(found.table, version, self.sequence, range);
            due = memory.due_fronts(version, self.sequence);
        }
        if due.iter().any(Option::is_some) && self.core.memory.has_room() {
            let made = due.map(|due| {
                let due = due?;
                let front = due.front(found.table);
                Some((due, front))
            });
            let mut state = found.shard.state.lock();
            let mut change = 0;
            if state.memory(stream).is_some() {
                let keep = |memory: &mut StreamMemory| memory.keep_fronts(made);
                (_, change) = state.with_stream(stream, found.table.id, keep);
                let memory = state.memory(stream);
                let merged =
                    memory.map(|m| m.visible_merged(found.table, version, self.sequence, range));
                held = merged.unwrap_or_default();
            }
            drop(state);
            self.core.memory_changed(change);
        }
        held.into_iter().map(PinnedRows::chunk).collect()
    }

    /// Deletes of a stream that may not be carried out yet, by sequence.
    fn deletes(
        &self,
        seen: &ShardSnapshot,
        table: &Table,
        stream: StreamId,
    ) -> Vec<(Sequence, ClosedRange)> {
        seen.tombstones
            .iter()
            .filter(|t| t.sequence <= self.sequence && t.concerns(table.id, stream))
            .map(|t| (t.sequence, t.range))
            .collect()
    }

    /// True when deleted events of a stream may still be stored.
    pub(super) fn has_deletes(&self, found: &ResolvedStream<'_>) -> bool {
        let mut deletes = found.snapshot.tombstones.iter();
        deletes.any(|t| t.sequence <= self.sequence && t.concerns(found.table.id, found.stream))
    }

    /// As `Snapshot::fields`.
    pub(super) fn fields(&self, table: &str) -> Result<Vec<(String, FieldType)>> {
        Ok(self
            .table(table)?
            .fields
            .iter()
            .map(|f| (f.name.clone(), f.field_type))
            .collect())
    }

    /// As `Snapshot::usable_indexes`.
    pub(super) fn usable_indexes(
        &self,
        table: &str,
        filters: &[Filter],
        any_of: &[Vec<Filter>],
    ) -> Result<Vec<String>> {
        let table = self.table(table)?;
        let conditions = Clause::all(filters, any_of, table)?;
        let found = indexed::usable(&self.core, table.id, &conditions);
        let names = found.iter().flat_map(indexed::Usable::names);
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// As `Snapshot::scan`.
    pub(super) fn scan(&self, stream: &StreamName, spec: &ScanSpec) -> Result<SingleScan> {
        self.scan_found(self.find(stream)?, spec)
    }

    pub(super) fn scan_found(
        &self,
        found: ResolvedStream<'_>,
        spec: &ScanSpec,
    ) -> Result<SingleScan> {
        SingleScan::new(self.view(found, &spec.range)?, spec)
    }

    /// As `Snapshot::last`.
    pub(super) fn last(&self, stream: &StreamName) -> Result<Vec<LastValue>> {
        self.last_found(self.find(stream)?)
    }

    pub(super) fn last_found(&self, found: ResolvedStream<'_>) -> Result<Vec<LastValue>> {
        last::last(&self.view(found, &ClosedRange::ALL)?)
    }

    /// As `Snapshot::aggregate`.
    pub(super) fn aggregate(
        &self,
        stream: &StreamName,
        field: &str,
        spec: &AggregateSpec,
    ) -> Result<Vec<Bin>> {
        self.aggregate_found(self.find(stream)?, field, spec)
    }

    pub(super) fn aggregate_found(
        &self,
        found: ResolvedStream<'_>,
        field: &str,
        spec: &AggregateSpec,
    ) -> Result<Vec<Bin>> {
        let bins = self.aggregate_numbered(found, field, spec)?;
        Ok(bins.into_iter().map(|(_, bin)| bin).collect())
    }

    /// As [`SingleSnapshot::aggregate_found`], with the numbers of the bins.
    pub(super) fn aggregate_numbered(
        &self,
        found: ResolvedStream<'_>,
        field: &str,
        spec: &AggregateSpec,
    ) -> Result<Vec<(i128, Bin)>> {
        let view = self.view(found, &spec.range)?;
        let field = Self::field(&view.table, field)?;
        aggregate::aggregate(&view, field, spec)
    }

    /// As `Snapshot::tile`.
    pub(super) fn tile(
        &self,
        stream: &StreamName,
        field: &str,
        level: Level,
        offset: i64,
    ) -> Result<Vec<(i64, Aggregate)>> {
        self.tile_found(self.find(stream)?, field, level, offset)
    }

    pub(super) fn tile_found(
        &self,
        found: ResolvedStream<'_>,
        field: &str,
        level: Level,
        offset: i64,
    ) -> Result<Vec<(i64, Aggregate)>> {
        self.tile_in(found, field, level, &Self::tile_range(level, offset))
    }

    /// The instants of a tile.
    pub(super) fn tile_range(level: Level, offset: i64) -> ClosedRange {
        let buckets = level.tile_buckets(offset);
        buckets.map_or(ClosedRange::EMPTY, |b| level.span(*b.start(), *b.end()))
    }

    /// The filled buckets of a level in a part of a tile.
    pub(super) fn tile_in(
        &self,
        found: ResolvedStream<'_>,
        field: &str,
        level: Level,
        range: &ClosedRange,
    ) -> Result<Vec<(i64, Aggregate)>> {
        let view = self.view(found, range)?;
        let field = Self::field(&view.table, field)?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let spec = AggregateSpec {
            range: *range,
            bins: Bins::Level(level),
            first_last: false,
        };
        aggregate::by_bin(&view, field, &spec)
            .map(|bins| bins.into_iter().map(|(b, a)| (b as i64, a)).collect())
    }
}

/// A stream as resolved in a snapshot.
#[derive(Clone, Copy)]
pub(super) struct ResolvedStream<'a> {
    pub(super) table: &'a Arc<Table>,
    pub(super) stream: StreamId,
    pub(super) shard_index: ShardIndex,
    pub(super) shard: &'a Shard,
    pub(super) snapshot: &'a ShardSnapshot,
}

impl ResolvedStream<'_> {
    /// The chunks of the stream that the snapshot sees and that may have events in a range.
    pub(super) fn chunks(&self, range: &ClosedRange) -> Result<Vec<Arc<Chunk>>> {
        let held = {
            let state = self.shard.state.lock();
            state.visible(self.stream, self.snapshot.version, range)
        };
        held.into_iter().map(PinnedRows::chunk).collect()
    }
}

/// The chunks without the events that are deleted or before the table's retention cutoff.
fn remaining(
    chunks: Vec<Arc<Chunk>>,
    table: &Table,
    deletes: &[(Sequence, ClosedRange)],
) -> Vec<Arc<Chunk>> {
    let cut = table.lifetime.retention_cutoff;
    if deletes.is_empty() && !cut.is_set() {
        return chunks;
    }
    let gone = |time: Timestamp, sequence: Sequence| {
        cut.ends(time)
            || deletes
                .iter()
                .any(|(s, range)| sequence < *s && range.contains(time))
    };
    let concerned = |chunk: &Chunk| {
        cut.ends(chunk.span.first)
            || deletes
                .iter()
                .any(|(s, range)| chunk.first_sequence < *s && range.overlaps(&chunk.span))
    };
    chunks
        .into_iter()
        .filter_map(|chunk| {
            if concerned(&chunk) {
                chunk.select(chunk.born, |t, s| !gone(t, s))
            } else {
                Some(chunk)
            }
        })
        .collect()
}
