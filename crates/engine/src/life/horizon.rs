//! Retention and aging: moves the horizons of tables as time goes by.
//!
//! Invariants: a horizon is in the log before anything is removed; it never moves back; rows are removed by whole partitions,
//! and until then readers leave those before the cut out themselves.
//! A clock that jumps is not believed at once ([`ClockGuard`]), since what it would remove cannot be brought back.

use crate::Result;
use crate::catalog::{Life, Table, level_below};
use crate::core::Core;
use crate::ids::{SegmentId, ShardIndex};
use crate::step;
use headwater_codec::{Level, Timestamp};
use headwater_io::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The cut moves in steps of at most this part of the retention.
const STEPS_PER_RETENTION: i64 = 32;

/// Says what time it is once the clock has not jumped forward for a while.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    jump_max: Duration,
    settle: Duration,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// Wall clock at the last look, and monotonic time then; before the first look, what the metadata remember.
    wall: Option<i64>,
    monotonic: Option<Duration>,
    believed: Option<i64>,
    /// Not believed before this monotonic time.
    distrusted_until: Duration,
}

impl ClockGuard {
    /// `remembered` is the wall clock when the database was last written to.
    pub(crate) fn new(jump_max: Duration, settle: Duration, remembered: Option<i64>) -> ClockGuard {
        ClockGuard {
            jump_max,
            settle,
            state: Mutex::new(GuardState {
                wall: remembered,
                ..GuardState::default()
            }),
        }
    }

    /// The newest instant that was believed; before there was one, the clock's.
    pub(crate) fn believed(&self, clock: &dyn Clock) -> Timestamp {
        if let Some(now) = self.now(clock) {
            return now;
        }
        let state = self.state.lock();
        state
            .believed
            .map_or_else(|| clock.now(), Timestamp::from_nanos)
    }

    /// The time, unless the clock has jumped forward lately.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Option<Timestamp> {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let mut state = self.state.lock();
        let passed = state
            .monotonic
            .map_or(Duration::ZERO, |m| monotonic.saturating_sub(m));
        if let Some(before) = state.wall {
            let moved = i128::from(wall.as_nanos()) - i128::from(before);
            let jumped = moved - passed.as_nanos() as i128;
            if jumped > self.jump_max.as_nanos() as i128 {
                tracing::warn!(
                    seconds = (jumped / 1_000_000_000) as i64,
                    "the clock jumped forward: nothing is outlived until it has been steady for {:?}",
                    self.settle
                );
                state.distrusted_until = monotonic + self.settle;
                state.believed = state.believed.max(Some(before));
            }
        }
        state.wall = Some(wall.as_nanos());
        state.monotonic = Some(monotonic);
        let believed = monotonic >= state.distrusted_until;
        if believed {
            state.believed = Some(wall.as_nanos());
        }
        believed.then_some(wall)
    }
}

impl Core {
    /// Moves the horizons of all tables to where they belong now, and ages what is due. True when anything changed.
    pub(crate) fn move_horizons(&self) -> Result<bool> {
        let lives = |t: &Arc<Table>| {
            t.life.retention_ns.is_some() || t.life.raw_ns.is_some() || t.life.expires
        };
        let all = self.catalog.tables();
        let tables: Vec<&Arc<Table>> = all.iter().filter(|t| lives(t)).collect();
        if tables.is_empty() {
            return Ok(false);
        }
        let Some(now) = self.clock_guard.now(&*self.env.clock) else {
            return Ok(false);
        };
        let mut changed = false;
        for table in tables {
            changed |= self.move_cut(table, now)?;
            changed |= self.age(table, now)?;
            changed |= self.remove_expired(table, now)?;
        }
        Ok(changed)
    }

    fn move_cut(&self, table: &Table, now: Timestamp) -> Result<bool> {
        let Some(retention) = table.life.retention_ns else {
            return Ok(false);
        };
        let oldest = Timestamp::from_nanos(now.as_nanos().saturating_sub(retention));
        let level = Level::clamped(level_below(retention / STEPS_PER_RETENTION));
        let cut = level.bucket_span(level.bucket_of(oldest)).first.as_nanos();
        if cut <= table.life.cut {
            return Ok(false);
        }
        self.set_horizon(table, |life| life.cut = life.cut.max(cut))?;
        tracing::debug!(table = table.name, cut, "moved the retention cut");
        for shard in &self.shards {
            shard.state.lock().ending = true;
        }
        self.sweep_all()?;
        Ok(true)
    }

    /// Puts a moved horizon into the log and waits until it is as durable as the database promises.
    fn set_horizon(&self, table: &Table, set: impl FnOnce(&mut Life)) -> Result<()> {
        let defined = {
            let _door = self.door.write();
            let change = |_, old: Option<&Table>| {
                let mut new = old.unwrap_or(table).clone();
                // Dropped and made again meanwhile: its successor has a life of its own.
                if new.id == table.id && !new.life.dropped {
                    set(&mut new.life);
                }
                Ok(new)
            };
            if self
                .catalog
                .table_named(&table.name)
                .is_none_or(|t| t.id != table.id)
            {
                return Ok(());
            }
            self.catalog
                .define_table(&table.name, change, |t| self.log_table(t))?
        };
        match defined.1 {
            Some(sequence) => self.log.wait_published(sequence),
            None => Ok(()),
        }
    }

    /// The time, as far as the clock is believed.
    pub(crate) fn trusted_now(&self) -> Option<i64> {
        self.clock_guard
            .now(&*self.env.clock)
            .map(Timestamp::as_nanos)
    }

    /// Removes partitions in which every value has expired.
    fn remove_expired(&self, table: &Table, now: Timestamp) -> Result<bool> {
        let mut found = false;
        for shard in &self.shards {
            let mut state = shard.state.lock();
            let expired = state.partitions.of(table.id).iter().any(|p| {
                let end = p.record.expires_last;
                end.is_some_and(|end| end <= now.as_nanos())
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

    fn age(&self, table: &Table, now: Timestamp) -> Result<bool> {
        let Some(raw) = table.life.raw_ns else {
            return Ok(false);
        };
        let horizon = now.as_nanos().saturating_sub(raw);
        let due = self.to_age(table, horizon);
        let Some(aged_to) = due.iter().map(|(_, _, end)| *end).max() else {
            return Ok(false);
        };
        if aged_to > table.life.aged_to {
            self.set_horizon(table, |life| life.aged_to = life.aged_to.max(aged_to))?;
        }
        // What is in memory belongs to the rows that are aged; no more of it can come.
        self.store_all()?;
        let mut aged = false;
        for (index, id, _) in self.to_age(table, horizon) {
            match step::age_partition(self, index, id) {
                Ok(done) => aged |= done,
                Err(error) if error.kind() == crate::ErrorKind::Corrupt => {
                    tracing::warn!(segment = id.0, %error, "a damaged partition keeps its rows");
                    self.uncompactable.lock().insert(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(aged)
    }

    /// Partitions that end before an instant and still hold rows, each with the first instant behind it.
    fn to_age(&self, table: &Table, horizon: i64) -> Vec<(ShardIndex, SegmentId, i64)> {
        let mut out = Vec::new();
        let uncompactable = self.uncompactable.lock().clone();
        for (index, shard) in (0u16..).zip(&self.shards) {
            let state = shard.state.lock();
            for partition in state.partitions.of(table.id) {
                let record = &partition.record;
                let last = record.span().last.as_nanos();
                let idle = !state.busy.contains(&partition.id())
                    && !uncompactable.contains(&partition.id())
                    && partition.unreadable.is_none();
                if last < horizon && !record.aged && idle {
                    out.push((ShardIndex(index), partition.id(), last.saturating_add(1)));
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_io::ManualClock;

    #[test]
    fn a_clock_that_jumps_is_not_believed_until_it_is_steady() {
        let day = Duration::from_secs(86_400);
        let clock = ManualClock::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
        let guard = ClockGuard::new(day, Duration::from_secs(3600), None);
        assert_eq!(guard.now(&clock), Some(clock.now()));
        clock.advance(day * 3);
        assert_eq!(
            guard.now(&clock),
            Some(clock.now()),
            "time passed, nothing jumped"
        );
        clock.set(Timestamp::from_nanos(4_000_000_000_000_000_000));
        assert_eq!(guard.now(&clock), None);
        clock.advance(Duration::from_secs(3000));
        assert_eq!(guard.now(&clock), None);
        clock.set(Timestamp::from_nanos(1_700_300_000_000_000_000));
        clock.advance(Duration::from_secs(700));
        assert_eq!(guard.now(&clock), Some(clock.now()), "put right again");
    }

    #[test]
    fn a_jump_while_nobody_looked_is_noticed_too() {
        let clock = ManualClock::new(Timestamp::from_nanos(4_000_000_000_000_000_000));
        let remembered = Some(1_700_000_000_000_000_000);
        let guard = ClockGuard::new(
            Duration::from_secs(86_400),
            Duration::from_secs(60),
            remembered,
        );
        assert_eq!(guard.now(&clock), None);
        clock.advance(Duration::from_secs(61));
        assert_eq!(guard.now(&clock), Some(clock.now()));
    }
}
