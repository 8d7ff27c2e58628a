//! Retention and aging: moves the cutoffs of tables as time goes by, and back when they went too
//! far.
//!
//! Invariants: a cutoff is in the log before rows before it are removed or aged; it is at or
//! before the position given by the believed instant and the table's setting, and goes back there
//! when either has changed; rows are removed by whole partitions, and until then readers exclude
//! rows before the retention cutoff themselves, so that the rows are visible again when it goes
//! back. A partition is aged only while all of it is before "aged to", and "aged to" goes back only
//! while no partition is being rewritten. The time comes from [`crate::metadata::clock`].

mod aging;
mod change;
mod cutoff;
mod rules;

use crate::Result;
use crate::core::Core;
use crate::maintenance::flush::sweep_all;
use crate::maintenance::jobs;
use crate::metadata::catalog::Table;
use aging::age;
use change::move_cutoffs_back;
use cutoff::{move_retention_cutoff, set_retention_cutoff};
use headwater_types::Timestamp;
use std::sync::Arc;

/// Moves the cutoffs of all tables to their present positions, and ages due partitions. True when
/// anything changed.
pub(crate) fn move_cutoffs(core: &Core) -> Result<bool> {
    let lives = |t: &Arc<Table>| {
        let lifetime = &t.lifetime;
        lifetime.retention.is_some()
            || lifetime.raw_for.is_some()
            || lifetime.expires
            || lifetime.floor().is_set()
    };
    let all = core.catalog.tables();
    let tables: Vec<&Arc<Table>> = all.iter().filter(|t| lives(t)).collect();
    if tables.is_empty() {
        return Ok(false);
    }
    let moment = core.moment();
    if moment.is_doubted() {
        let holds = |t: &&Arc<Table>| has_any_rows(core, t);
        let mut holding = tables.iter().copied().filter(holds).peekable();
        if holding.peek().is_some() && holding.all(|t| moment.is_borne_out(t.id)) {
            core.clock_guard.settle(&*core.env.clock);
        }
    }
    let mut changed = false;
    for table in tables {
        let now = moment.of(table.id);
        changed |= move_cutoffs_back(core, table, now)?;
        changed |= move_retention_cutoff(core, table, now)?;
        changed |= age(core, table, now)?;
        changed |= remove_expired(core, table, now)?;
    }
    Ok(changed)
}

fn has_any_rows(core: &Core, table: &Table) -> bool {
    core.shards.iter().any(|shard| {
        let state = shard.state.lock();
        !state.partitions.of(table.id).is_empty()
            || state.active().any(|(_, slot)| slot.table == table.id)
    })
}

/// Puts a changed retention or aging into force for readers and writers; removal of rows waits for
/// workers.
pub(crate) fn apply_life(core: &Core, table: &Table) -> Result<()> {
    let now = core.moment().of(table.id);
    move_cutoffs_back(core, table, now)?;
    if set_retention_cutoff(core, table, now)? {
        core.signals.wake_workers();
    }
    Ok(())
}

/// At an opening: reads the clock, and where no instant is known, persists the instant of a new
/// database at once. Otherwise the first reading of any clock, here or in the next process, would
/// be believed.
pub(crate) fn begin_to_believe(core: &Core) -> Result<()> {
    let is_new = core.clock_guard.knows_nothing();
    core.moment();
    if is_new {
        jobs::commit_log_cut(core)?;
    }
    Ok(())
}

/// At an opening: recomputes cutoffs, since the clock may have been corrected meanwhile.
pub(crate) fn review_all_cutoffs(core: &Core) {
    for table in core.catalog.tables().iter() {
        if table.lifetime.floor().is_set()
            && let Err(error) = review_cutoffs(core, table)
        {
            tracing::warn!(table = table.name, %error, "cannot review retention and aging; they are unchanged");
        }
    }
}

/// Computes the cutoffs from the present clock and settings, before a write is refused because of
/// them. True when cutoffs went back.
pub(crate) fn review_cutoffs(core: &Core, table: &Table) -> Result<bool> {
    let now = core.moment().of(table.id);
    move_cutoffs_back(core, table, now)
}

/// Removes partitions in which every value has expired.
fn remove_expired(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let mut found = false;
    for shard in &core.shards {
        let mut state = shard.state.lock();
        let expired = state.partitions.of(table.id).iter().any(|p| {
            let end = p.record.expires_last;
            end.is_some_and(|end| end <= now)
                && !state.busy.contains(&p.id())
                && p.unreadable.is_none()
        });
        state.ending |= expired;
        found |= expired;
    }
    if found {
        sweep_all(core)?;
    }
    Ok(found)
}
