//! State of compaction: partitions to leave alone, and bytes written on a day.
//!
//! Concurrency: [`Compaction::begin`] is the lock under which partitions are rewritten, held over
//! I/O; no other lock is taken under the others.

use crate::common::ids::{SegmentId, TableId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Compaction {
    /// Locked while partitions are rewritten: they accept no groups meanwhile, so a flush of all
    /// events waits for it.
    running: Mutex<()>,
    written: Mutex<WrittenOnDay>,
    /// Partitions that a rewriting did not change, with their footer at that time.
    settled: Mutex<HashMap<SegmentId, u64>>,
    /// Partitions with damage, which a rewrite would lose, and partitions that cannot be split.
    excluded: Mutex<HashSet<SegmentId>>,
    /// No partition is rewritten in the background before this moment of the monotonic clock: there
    /// was no space for it.
    postponed_to: Mutex<Duration>,
    filling: Mutex<HashMap<(TableId, SegmentId), Duration>>,
    /// A job could not store some rows, since their partition is being rewritten.
    blocks_job: AtomicBool,
}

/// Bytes written for compaction on a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenOnDay {
    /// Days since 1970 UTC.
    pub(crate) day: u64,
    pub(crate) bytes: u64,
}

impl Compaction {
    pub(crate) fn new(written: WrittenOnDay) -> Compaction {
        Compaction {
            running: Mutex::new(()),
            written: Mutex::new(written),
            settled: Mutex::default(),
            excluded: Mutex::default(),
            postponed_to: Mutex::default(),
            filling: Mutex::default(),
            blocks_job: AtomicBool::new(false),
        }
    }

    /// Starts a rewriting: no job has waited for the partition yet.
    pub(crate) fn begin_rewriting(&self) {
        self.blocks_job.store(false, Ordering::Relaxed);
    }

    /// Notes that a job has rows for a partition that is being rewritten.
    pub(crate) fn note_blocked_job(&self) {
        self.blocks_job.store(true, Ordering::Relaxed);
    }

    /// True when a job waits for the partition that is being rewritten.
    pub(crate) fn is_blocking_job(&self) -> bool {
        self.blocks_job.load(Ordering::Relaxed)
    }

    /// Waits until no partition is being rewritten; no rewriting begins while the guard exists.
    pub(crate) fn begin(&self) -> MutexGuard<'_, ()> {
        self.running.lock()
    }

    /// Waits like [`Compaction::begin`], but no longer than this.
    pub(crate) fn try_begin_for(&self, longest: Duration) -> Option<MutexGuard<'_, ()>> {
        self.running.try_lock_for(longest)
    }

    pub(crate) fn written(&self) -> WrittenOnDay {
        *self.written.lock()
    }

    /// Adds bytes written on a day.
    pub(crate) fn note_written(&self, day: u64, bytes: u64) {
        let mut written = self.written.lock();
        if written.day != day {
            *written = WrittenOnDay { day, bytes: 0 };
        }
        written.bytes = written.bytes.saturating_add(bytes);
    }

    /// Excludes the partition from rewriting until the database is opened again.
    pub(crate) fn leave_alone(&self, id: SegmentId) {
        self.excluded.lock().insert(id);
    }

    pub(crate) fn is_excluded(&self, id: SegmentId) -> bool {
        self.excluded.lock().contains(&id)
    }

    /// Records that a rewriting did not change the partition with this last footer: it is skipped
    /// until it has another footer.
    pub(crate) fn settle(&self, id: SegmentId, footer_offset: u64) {
        self.settled.lock().insert(id, footer_offset);
    }

    pub(crate) fn is_settled(&self, id: SegmentId, footer_offset: u64) -> bool {
        self.settled.lock().get(&id) == Some(&footer_offset)
    }

    /// Prevents background rewriting before this moment of the monotonic clock.
    pub(crate) fn postpone_to(&self, moment: Duration) {
        *self.postponed_to.lock() = moment;
    }

    pub(crate) fn is_postponed(&self, now: Duration) -> bool {
        now < *self.postponed_to.lock()
    }

    /// Partitions that are due for aging while memory has rows for them, to be reviewed and
    /// recorded again.
    pub(crate) fn filling(&self) -> Filling<'_> {
        Filling {
            since: self.filling.lock(),
            still: Vec::new(),
        }
    }
}

/// The partitions that wait for aging because memory has rows for them, during a review.
pub(crate) struct Filling<'a> {
    since: MutexGuard<'a, HashMap<(TableId, SegmentId), Duration>>,
    still: Vec<((TableId, SegmentId), Duration)>,
}

impl Filling<'_> {
    /// Records that memory has rows for a partition, and returns the time since when it has had
    /// any.
    pub(crate) fn since(&mut self, table: TableId, id: SegmentId, now: Duration) -> Duration {
        let key = (table, id);
        let since = self.since.get(&key).copied().unwrap_or(now);
        self.still.push((key, since));
        since
    }

    /// Ends the review of a table: partitions not recorded in it do not wait any more.
    pub(crate) fn finish(mut self, table: TableId) {
        self.since.retain(|(of, _), _| *of != table);
        self.since.extend(self.still);
    }
}
