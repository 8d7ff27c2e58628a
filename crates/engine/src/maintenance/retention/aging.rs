//! Ages partitions: their rows are removed, their aggregates stay.
//!
//! Invariants: a partition is aged only while all of it is before "aged to", which is in the log by
//! then.

use super::change::set_cutoffs;
use super::rules::age_at;
use crate::common::ids::{SegmentId, ShardIndex};
use crate::core::Core;
use crate::maintenance::flush::store_all;
use crate::maintenance::jobs;
use crate::metadata::catalog::{Cutoff, Table};
use crate::{ErrorKind, Result};
use headwater_types::Timestamp;
use std::time::Duration;

/// Maximum time that a partition due for aging waits while rows arrive in it.
const FILLING_MAX: Duration = Duration::from_secs(3600);

/// Ages the partitions that are due. The list is made once: partitions created meanwhile are due
/// the next time.
pub(super) fn age(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let due = to_age(core, table, age_at(&table.lifetime, now));
    let Some(aged_to) = due.iter().map(|(_, _, end)| *end).max() else {
        return Ok(false);
    };
    if aged_to > table.lifetime.aged_to {
        set_cutoffs(core, table, |lifetime| {
            let aged_to = aged_to.min(age_at(lifetime, now));
            lifetime.aged_to = lifetime.aged_to.max(aged_to);
            lifetime.aged_to_max = lifetime.aged_to_max.max(lifetime.aged_to);
        })?;
    }
    // Events in memory belong to the rows that are aged; no more can arrive.
    store_all(core)?;
    let mut aged = false;
    for (index, id, _) in due {
        match jobs::age_partition(core, index, id) {
            Ok(done) => aged |= done,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(segment = id.0, %error, "a damaged partition retains its rows");
                core.compaction.leave_alone(id);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(aged)
}

/// Partitions that end before an instant and still have rows, each with the first instant after it;
/// excludes, for a while, partitions into which old data are being loaded, since that data would be
/// refused afterwards.
fn to_age(core: &Core, table: &Table, cutoff: Cutoff) -> Vec<(ShardIndex, SegmentId, Cutoff)> {
    let mut out = Vec::new();
    let monotonic = core.env.clock.monotonic();
    let mut filling = core.compaction.filling();
    for (index, shard) in (0u16..).zip(&core.shards) {
        let state = shard.state.lock();
        for partition in state.partitions.of(table.id) {
            let record = &partition.record;
            let last = record.span().last;
            // Freed rows are already removed here, and the cloud keeps them.
            let idle = !state.busy.contains(&partition.id())
                && !core.store.stubs().is_claimed(partition.id())
                && !core.compaction.is_excluded(partition.id())
                && partition.unreadable.is_none();
            if !cutoff.ends(last) || record.events == 0 || !idle {
                continue;
            }
            if state.has_rows_in(table.id, &record.span()) {
                let since = filling.since(table.id, partition.id(), monotonic);
                if monotonic.saturating_sub(since) < FILLING_MAX {
                    continue;
                }
            }
            let behind = Timestamp::from_nanos(last.as_nanos().saturating_add(1));
            out.push((ShardIndex(index), partition.id(), Cutoff::at(behind)));
        }
    }
    filling.finish(table.id);
    out
}
