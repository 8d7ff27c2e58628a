//! Back-pressure, and conditions of stored data that a write depends on.

use crate::common::ids::{ShardIndex, StreamId, TableId};
use crate::common::ranges::union;
use crate::core::Core;
use crate::maintenance::schedule::maintain;
use crate::open::snapshot_states::end_due;
use crate::storage::partitions::stored_watermark;
use crate::{Error, ErrorKind, Result};
use headwater_types::{ClosedRange, Level, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a writer that waits for memory checks again, even without a wake-up.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Waits while memory is used up; `busy` after the configured time.
pub(super) fn wait_for_memory(core: &Core) -> Result<()> {
    if core.memory.has_room() {
        return Ok(());
    }
    if !core.signals.has_threads() {
        maintain(core)?;
        return if core.memory.has_room() {
            Ok(())
        } else {
            Err(busy(Duration::ZERO))
        };
    }
    let start = core.env.clock.monotonic();
    let mut waiting = core.signals.writer_waits();
    while !core.memory.has_room() {
        core.log.check()?;
        let waited = core.env.clock.monotonic().saturating_sub(start);
        if waited >= core.options.busy_timeout {
            return Err(core.signals.step_error().unwrap_or_else(|| busy(waited)));
        }
        waiting.wait((core.options.busy_timeout - waited).min(LOOK_AGAIN));
    }
    Ok(())
}

/// Fails with `full` while a disk is full; makes snapshots end there to free space.
pub(super) fn check_space(core: &Core) -> Result<()> {
    let Err(full) = core.check_space() else {
        return Ok(());
    };
    if !core.named.is_empty() {
        match core.signals.has_threads() {
            true => core.signals.nudge_workers(),
            false => drop(end_due(core)?),
        }
    }
    Err(full)
}

/// Waits while bulk stalls, before a lookup there; `busy` after the configured time. Holds no lock
/// that others wait for. The first thread that meets a stall waits for the medium.
pub(super) fn wait_for_bulk(core: &Core) -> Result<()> {
    let Some(bulk) = core.bulk.as_ref().filter(|bulk| bulk.is_stalled()) else {
        return Ok(());
    };
    let start = core.env.clock.monotonic();
    let mut waiting = core.signals.writer_waits();
    while bulk.is_stalled() {
        core.log.check()?;
        let waited = core.env.clock.monotonic().saturating_sub(start);
        if waited >= core.options.busy_timeout {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the bulk device of {} does not respond, and this write needs data that only it has (streams not written to since the database was opened): try again later; writes that fit into the fast tier are accepted meanwhile",
                    core.options.dir.display()
                ),
            ));
        }
        waiting.wait((core.options.busy_timeout - waited).min(LOOK_AGAIN));
    }
    Ok(())
}

fn busy(waited: Duration) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "no memory for more events after {waited:?}, since they arrive faster than the disk can write them: try again later, or raise the memory budget (memory_budget_bytes; on the server, memory_budget)"
        ),
    )
}

pub(super) fn wake_workers(core: &Core) {
    if core.signals.has_threads() && core.memory.is_flush_due() {
        core.signals.nudge_workers();
    }
}

/// Ensures that the watermark of a stream is known: the newest time in the main runs of its
/// partitions.
pub(super) fn ensure_watermark(
    core: &Core,
    shard: ShardIndex,
    stream: StreamId,
    table: TableId,
) -> Result<()> {
    let shard = core.shards.get(shard)?;
    loop {
        let (version, partitions) = {
            let mut state = shard.state.lock();
            if state.known_watermark(stream).is_some() {
                return Ok(());
            }
            if core.new_streams.contain(stream) || state.partitions.of(table).is_empty() {
                state.with_stream(stream, table, |m| m.watermark_known = true);
                return Ok(());
            }
            (state.version, Arc::clone(&state.partitions))
        };
        wait_for_bulk(core)?;
        let watermark = stored_watermark(&core.store, &partitions, stream, table)?;
        let mut state = shard.state.lock();
        // A job in between may have moved the watermark: check again.
        if state.version == version {
            state.with_stream(stream, table, |m| {
                m.watermark = watermark;
                m.watermark_known = true;
            });
            return Ok(());
        }
    }
}

/// Stretches, by time and disjoint, where rows of a stream have been aged and rows may be written
/// again, since aging went back, in a table in which a row would replace another one. Empty when
/// none of the times (in any order) can be there.
pub(super) fn aged_stretches(
    core: &Core,
    table: TableId,
    stream: StreamId,
    times: &[i64],
) -> Result<Vec<ClosedRange>> {
    let Some(definition) = core.catalog.table(table) else {
        return Ok(Vec::new());
    };
    let lifetime = &definition.lifetime;
    if !lifetime.has_writable_aged_range() || definition.keeps_duplicates() {
        return Ok(Vec::new());
    }
    let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else {
        return Ok(Vec::new());
    };
    let Some(aged_last) = lifetime.aged_to_max.last_before() else {
        return Ok(Vec::new());
    };
    let range = ClosedRange::nanos(*first, (*last).min(aged_last.as_nanos()));
    if range.is_empty() {
        return Ok(Vec::new());
    }
    wait_for_bulk(core)?;
    let mut out = Vec::new();
    for shard in &core.shards {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        for partition in partitions.overlapping(table, &range) {
            let segment = core.store.state(partition)?;
            let held = core.store.stream_contents(&segment, stream)?;
            let Some(state) = held.filter(|s| s.is_aged()) else {
                continue;
            };
            let base = state.base().unwrap_or(Level::MAX);
            let blocks = state.blocks_in(&core.store, base, (i64::MIN, i64::MAX))?;
            out.extend(
                blocks
                    .iter()
                    .map(|b| base.span(b.first_bucket, b.last_bucket)),
            );
        }
    }
    let mut out = union(out);
    out.retain(|stretch| {
        times
            .iter()
            .any(|t| stretch.contains(Timestamp::from_nanos(*t)))
    });
    Ok(out)
}
