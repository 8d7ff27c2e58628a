//! Ends named snapshots: when they are dropped, and automatically when they are too old, keep too
//! much data, block writes on a full disk, or can no longer be distinguished from deleted data.
//!
//! Invariants: the metadata forget a snapshot before any of its files is removed. The oldest ends
//! first.

use crate::Result;
use crate::common::error::ErrorKind;
use crate::core::Core;
use crate::metadata::tables::SnapshotChange;
use crate::storage::named_snapshots::{ENDED_MAX, NamedSnapshot, SnapshotEnd};
use headwater_types::Timestamp;
use std::time::Duration;

/// Minimum time between two snapshots that end because the disk is full: the freed space is used
/// first.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends a snapshot; `why` is set where no user dropped it. False when it has already ended.
pub(crate) fn end(core: &Core, snapshot: &NamedSnapshot, why: Option<SnapshotEnd>) -> Result<bool> {
    let _commit = core.commits.begin();
    let is_there = |s: &NamedSnapshot| s.number == snapshot.number;
    if !core.named.all().iter().any(|s| is_there(s)) {
        return Ok(false);
    }
    let ended = why.map(|why| (core.moment().believed(), why));
    let record = ended.map(|ended| snapshot.record.ended(ended));
    let remembered = core.named.ended();
    let over = (remembered.len() + 1).saturating_sub(ENDED_MAX);
    let forget: Vec<u64> = match &record {
        Some(_) => remembered.iter().take(over).map(|(n, _)| *n).collect(),
        None => Vec::new(),
    };
    let mut change = SnapshotChange {
        forgotten: forget.clone(),
        ends: core
            .named_ends
            .remove_copy(&snapshot.keeper())
            .unwrap_or_default(),
        ..SnapshotChange::default()
    };
    match &record {
        Some(record) => change.ended.push((snapshot.number, record.encode())),
        None => change.forgotten.push(snapshot.number),
    }
    if let Err(error) = core.meta.change_snapshots(&change) {
        // The transaction may be on the medium nevertheless: the snapshot's files stay while this
        // process runs.
        core.log.latch(error.clone());
        return Err(error);
    }
    core.named_ends.saved(&change.ends);
    core.named.take_away(snapshot.number, record, &forget);
    let name = snapshot.record.name.as_str();
    match why {
        Some(why) => tracing::warn!(name, reason = why.reason(), "a snapshot has ended"),
        None => tracing::info!(name, "a snapshot was dropped"),
    }
    Ok(true)
}

/// Ends the snapshots that are due to end. True when there was at least one.
pub(crate) fn end_due(core: &Core) -> Result<bool> {
    if core.named.is_empty() {
        return Ok(false);
    }
    let mut any = false;
    let now = core.moment().believed();
    for snapshot in core.named.all() {
        if let Some(why) = is_due(core, &snapshot, now) {
            any |= end(core, &snapshot, Some(why))?;
        }
    }
    while let Some(most) = core.options.snapshot_bytes_max
        && core.named.retained_bytes() > most
        && let Some(oldest) = core.named.all().first()
    {
        any |= end(core, oldest, Some(SnapshotEnd::Bytes))?;
    }
    if matches!(core.check_space(), Err(error) if error.kind() == ErrorKind::Full) {
        any |= end_to_free_space(core)?;
    }
    Ok(any)
}

fn is_due(core: &Core, snapshot: &NamedSnapshot, now: Timestamp) -> Option<SnapshotEnd> {
    if core.named_ends.newest_and_from().1 > snapshot.record.sequence {
        return Some(SnapshotEnd::Deletes);
    }
    let made = snapshot.record.moment.believed();
    let age = now.as_nanos().saturating_sub(made.as_nanos());
    let most = core.options.snapshot_age_max?;
    let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
    (age > most).then_some(SnapshotEnd::Age)
}

/// On a full disk: ends the oldest snapshots until one has freed bytes. False when no bytes are
/// kept for snapshots alone, or the last snapshot has just ended.
fn end_to_free_space(core: &Core) -> Result<bool> {
    let now = core.env.clock.monotonic();
    if core.named.retained_bytes() == 0 || !core.named.may_end_for_space(now) {
        return Ok(false);
    }
    let before = core.named.retained_bytes();
    while core.named.retained_bytes() == before
        && let Some(oldest) = core.named.all().first()
    {
        end(core, oldest, Some(SnapshotEnd::FullDisk))?;
    }
    core.named.defer_next_end(now.saturating_add(PATIENCE));
    Ok(true)
}
