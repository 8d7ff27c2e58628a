//! Carries out deletes, drops and retention in a shard: first in its partitions, then in its
//! memory.
//!
//! Invariants: a group with sequence S frees its whole partition of every delete up to S, so
//! readers and replay need only compare sequences; memory loses the events even while a partition
//! that is being rewritten has to wait; a tombstone leaves the shard once it is fully carried out.
//! A partition whose events are all deleted is removed together with its covers: replay then
//! restores an event that the log still has, and either the delete, which follows it in the log,
//! removes it again, or the record of rows removed by a retention cutoff excludes it: the cutoff
//! itself may go back. A partition that cannot be read stays unchanged, and the deletes that
//! concern it stay.

use super::commit::{commit_marked, free_log, keep_committed, make_durable};
use super::cutter::SharedLeaves;
use super::erase::{erase, is_touched};
use super::pinning::bound_pins;
use super::stream_writer::{GroupOutput, StoreContext};
use super::write::{WrittenGroup, attach_shared, expiry, open_group, record};
use crate::common::counters::Counters;
use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::common::ranges::union;
use crate::core::Core;
use crate::core::shard::{Shard, ShardState, StepScratch};
use crate::metadata::catalog::{Table, TableLifetime};
use crate::metadata::removed_rows::RemovedMark;
use crate::metadata::tables::PartitionRecord;
use crate::read::unreadable::set_aside;
use crate::storage::segment::{
    ClosedGroup, GroupEnd, PageCursor, Partition, SegmentHeader, SegmentState, StreamDelta, close,
};
use crate::storage::tombstone::Tombstone;
use crate::{Error, ErrorKind, Result};
use headwater_types::{ClosedRange, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum partitions that a commit of a sweep changes.
const PARTITIONS_MAX: usize = 16;

/// Carries out the due deletes of a shard. True when any was.
pub(crate) fn sweep(core: &Core, index: ShardIndex) -> Result<bool> {
    let shard = core.shards.get(index)?;
    let _latch = core.log.latch_on_panic("carried out deletes");
    let mut scratch = shard.stepping.lock();
    core.log.check_failure()?;
    let sequence = core.log.published();
    sweep_up_to(core, index, shard, &mut scratch, sequence)
}

/// Sweeps like [`sweep`], with the shard's step lock held.
pub(super) fn sweep_up_to(
    core: &Core,
    index: ShardIndex,
    shard: &Shard,
    scratch: &mut StepScratch,
    sequence: Sequence,
) -> Result<bool> {
    {
        let state = shard.state.lock();
        if !state.has_ended() {
            return Ok(false);
        }
    }
    let mut progress = false;
    loop {
        let plan = match SweepPlan::make(core, index, shard, sequence) {
            Err(error) if set_aside(core, shard, &error) => continue,
            other => other?,
        };
        if plan.emptied.is_empty() && plan.touched.is_empty() && plan.marks.is_empty() {
            let freed = clear_memory(core, shard, sequence);
            bound_pins(core)?;
            return Ok(progress || freed);
        }
        let result = carry_out(core, index, shard, scratch, sequence, plan);
        if let Err(error) = result {
            if set_aside(core, shard, &error) {
                continue;
            }
            if error.kind() != ErrorKind::Full {
                core.log.latch(error.clone());
            }
            return Err(error);
        }
        progress = true;
    }
}

/// A partition, and the ranges to erase for a stream.
struct TouchedPartition {
    partition: Arc<Partition>,
    table: Arc<Table>,
    state: Arc<SegmentState>,
    streams: Vec<(StreamId, Vec<ClosedRange>)>,
}

#[derive(Default)]
struct SweepPlan {
    /// Partitions without any rows left.
    emptied: Vec<Arc<Partition>>,
    touched: Vec<TouchedPartition>,
    /// Rows that the retention cutoffs of tables remove, here and in memory, while the log may have
    /// them.
    marks: Vec<RemovedMark>,
}

impl SweepPlan {
    fn make(
        core: &Core,
        index: ShardIndex,
        shard: &Shard,
        sequence: Sequence,
    ) -> Result<SweepPlan> {
        let (swept, tombstones, partitions, busy) = {
            let state = shard.state.lock();
            (
                state.swept,
                Arc::clone(&state.tombstones),
                Arc::clone(&state.partitions),
                state.busy.clone(),
            )
        };
        // Replay skips everything up to here, so that the covers of empty partitions are not
        // needed.
        let replayed_from = core.log.sequence_before(core.commits.log_generation());
        let now = core.moment();
        let mut plan = SweepPlan::default();
        let waits = |p: &Partition| busy.contains(&p.id()) || p.unreadable.is_some();
        for partition in partitions.all().filter(|p| !waits(p)) {
            if plan.emptied.len() + plan.touched.len() >= PARTITIONS_MAX {
                break;
            }
            let record = &partition.record;
            let table = core
                .catalog
                .table(record.table)
                .ok_or_else(|| Error::internal("a partition refers to an unknown table"))?;
            let empty = record.is_empty() && record.sequence <= replayed_from;
            let now = now.of(record.table);
            let expired = record.expires_last.is_some_and(|end| end <= now);
            let is_cut_off = table.lifetime.retention_cutoff.ends(record.span().last);
            if is_cut_off && !table.lifetime.dropped {
                plan.mark(index, &table, sequence);
            }
            if empty || expired || table.lifetime.dropped || is_cut_off {
                plan.emptied.push(Arc::clone(partition));
                continue;
            }
            let due: Vec<&Tombstone> = tombstones
                .iter()
                .filter(|t| {
                    t.sequence <= sequence
                        && t.sequence > swept
                        && t.sequence > record.sequence
                        && t.table == record.table
                        && t.range.overlaps(&record.span())
                })
                .collect();
            if due.is_empty() {
                continue;
            }
            let state = core.store.state(partition)?;
            let streams = touched_streams(core, partition, &state, &due)?;
            if !streams.is_empty() {
                plan.touched.push(TouchedPartition {
                    partition: Arc::clone(partition),
                    table,
                    state,
                    streams,
                });
            }
        }
        for table in cut_off_in_memory(core, shard, sequence) {
            plan.mark(index, &table, sequence);
        }
        Ok(plan)
    }

    /// Records that the retention cutoff of a table is carried out in the shard.
    fn mark(&mut self, shard: ShardIndex, table: &Table, sequence: Sequence) {
        let mark = RemovedMark {
            table: table.id,
            shard,
            sequence,
            before: table.lifetime.retention_cutoff,
        };
        let known = self.marks.iter().position(|known| known.table == table.id);
        match known.and_then(|at| self.marks.get_mut(at)) {
            // It may have moved meanwhile.
            Some(known) => known.before = known.before.max(mark.before),
            None => self.marks.push(mark),
        }
    }
}

/// Streams of a partition with rows that deletes remove, and the ranges.
fn touched_streams(
    core: &Core,
    partition: &Partition,
    state: &SegmentState,
    due: &[&Tombstone],
) -> Result<Vec<(StreamId, Vec<ClosedRange>)>> {
    let record = &partition.record;
    let mut streams = Vec::new();
    for number in state.pages() {
        for (stream, stream_state) in core.store.page(state, number)?.iter() {
            let ranges = due
                .iter()
                .filter(|t| t.concerns(record.table, stream))
                .map(|t| t.range.intersect(&record.span()));
            let ranges = union(ranges.collect());
            if is_touched(&stream_state, &ranges) {
                streams.push((stream, ranges));
            }
        }
    }
    Ok(streams)
}

/// Tables with rows in memory before the retention cutoff.
fn cut_off_in_memory(core: &Core, shard: &Shard, sequence: Sequence) -> Vec<Arc<Table>> {
    let all = core.catalog.tables();
    let is_cut =
        |table: &&Arc<Table>| table.lifetime.retention_cutoff.is_set() && !table.lifetime.dropped;
    let cut: BTreeMap<TableId, &Arc<Table>> = all
        .iter()
        .filter(is_cut)
        .map(|table| (table.id, table))
        .collect();
    let mut found: BTreeMap<TableId, Arc<Table>> = BTreeMap::new();
    if cut.is_empty() {
        return Vec::new();
    }
    let state = shard.state.lock();
    let of_cut = state
        .active()
        .filter_map(|(_, slot)| Some((slot, *cut.get(&slot.table)?)));
    for (slot, table) in of_cut {
        if found.contains_key(&table.id) {
            continue;
        }
        let cutoff = table.lifetime.retention_cutoff;
        let is_before = |time: Timestamp, s: Sequence| cutoff.ends(time) && s <= sequence;
        let mut chunks = slot.memory.flank.iter().chain(&slot.memory.late);
        if chunks.any(|chunk| cutoff.ends(chunk.span.first) && chunk.has(is_before)) {
            found.insert(table.id, Arc::clone(table));
        }
    }
    found.into_values().collect()
}

/// Removes the recorded rows from memory.
fn forget_removed(state: &mut ShardState, marks: &[RemovedMark]) {
    let version = state.version + 1;
    let open = state.snapshots.clone();
    for mark in marks {
        let active = state.active().filter(|(_, slot)| slot.table == mark.table);
        let streams: Vec<StreamId> = active.map(|(stream, _)| stream).collect();
        let stays = |time: Timestamp, s: Sequence| !mark.removes(time, s);
        for stream in streams {
            state.with_stream(stream, mark.table, |memory| {
                memory.remove_deleted(&stays, version, &open)
            });
        }
    }
}

fn carry_out(
    core: &Core,
    index: ShardIndex,
    shard: &Shard,
    scratch: &mut StepScratch,
    sequence: Sequence,
    plan: SweepPlan,
) -> Result<()> {
    let mut gone = plan.emptied;
    let mut written = Vec::with_capacity(plan.touched.len());
    for touched in &plan.touched {
        let one = write(core, index, scratch, sequence, touched)?;
        if one.state.sums.is_empty() {
            gone.push(Arc::clone(&touched.partition));
        } else {
            written.push(one);
        }
    }
    make_durable(core, sequence, &written)?;
    let removed: Vec<SegmentId> = gone.iter().map(|p| p.id()).collect();
    commit_marked(core, sequence, &written, &removed, &plan.marks)?;
    let change = {
        let mut state = shard.state.lock();
        let before = state.bytes;
        forget_removed(&mut state, &plan.marks);
        let mut partitions = (*state.partitions).clone();
        for one in &written {
            core.store
                .put_state(&one.partition, Arc::clone(&one.state), &one.pages);
            partitions.put(Arc::clone(&one.partition));
        }
        for one in &gone {
            partitions.remove(one.record.table, one.id());
        }
        state.version += 1;
        state.partitions = Arc::new(partitions);
        state.step_sequence = state.step_sequence.max(sequence);
        state.bytes.cast_signed() - before.cast_signed()
    };
    if change != 0 {
        core.memory_changed(change);
    }
    keep_committed(core, &written);
    for one in &gone {
        tracing::info!(segment = one.id().0, "removed a partition without events");
        core.store.forget(one.id());
        one.file.set_replaced();
    }
    free_log(core)
}

fn write(
    core: &Core,
    index: ShardIndex,
    scratch: &mut StepScratch,
    sequence: Sequence,
    touched: &TouchedPartition,
) -> Result<WrittenGroup> {
    let old = &touched.partition;
    let header = SegmentHeader {
        replaces: None,
        id: old.id(),
        table: touched.table.id,
        shard: index,
        level: old.record.level,
        bucket: old.record.bucket,
    };
    let (mut group, file) = open_group(core, old.id(), Some(old), &header)?;
    let context = StoreContext {
        store: &core.store,
        segment: old.id(),
        table: &touched.table,
        top: old.record.level,
        scope: headwater_late::MergeScope::Touched,
        leaf_events: touched.table.leaf_events as usize,
        rewrite_per_late: 0.0,
        late_runs_max: core.options.late_runs_max,
        exact_cut: core.mode.is_exact(),
        bucket_events: core.options.bucket_events,
        counters: &core.counters,
    };
    let encodings = scratch.encodings.entry(touched.table.id).or_default();
    let mut shared = SharedLeaves::new(touched.table.leaf_events as usize);
    let mut deltas = Vec::with_capacity(touched.streams.len());
    let mut cursor = PageCursor::new(&core.store, &touched.state);
    for (stream, ranges) in &touched.streams {
        let state = cursor.stream(*stream)?.ok_or_else(|| {
            Error::internal(format!(
                "a delete refers to rows of stream {}, which its segment no longer contains",
                stream.0
            ))
        })?;
        let mut delta = StreamDelta {
            stream: *stream,
            ..StreamDelta::default()
        };
        let mut out = GroupOutput {
            group: &mut group,
            encodings,
            shared: &mut shared,
        };
        erase(&context, &mut out, *stream, &state, ranges, &mut delta)?;
        deltas.push(delta);
    }
    attach_shared(shared.finish(&mut group, encodings)?, &mut deltas)?;
    let previous = Some((old.record.footer_offset, old.record.footer_bytes));
    let table =
        (touched.state.table.as_deref() != Some(&*touched.table)).then(|| (*touched.table).clone());
    let before = cursor.touched();
    let end = GroupEnd {
        previous,
        sequence,
        table,
        streams: deltas,
    };
    let ClosedGroup {
        state: next,
        pages,
        finished,
    } = close(&core.store, &mut group, &touched.state, &before, end)?;
    core.counters
        .bytes(0, group.bytes.leaf, group.bytes.index, 0);
    Ok(WrittenGroup {
        partition: Arc::new(Partition::new(
            PartitionRecord {
                groups: old.record.groups + 1,
                ..record(
                    &header,
                    sequence,
                    &next.sums,
                    finished,
                    expiry(Some(&old.record), &group),
                )
            },
            file,
        )),
        state: Arc::new(next),
        pages,
        group,
        is_new: false,
        rows: 0,
        counts: Counters::default(),
        streams: Vec::new(),
    })
}

/// Removes deleted events from memory, and drops tombstones that are fully carried out. True when
/// it did anything.
fn clear_memory(core: &Core, shard: &Shard, sequence: Sequence) -> bool {
    let mut state = shard.state.lock();
    let due: Vec<Tombstone> = state
        .tombstones
        .iter()
        .filter(|t| t.sequence <= sequence)
        .cloned()
        .collect();
    let version = state.version + 1;
    let open = state.snapshots.clone();
    let before = state.bytes;
    let mut changed = false;
    let active: Vec<(StreamId, TableId)> =
        state.active().map(|(s, slot)| (s, slot.table)).collect();
    for (stream, table_id) in active {
        let table = core.catalog.table(table_id);
        assert!(
            table.is_some(),
            "memory holds events of table {}, which there never was",
            table_id.0
        );
        let lifetime = table.map_or(TableLifetime::FOREVER, |t| t.lifetime);
        let concerned: Vec<&Tombstone> = due
            .iter()
            .filter(|t| t.concerns(table_id, stream))
            .collect();
        if concerned.is_empty() && !lifetime.dropped {
            continue;
        }
        let stays = |time: Timestamp, s: Sequence| {
            !lifetime.dropped && !concerned.iter().any(|t| t.removes(time, s))
        };
        let (removed, _) = state.with_stream(stream, table_id, |memory| {
            memory.remove_deleted(&stays, version, &open)
        });
        changed |= removed;
    }
    // A delete stays while a partition still waits for it: one that is being rewritten, or that
    // cannot be read.
    let has_waiting = |t: &Tombstone, is_waiting: &dyn Fn(&Partition) -> bool| {
        state.partitions.of(t.table).iter().any(|p| {
            is_waiting(p) && p.record.sequence < t.sequence && t.range.overlaps(&p.record.span())
        })
    };
    let is_busy = |p: &Partition| state.busy.contains(&p.id());
    let waits = |t: &Tombstone| has_waiting(t, &|p| is_busy(p) || p.unreadable.is_some());
    let left: Vec<Tombstone> = state
        .tombstones
        .iter()
        .filter(|t| t.sequence > sequence || waits(t))
        .cloned()
        .collect();
    if !due.iter().any(|t| has_waiting(t, &is_busy)) {
        state.swept = state.swept.max(sequence);
    }
    if left.len() < state.tombstones.len() {
        changed = true;
        state.tombstones = Arc::new(left);
    }
    if changed {
        state.version = version;
    }
    // Empty partitions wait until the log has advanced beyond them.
    let mut all = state.partitions.all();
    let some_empty = all.any(|p| p.record.is_empty() && p.unreadable.is_none());
    drop(all);
    state.ending = some_empty;
    let change = state.bytes as isize - before as isize;
    let alone = open.is_empty();
    drop(state);
    if alone && core.shards.iter().all(|s| !s.state.lock().has_snapshots()) {
        core.catalog.forget_dropped();
    }
    if change != 0 {
        core.memory_changed(change);
    }
    changed
}
