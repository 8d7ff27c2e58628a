//! Advances the retention cutoff of a table: readers exclude rows before it from then on, and the
//! rows are removed by whole partitions.

use super::change::set_cutoffs;
use super::rules::cutoff_at;
use crate::Result;
use crate::core::Core;
use crate::maintenance::flush::sweep_all;
use crate::metadata::catalog::Table;
use headwater_types::Timestamp;

pub(super) fn move_retention_cutoff(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let moved = set_retention_cutoff(core, table, now)?;
    if moved {
        sweep_all(core)?;
    }
    Ok(moved)
}

/// Advances the retention cutoff to its position; readers exclude rows before it from then on, and
/// the rows wait to be removed.
pub(super) fn set_retention_cutoff(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    if cutoff_at(&table.lifetime, now).step <= table.lifetime.retention_cutoff {
        return Ok(false);
    }
    // Uses the retention that is in force then: it may have become longer.
    set_cutoffs(core, table, |lifetime| {
        lifetime.retention_cutoff = lifetime.retention_cutoff.max(cutoff_at(lifetime, now).step)
    })?;
    tracing::debug!(table = table.name, "moved the retention cutoff");
    core.shards.note_ending();
    Ok(true)
}
