//! When a shard flushes events, and how many: because memory is used up, the log is too long, late
//! events have waited, or the database is flushed or closed.
//!
//! Concurrency: called by the shard's worker, or by writers where there are no threads. Every loop
//! here ends: it only flushes events that existed when it began. Failure: a job that failed for
//! want of space is retried on request; other failures have latched the database.

use crate::Result;
use crate::common::ids::{Sequence, ShardIndex};
use crate::config::tier_shares::TierShares;
use crate::core::Core;
use crate::core::policy_choice::{decide_if_due, late_buffer_is_due, settle_analyzers};
use crate::maintenance::jobs::{self, Buffers, ShardView, Urgency};

fn view(core: &Core, index: ShardIndex) -> Result<(ShardView, usize)> {
    let state = core.shards.get(index)?.state.lock();
    Ok((
        ShardView {
            flank_events: state.flank_events,
            late_events: state.late_events,
        },
        state.bytes,
    ))
}

/// Log length in bytes above which events are flushed to shorten it.
pub(crate) fn log_bytes_max(core: &Core) -> u64 {
    let usual = core.options.log_bytes_usual();
    let placed = core.placing.now();
    let parts = placed.tier.as_ref().map(|owned| owned.tier.parts);
    let parts = parts.filter(|_| placed.is_log_fast());
    // Files that are being filled or prepared are counted in addition to the needed ones.
    let prepared = 2 * core.options.log_file_size();
    let share = parts.and_then(|parts| TierShares::of(&core.options, parts).log);
    share.map_or(usual, |most| usual.min(most.saturating_sub(prepared)))
}

/// Flushes a shard if it is due. True when it did something.
pub(crate) fn flush_if_due(core: &Core, index: ShardIndex) -> Result<bool> {
    if has_ended(core, index)? && jobs::sweep(core, index)? {
        return Ok(true);
    }
    // The rest of the reserve is for operations that free space.
    if core.check_space().is_err() {
        return Ok(false);
    }
    decide_if_due(core, index)?;
    let (view, bytes) = view(core, index)?;
    let policy = &core
        .shards
        .get(index)?
        .state
        .lock()
        .in_force()
        .candidate
        .policy;
    if let Some(memory_events) = core.mode.memory_events() {
        return match jobs::full_buffers(memory_events, policy, view) {
            Some(buffers) => step(core, index, buffers, Urgency::Memory),
            None => Ok(false),
        };
    }
    if core.memory.is_flush_due() {
        let held = core.shards.events_in_memory();
        // Only shards with at least their share of memory: not all memory in use is events.
        let shards = core.shards.len().max(1);
        if bytes > 0 && bytes >= core.memory.flush_bytes().min(held.bytes) / shards {
            let buffers = jobs::buffers_to_store(policy, view);
            if step(core, index, buffers, Urgency::Memory)? {
                return Ok(true);
            }
            // Nothing to take in these buffers, such as a fully retained flank: take any events.
            if step(core, index, Buffers::Both, Urgency::All)? {
                return Ok(true);
            }
        }
        if held.events == 0 && core.catalog.first_pending().is_some() {
            // Memory holds only names of new streams, which a commit stores.
            core.log.wait_published(core.log.newest())?;
            jobs::commit_log_cut(core)?;
            return Ok(true);
        }
    }
    if late_buffer_is_due(core, index)? {
        let merged = step(core, index, Buffers::Late, Urgency::All)?;
        if !merged {
            // Its partition does not accept groups now: wait before the next attempt.
            let now = core.env.clock.monotonic();
            core.shards.get(index)?.state.lock().late_since = Some(now);
        }
        return Ok(merged);
    }
    let holds_events = view.flank_events + view.late_events > 0;
    let live_bytes = core.log.live_bytes();
    if core
        .unreadable
        .is_log_too_long(live_bytes, log_bytes_max(core))
        && holds_events
    {
        return step(core, index, Buffers::Both, Urgency::Log);
    }
    Ok(false)
}

/// True when a sweep has work to do.
fn has_ended(core: &Core, index: ShardIndex) -> Result<bool> {
    Ok(core.shards.get(index)?.state.lock().has_ended())
}

/// Carries out all deletes, drops, retention and expiry that are due.
pub(crate) fn sweep_all(core: &Core) -> Result<()> {
    for index in core.shards.indices() {
        if has_ended(core, index)? {
            jobs::sweep(core, index)?;
        }
    }
    Ok(())
}

fn step(core: &Core, index: ShardIndex, buffers: Buffers, urgency: Urgency) -> Result<bool> {
    let result = jobs::run_step(core, index, buffers, urgency);
    core.signals.note_step(&result);
    result
}

/// Flushes every event in memory.
pub(crate) fn flush_all(core: &Core) -> Result<()> {
    store_all(core)?;
    jobs::commit_log_cut(core)
}

/// When nothing has been written for a while: flushes the events in memory, and releases files that
/// the log does not need. True when it did something.
pub(crate) fn rest_if_due(core: &Core) -> Result<bool> {
    let log = core.log.bytes_on_medium_and_written();
    let now = core.env.clock.monotonic();
    if core.mode.is_exact()
        || !core.rest.is_due(core.log.newest(), log, now)
        || core.check_space().is_err()
    {
        return Ok(false);
    }
    core.rest.note(log.1);
    store_all(core)?;
    core.log.leave_file()?;
    jobs::commit_log_cut(core)?;
    core.log.rest()?;
    core.shrink_reserves()?;
    Ok(true)
}

/// On a full disk: releases unneeded log files that are waiting for recycling or for the next
/// commit. True when it did something.
pub(crate) fn give_back_if_full(core: &Core) -> Result<bool> {
    if core.check_space().is_ok() {
        return Ok(false);
    }
    // The next commit stores log records that only definitions need.
    let is_needed = core.shards.first_unstored().is_some();
    let given = core.log.give_back(is_needed)?;
    let needed = match is_needed {
        true => core.log.first_generation_needed(core.first_needed()),
        false => u64::MAX,
    };
    if !core.log.has_full_below(needed) {
        return Ok(given);
    }
    jobs::commit_log_cut(core)?;
    core.log.give_back(true)?;
    Ok(true)
}

/// Flushes all events like [`flush_all`], at closing: the next opening has nothing to replay.
pub(crate) fn leave_log(core: &Core) -> Result<()> {
    settle_analyzers(core);
    core.log.leave_file()?;
    jobs::commit_log_cut(core)?;
    core.log.rest()?;
    core.shrink_reserves()?;
    match &core.placing.now().tier {
        // If the tier is lost now, no data is lost with it.
        Some(tier) if core.log.live_bytes() == 0 => tier.note_settled(&*core.env.files),
        _ => Ok(()),
    }
}

/// Runs jobs until all events that were in memory at the beginning are stored. Writers may go on.
pub(crate) fn store_all(core: &Core) -> Result<()> {
    let _no_compaction = core.compaction.begin();
    store_all_alone(core)
}

/// Flushes like [`store_all`], for a caller that prevents rewriting of partitions.
pub(crate) fn store_all_alone(core: &Core) -> Result<()> {
    core.log.wait_published(core.log.newest())?;
    let newest = core.log.published();
    for index in core.shards.indices() {
        let separates = core.shards.get(index)?.state.lock().separates();
        // Exactly as the policy counts: each buffer separately, at the end too.
        let all = if core.mode.is_exact() && separates {
            &[Buffers::Flank, Buffers::Late][..]
        } else {
            &[Buffers::Both]
        };
        for buffers in all {
            while step(core, index, *buffers, Urgency::All)?
                && has_events_up_to(core, index, newest)?
            {}
        }
    }
    Ok(())
}

/// True when memory holds an event with a sequence up to this one.
fn has_events_up_to(core: &Core, index: ShardIndex, newest: Sequence) -> Result<bool> {
    let state = core.shards.get(index)?.state.lock();
    Ok(state.first_sequence().is_some_and(|first| first <= newest))
}
