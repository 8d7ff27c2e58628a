//! Makes a flush durable, commits it, publishes it and frees the log (steps 2 to 5 of the
//! protocol).
//!
//! Invariants: the log is synced before the segments that hold its events are named; readers get
//! the new partitions and lose the events in memory at one instant.
//! Failure: see the module above; a failed transaction latches.

use super::write::WrittenGroup;
use crate::common::counters::{COMPACTION_DAY, COMPACTION_DAY_BYTES};
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::core::Core;
use crate::core::shard::Shard;
use crate::metadata::removed_rows::RemovedMark;
use crate::metadata::tables::MetaChange;
use crate::{Error, Result};
use headwater_types::{ClosedRange, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Changes of analyzers since the last commit, by shard.
fn unsaved_analyzers(core: &Core) -> Vec<(u16, Vec<u8>)> {
    (0u16..)
        .zip(&core.shards)
        .filter_map(|(index, shard)| {
            let mut state = shard.state.lock();
            std::mem::take(&mut state.unsaved_analyzer).then(|| {
                let mut bytes = Vec::new();
                state.analyzer.encode(&mut bytes);
                (index, bytes)
            })
        })
        .collect()
}

/// The counters as of a flush: events still in memory are counted again when the log is replayed.
fn saved_counters(core: &Core, written: &[WrittenGroup]) -> Vec<(String, u64)> {
    let in_log_only: usize = core
        .shards
        .iter()
        .map(|s| {
            let state = s.state.lock();
            state.flank_events + state.late_events + state.parked.events as usize
        })
        .sum();
    let stored: usize = written.iter().map(|w| w.rows).sum();
    let waiting = in_log_only.saturating_sub(stored) as u64;
    let mut saved = core.counters.snapshot();
    if let Some((_, accepted)) = saved.first_mut() {
        *accepted = accepted.saturating_sub(waiting);
    }
    let compacted = core.compaction.written();
    saved.extend([
        (COMPACTION_DAY, compacted.day),
        (COMPACTION_DAY_BYTES, compacted.bytes),
    ]);
    let counters = saved.into_iter().map(|(name, n)| (name.to_owned(), n));
    let clock = core.clock_guard.to_persist(&*core.env.clock);
    counters.chain(clock).collect()
}

/// Step 2 of the protocol.
pub(super) fn make_durable(
    core: &Core,
    sequence: Sequence,
    written: &[WrittenGroup],
) -> Result<()> {
    // The log first: a segment must not outlive the definitions and the numbers in the log. A table
    // may have been changed after the job's sequence, and rows may have been stored in its new
    // types. Without a pending definition the log needs no further sync.
    let changed = core.catalog.newest_pending_table().unwrap_or_default();
    core.log.sync_up_to(sequence.max(changed))?;
    // All syncs are started before the first wait, for media that can do several at once; every
    // sync is waited for, so that no failure is missed.
    let syncs: Vec<_> = written.iter().map(|one| one.group.begin_sync()).collect();
    let synced: Vec<Result<()>> = written
        .iter()
        .zip(syncs)
        .map(|(one, sync)| one.group.synced(sync))
        .collect();
    synced.into_iter().collect::<Result<()>>()?;
    if written.iter().any(|w| w.is_new) {
        let dir = core.store.dir();
        core.store
            .files()
            .sync_dir(dir)
            .map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(())
}

/// Step 3 of the protocol.
pub(super) fn commit(
    core: &Core,
    sequence: Sequence,
    written: &[WrittenGroup],
    removed: &[SegmentId],
) -> Result<()> {
    commit_marked(core, sequence, written, removed, &[])
}

/// Commits like [`commit`], and records which rows a retention removes.
pub(super) fn commit_marked(
    core: &Core,
    sequence: Sequence,
    written: &[WrittenGroup],
    removed: &[SegmentId],
    marks: &[RemovedMark],
) -> Result<()> {
    let _alone = core.commits.begin();
    let definitions = core
        .catalog
        .pending_up_to(sequence)
        .inspect_err(|error| core.log.latch(error.clone()))?;
    let next_stream = core.catalog.next_stream();
    let log = core.log.stats();
    core.commits
        .count_log_bytes(&core.counters, log.bytes_written);
    // By the present metadata: a record of removed rows is dropped after the log files it concerns.
    let begins_behind = core.log.sequence_before(core.commits.log_generation());
    let change = MetaChange {
        removed_rows: core.removed.change(marks, begins_behind),
        step_sequence: sequence,
        definitions,
        next_stream,
        partitions: written
            .iter()
            .map(|w| (w.partition.id(), w.partition.record.clone()))
            .collect(),
        hashes: written
            .iter()
            .map(|w| (w.partition.id(), w.group.hashes().to_vec()))
            .collect(),
        removed: removed.to_vec(),
        next_segment: core.segment_ids.next().0,
        log_first_generation: core.commits.log_cut(),
        log_newest_generation: log.begun,
        counters: saved_counters(core, written),
        producers: core.producers.unsaved_up_to(sequence),
        analyzers: unsaved_analyzers(core),
        deletes: core.newest_deletes.unsaved(),
        ends: core.ends.unsaved(),
        snapshot_ends: core.named_ends.unsaved(),
    };
    if let Err(error) = core.meta.commit(&change) {
        core.log.latch(error.clone());
        return Err(error);
    }
    core.commits.set_log_generation(change.log_first_generation);
    core.commits
        .count_meta_bytes(&core.counters, core.meta.written_bytes());
    let freed = core
        .catalog
        .applied_up_to(sequence)
        .inspect_err(|error| core.log.latch(error.clone()))?;
    if freed > 0 {
        core.memory_changed(-freed.cast_signed());
    }
    core.producers.saved_up_to(sequence);
    core.newest_deletes.saved(&change.deletes);
    core.removed.changed(&change.removed_rows);
    core.ends.saved(&change.ends);
    core.named_ends.saved(&change.snapshot_ends);
    Ok(())
}

/// Step 4: readers see the new partitions and no longer the events in memory, at one instant.
pub(super) fn publish(core: &Core, shard: &Shard, sequence: Sequence, written: &[WrittenGroup]) {
    let mut state = shard.state.lock();
    let separate = state.separates();
    let open = state.snapshots.clone();
    let version = state.version + 1;
    let mut partitions = (*state.partitions).clone();
    let mut taken: BTreeMap<StreamId, (TableId, Vec<ClosedRange>, Option<Timestamp>)> =
        BTreeMap::new();
    for one in written {
        core.store
            .put_state(&one.partition, Arc::clone(&one.state), &one.pages);
        partitions.put(Arc::clone(&one.partition));
        for (stream, table, range, watermark) in &one.streams {
            let slot = taken.entry(*stream).or_insert((*table, Vec::new(), None));
            slot.1.push(*range);
            slot.2 = slot.2.max(*watermark);
        }
    }
    let before = state.bytes;
    for (stream, (table, ranges, watermark)) in taken {
        state.with_stream(stream, table, |memory| {
            memory.remove_stored(&ranges, sequence, watermark, version, &open, separate);
        });
    }
    state.version = version;
    state.partitions = Arc::new(partitions);
    state.step_sequence = state.step_sequence.max(sequence);
    let change = state.bytes as isize - before as isize;
    drop(state);
    core.memory_changed(change);
}

/// After the protocol: copies the committed parts of segments to the fast tier, where so
/// configured. No other step depends on it.
pub(super) fn keep_committed(core: &Core, written: &[WrittenGroup]) {
    for one in written {
        core.store.keep_committed(&one.partition);
    }
}

/// Step 5: passes the log files that are no longer needed to the next commit, and frees the files
/// that the last commit named.
pub(super) fn free_log(core: &Core) -> Result<()> {
    recycle(core)?;
    let generation = core.log.first_generation_needed(core.first_needed());
    core.commits.offer_log_cut(generation);
    Ok(())
}

pub(super) fn recycle(core: &Core) -> Result<()> {
    let committed = core.commits.log_generation();
    core.log
        .recycle_below(committed)
        .inspect_err(|error| core.log.latch(error.clone()))
}

/// Commits only the position of the log, so that files named by the last job are freed; repeats
/// this when only data of that commit, such as a definition, needed the files.
pub(crate) fn commit_log_cut(core: &Core) -> Result<()> {
    for _ in 0..2 {
        let generation = core.log.first_generation_needed(core.first_needed());
        core.commits.offer_log_cut(generation);
        let sequence = core.log.published();
        make_durable(core, sequence, &[])?;
        commit(core, sequence, &[], &[])?;
        recycle(core)?;
        if core.log.first_generation_needed(core.first_needed()) == generation {
            break;
        }
    }
    Ok(())
}
