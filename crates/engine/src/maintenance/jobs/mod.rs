//! Maintenance jobs: take events out of a shard's memory, store them in segments, commit, publish.
//!
//! Protocol (docs/format/segment.md): 1 write every group; 2 sync the log up to the job's sequence
//! and each file, and the directory if a file is new; 3 one metadata transaction; 4 publish to
//! readers; 5 free log files. Invariants: a job takes every event of its streams and times with a
//! sequence up to its own, which is at most the published one; each stream's cover in a partition
//! records exactly that. Concurrency: one job of a shard at a time; writers and readers go on, and
//! are excluded only while memory is read and while the result is published. Failure: before the
//! transaction nothing has changed, and new files are removed again: a full disk aborts the job and
//! is reported by the writer that waits for memory; any other failure latches the database. A
//! transaction that failed may be on the medium nevertheless: the database latches, and every file
//! stays until the next opening decides. A partition whose header or footers turn out to be damaged
//! is set aside ([`crate::read::unreadable`]), and the job begins again without it.

mod append;
mod buffers;
mod carried;
mod commit;
mod compact;
mod cutter;
mod erase;
mod free_rows;
mod late_decision;
mod late_merge;
mod partitioning;
mod pinning;
mod rewriting;
mod store_stream;
mod stream_writer;
mod sweep;
mod take;
mod throttle;
mod write;

pub(crate) use buffers::{Buffers, ShardView, Urgency, buffers_to_store, full_buffers};
pub(crate) use commit::commit_log_cut;
pub(crate) use compact::{age_partition, compact_partition, needs_compaction};
pub(crate) use free_rows::{
    CopiedSegment, free_partition, is_freeable, lose_partition, refuse_parts_of_freed,
    remove_unread,
};
pub(crate) use sweep::sweep;
pub(crate) use throttle::may_compact;
pub(crate) use write::record;

use crate::Result;
use crate::common::ids::{ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::core::policy_choice::InForce;
use crate::core::shard::Shard;
use crate::read::unreadable::set_aside;
use commit::{commit, free_log, keep_committed, make_durable, publish};
use headwater_io::queue::Purpose;
use partitioning::assign_partitions;
use pinning::bound_pins;
use std::sync::Arc;
use take::take;
use write::{StepRows, WrittenGroup, discard, write_group};

/// Memory in bytes that a job uses per stream until it is committed, in addition to the rows:
/// changes, covers, its share of two pages, small vectors.
const STREAM_BYTES: usize = 1024;

/// Counts the memory of a job as in use, so that writers wait for it.
struct StepMemory<'a> {
    core: &'a Core,
    bytes: usize,
}

impl<'a> StepMemory<'a> {
    fn of(core: &'a Core, streams: usize) -> StepMemory<'a> {
        let bytes = streams * STREAM_BYTES;
        core.memory_changed(bytes as isize);
        StepMemory { core, bytes }
    }
}

impl Drop for StepMemory<'_> {
    fn drop(&mut self) {
        self.core.memory_changed(-(self.bytes as isize));
    }
}

/// Runs one flush or merge of a shard. False when there was nothing to do.
pub(crate) fn run_step(
    core: &Core,
    index: ShardIndex,
    buffers: Buffers,
    urgency: Urgency,
) -> Result<bool> {
    let shard = core.shards.get(index)?;
    let _working = Purpose::Flush.begin();
    let _latch = core.log.latch_on_panic("flushed events");
    let mut scratch = shard.stepping.lock();
    core.log.check_failure()?;
    let sequence = core.log.published();
    // First: no event may be stored beside events that a delete up to this sequence removes.
    sweep::sweep_up_to(core, index, shard, &mut scratch, sequence)?;
    let in_force = redivide(core, shard);
    let taken = take(core, shard, &in_force, buffers, urgency, sequence)?;
    if taken.is_empty() {
        return Ok(false);
    }
    let _held = StepMemory::of(core, taken.len());
    let partitions = Arc::clone(&shard.state.lock().partitions);
    let busy = shard.state.lock().busy.clone();
    let works = assign_partitions(core, &partitions, &busy, &taken)?;
    if works.is_empty() {
        return Ok(false);
    }
    let mut written = Vec::with_capacity(works.len());
    let rows = StepRows {
        core,
        shard: index,
        in_force: &in_force,
        sequence,
        inputs: &taken,
    };
    let result = (|| {
        for work in works {
            written.push(write_group(&rows, &mut scratch, work)?);
        }
        make_durable(core, sequence, &written)
    })();
    if let Err(error) = result {
        discard(&written);
        if set_aside(core, shard, &error) {
            // Without that partition there may be work left.
            return Ok(true);
        }
        if error.kind() != crate::ErrorKind::Full {
            core.log.latch(error.clone());
        }
        return Err(error);
    }
    commit(core, sequence, &written, &[])?;
    publish(core, shard, sequence, &written);
    keep_committed(core, &written);
    measure(core, shard, &written);
    core.counters.count_flush();
    free_log(core)?;
    bound_pins(core)?;
    Ok(true)
}

/// Returns the policy in force; after a change of policy, divides memory by the new one, stream by
/// stream, so that no writer waits for all streams.
fn redivide(core: &Core, shard: &Shard) -> InForce {
    let (in_force, streams) = {
        let mut state = shard.state.lock();
        let changed = std::mem::take(&mut state.repartition);
        let streams: Vec<(StreamId, TableId)> = if changed {
            state.active().map(|(id, slot)| (id, slot.table)).collect()
        } else {
            Vec::new()
        };
        (state.in_force(), streams)
    };
    for (stream, table) in streams {
        let mut state = shard.state.lock();
        if state.memory(stream).is_some() {
            let separate = state.separates();
            let ((), change) = state.with_stream(stream, table, |memory| memory.divide(separate));
            drop(state);
            core.memory_changed(change);
        }
    }
    in_force
}

/// Updates the shard's analyzer and the counters with the events that a job stored and wrote.
fn measure(core: &Core, shard: &Shard, written: &[WrittenGroup]) {
    let stored: usize = written.iter().map(|w| w.rows).sum();
    let events: u64 = written
        .iter()
        .map(|w| w.counts.written_for_arrivals())
        .sum();
    let merges: u64 = written.iter().map(|w| w.counts.merges()).sum();
    let mut state = shard.state.lock();
    state.analyzer.measure(stored as u64, events, merges);
    state.late_since = (state.late_events > 0).then(|| core.env.clock.monotonic());
}
