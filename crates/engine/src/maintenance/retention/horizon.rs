//! Puts a changed horizon of a table into force.
//!
//! Invariants: a horizon is in the log before rows before it are removed or aged.

use super::rules::take_back;
use crate::core::Core;
use crate::metadata::catalog::{Life, Table};
use crate::{Error, ErrorKind, Result};
use headwater_types::Timestamp;

/// Puts a moved horizon into the log and waits until it is as durable as the database promises.
pub(super) fn set_horizon(core: &Core, table: &Table, set: impl FnOnce(&mut Life)) -> Result<()> {
    let defined = {
        let _barrier = core.write_barrier.close();
        // Dropped, and perhaps created again: its successor has its own lifetime policy.
        let Some(known) = core.catalog.table_named(&table.name) else {
            return Ok(());
        };
        if known.id != table.id || known.life.dropped {
            return Ok(());
        }
        let change = |_, old: Option<&Table>| {
            let mut new = old.filter(|t| t.id == table.id).cloned().ok_or_else(|| {
                Error::internal("a table was dropped while the write barrier was closed")
            })?;
            set(&mut new.life);
            Ok(new)
        };
        core.catalog
            .define_table(&table.name, change, |t| core.log_table(t))?
    };
    match defined.1 {
        Some(sequence) => core.log.wait_published(sequence),
        None => Ok(()),
    }
}

/// Moves the horizons of a table back to their correct positions, if they are later. True when a
/// horizon moved.
pub(super) fn take_horizons_back(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let mut life = table.life;
    take_back(&mut life, now);
    if life == table.life {
        return Ok(false);
    }
    // A partition that is being aged was before "aged to" when that began, and no rows may arrive
    // in it meanwhile.
    let aging = if life.aged_to < table.life.aged_to {
        let held = core.compaction.try_begin_for(core.options.busy_timeout);
        Some(held.ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                format!(
                    "rows of table `{}` are being aged just now: try again",
                    table.name
                ),
            )
        })?)
    } else {
        None
    };
    set_horizon(core, table, |life| take_back(life, now))?;
    drop(aging);
    tracing::info!(
        table = table.name,
        "retention or aging went back to where the clock and the settings put it"
    );
    Ok(true)
}
