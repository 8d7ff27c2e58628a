//! What workers do, or writers where there are no threads: flush when memory is used up or the log is too long, compact.
//!
//! Concurrency: one worker per shard flushes; one more compacts. Without threads [`Core::maintain`]
//! does it all on the caller. Every loop here ends: one that stores goes on while there is
//! something of before it began, and one that rewrites while there are partitions with a reason
//! ([`step::compaction_wanted`]), which a rewriting takes away.
//! Failure: a step that failed for want of space is tried again when asked, a rewriting after a
//! while; other failures have latched the database.

use crate::Database;
use crate::core::Core;
use crate::ids::{SegmentId, Sequence, ShardIndex};
use crate::late::FlushRule;
use crate::step::{self, Buffers, ShardView, Urgency};
use crate::{ErrorKind, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long compaction waits when there was no space for it.
const SPACE_PATIENCE: Duration = Duration::from_secs(60);
/// The log may grow to this many times the memory budget before old events are flushed for its sake.
const LOG_BUDGETS_MAX: u64 = 4;

impl Database {
    /// Does what is due now, on the caller: stores, merges, rewrites, and ends what retention,
    /// aging and expiry have reached. Workers do so by themselves; a database without threads
    /// ([`headwater_io::NoThreads`]) does it with writes, and a program may call this when none
    /// come.
    ///
    /// # Errors
    /// `full`, `io`, `closed`.
    pub fn maintain(&self) -> Result<()> {
        self.core().log.check()?;
        self.core().maintain()
    }
}

impl Core {
    fn view(&self, index: ShardIndex) -> Result<(ShardView, usize)> {
        let state = self.shard(index)?.state.lock();
        Ok((
            ShardView {
                flank_events: state.flank_events,
                late_events: state.late_events,
            },
            state.bytes,
        ))
    }

    /// Bytes that all shards hold in memory, and their events.
    fn held_events(&self) -> (usize, usize) {
        let mut sum = (0, 0);
        for shard in &self.shards {
            let state = shard.state.lock();
            sum.0 += state.bytes;
            sum.1 += state.flank_events + state.late_events;
        }
        sum
    }

    fn shard_indices(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..u16::try_from(self.shards.len()).unwrap_or(u16::MAX)).map(ShardIndex)
    }

    /// Flushes a shard if it is its turn. True when it did something.
    pub(crate) fn flush_if_due(&self, index: ShardIndex) -> Result<bool> {
        if self.has_ended(index)? && step::sweep(self, index)? {
            return Ok(true);
        }
        // What is left of the reserve is for what frees space.
        if self.check_space().is_err() {
            return Ok(false);
        }
        self.decide_if_due(index)?;
        let (view, bytes) = self.view(index)?;
        let policy = &self.shard(index)?.state.lock().in_force().candidate.policy;
        if let FlushRule::LabExact { .. } = self.options.flush_rule {
            return match step::full_buffers(self.options.flush_rule, policy, view) {
                Some(buffers) => self.step(index, buffers, Urgency::Memory),
                None => Ok(false),
            };
        }
        if self.memory_bytes.load(Ordering::Relaxed) >= self.flush_bytes() {
            let (held, events) = self.held_events();
            // The shards that hold no less than others: not all of what is used are events.
            let shards = self.shards.len().max(1);
            if bytes > 0 && bytes >= self.flush_bytes().min(held) / shards {
                let buffers = step::buffers_to_store(policy, view);
                if self.step(index, buffers, Urgency::Memory)? {
                    return Ok(true);
                }
                // Nothing there to take, such as a flank that is retained whole: take what there is.
                if self.step(index, Buffers::Both, Urgency::All)? {
                    return Ok(true);
                }
            }
            if events == 0 && self.catalog.first_pending().is_some() {
                // Nothing but names of new streams, which a commit stores.
                self.log.wait_published(self.log.newest())?;
                step::commit_log_cut(self)?;
                return Ok(true);
            }
        }
        if self.late_merge_is_due(index)? {
            let merged = self.step(index, Buffers::Late, Urgency::All)?;
            if !merged {
                // Its partition takes no groups just now: not again at once.
                let now = self.env.clock.monotonic();
                self.shard(index)?.state.lock().late_since = Some(now);
            }
            return Ok(merged);
        }
        let log_max = LOG_BUDGETS_MAX * self.options.memory_budget_bytes as u64;
        if self.log_is_longer(log_max) && view.flank_events + view.late_events > 0 {
            return self.step(index, Buffers::Both, Urgency::Log);
        }
        Ok(false)
    }

    /// True when the log is longer than that. While it is kept for partitions that cannot be read,
    /// which storing does not change, what came since events were last stored for its sake counts.
    fn log_is_longer(&self, bytes_max: u64) -> bool {
        let live = self.log.live_bytes();
        if !self.any_unreadable.load(Ordering::Acquire) {
            return live > bytes_max;
        }
        let stored = self.log_stored.load(Ordering::Relaxed).min(live);
        let is_longer = live - stored > bytes_max;
        if is_longer {
            self.log_stored.store(live, Ordering::Relaxed);
        }
        is_longer
    }

    /// True when a sweep has something to look for.
    fn has_ended(&self, index: ShardIndex) -> Result<bool> {
        Ok(self.shard(index)?.state.lock().has_ended())
    }

    /// Carries out everything that was deleted, dropped or outlived.
    pub(crate) fn sweep_all(&self) -> Result<()> {
        for index in self.shard_indices() {
            if self.has_ended(index)? {
                step::sweep(self, index)?;
            }
        }
        Ok(())
    }

    fn step(&self, index: ShardIndex, buffers: Buffers, urgency: Urgency) -> Result<bool> {
        let result = step::run_step(self, index, buffers, urgency);
        *self.work.step_error.lock() = result.as_ref().err().cloned();
        result
    }

    /// Does what is due, on the caller.
    pub(crate) fn maintain(&self) -> Result<()> {
        self.log.wait_published(self.log.newest())?;
        self.move_horizons()?;
        loop {
            let mut progress = false;
            for index in self.shard_indices() {
                progress |= self.flush_if_due(index)?;
            }
            while let Some((index, id)) = self.compaction_due_now() {
                if !self.compact(index, id) {
                    break;
                }
            }
            if !progress {
                return Ok(());
            }
        }
    }

    /// Stores every event in memory.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.store_all()?;
        step::commit_log_cut(self)
    }

    /// As [`Core::flush_all`], at the end: the next opening finds nothing to read in the log.
    pub(crate) fn leave_log(&self) -> Result<()> {
        self.settle_analyzers();
        self.log.leave_file()?;
        step::commit_log_cut(self)
    }

    /// Steps until nothing is left in memory of what was there at the beginning. Writers may go on.
    pub(crate) fn store_all(&self) -> Result<()> {
        let _no_compaction = self.compacting.lock();
        self.log.wait_published(self.log.newest())?;
        let newest = self.log.published();
        for index in self.shard_indices() {
            let separates = self.shard(index)?.state.lock().separates();
            let all = match self.options.flush_rule {
                // As the policy counts: each buffer by itself, at the end too.
                FlushRule::LabExact { .. } if separates => &[Buffers::Flank, Buffers::Late][..],
                _ => &[Buffers::Both],
            };
            for buffers in all {
                while self.step(index, *buffers, Urgency::All)?
                    && self.holds_up_to(index, newest)?
                {}
            }
        }
        Ok(())
    }

    /// True when memory holds an event with a sequence up to this one.
    fn holds_up_to(&self, index: ShardIndex, newest: Sequence) -> Result<bool> {
        let state = self.shard(index)?.state.lock();
        Ok(state.first_sequence().is_some_and(|first| first <= newest))
    }

    /// A partition that should be rewritten, among those that there were when `made_before` was the
    /// next segment, and what became of them.
    fn compaction_due(
        &self,
        thorough: bool,
        made_before: SegmentId,
    ) -> Option<(ShardIndex, SegmentId)> {
        self.shard_indices().find_map(|index| {
            let state = self.shards.get(usize::from(index.0))?.state.lock();
            let found = state
                .partitions
                .all()
                .filter(|p| !state.busy.contains(&p.id()) && !self.is_uncompactable(p.id()))
                .filter(|p| p.unreadable.is_none())
                .filter(|p| p.id() < made_before || p.record.groups <= 1)
                .filter(|p| !self.is_settled(p.id(), p.record.footer_offset))
                .filter(|p| thorough || self.may_compact(p.record.live_bytes))
                .find(|p| step::compaction_wanted(self, &p.record, thorough))
                .map(|p| p.id());
            found.map(|id| (index, id))
        })
    }

    fn is_uncompactable(&self, id: SegmentId) -> bool {
        self.uncompactable.lock().contains(&id)
    }

    fn is_settled(&self, id: SegmentId, footer_offset: u64) -> bool {
        self.settled.lock().get(&id) == Some(&footer_offset)
    }

    fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_segment.load(Ordering::Relaxed))
    }

    /// What the background should rewrite now.
    fn compaction_due_now(&self) -> Option<(ShardIndex, SegmentId)> {
        if self.env.clock.monotonic() < *self.compact_from.lock() || self.check_space().is_err() {
            return None;
        }
        self.compaction_due(false, SegmentId(u64::MAX))
    }

    /// Rewrites one partition. False when that failed; a damaged one is left alone from then on.
    fn compact(&self, index: ShardIndex, id: SegmentId) -> bool {
        match step::compact_partition(self, index, id) {
            Ok(done) => done,
            Err(error) => {
                tracing::warn!(segment = id.0, %error, "compaction failed: the partition stays as it is");
                match error.kind() {
                    // What was written of it is gone again, and would be written again.
                    ErrorKind::Full => {
                        *self.compact_from.lock() = self.env.clock.monotonic() + SPACE_PATIENCE;
                    }
                    ErrorKind::Closed => {}
                    _ => drop(self.uncompactable.lock().insert(id)),
                }
                false
            }
        }
    }

    /// Rewrites every partition that would become tidier.
    pub(crate) fn compact_all(&self) -> Result<()> {
        // What others write meanwhile is not waited for.
        let made_before = self.next_segment();
        // A partition that was split may be due for aging, in parts.
        loop {
            self.move_horizons()?;
            self.sweep_all()?;
            let mut rewritten = false;
            while let Some((index, id)) = self.compaction_due(true, made_before) {
                match step::compact_partition(self, index, id) {
                    Ok(done) => rewritten |= done,
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        self.uncompactable.lock().insert(id);
                    }
                    Err(error) => return Err(error),
                }
            }
            if !rewritten {
                return Ok(());
            }
        }
    }

    fn stopped(&self) -> bool {
        self.work.stop.load(Ordering::Acquire)
    }

    fn wait_for_work(&self) {
        let mut held = self.work.lock.lock();
        if !self.stopped() {
            self.work
                .wanted
                .wait_for(&mut held, Duration::from_millis(500));
        }
    }

    /// The life of a shard's worker.
    pub(crate) fn flush_worker(&self, index: ShardIndex) {
        while !self.stopped() {
            match self.flush_if_due(index) {
                Ok(true) => {}
                Ok(false) => self.wait_for_work(),
                Err(error) if error.kind() == ErrorKind::Full => {
                    tracing::warn!(%error, "a flush failed for want of space");
                    self.wait_for_work();
                }
                // Latched: the next writer is told.
                Err(_) => return,
            }
        }
    }

    /// The life of the worker that compacts.
    pub(crate) fn compaction_worker(&self) {
        while !self.stopped() {
            if self.log.check_failure().is_ok()
                && let Err(error) = self.move_horizons()
            {
                tracing::warn!(%error, "retention or aging could not go on; it will be tried again");
                self.wait_for_work();
            }
            if self.log.check_failure().is_ok()
                && self.clock_guard.is_to_be_kept(&*self.env.clock)
                && let Err(error) = step::commit_log_cut(self)
            {
                tracing::warn!(%error, "the time could not be committed; it will be tried again");
                self.wait_for_work();
            }
            match self.compaction_due_now() {
                Some((index, id)) if self.log.check_failure().is_ok() => {
                    if !self.compact(index, id) {
                        self.wait_for_work();
                    }
                }
                _ => self.wait_for_work(),
            }
        }
    }

    /// The life of the thread that leads groups nobody waits for.
    pub(crate) fn log_worker(&self) {
        while !self.stopped() && self.log.background_round(Duration::from_secs(1)) {}
    }
}
