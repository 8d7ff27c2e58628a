//! Retention and aging: moves the horizons of tables as time goes by, and back when they went too far.
//!
//! Invariants: a horizon is in the log before anything is removed or aged behind it; it lies where the believed instant and the
//! table's setting put it, or before, and goes back to there when either has changed; rows are removed by whole partitions, and
//! until then readers leave those before the cut out themselves, so that they are there again when it goes back. A partition is
//! aged only while all of it lies before "aged to", and "aged to" goes back only while no partition is being rewritten.
//! What time it is for this says [`crate::clock`].

use crate::catalog::{Life, Table, level_below};
use crate::core::Core;
use crate::ids::{SegmentId, ShardIndex};
use crate::step;
use crate::{Error, ErrorKind, Result};
use headwater_types::{Level, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

impl Core {
    /// Moves the horizons of all tables to where they belong now, and ages what is due. True when anything changed.
    pub(crate) fn move_horizons(&self) -> Result<bool> {
        let lives = |t: &Arc<Table>| {
            let life = &t.life;
            life.retention_ns.is_some()
                || life.raw_ns.is_some()
                || life.expires
                || life.floor() > i64::MIN
        };
        let all = self.catalog.tables();
        let tables: Vec<&Arc<Table>> = all.iter().filter(|t| lives(t)).collect();
        if tables.is_empty() {
            return Ok(false);
        }
        let moment = self.clock_guard.look(&*self.env.clock);
        if moment.is_doubted() {
            let holds = |t: &&Arc<Table>| self.holds_anything(t);
            let mut holding = tables.iter().copied().filter(holds).peekable();
            if holding.peek().is_some() && holding.all(|t| moment.is_borne_out(t.id)) {
                self.clock_guard.settle(&*self.env.clock);
            }
        }
        let mut changed = false;
        for table in tables {
            let now = moment.of(table.id);
            changed |= self.take_horizons_back(table, now)?;
            changed |= self.move_cut(table, now)?;
            changed |= self.age(table, now)?;
            changed |= self.remove_expired(table, now)?;
        }
        Ok(changed)
    }

    fn holds_anything(&self, table: &Table) -> bool {
        self.shards.iter().any(|shard| {
            let state = shard.state.lock();
            !state.partitions.of(table.id).is_empty()
                || state.active().any(|(_, slot)| slot.table == table.id)
        })
    }

    fn move_cut(&self, table: &Table, now: i64) -> Result<bool> {
        let moved = self.set_cut(table, now)?;
        if moved {
            self.sweep_all()?;
        }
        Ok(moved)
    }

    /// Moves the cut ahead to where it belongs; what lies before it is left out by readers from then on, and waits to be removed.
    fn set_cut(&self, table: &Table, now: i64) -> Result<bool> {
        if cut_at(&table.life, now).1 <= table.life.cut {
            return Ok(false);
        }
        // By the retention that is in force then: it may be longer by now.
        self.set_horizon(table, |life| life.cut = life.cut.max(cut_at(life, now).1))?;
        tracing::debug!(table = table.name, "moved the retention cut");
        for shard in &self.shards {
            shard.state.lock().ending = true;
        }
        Ok(true)
    }

    /// Moves the horizons of a table back to where they belong, if they lie after it. True when they did.
    fn take_horizons_back(&self, table: &Table, now: i64) -> Result<bool> {
        let mut life = table.life;
        take_back(&mut life, now);
        if life == table.life {
            return Ok(false);
        }
        // A partition that is being aged just now was before "aged to" when that began, and nothing may come to it meanwhile.
        let aging = if life.aged_to < table.life.aged_to {
            let held = self.compacting.try_lock_for(self.options.busy_timeout);
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
        self.set_horizon(table, |life| take_back(life, now))?;
        drop(aging);
        tracing::info!(
            table = table.name,
            "retention or aging went back to where the clock and the settings put it"
        );
        Ok(true)
    }

    /// Puts a changed retention or aging into force for readers and writers; what it removes waits for workers.
    pub(crate) fn apply_life(&self, table: &Table) -> Result<()> {
        let now = self.clock_guard.look(&*self.env.clock).of(table.id);
        self.take_horizons_back(table, now)?;
        if self.set_cut(table, now)? {
            let _held = self.work.lock.lock();
            self.work.wanted.notify_all();
        }
        Ok(())
    }

    /// At an opening: the clock is looked at, and where no instant is known, that of a new database is kept at once. Otherwise
    /// whichever clock somebody happens to look at first, here or in the next process, would be believed.
    pub(crate) fn begin_to_believe(&self) -> Result<()> {
        let is_new = self.clock_guard.knows_nothing();
        self.clock_guard.look(&*self.env.clock);
        if is_new {
            step::commit_log_cut(self)?;
        }
        Ok(())
    }

    /// At an opening: the clock may have been put right meanwhile.
    pub(crate) fn review_all_horizons(&self) {
        for table in self.catalog.tables().iter() {
            if table.life.floor() > i64::MIN
                && let Err(error) = self.review_horizons(table)
            {
                tracing::warn!(table = table.name, %error, "retention and aging stay as they were");
            }
        }
    }

    /// As the clock and the settings are now: for whoever would be refused otherwise. True when horizons went back.
    pub(crate) fn review_horizons(&self, table: &Table) -> Result<bool> {
        let now = self.clock_guard.look(&*self.env.clock).of(table.id);
        self.take_horizons_back(table, now)
    }

    /// Puts a moved horizon into the log and waits until it is as durable as the database promises.
    fn set_horizon(&self, table: &Table, set: impl FnOnce(&mut Life)) -> Result<()> {
        let defined = {
            let _door = self.door.write();
            // Dropped, and perhaps made again: its successor has a life of its own.
            let Some(known) = self.catalog.table_named(&table.name) else {
                return Ok(());
            };
            if known.id != table.id || known.life.dropped {
                return Ok(());
            }
            let change = |_, old: Option<&Table>| {
                let mut new = old.filter(|t| t.id == table.id).cloned().ok_or_else(|| {
                    Error::internal("a table was dropped while the door was held")
                })?;
                set(&mut new.life);
                Ok(new)
            };
            self.catalog
                .define_table(&table.name, change, |t| self.log_table(t))?
        };
        match defined.1 {
            Some(sequence) => self.log.wait_published(sequence),
            None => Ok(()),
        }
    }

    /// The instant by which a table's data end.
    pub(crate) fn now_for(&self, table: crate::ids::TableId) -> i64 {
        self.clock_guard.look(&*self.env.clock).of(table)
    }

    /// Removes partitions in which every value has expired.
    fn remove_expired(&self, table: &Table, now: i64) -> Result<bool> {
        let mut found = false;
        for shard in &self.shards {
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
            self.sweep_all()?;
        }
        Ok(found)
    }

    /// Ages the partitions that are due. What is aged is decided once: partitions that come to be meanwhile are due the next time.
    fn age(&self, table: &Table, now: i64) -> Result<bool> {
        let due = self.to_age(table, age_at(&table.life, now));
        let Some(aged_to) = due.iter().map(|(_, _, end)| *end).max() else {
            return Ok(false);
        };
        if aged_to > table.life.aged_to {
            self.set_horizon(table, |life| {
                let aged_to = aged_to.min(age_at(life, now));
                life.aged_to = life.aged_to.max(aged_to);
                life.aged_most = life.aged_most.max(life.aged_to);
            })?;
        }
        // What is in memory belongs to the rows that are aged; no more of it can come.
        self.store_all()?;
        let mut aged = false;
        for (index, id, _) in due {
            match step::age_partition(self, index, id) {
                Ok(done) => aged |= done,
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(segment = id.0, %error, "a damaged partition keeps its rows");
                    self.uncompactable.lock().insert(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(aged)
    }

    /// Partitions that end before an instant and still hold rows, each with the first instant behind it; without those that old
    /// data are being brought into, which would be refused from then on, for a while.
    fn to_age(&self, table: &Table, horizon: i64) -> Vec<(ShardIndex, SegmentId, i64)> {
        let mut out = Vec::new();
        let uncompactable = self.uncompactable.lock().clone();
        let monotonic = self.env.clock.monotonic();
        let mut filling = self.filling.lock();
        let mut still = Vec::new();
        for (index, shard) in (0u16..).zip(&self.shards) {
            let state = shard.state.lock();
            for partition in state.partitions.of(table.id) {
                let record = &partition.record;
                let last = record.span().last.as_nanos();
                let idle = !state.busy.contains(&partition.id())
                    && !uncompactable.contains(&partition.id())
                    && partition.unreadable.is_none();
                if last >= horizon || record.events == 0 || !idle {
                    continue;
                }
                if state.has_rows_in(table.id, &record.span()) {
                    let key = (table.id, partition.id());
                    let since = filling.get(&key).copied().unwrap_or(monotonic);
                    still.push((key, since));
                    if monotonic.saturating_sub(since) < FILLING_MAX {
                        continue;
                    }
                }
                out.push((ShardIndex(index), partition.id(), last.saturating_add(1)));
            }
        }
        filling.retain(|(of, _), _| *of != table.id);
        filling.extend(still);
        out
    }

    /// True when the background may write so many more bytes for compaction today.
    pub(crate) fn may_compact(&self, bytes: u64) -> bool {
        let Some(daily) = self.options.compaction_bytes_per_day else {
            return true;
        };
        let spent = self.compacted_today();
        // One partition a day is always allowed, however large it is.
        spent == 0 || spent.saturating_add(bytes) <= daily
    }

    fn today(&self) -> u64 {
        (self.env.clock.now().as_nanos().max(0) / 86_400_000_000_000).unsigned_abs()
    }

    fn compacted_today(&self) -> u64 {
        let (day, bytes) = *self.compacted.lock();
        if day == self.today() { bytes } else { 0 }
    }

    /// Notes bytes written for compaction, and keeps it to its rate.
    pub(crate) fn note_compacted(&self, bytes: u64) {
        {
            let today = self.today();
            let mut compacted = self.compacted.lock();
            if compacted.0 != today {
                *compacted = (today, 0);
            }
            compacted.1 = compacted.1.saturating_add(bytes);
        }
        if let Some(rate) = self.options.compaction_bytes_per_second
            && self.work.threads.load(Ordering::Acquire)
        {
            let pause = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            let deadline = self.env.clock.monotonic() + pause;
            let mut held = self.work.lock.lock();
            while !self.work.stop.load(Ordering::Acquire) {
                let left = deadline.saturating_sub(self.env.clock.monotonic());
                if left.is_zero() {
                    break;
                }
                self.work
                    .wanted
                    .wait_for(&mut held, left.min(Duration::from_millis(500)));
            }
        }
    }
}
