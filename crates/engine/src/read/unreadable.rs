//! Unreadable partitions, and the events in their spans.
//!
//! A partition is unreadable when its file is missing or shorter than committed, or its header or a
//! footer is damaged. Its span stays reserved: reads that meet the span fail with the location of
//! the damage, all others continue.
//!
//! Invariants: an unreadable partition accepts no groups, and is not rewritten, aged, swept or
//! removed; its file stays unchanged until a repair. Records of the log in its span may be in it or
//! not, since its covers cannot be read: the log retains every such record, and so every later
//! write into the span that was accepted. Memory has as many of these events as fit into
//! [`parked_bytes_max`]; the others are *parked*: they are only in the log, and are loaded when the
//! database is opened after a repair. So nothing is lost, and nothing can be counted twice, since
//! nothing is stored until the covers are known. Concurrency: a partition becomes unreadable while
//! the database is opened, or under its shard's step lock. Failure: writes into the span are
//! refused row by row ([`crate::REFUSED_UNREADABLE`]) when more is parked than the memory budget,
//! into which an opening after the repair has to load it; other spans are not affected.

use crate::common::ids::{Sequence, ShardIndex, TableId};
use crate::common::ranges::contains_instant;
use crate::common::refused::REFUSED_UNREADABLE;
use crate::core::Core;
use crate::core::shard::{Shard, parked_bytes_max};
use crate::storage::segment::Partition;
use crate::{Error, ErrorKind, Result};
use headwater_types::Timestamp;
use std::sync::Arc;

/// Marks the partition as unreadable in whose file `error` reports damage. True if it was counted
/// as readable before.
///
/// The shard's step lock must be held, so that no job is working on the partition.
pub(crate) fn set_aside(core: &Core, shard: &Shard, error: &Error) -> bool {
    let Some(damage) = error
        .damaged()
        .filter(|_| error.kind() == ErrorKind::Corrupt)
    else {
        return false;
    };
    let kept_after = core.log.sequence_before(core.commits.log_generation());
    let held_max = parked_bytes_max(&core.options, core.shards.len());
    let change = {
        let mut state = shard.state.lock();
        let found = state
            .partitions
            .all()
            .find(|p| p.unreadable.is_none() && p.file.path() == damage.file)
            .cloned();
        let Some(partition) = found else {
            return false;
        };
        state.version += 1;
        state.set_unreadable(&partition, error.clone());
        // The records in the log may be all that is left of the partition.
        if partition.record.sequence > kept_after {
            state.parked.from(Sequence(kept_after.0 + 1));
        }
        let span = partition.record.span();
        let change = state.park(partition.record.table, &span, held_max);
        report(core, &partition, error);
        change
    };
    core.unreadable.note_one();
    if change != 0 {
        core.memory_changed(change);
    }
    true
}

/// Refuses rows in unreadable spans, when the log may not retain more of them.
pub(crate) fn refuse_unreadable(
    core: &Core,
    (shard, table): (ShardIndex, TableId),
    times: &[i64],
    mut refuse: impl FnMut(usize, &'static str, String),
) -> Result<()> {
    if !core.unreadable.any() {
        return Ok(());
    }
    let partitions = {
        let state = core.shards.get(shard)?.state.lock();
        if state.parked.bytes() < core.options.memory_budget_bytes / core.shards.len().max(1) {
            return Ok(());
        }
        Arc::clone(&state.partitions)
    };
    let spans = partitions.unreadable_spans(table);
    for (row, time) in times.iter().enumerate() {
        let time = Timestamp::from_nanos(*time);
        if !contains_instant(&spans, time) {
            continue;
        }
        let damaged = partitions.owner(table, time);
        let file = damaged.map(|p| p.file.path().display().to_string());
        refuse(
            row,
            REFUSED_UNREADABLE,
            format!(
                "the partition for this time is damaged ({}), and the log cannot retain more rows for it: run `headwater repair`, then write the row again",
                file.unwrap_or_default()
            ),
        );
    }
    Ok(())
}

/// Logs a partition that has become unreadable.
fn report(core: &Core, partition: &Partition, error: &Error) {
    let table = core.catalog.table(partition.record.table);
    let span = partition.record.span();
    tracing::error!(
        table = table.map(|t| t.name.clone()).unwrap_or_default(),
        from = span.first.as_nanos(),
        to = span.last.as_nanos(),
        events = partition.record.events,
        %error,
        "a partition is unreadable: reads of its span fail, all other reads and writes work; run `headwater check`, then `headwater repair`"
    );
}

/// Logs the unreadable partitions, right after opening.
pub(crate) fn report_unreadable(core: &Core) {
    for shard in &core.shards {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        for partition in partitions.all() {
            if let Some(error) = &partition.unreadable {
                report(core, partition, error);
            }
        }
    }
}
