//! The work of background threads, or of writers where there are no threads: flush, end data that
//! is due to end, compact.
//!
//! Concurrency: one worker per shard flushes, and copies missing parts of segments to the fast
//! tier; one more compacts; one copies the log of a fast tier, where so configured. Without threads
//! [`maintain`] does all of this on the caller. Every loop here ends: a loop that rewrites runs
//! while there are partitions with a reason ([`jobs::needs_compaction`]), and a rewriting removes
//! the reason. Failure: a job that failed for want of space is retried on request, a rewriting
//! after a while; other failures have latched the database.

use crate::common::ids::{SegmentId, ShardIndex};
use crate::core::Core;
use crate::core::policy_choice::late_work_is_due;
use crate::maintenance::flush::{
    flush_if_due, give_back_if_full, log_bytes_max, rest_if_due, sweep_all,
};
use crate::maintenance::indexing::{Outcome, next_increment};
use crate::maintenance::jobs;
use crate::maintenance::retention::move_cutoffs;
use crate::open::snapshot_states::end_due;
use crate::wal::mirror::Mirror;
use crate::{ErrorKind, Result};
use headwater_io::queue::Purpose;
use std::sync::Arc;
use std::time::Duration;

/// Delay of compaction when there was no space for it.
const SPACE_PATIENCE: Duration = Duration::from_secs(60);

/// Delay of compaction when writers needed the partition that was being rewritten.
const WRITERS_FIRST: Duration = Duration::from_secs(30);

/// Does the due work, on the caller.
pub(crate) fn maintain(core: &Core) -> Result<()> {
    core.log.wait_published(core.log.newest())?;
    mirror_if_due(core);
    end_due(core)?;
    move_cutoffs(core)?;
    loop {
        let mut progress = false;
        for index in core.shards.indices() {
            progress |= flush_if_due(core, index)?;
        }
        while let Some((index, id)) = compaction_due_now(core) {
            if !compact(core, index, id) {
                break;
            }
        }
        progress |= give_back_if_full(core)?;
        if !progress && !rest_if_due(core)? && !run_index_increment(core) {
            break;
        }
    }
    for index in core.shards.indices() {
        let mut from = SegmentId(0);
        while let Some(next) = keep_behind(core, index, from)? {
            from = next;
        }
    }
    Ok(())
}

/// Copies to the fast tier the missing parts of one segment, from this number on, after dropping
/// old copies there. Returns the number to continue from; `None` = no further segment.
fn keep_behind(core: &Core, shard: ShardIndex, from: SegmentId) -> Result<Option<SegmentId>> {
    let mut next: Option<SegmentId> = None;
    for kept in core.store.repeats().all() {
        kept.let_go();
        let behind = kept.next_behind(shard, from);
        next = next.into_iter().chain(behind).min();
    }
    let Some(id) = next else {
        return Ok(None);
    };
    let _working = Purpose::Compaction.begin();
    let partitions = Arc::clone(&core.shards.get(shard)?.state.lock().partitions);
    if let Some(partition) = partitions.all().find(|p| p.id() == id) {
        for kept in core.store.repeats().all() {
            core.store.keep_missing(&kept, partition);
        }
    }
    Ok(Some(SegmentId(id.0 + 1)))
}

/// Without threads, the writer does the background work. Its write is acknowledged: a failure here
/// is reported by the latch, or to the next write that needs memory.
pub(crate) fn maintain_after_write(core: &Core) {
    if core.signals.has_threads() {
        return;
    }
    mirror_if_due(core);
    let due = core.mode.is_exact()
        || late_work_is_due(core)
        || core.memory.is_flush_due()
        || core.log.live_bytes() > log_bytes_max(core);
    if due && let Err(error) = maintain(core) {
        tracing::warn!(%error, "a flush failed; the log contains the events");
    }
}

/// Copies new records of the log in a fast tier, when due.
fn mirror_if_due(core: &Core) {
    let now = core.env.clock.monotonic();
    if let Some(mirror) = &core.placing.now().mirror
        && core.log.check_failure().is_ok()
        && mirror.is_due(now)
    {
        mirror_log(core, mirror);
    }
}

/// Copies the log in a fast tier before a flush returns. The flushed events are in bulk; the copy
/// must not have rows that a delete removed from memory without the delete.
pub(crate) fn mirror_flushed(core: &Core) -> Result<()> {
    let now = core.env.clock.monotonic();
    match &core.placing.now().mirror {
        Some(mirror) => mirror.round(&core.log, core.commits.log_generation(), now),
        None => Ok(()),
    }
}

/// Copies new records of the log in a fast tier.
pub(crate) fn mirror_log(core: &Core, mirror: &Mirror) {
    let now = core.env.clock.monotonic();
    if let Err(error) = mirror.round(&core.log, core.commits.log_generation(), now) {
        tracing::warn!(%error, "cannot copy the log in the fast tier to the bulk device; it will be retried, and until then the log is lost if the tier fails");
    }
}

/// A partition that should be rewritten, among partitions older than segment `made_before`, and
/// their replacements.
fn compaction_due(
    core: &Core,
    thorough: bool,
    made_before: SegmentId,
) -> Option<(ShardIndex, SegmentId)> {
    (0u16..).zip(&core.shards).find_map(|(index, shard)| {
        // Reading the state of a partition may need I/O: not under the lock.
        let (partitions, busy) = {
            let state = shard.state.lock();
            (Arc::clone(&state.partitions), state.busy.clone())
        };
        let found = partitions
            .all()
            .filter(|p| !busy.contains(&p.id()) && !core.compaction.is_excluded(p.id()))
            .filter(|p| p.unreadable.is_none())
            .filter(|p| p.id() < made_before || p.record.groups <= 1)
            .filter(|p| !core.compaction.is_settled(p.id(), p.record.footer_offset))
            .filter(|p| thorough || jobs::may_compact(core, p.record.live_bytes))
            .find(|p| jobs::needs_compaction(core, p, thorough))
            .map(|p| p.id());
        found.map(|id| (ShardIndex(index), id))
    })
}

/// The partition that the background should rewrite now.
fn compaction_due_now(core: &Core) -> Option<(ShardIndex, SegmentId)> {
    if core.compaction.is_postponed(core.env.clock.monotonic()) || core.check_space().is_err() {
        return None;
    }
    compaction_due(core, false, SegmentId(u64::MAX))
}

/// Rewrites one partition. False when that failed; a damaged one is skipped from then on.
fn compact(core: &Core, index: ShardIndex, id: SegmentId) -> bool {
    match jobs::compact_partition(core, index, id, core.signals.has_threads()) {
        Ok(done) => done,
        // Its rows stay where they are, and writers go on.
        Err(error) if error.kind() == ErrorKind::Busy => {
            let now = core.env.clock.monotonic();
            core.compaction.postpone_to(now + WRITERS_FIRST);
            false
        }
        Err(error) => {
            tracing::warn!(segment = id.0, %error, "compaction failed; the partition is unchanged");
            match error.kind() {
                // The output was removed, and a retry would write it again.
                ErrorKind::Full => {
                    let now = core.env.clock.monotonic();
                    core.compaction.postpone_to(now + SPACE_PATIENCE);
                }
                ErrorKind::Closed => {}
                _ => core.compaction.leave_alone(id),
            }
            false
        }
    }
}

/// Rewrites every partition that would become tidier.
pub(crate) fn compact_all(core: &Core) -> Result<()> {
    // Does not wait for writes of other threads meanwhile.
    let made_before = core.segment_ids.next();
    // A partition that was split may be due for aging, in parts.
    loop {
        move_cutoffs(core)?;
        sweep_all(core)?;
        let mut rewritten = false;
        while let Some((index, id)) = compaction_due(core, true, made_before) {
            match jobs::compact_partition(core, index, id, false) {
                Ok(done) => rewritten |= done,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    core.compaction.leave_alone(id);
                }
                Err(error) => return Err(error),
            }
        }
        if !rewritten {
            return Ok(());
        }
    }
}

/// Main loop of a shard's worker.
pub(crate) fn flush_worker(core: &Core, index: ShardIndex) {
    // Next segment to check for parts missing in the fast tier.
    let mut from = SegmentId(0);
    while !core.signals.is_stopped() {
        match flush_if_due(core, index) {
            Ok(true) => {}
            Ok(false) => match keep_behind(core, index, from) {
                Ok(Some(next)) => from = next,
                Ok(None) => {
                    from = SegmentId(0);
                    core.signals.wait_for_work();
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot copy the index of a segment to the fast tier");
                    from = SegmentId(0);
                    core.signals.wait_for_work();
                }
            },
            Err(error) if error.kind() == ErrorKind::Full => {
                tracing::warn!(%error, "a flush failed: no space");
                core.signals.wait_for_work();
            }
            // Latched: the next writer gets the error.
            Err(_) => return,
        }
    }
}

/// Main loop of the worker that compacts.
pub(crate) fn compaction_worker(core: &Core) {
    while !core.signals.is_stopped() {
        if core.log.check_failure().is_ok()
            && let Err(error) = end_due(core)
        {
            tracing::warn!(%error, "cannot end a snapshot; it will be retried");
            core.signals.wait_for_work();
        }
        if core.log.check_failure().is_ok()
            && let Err(error) = move_cutoffs(core)
        {
            tracing::warn!(%error, "retention or aging failed; it will be retried");
            core.signals.wait_for_work();
        }
        if core.log.check_failure().is_ok()
            && core.clock_guard.must_be_persisted(&*core.env.clock)
            && let Err(error) = jobs::commit_log_cut(core)
        {
            tracing::warn!(%error, "cannot commit the time; it will be retried");
            core.signals.wait_for_work();
        }
        if core.log.check_failure().is_ok()
            && let Err(error) = give_back_if_full(core)
        {
            tracing::warn!(%error, "cannot release unneeded log files; it will be retried");
            core.signals.wait_for_work();
        }
        if core.log.check_failure().is_ok()
            && let Err(error) = rest_if_due(core)
        {
            tracing::warn!(%error, "cannot flush the events in memory; the log contains them");
            core.signals.wait_for_work();
        }
        let has_indexed = core.log.check_failure().is_ok() && run_index_increment(core);
        match compaction_due_now(core) {
            Some((index, id)) if core.log.check_failure().is_ok() => {
                if !compact(core, index, id) {
                    core.signals.wait_for_work();
                }
            }
            _ if has_indexed => {}
            _ => core.signals.wait_for_work(),
        }
    }
}

/// Runs the next increment of indexing, if any. Filters read the missing leaves, so a failure is
/// only logged, and the increment is retried after a while.
fn run_index_increment(core: &Core) -> bool {
    let now = core.env.clock.monotonic();
    if core.indexes.is_postponed(now) || core.check_space().is_err() {
        return false;
    }
    let _working = Purpose::Compaction.begin();
    match next_increment(core, None) {
        Ok(piece) => piece == Outcome::Done,
        Err(error) => {
            tracing::warn!(%error, "cannot build a part of an index; it will be retried");
            core.indexes.postpone_to(now + SPACE_PATIENCE);
            false
        }
    }
}

/// Main loop of the thread that copies the log of a fast tier to bulk, while the log is in a fast
/// tier.
pub(crate) fn mirror_worker(core: &Core, interval: Duration) {
    while !core.signals.is_stopped() {
        core.signals.pause(&*core.env.clock, interval);
        if core.log.check_failure().is_err() {
            // Latched: the next writer gets the error.
            return;
        }
        if let Some(mirror) = &core.placing.now().mirror {
            mirror_log(core, mirror);
        }
    }
}

/// Main loop of the thread that leads groups without a waiting writer.
pub(crate) fn log_worker(core: &Core) {
    while !core.signals.is_stopped() && core.log.background_round(Duration::from_secs(1)) {}
}
