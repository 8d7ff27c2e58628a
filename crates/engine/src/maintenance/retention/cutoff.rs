//! Advances the retention cutoff of a table: readers exclude rows before it from then on, and the
//! rows are removed by whole partitions.

use super::horizon::set_horizon;
use super::rules::cut_at;
use crate::Result;
use crate::core::Core;
use crate::maintenance::flush::sweep_all;
use crate::metadata::catalog::Table;
use headwater_types::Timestamp;

pub(super) fn move_cut(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let moved = set_cut(core, table, now)?;
    if moved {
        sweep_all(core)?;
    }
    Ok(moved)
}

/// Advances the retention cutoff to its position; readers exclude rows before it from then on, and
/// the rows wait to be removed.
pub(super) fn set_cut(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    if cut_at(&table.life, now).cut <= table.life.cut {
        return Ok(false);
    }
    // Uses the retention that is in force then: it may have become longer.
    set_horizon(core, table, |life| {
        life.cut = life.cut.max(cut_at(life, now).cut)
    })?;
    tracing::debug!(table = table.name, "moved the retention cut");
    core.shards.note_ending();
    Ok(true)
}
