//! Opens a database and puts it right after a crash, alone: one log line per action.
//!
//! 1 open the metadata; 2 check that every segment it names is there and long enough; 3 replay the
//! log; 4 delete segment files that the metadata do not name, truncate the rest to their committed
//! lengths.
//! Invariants: an event of the log is skipped if and only if a committed cover contains it; nothing
//! else takes part. Where the covers of a partition cannot be read, no event of its span is
//! skipped, and none is stored: see [`crate::read::unreadable`].
//! Failure: a log record that was once synced and is not there is damage (kind `corrupt`), not
//! something to repair silently. A damaged segment makes its partition unreadable; the database
//! opens without it. Nothing is removed or truncated before everything has been checked, so that a
//! database that does not open keeps all that it might be repaired from.

mod files;
mod in_memory;
mod indexes;
mod media;
mod metadata;
mod opened_by;
mod retained_deletes;
mod tail;
mod watermark;

pub(crate) use in_memory::MetaInMemory;
pub(crate) use opened_by::{CopyParts, OpenedBy, PastParts};

use crate::common::counters::{COMPACTION_DAY, COMPACTION_DAY_BYTES, Counters};
use crate::common::error::Damage;
use crate::common::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::config::mode::Regime;
use crate::core::late_policy::{first_analyzer, kept_analyzer};
use crate::core::shard::{Shard, held_max};
use crate::core::{
    Commits, Compaction, Core, Defining, Ends, Freed, LateChoice, MemoryUse, NewStreams,
    NewestDeletes, Placed, Placing, ReplayMemory, Rest, SegmentIds, Shards, Signals, TableChanges,
    UnreadablePartitions, WriteBarrier, WrittenOnDay,
};
use crate::device::guard::Guard;
use crate::device::layout::{folders, log_dir, meta_path, segment_dir};
use crate::device::tiers::{self, log_begun};
use crate::memory::pins::{PinFiles, remove_left_over};
use crate::metadata::catalog::{
    AddedFields, Catalog, Definition, StreamIndex, StreamRecord, Table,
};
use crate::metadata::clock::ClockGuard;
use crate::metadata::owner::Owner;
use crate::metadata::pending_repairs;
use crate::metadata::producers::Producers;
use crate::metadata::removed_rows::Removed;
use crate::metadata::tables::{Meta, PartitionRecord, RetainedFor};
use crate::read::unreadable::report_unreadable;
use crate::storage::named_snapshots::NamedSnapshots;
use crate::storage::partitions::PartitionSet;
use crate::storage::segment::{Cover, Covers, Paging, Partition, Store};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::mirror::Mirror;
use crate::wal::{Log, Needed, RecordKind, replay};
use crate::{Error, ErrorKind, Options, Result};
use headwater_codec::light::decode_rows;
use headwater_codec::{Cursor, DecodeError};
use headwater_io::Env;
use headwater_types::{Producer, Rows, Timestamp};
pub(crate) use media::{announcer, place_of};
use media::{repeat_segments, reserve_space, watch_bulk};
use metadata::open_meta;
use opened_by::{Opener, Ownership};
use parking_lot::Mutex;
use retained_deletes::{load_ends, settle_keepers};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tail::TailShown;

/// Counts of what recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records read back from the log.
    pub log_records: u64,
    /// Events put back into memory.
    pub events_replayed: u64,
    /// Bytes of a torn log tail were ignored.
    pub torn_tail: bool,
    /// Segment files removed because no commit names them.
    pub files_removed: u64,
    /// Segment files truncated to their committed length.
    pub files_truncated: u64,
    /// Partitions that cannot be read, because their files are missing, truncated or damaged.
    pub partitions_unreadable: u64,
}

/// Opens the database in `options.dir`.
pub(crate) fn open(mut env: Env, options: Options) -> Result<(Core, Recovery)> {
    options.validate()?;
    let dir = options.dir.clone();
    let meta_path = meta_path(&dir);
    let exists = env
        .index_files()
        .exists(&meta_path)
        .map_err(|e| Error::io("look for", &meta_path, e))?;
    if options.must_exist && !exists {
        return Err(Error::not_found(format!(
            "{}: no database here (no meta.redb)",
            dir.display()
        )));
    }
    for (files, folder) in folders(&env, &dir) {
        files
            .create_dir_all(&folder)
            .map_err(|e| Error::io("create", &folder, e))?;
    }
    let fast_files = Arc::clone(env.fast_files());
    let owner = Owner::of(&mut env, &dir)?;
    let tier = tiers::take(&mut env, &dir, &fast_files, &owner.guard)?;
    for (files, folder) in folders(&env, &dir) {
        // Names that a killed process left are perhaps not on the medium yet; files that depend on
        // them must not vanish with them.
        files
            .sync_dir(&folder)
            .map_err(|e| Error::io("sync", &folder, e))?;
    }
    pending_repairs::settle(&env, &dir)?;
    // Files of snapshots must not take the space that is reserved for acknowledged writes, and
    // neither must indexes.
    let pin_files = PinFiles::new(Arc::clone(env.buffer_files()), env.media.buffers_root(&dir));
    let run_files = Arc::clone(env.segment_files());
    let reserves = reserve_space(&mut env, &options)?;
    let bulk = Some(watch_bulk(&mut env, tier.as_ref()));
    let (meta, owner) = open_meta(&env, &options, owner)?;
    let tier = tier.map(Arc::new);
    let in_tier = tier.clone().filter(|owned| owned.tier.parts.buffers);
    let opened_by = OpenedBy::Owner(Ownership {
        owner,
        tier,
        bulk,
        reserves,
        fast_files,
        pin_files: pin_files.in_tier(in_tier),
        run_files,
    });
    load(env, options, meta, opened_by)
}

/// Builds the database on its metadata.
pub(crate) fn load(
    env: Env,
    options: Options,
    meta: Meta,
    opened_by: OpenedBy<'_>,
) -> Result<(Core, Recovery)> {
    let dir = options.dir.clone();
    let meta_path = meta_path(&dir);
    let (log_dir, segment_dir) = (log_dir(&env, &dir), segment_dir(&dir));
    let Opener {
        owner,
        tier,
        bulk,
        reserves,
        fast_files,
        pin_files,
        run_files,
        access,
        copy,
    } = opened_by.opener(&env, &dir);
    let is_owner = owner.is_some();
    let guard = match &owner {
        Some(owner) => Arc::clone(&owner.guard),
        None => Guard::new(&env.threads),
    };
    let meta = Arc::new(meta);
    let shards = usize::from(meta.shards()?.max(1));
    let cache_bytes = options.memory_budget_bytes / 4;
    let partitions = meta.partitions()?;
    // A kept state, or a copy, is read in this process, which has the queues of the medium.
    let queues = match is_owner {
        true => media::queue_segments(&env, &options, &partitions)?,
        false => None,
    };
    let (files, ahead) = media::ways_to_segments(&env, &options, queues.as_ref());
    let ahead_bytes = ahead.as_ref().map_or(0, |(_, bytes)| *bytes);
    let mut store = Store::new(
        files,
        segment_dir,
        cache_bytes.saturating_sub(ahead_bytes),
        options.open_files_max,
        shards,
    )
    .with_queues(queues)
    .with_read_ahead(ahead.map(|(ahead, _)| ahead))
    .with_paging(Paging {
        entries: options.index_page_entries,
    })
    .with_freed(meta.freed()?.into_iter().map(|(id, _)| id))
    .with_holes(copy.as_ref().and_then(|parts| parts.here.clone()));
    let tier_of = tier.as_deref();
    repeat_segments(&store, (&env, &options), tier_of, &partitions, &guard);
    let hashers = copy.as_ref().and_then(|parts| parts.hashers.clone());
    let mut pieces = HashMap::new();
    let mut recovery = Recovery::default();
    if !is_owner {
        // A copy keeps its files itself, and has looked at them.
        let holds_open = match &copy {
            None => true,
            Some(parts) => parts.past.as_ref().is_some_and(|past| past.holds_open),
        };
        let held = partitions.iter().filter(|_| holds_open);
        store.pin(held.map(|(id, _)| *id))?;
    }
    let past = copy.as_ref().and_then(|parts| parts.past.as_ref());
    let moment = past.map(|past| past.moment.clone());
    let (mut tail, mut shown) = (Vec::new(), TailShown::default());
    let (mut unreadable, deletes) = match copy {
        Some(mut parts) if moment.is_none() => {
            shown = TailShown::of(&mut parts);
            (pieces, tail) = (parts.pieces, parts.tail);
            (parts.elsewhere, Some(parts.deletes))
        }
        parts => (
            files::look(&store, &partitions, access)?,
            parts.map(|parts| parts.deletes),
        ),
    };
    let mut sets = vec![PartitionSet::default(); shards];
    let mut live = HashMap::new();
    for (id, record) in &partitions {
        let set = sets.get_mut(usize::from(record.shard.0)).ok_or_else(|| {
            Error::damage(Damage {
                file: meta_path.clone(),
                offset: 0,
                expected: format!("a shard below {shards}"),
                found: format!("segment {} in shard {}", id.0, record.shard.0),
            })
        })?;
        let file = store.segment_file(*id);
        live.insert(*id, Arc::clone(&file));
        let reason = unreadable.remove(id);
        let partition = Partition::with(record.clone(), file, reason);
        match pieces.remove(id) {
            None => set.put(Arc::new(partition)),
            Some(pieces) => set.put_pieces(&partition, pieces),
        }
    }
    let catalog = Catalog::hashing(hashers);
    catalog.load(meta.definitions()?);
    let counters = Counters::default();
    let saved = meta.counters()?;
    counters.load(&saved);
    let remembered = |name: &str| saved.get(name).copied();
    let records: Vec<&PartitionRecord> = partitions.iter().map(|(_, r)| r).collect();
    let (jump_max, settle) = (options.clock_jump_max, options.clock_settle);
    let clock_guard = ClockGuard::new(jump_max, settle, &saved, &records).at(moment);
    let compacted = WrittenOnDay {
        day: remembered(COMPACTION_DAY).unwrap_or(0),
        bytes: remembered(COMPACTION_DAY_BYTES).unwrap_or(0),
    };
    let kept = meta.analyzers()?;
    let shards: Vec<Shard> = (0u16..)
        .zip(sets)
        .map(|(index, set)| {
            let analyzer = match kept.get(&index) {
                Some(bytes) => kept_analyzer(&options, bytes, is_owner),
                None => first_analyzer(&options),
            };
            Shard::new(set, analyzer)
        })
        .collect();
    let needed = meta.log_needed()?.begun_up_to(log_begun(&env)?);
    let (first_generation, step_sequence) = (needed.first_generation, needed.sequence);
    let producers = Producers::default();
    producers.load(meta.producers()?);
    let newest_deletes = NewestDeletes::default();
    newest_deletes.load(meta.newest_deletes()?);
    let removed = Removed::of(meta.removed()?);
    let ends = load_ends(&meta, &newest_deletes, RetainedFor::Copies)?;
    let named = NamedSnapshots::load(&meta, &store, &live)?;
    let named_ends = load_ends(&meta, &newest_deletes, RetainedFor::Snapshots)?;
    settle_keepers(&named, &named_ends);
    let mut replayer = Replayer {
        producers: &producers,
        newest_deletes: &newest_deletes,
        removed: &removed,
        ends: [&ends, &named_ends],
        catalog: &catalog,
        meta: &meta,
        store: &store,
        shards: &shards,
        covers: None,
        held_max: held_max(&options, shards.len()),
        streams: HashMap::new(),
        tail: deletes.is_some().then_some(shown),
        memory: 0,
        events: 0,
    };
    // A copy has no log: its state names the pending deletes.
    let needed = match &deletes {
        Some(_) => Needed::default(),
        None => needed,
    };
    replayer.copied(deletes.as_deref().unwrap_or_default(), &tail, step_sequence)?;
    let replayed = replay(
        env.log_files(),
        &log_dir,
        options.log_file_size(),
        needed,
        access,
        |sequence, kind, payload, path, offset| {
            replayer.record(sequence, kind, payload, path, offset)
        },
    )?;
    let (memory, events) = (replayer.memory, replayer.events);
    let unreadable = files::unreadable(&shards);
    let indexes = indexes::load(&meta, &store, &run_files, cache_bytes / 4)?;
    recovery.partitions_unreadable = unreadable.len() as u64;
    if is_owner {
        let present = files::present(&store)?;
        files::settle(
            &store,
            &present,
            &partitions,
            &unreadable,
            &mut recovery,
            &named,
        )?;
        files::forget_freed(&meta, &partitions, &named)?;
        indexes::settle(&meta, &store, &present, &indexes, &mut recovery)?;
        remove_left_over(&**env.buffer_files(), env.media.buffers_root(&dir))?;
    }
    counters.accepted(events, 0);
    recovery.log_records = replayed.records;
    recovery.events_replayed = events;
    files::report(&dir, is_owner, &replayed, &mut recovery);
    let newest = tail.last().map_or(step_sequence, |record| record.sequence);
    let after = replayed.last.max(step_sequence).max(newest);
    let first_new_stream = catalog.next_stream();
    let memory = memory + catalog.pending_bytes();
    let log = Log::new(
        replayed,
        after,
        options.durability,
        announcer(&env, &meta, tier.as_ref()),
        Arc::clone(&env.clock),
    );
    if is_owner {
        meta.forget_dropped(log.sequence_before(first_generation))?;
        if recovery.log_records == 0 {
            for table in meta.tables()?.iter().filter(|t| t.life.dropped) {
                if !partitions.iter().any(|(_, r)| r.table == table.id) {
                    meta.forget_streams_of(table.id)?;
                }
            }
        }
    } else {
        log.refuse_writes();
    }
    let next_segment = meta
        .next_segment()?
        .max(partitions.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(1));
    let mirror = Mirror::of(tier.as_deref(), &env, &options)?;
    if let Some(mirror) = &mirror {
        mirror.begin(&log, first_generation)?;
    }
    let placed = Placed {
        mirror: mirror.map(Arc::new),
        env: env.clone(),
        tier,
        reserves,
    };
    let core = Core {
        placing: Placing::new(placed, fast_files),
        producers,
        newest_deletes,
        removed,
        table_changes: TableChanges::default(),
        ends,
        named,
        named_ends,
        catalog,
        meta,
        log,
        store,
        indexes,
        shards: Shards::new(shards),
        counters,
        memory: MemoryUse::new(&options, memory),
        replays: ReplayMemory::new(&options),
        signals: Signals::default(),
        rest: Rest::new(options.idle_after, options.log_file_size()),
        segment_ids: SegmentIds::new(next_segment),
        new_streams: NewStreams::from(first_new_stream),
        commits: Commits::new(first_generation),
        late_choice: LateChoice::new(options.late_policy),
        regime: Regime::of(options.flush_rule),
        clock_guard,
        instants: Arc::default(),
        compaction: Compaction::new(compacted),
        freed: Freed::default(),
        write_barrier: WriteBarrier::default(),
        defining: Defining::default(),
        pin_files: Mutex::new(pin_files),
        guard,
        unreadable: UnreadablePartitions::new(!unreadable.is_empty()),
        bulk,
        _lock: owner.map(|owner| owner.lock),
        env,
        options,
    };
    if is_owner {
        report_unreadable(&core);
    }
    Ok((core, recovery))
}

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
    held_max: usize,
    streams: HashMap<StreamId, (TableId, ShardIndex)>,
    /// The only log is the tail of a copy, in which unknown streams may stand; and the part of it
    /// that is shown.
    tail: Option<TailShown>,
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
                    expected: "fields for a table that is there with all fields before".into(),
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
                            expected: "a stream of a table that is defined".into(),
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
                expected: "a record kind this version knows".into(),
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
        let Some((table, shard)) = self.place(stream, path, offset)? else {
            return Ok(());
        };
        let rows = match self.without_removed(rows, table, shard, sequence) {
            rows if rows.is_empty() => return Ok(()),
            rows => rows,
        };
        let Some(shard) = self.shards.get(usize::from(shard.0)) else {
            return Err(Error::internal(
                "replay: a stream of a shard that is not there",
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
            state.admit(table, rows, sequence, self.held_max).rows
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

    /// Rows without those that a retention removed.
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

    /// Reads the covers of the segments for the records behind `after`. A segment whose covers
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
    fn place(
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
                expected: "a stream that is defined".into(),
                found: format!("stream {}", stream.0),
            }));
        };
        self.streams.insert(stream, (record.table, record.shard));
        Ok(Some((record.table, record.shard)))
    }
}
