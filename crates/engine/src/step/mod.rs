//! Steps: take events out of a shard's memory, store them in segments, commit, publish.
//!
//! Protocol (docs/format/segment.md): 1 write every group; 2 sync the log up to the step's sequence and each file, and the directory if
//! a file is new; 3 one metadata transaction; 4 publish to readers; 5 free log files.
//! Invariants: a step takes every event of its streams and times with a sequence up to its own, which is at most the
//! published one; each stream's cover in a partition says exactly that.
//! Concurrency: one step of a shard at a time; writers and readers go on, they are excluded only while memory is looked at
//! and while the result is published.
//! Failure: before the transaction nothing has changed, and new files are removed again: a full disk aborts the step and is
//! reported by the writer that waits for memory; any other failure latches the database. A transaction that failed may be on
//! the medium all the same: the database latches, and every file stays until the next opening knows.

mod commit;
mod compact;
mod cutter;
mod erase;
mod place;
mod plan;
mod stream_op;
mod sweep;
mod take;
mod write;

pub(crate) use commit::commit_log_cut;
pub(crate) use compact::{age_partition, compact_partition, compaction_wanted};
pub(crate) use plan::{Buffers, ShardView, Urgency, buffers_to_store, full_buffers};
pub(crate) use sweep::sweep;
pub(crate) use write::record;

use crate::Result;
use crate::core::Core;
use crate::ids::ShardIndex;
use commit::{commit, free_log, make_durable, publish};
use place::place;
use std::sync::Arc;
use take::take;
use write::{discard, write_group};

/// Runs one step of a shard. False when there was nothing to do.
pub(crate) fn run_step(
    core: &Core,
    index: ShardIndex,
    buffers: Buffers,
    urgency: Urgency,
) -> Result<bool> {
    let shard = core.shard(index)?;
    let mut scratch = shard.stepping.lock();
    core.log.check_failure()?;
    let sequence = core.log.published();
    // First of all: nothing may be stored beside events that a delete up to this sequence removes.
    sweep::sweep_up_to(core, index, shard, &mut scratch, sequence)?;
    let taken = take(core, shard, buffers, urgency, sequence)?;
    if taken.is_empty() {
        return Ok(false);
    }
    let partitions = Arc::clone(&shard.state.lock().partitions);
    let busy = shard.state.lock().busy.clone();
    let works = place(core, &partitions, &busy, &taken)?;
    if works.is_empty() {
        return Ok(false);
    }
    let mut written = Vec::with_capacity(works.len());
    let result = (|| {
        for work in works {
            written.push(write_group(
                core,
                index,
                &mut scratch,
                sequence,
                &taken,
                work,
            )?);
        }
        make_durable(core, sequence, &written)
    })();
    if let Err(error) = result {
        discard(&written);
        if error.kind() != crate::ErrorKind::Full {
            core.log.latch(error.clone());
        }
        return Err(error);
    }
    commit(core, sequence, &written, &[])?;
    publish(core, shard, sequence, &written);
    core.counters.count_flush();
    free_log(core)?;
    Ok(true)
}
