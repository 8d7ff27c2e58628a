//! Back-pressure, and what a write must know of what is stored already.

use crate::core::Core;
use crate::ids::{ShardIndex, StreamId, TableId};
use crate::partitions::stored_watermark;
use crate::ranges::{holds, union};
use crate::{Error, ErrorKind, Result};
use headwater_types::{ClosedRange, Level};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waits while memory is used up; `busy` after the configured time.
pub(super) fn wait_for_memory(core: &Core) -> Result<()> {
    let limit = core.flush_bytes() + core.flush_bytes() / 2;
    let is_free = || core.memory_bytes.load(Ordering::Relaxed) < limit;
    if is_free() {
        return Ok(());
    }
    if !core.work.threads.load(Ordering::Acquire) {
        core.maintain()?;
        return if is_free() {
            Ok(())
        } else {
            Err(busy(std::time::Duration::ZERO))
        };
    }
    let start = core.env.clock.monotonic();
    let mut held = core.work.lock.lock();
    while !is_free() {
        core.log.check()?;
        let waited = core.env.clock.monotonic().saturating_sub(start);
        if waited >= core.options.busy_timeout {
            return Err(core
                .work
                .step_error
                .lock()
                .clone()
                .unwrap_or_else(|| busy(waited)));
        }
        core.work.wanted.notify_all();
        let patience =
            (core.options.busy_timeout - waited).min(std::time::Duration::from_millis(50));
        core.work.freed.wait_for(&mut held, patience);
    }
    Ok(())
}

fn busy(waited: std::time::Duration) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "no memory for further events after {waited:?}, since they come faster than the disk takes them: try again later, \
             or raise the memory budget (memory_budget_bytes; of the server, memory_budget)"
        ),
    )
}

pub(super) fn wake_workers(core: &Core) {
    if core.work.threads.load(Ordering::Acquire)
        && core.memory_bytes.load(Ordering::Relaxed) >= core.flush_bytes()
    {
        core.work.wanted.notify_all();
    }
}

impl Core {
    /// Makes sure the watermark of a stream is known: the newest time in the main runs of its partitions.
    pub(crate) fn ensure_watermark(
        &self,
        shard: ShardIndex,
        stream: StreamId,
        table: TableId,
    ) -> Result<()> {
        let shard = self.shard(shard)?;
        loop {
            let (version, partitions) = {
                let mut state = shard.state.lock();
                if state.known_watermark(stream).is_some() {
                    return Ok(());
                }
                if stream.0 >= self.first_new_stream || state.partitions.of(table).is_empty() {
                    state.with_stream(stream, table, |m| m.watermark_known = true);
                    return Ok(());
                }
                (state.version, Arc::clone(&state.partitions))
            };
            let watermark = stored_watermark(&self.store, &partitions, stream, table)?;
            let mut state = shard.state.lock();
            // A step in between may have moved the watermark: look again.
            if state.version == version {
                state.with_stream(stream, table, |m| {
                    m.watermark = watermark;
                    m.watermark_known = true;
                });
                return Ok(());
            }
        }
    }
}

impl Core {
    /// Where rows of a stream have been aged away and rows may come again, since aging went back, in a table in which a row would
    /// replace another one: by time, apart. Empty when none of the times (in any order) can lie there.
    pub(super) fn aged_stretches(
        &self,
        table: TableId,
        stream: StreamId,
        times: &[i64],
    ) -> Result<Vec<ClosedRange>> {
        let Some(definition) = self.catalog.table(table) else {
            return Ok(Vec::new());
        };
        let life = &definition.life;
        if !life.aging_went_back() || definition.keeps_duplicates() {
            return Ok(Vec::new());
        }
        let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else {
            return Ok(Vec::new());
        };
        let range = ClosedRange::nanos(*first, (*last).min(life.aged_most.saturating_sub(1)));
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        for shard in &self.shards {
            let partitions = Arc::clone(&shard.state.lock().partitions);
            for partition in partitions.overlapping(table, &range) {
                let segment = self.store.state(partition)?;
                let held = self.store.stream(&segment, stream)?;
                let Some(state) = held.filter(|s| s.is_aged()) else {
                    continue;
                };
                let base = state.base.unwrap_or(Level::MAX);
                let blocks = state.blocks_of(base).iter();
                out.extend(blocks.map(|b| base.span(b.first_bucket, b.last_bucket)));
            }
        }
        let mut out = union(out);
        out.retain(|stretch| {
            times
                .iter()
                .any(|t| holds(std::slice::from_ref(stretch), *t))
        });
        Ok(out)
    }
}
