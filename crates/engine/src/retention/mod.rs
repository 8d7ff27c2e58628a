//! Retention and aging: moves the horizons of tables as time goes by, and back when they went too far.
//!
//! Invariants: a horizon is in the log before anything is removed or aged behind it; it lies where the believed instant and the
//! table's setting put it, or before, and goes back to there when either has changed; rows are removed by whole partitions, and
//! until then readers leave those before the cut out themselves, so that they are there again when it goes back. A partition is
//! aged only while all of it lies before "aged to", and "aged to" goes back only while no partition is being rewritten.
//! What time it is for this says [`crate::clock`].

use crate::catalog::{Life, Table, level_below};
use crate::core::Core;
use crate::flush::{store_all, sweep_all};
use crate::ids::{SegmentId, ShardIndex};
use crate::step;
use crate::{Error, ErrorKind, Result};
use headwater_types::{Level, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// The cut moves in steps of at most this part of the retention.
const STEPS_PER_RETENTION: i64 = 32;

/// A partition that is due for aging waits so long at most while rows for it come.
const FILLING_MAX: Duration = Duration::from_secs(3600);

/// Where the cut of a table belongs: the instant itself, and the last step at or before it.
fn cut_at(life: &Life, now: i64) -> (i64, i64) {
    let Some(retention) = life.retention_ns else {
        return (i64::MIN, i64::MIN);
    };
    let oldest = now.saturating_sub(retention);
    let level = Level::clamped(level_below(retention / STEPS_PER_RETENTION));
    let bucket = level.bucket_of(Timestamp::from_nanos(oldest));
    (oldest, level.bucket_span(bucket).first.as_nanos())
}

/// How far a table's rows may be aged.
fn age_at(life: &Life, now: i64) -> i64 {
    life.raw_ns.map_or(i64::MIN, |raw| now.saturating_sub(raw))
}

/// Puts horizons back that lie after where they belong.
fn take_back(life: &mut Life, now: i64) {
    let (oldest, cut) = cut_at(life, now);
    if life.cut > oldest {
        life.cut = cut;
    }
    let aged = age_at(life, now);
    if life.aged_to > aged {
        life.aged_most = life.aged_most.max(life.aged_to);
        life.aged_to = aged;
    }
}

/// Moves the horizons of all tables to where they belong now, and ages what is due. True when anything changed.
pub(crate) fn move_horizons(core: &Core) -> Result<bool> {
    let lives = |t: &Arc<Table>| {
        let life = &t.life;
        life.retention_ns.is_some()
            || life.raw_ns.is_some()
            || life.expires
            || life.floor() > i64::MIN
    };
    let all = core.catalog.tables();
    let tables: Vec<&Arc<Table>> = all.iter().filter(|t| lives(t)).collect();
    if tables.is_empty() {
        return Ok(false);
    }
    let moment = core.moment();
    if moment.is_doubted() {
        let holds = |t: &&Arc<Table>| holds_anything(core, t);
        let mut holding = tables.iter().copied().filter(holds).peekable();
        if holding.peek().is_some() && holding.all(|t| moment.is_borne_out(t.id)) {
            core.clock_guard.settle(&*core.env.clock);
        }
    }
    let mut changed = false;
    for table in tables {
        let now = moment.of(table.id);
        changed |= take_horizons_back(core, table, now)?;
        changed |= move_cut(core, table, now)?;
        changed |= age(core, table, now)?;
        changed |= remove_expired(core, table, now)?;
    }
    Ok(changed)
}

fn holds_anything(core: &Core, table: &Table) -> bool {
    core.shards.iter().any(|shard| {
        let state = shard.state.lock();
        !state.partitions.of(table.id).is_empty()
            || state.active().any(|(_, slot)| slot.table == table.id)
    })
}

fn move_cut(core: &Core, table: &Table, now: i64) -> Result<bool> {
    let moved = set_cut(core, table, now)?;
    if moved {
        sweep_all(core)?;
    }
    Ok(moved)
}

/// Moves the cut ahead to where it belongs; what lies before it is left out by readers from then on, and waits to be removed.
fn set_cut(core: &Core, table: &Table, now: i64) -> Result<bool> {
    if cut_at(&table.life, now).1 <= table.life.cut {
        return Ok(false);
    }
    // By the retention that is in force then: it may be longer by now.
    set_horizon(core, table, |life| {
        life.cut = life.cut.max(cut_at(life, now).1)
    })?;
    tracing::debug!(table = table.name, "moved the retention cut");
    core.shards.note_ending();
    Ok(true)
}

/// Moves the horizons of a table back to where they belong, if they lie after it. True when they did.
fn take_horizons_back(core: &Core, table: &Table, now: i64) -> Result<bool> {
    let mut life = table.life;
    take_back(&mut life, now);
    if life == table.life {
        return Ok(false);
    }
    // A partition that is being aged just now was before "aged to" when that began, and nothing may come to it meanwhile.
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

/// Puts a changed retention or aging into force for readers and writers; what it removes waits for workers.
pub(crate) fn apply_life(core: &Core, table: &Table) -> Result<()> {
    let now = core.moment().of(table.id);
    take_horizons_back(core, table, now)?;
    if set_cut(core, table, now)? {
        core.signals.wake_workers();
    }
    Ok(())
}

/// At an opening: the clock is looked at, and where no instant is known, that of a new database is kept at once. Otherwise
/// whichever clock somebody happens to look at first, here or in the next process, would be believed.
pub(crate) fn begin_to_believe(core: &Core) -> Result<()> {
    let is_new = core.clock_guard.knows_nothing();
    core.moment();
    if is_new {
        step::commit_log_cut(core)?;
    }
    Ok(())
}

/// At an opening: the clock may have been put right meanwhile.
pub(crate) fn review_all_horizons(core: &Core) {
    for table in core.catalog.tables().iter() {
        if table.life.floor() > i64::MIN
            && let Err(error) = review_horizons(core, table)
        {
            tracing::warn!(table = table.name, %error, "retention and aging stay as they were");
        }
    }
}

/// As the clock and the settings are now: for whoever would be refused otherwise. True when horizons went back.
pub(crate) fn review_horizons(core: &Core, table: &Table) -> Result<bool> {
    let now = core.moment().of(table.id);
    take_horizons_back(core, table, now)
}

/// Puts a moved horizon into the log and waits until it is as durable as the database promises.
fn set_horizon(core: &Core, table: &Table, set: impl FnOnce(&mut Life)) -> Result<()> {
    let defined = {
        let _door = core.door.shut();
        // Dropped, and perhaps made again: its successor has a life of its own.
        let Some(known) = core.catalog.table_named(&table.name) else {
            return Ok(());
        };
        if known.id != table.id || known.life.dropped {
            return Ok(());
        }
        let change = |_, old: Option<&Table>| {
            let mut new = old
                .filter(|t| t.id == table.id)
                .cloned()
                .ok_or_else(|| Error::internal("a table was dropped while the door was held"))?;
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

/// Removes partitions in which every value has expired.
fn remove_expired(core: &Core, table: &Table, now: i64) -> Result<bool> {
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

/// Ages the partitions that are due. What is aged is decided once: partitions that come to be meanwhile are due the next time.
fn age(core: &Core, table: &Table, now: i64) -> Result<bool> {
    let due = to_age(core, table, age_at(&table.life, now));
    let Some(aged_to) = due.iter().map(|(_, _, end)| *end).max() else {
        return Ok(false);
    };
    if aged_to > table.life.aged_to {
        set_horizon(core, table, |life| {
            let aged_to = aged_to.min(age_at(life, now));
            life.aged_to = life.aged_to.max(aged_to);
            life.aged_most = life.aged_most.max(life.aged_to);
        })?;
    }
    // What is in memory belongs to the rows that are aged; no more of it can come.
    store_all(core)?;
    let mut aged = false;
    for (index, id, _) in due {
        match step::age_partition(core, index, id) {
            Ok(done) => aged |= done,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(segment = id.0, %error, "a damaged partition keeps its rows");
                core.compaction.leave_alone(id);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(aged)
}

/// Partitions that end before an instant and still hold rows, each with the first instant behind it; without those that old
/// data are being brought into, which would be refused from then on, for a while.
fn to_age(core: &Core, table: &Table, horizon: i64) -> Vec<(ShardIndex, SegmentId, i64)> {
    let mut out = Vec::new();
    let monotonic = core.env.clock.monotonic();
    let mut filling = core.compaction.filling();
    for (index, shard) in (0u16..).zip(&core.shards) {
        let state = shard.state.lock();
        for partition in state.partitions.of(table.id) {
            let record = &partition.record;
            let last = record.span().last.as_nanos();
            let idle = !state.busy.contains(&partition.id())
                && !core.compaction.is_left_alone(partition.id())
                && partition.unreadable.is_none();
            if last >= horizon || record.events == 0 || !idle {
                continue;
            }
            if state.has_rows_in(table.id, &record.span()) {
                let since = filling.since(table.id, partition.id(), monotonic);
                if monotonic.saturating_sub(since) < FILLING_MAX {
                    continue;
                }
            }
            out.push((ShardIndex(index), partition.id(), last.saturating_add(1)));
        }
    }
    filling.finish(table.id);
    out
}
