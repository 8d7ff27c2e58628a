//! Puts a changed cutoff of a table into force.
//!
//! Invariants: a cutoff is in the log before rows before it are removed or aged.

use super::rules::take_back;
use crate::core::Core;
use crate::metadata::catalog::{Table, TableLifetime};
use crate::{Error, ErrorKind, Result};
use headwater_types::Timestamp;

/// Puts a moved cutoff into the log and waits until it is as durable as the database promises.
pub(super) fn set_cutoffs(
    core: &Core,
    table: &Table,
    set: impl FnOnce(&mut TableLifetime),
) -> Result<()> {
    let defined = {
        let _barrier = core.write_barrier.close();
        // Dropped, and perhaps created again: its successor has its own lifetime policy.
        let Some(known) = core.catalog.table_named(&table.name) else {
            return Ok(());
        };
        if known.id != table.id || known.lifetime.dropped {
            return Ok(());
        }
        let change = |_, old: Option<&Table>| {
            let mut new = old.filter(|t| t.id == table.id).cloned().ok_or_else(|| {
                Error::internal("a table was dropped while the write barrier was closed")
            })?;
            set(&mut new.lifetime);
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

/// Moves the cutoffs of a table back to their correct positions, if they are later. True when a
/// cutoff moved.
pub(super) fn move_cutoffs_back(core: &Core, table: &Table, now: Timestamp) -> Result<bool> {
    let mut lifetime = table.lifetime;
    take_back(&mut lifetime, now);
    if lifetime == table.lifetime {
        return Ok(false);
    }
    // A partition that is being aged was before "aged to" when that began, and no rows may arrive
    // in it meanwhile.
    let aging = if lifetime.aged_to < table.lifetime.aged_to {
        let held = core.compaction.try_begin_for(core.options.busy_timeout);
        Some(held.ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                format!(
                    "rows of table `{}` are being aged: try again later",
                    table.name
                ),
            )
        })?)
    } else {
        None
    };
    set_cutoffs(core, table, |lifetime| take_back(lifetime, now))?;
    drop(aging);
    tracing::info!(
        table = table.name,
        "moved retention or aging back to match the clock and the settings"
    );
    Ok(true)
}
