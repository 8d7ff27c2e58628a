//! The commit log: one for the database, batches as all-or-nothing records, group commit.
//!
//! There is no commit thread that must be woken: the first thread that waits becomes the leader,
//! writes and syncs all pending records, and wakes the others; meanwhile the next group fills. A
//! background thread leads for writers that do not wait.
//!
//! Invariants: sequences are dense and ascending, assigned under the lock in the order of the log;
//! `published <= acknowledgeable <= written`; a record is published only when it is as durable as
//! its writers required and its events are in memory, and so is every record before it.
//! Concurrency: one leader at a time owns the files; the state lock is never held over I/O.
//! Failure: after any write or sync error the log latches, and later calls return `closed`. Crash:
//! bytes after the last synced record may be anything; replay trims them in the last file and
//! reports any other bad record as corrupt. Format: docs/format/log.md. Tests: `tests/it/crash.rs`
//! crashes at every barrier.

mod files;
pub(crate) mod mirror;
mod moved;
mod record;
mod replay;

pub(crate) use files::{LogPart, file_path as log_path};
pub(crate) use moved::Moved;
pub(crate) use record::{
    FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, RECORD_HEADER_BYTES, RecordHeader, RecordKind, pad,
    record_bytes,
};
#[cfg(fuzzing)]
pub(crate) use replay::fuzz_file;
pub(crate) use replay::{Access, LogEnd, Needed, Replayed, records_in, replay};

use crate::common::ids::Sequence;
use crate::{Durability, Error, ErrorKind, Result};
use files::LogFiles;
use headwater_codec::checksum::crc32c;
use headwater_io::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Payload bytes that may wait for a leader; writers beyond that wait.
const PENDING_BYTES_MAX: usize = 32 << 20;
/// Samples of sync durations for the median.
const SYNC_SAMPLES: usize = 512;

struct Pending {
    sequence: Sequence,
    kind: RecordKind,
    payload: Vec<u8>,
    crc: u32,
}

struct State {
    pending: Vec<Pending>,
    pending_bytes: usize,
    next: Sequence,
    written: Sequence,
    synced: Sequence,
    published: Sequence,
    /// Records in the log whose events are not yet in memory.
    inserting: BTreeSet<Sequence>,
    /// Tasks that wait for a record to be published.
    wakers: Vec<(Sequence, Waker)>,
    leading: bool,
    failed: Option<Error>,
    closed: bool,
    last_sync: Duration,
}

/// Counters of the log since opening.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogStats {
    pub(crate) bytes_written: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_median: Duration,
    pub(crate) disk_bytes: u64,
    /// The newest generation known to be started; 0 = none since opening.
    pub(crate) begun: u64,
}

struct Leader {
    files: LogFiles,
    record_start: StartRecorder,
    /// Files up to this generation are known to be started.
    begun: u64,
    buffer: Vec<u8>,
    syncs: u64,
    sync_samples: Vec<Duration>,
}

/// Records durably that a file of a generation was started.
pub(crate) type StartRecorder = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

pub(crate) struct Log {
    durability: Durability,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// `published` of the state, for readers: they need not wait for the lock.
    published: AtomicU64,
    changed: Condvar,
    /// Wakes the background thread; separate from `changed` so that a group does not wake it
    /// needlessly.
    nudged: Condvar,
    leader: Mutex<Leader>,
    /// Bytes of files with records still needed, for readers that need not wait for a leader.
    live: AtomicU64,
}

/// Latches the log when the thread panics meanwhile: see [`Log::latch_on_panic`].
pub(crate) struct LatchOnPanic<'a> {
    log: &'a Log,
    operation: &'static str,
    /// True when the thread was already panicking.
    unwinds: bool,
}

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinds {
            self.log.latch(Error::internal(format!(
                "a thread panicked while it {}; its panic message names the broken invariant",
                self.operation
            )));
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Continues after `replayed`; the next record gets the number after `after`. A new file is
    /// announced before its first record.
    pub(crate) fn new(
        replayed: Replayed,
        after: Sequence,
        durability: Durability,
        record_start: StartRecorder,
        clock: Arc<dyn Clock>,
    ) -> Log {
        let state = State {
            pending: Vec::new(),
            pending_bytes: 0,
            next: Sequence(after.0 + 1),
            written: after,
            synced: after,
            published: after,
            inserting: BTreeSet::new(),
            wakers: Vec::new(),
            leading: false,
            failed: None,
            closed: false,
            last_sync: clock.monotonic(),
        };
        let live = AtomicU64::new(replayed.files.live_bytes());
        let leader = Leader {
            files: replayed.files,
            record_start,
            begun: 0,
            buffer: Vec::new(),
            syncs: 0,
            sync_samples: Vec::new(),
        };
        Log {
            durability,
            clock,
            state: Mutex::new(state),
            published: AtomicU64::new(after.0),
            changed: Condvar::new(),
            nudged: Condvar::new(),
            leader: Mutex::new(leader),
            live,
        }
    }

    /// Latches the log if the thread panics before this is dropped. Others that wait for this
    /// thread get an error then, and its unfinished work is neither acknowledged nor used.
    pub(crate) fn latch_on_panic(&self, operation: &'static str) -> LatchOnPanic<'_> {
        LatchOnPanic {
            log: self,
            operation,
            unwinds: std::thread::panicking(),
        }
    }

    /// Assigns the record its number and its position in the log. Its events become visible only
    /// after [`Log::inserted`]; records without events pass `with_events = false`.
    pub(crate) fn enqueue(
        &self,
        kind: RecordKind,
        payload: Vec<u8>,
        with_events: bool,
    ) -> Result<Sequence> {
        let crc = crc32c(&payload);
        let mut state = self.state.lock();
        while state.pending_bytes > PENDING_BYTES_MAX && state.failed.is_none() {
            let last = state.pending.last().map_or(state.written, |p| p.sequence);
            state = self.drive(state, |s| s.written >= last)?;
        }
        state.check()?;
        let sequence = state.next;
        state.next = Sequence(sequence.0 + 1);
        state.pending_bytes += record_bytes(payload.len());
        state.pending.push(Pending {
            sequence,
            kind,
            payload,
            crc,
        });
        if with_events {
            state.inserting.insert(sequence);
        }
        Ok(sequence)
    }

    /// Notes that the events of a record are in memory.
    pub(crate) fn inserted(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        let was_first = state.inserting.first() == Some(&sequence);
        state.inserting.remove(&sequence);
        if was_first && self.publish(&mut state) {
            drop(self.announce(state));
        }
    }

    /// Wakes the threads and tasks that wait for a record that is published, or never will be.
    /// Tasks are woken without the lock.
    fn announce<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.notify_all();
        let woken = state.take_woken();
        if woken.is_empty() {
            return state;
        }
        drop(state);
        for waker in woken {
            waker.wake();
        }
        self.state.lock()
    }

    fn publish(&self, state: &mut State) -> bool {
        let durable = match self.durability {
            Durability::Synced => state.synced,
            Durability::Every(_) | Durability::Written => state.written,
        };
        let limit = state
            .inserting
            .first()
            .map_or(durable, |s| durable.min(Sequence(s.0 - 1)));
        let moved = limit > state.published;
        if moved {
            state.published = limit;
            // A reader that sees the number sees the events up to it, which were in memory before.
            self.published.store(limit.0, Ordering::Release);
        }
        moved
    }

    /// Waits until a record is published: as durable as the database promises, and visible to every
    /// later snapshot.
    pub(crate) fn wait_published(&self, sequence: Sequence) -> Result<()> {
        let state = self.state.lock();
        self.drive(state, |s| s.published >= sequence).map(drop)
    }

    /// The result if a record is published, or never will be; otherwise `waker` is woken later. The
    /// background thread leads for such waiting tasks.
    pub(crate) fn poll_published(&self, sequence: Sequence, waker: &Waker) -> Option<Result<()>> {
        let mut state = self.state.lock();
        if state.published >= sequence {
            return Some(Ok(()));
        }
        if let Err(error) = state.check_failed() {
            return Some(Err(error));
        }
        let waits = |(at, known): &(Sequence, Waker)| *at == sequence && known.will_wake(waker);
        if !state.wakers.iter().any(waits) {
            state.wakers.push((sequence, waker.clone()));
        }
        drop(state);
        self.nudge();
        None
    }

    /// Waits until all records up to `sequence` are on the medium, with any durability setting.
    pub(crate) fn sync_up_to(&self, sequence: Sequence) -> Result<()> {
        {
            let state = self.state.lock();
            if state.synced >= sequence {
                return Ok(());
            }
            drop(self.drive(state, |s| s.written >= sequence)?);
        }
        self.sync_now()
    }

    /// Syncs all written records. No leader runs meanwhile: this thread is the leader.
    pub(crate) fn sync_now(&self) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            state.check_failed()?;
            if state.synced >= state.written {
                return Ok(());
            }
            if !state.leading {
                break;
            }
            self.changed.wait(&mut state);
        }
        let written = state.written;
        state.leading = true;
        drop(state);
        let latch = self.latch_on_panic("synced the log");
        let result = self.timed_sync(&mut self.leader.lock());
        drop(latch);
        let mut state = self.state.lock();
        state.leading = false;
        match result {
            Ok(()) => state.synced = state.synced.max(written),
            Err(error) => state.latch(error),
        }
        state.last_sync = self.clock.monotonic();
        self.publish(&mut state);
        let state = self.announce(state);
        state.check_failed()
    }

    fn timed_sync(&self, leader: &mut Leader) -> Result<()> {
        let start = self.clock.monotonic();
        if leader.files.sync()? {
            let took = self.clock.monotonic().saturating_sub(start);
            let at = usize::try_from(leader.syncs).unwrap_or(0) % SYNC_SAMPLES;
            if leader.sync_samples.len() < SYNC_SAMPLES {
                leader.sync_samples.push(took);
            } else if let Some(slot) = leader.sync_samples.get_mut(at) {
                *slot = took;
            }
            leader.syncs += 1;
        }
        Ok(())
    }

    /// Waits until `done`, leading the group whenever no other thread does and records are pending.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        done: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        loop {
            if done(&state) {
                return Ok(state);
            }
            state.check_failed()?;
            if state.leading || state.pending.is_empty() {
                self.changed.wait(&mut state);
            } else {
                state = self.lead(state);
            }
        }
    }

    /// Writes all pending records as one group, and syncs it when the durability requires it.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let group = std::mem::take(&mut state.pending);
        state.pending_bytes = 0;
        state.leading = true;
        let synced = state.synced;
        let due = match self.durability {
            Durability::Synced => true,
            Durability::Every(interval) => {
                self.clock.monotonic().saturating_sub(state.last_sync) >= interval
            }
            Durability::Written => false,
        };
        let previous = state.written;
        drop(state);
        let last = group.last().map_or(previous, |p| p.sequence);
        let latch = self.latch_on_panic("wrote the log");
        let result = {
            let mut leader = self.leader.lock();
            self.write_group(&mut leader, &group, previous, synced)
                .and_then(|()| {
                    if due {
                        self.timed_sync(&mut leader)
                    } else {
                        Ok(())
                    }
                })
        };
        drop(latch);
        let mut state = self.state.lock();
        state.leading = false;
        match result {
            Ok(()) => {
                state.written = last;
                if due {
                    state.synced = last;
                    state.last_sync = self.clock.monotonic();
                }
            }
            Err(error) => state.latch(error),
        }
        self.publish(&mut state);
        self.announce(state)
    }

    fn write_group(
        &self,
        leader: &mut Leader,
        group: &[Pending],
        previous: Sequence,
        synced: Sequence,
    ) -> Result<()> {
        let mut previous = previous;
        let mut rest = group;
        while !rest.is_empty() {
            let mut bytes = 0u64;
            let mut count = 0;
            for record in rest {
                let len = record_bytes(record.payload.len()) as u64;
                if count > 0 && bytes + len > leader.files.room() {
                    break;
                }
                bytes += len;
                count += 1;
            }
            let (part, later) = rest.split_at(count);
            let generation = leader.files.prepare(bytes, previous)?;
            if generation > leader.begun {
                // Its header is on the medium: if the file is missing one day, it is not mistaken
                // for one that was never started.
                (leader.record_start)(generation)?;
                leader.begun = generation;
            }
            let mut buffer = std::mem::take(&mut leader.buffer);
            buffer.clear();
            for record in part {
                RecordHeader {
                    payload_bytes: u32::try_from(record.payload.len())
                        .map_err(|_| Error::internal("log: a record over 4 GiB"))?,
                    payload_crc: record.crc,
                    sequence: record.sequence,
                    synced,
                    kind: record.kind.number(),
                }
                .encode(generation, &mut buffer);
                buffer.extend_from_slice(&record.payload);
                pad(&mut buffer);
                previous = record.sequence;
            }
            let written = leader.files.append(&buffer, previous);
            if buffer.capacity() <= 1 << 20 {
                leader.buffer = buffer;
            }
            written?;
            rest = later;
        }
        self.note_live(leader);
        Ok(())
    }

    fn note_live(&self, leader: &Leader) {
        self.live
            .store(leader.files.live_bytes(), Ordering::Relaxed);
    }

    /// Leads for writers that do not wait. Returns false once the log is closed or latched.
    pub(crate) fn background_round(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if state.pending.is_empty() && !state.closed && state.failed.is_none() {
            let patience = match self.durability {
                Durability::Every(interval) => interval.min(patience),
                Durability::Synced | Durability::Written => patience,
            };
            self.nudged.wait_for(&mut state, patience);
        }
        while !state.pending.is_empty() && state.failed.is_none() {
            if state.leading {
                self.changed.wait(&mut state);
            } else {
                state = self.lead(state);
            }
        }
        if state.failed.is_some() || state.closed {
            return false;
        }
        let overdue = match self.durability {
            Durability::Every(interval) => {
                state.synced < state.written
                    && self.clock.monotonic().saturating_sub(state.last_sync) >= interval
            }
            Durability::Synced | Durability::Written => false,
        };
        drop(state);
        if overdue {
            // A failure latches the log, and the next writer gets the error.
            return self.sync_now().is_ok();
        }
        true
    }

    /// Wakes the background thread for records that no thread waits for yet.
    pub(crate) fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// True when records wait for a leader or a group is being written.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.leading || state.pending.len() > 1
    }

    /// The newest sequence that readers may see.
    pub(crate) fn published(&self) -> Sequence {
        Sequence(self.published.load(Ordering::Acquire))
    }

    /// The newest sequence that is known to be on the medium.
    pub(crate) fn synced(&self) -> Sequence {
        self.state.lock().synced
    }

    /// Refuses further records: kind `closed`.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.nudged.notify_all();
    }

    /// Refuses every record: kind `read_only`.
    pub(crate) fn refuse_writes(&self) {
        self.state.lock().failed = Some(Error::new(
            ErrorKind::ReadOnly,
            "the database was opened read-only",
        ));
    }

    /// Refuses further records because of an error elsewhere.
    pub(crate) fn latch(&self, error: Error) {
        let mut state = self.state.lock();
        state.latch(error);
        drop(self.announce(state));
        self.nudged.notify_all();
    }

    /// Fails when the log is latched or closed.
    pub(crate) fn check(&self) -> Result<()> {
        self.state.lock().check()
    }

    /// Fails when the log is latched.
    pub(crate) fn check_failure(&self) -> Result<()> {
        self.state.lock().check_failed()
    }

    /// The newest assigned sequence.
    pub(crate) fn newest(&self) -> Sequence {
        Sequence(self.state.lock().next.0 - 1)
    }

    /// The oldest generation of log files that a database needs with `needed` as its oldest
    /// uncovered record.
    pub(crate) fn first_generation_needed(&self, needed: Sequence) -> u64 {
        self.leader.lock().files.first_generation_needed(needed)
    }

    /// Leaves the current file, so that it can be freed once none of its records is needed.
    pub(crate) fn leave_file(&self) -> Result<()> {
        let left = self.leader.lock().files.leave_current();
        left.inspect_err(|error| self.latch(error.clone()))
    }

    /// Releases files that a database without writes does not need.
    pub(crate) fn rest(&self) -> Result<()> {
        let rested = self.leader.lock().files.rest();
        rested.inspect_err(|error| self.latch(error.clone()))
    }

    /// On a full disk: leaves a large file without needed records, and releases all files that no
    /// record needs. True when there was at least one.
    pub(crate) fn give_back(&self, is_needed: bool) -> Result<bool> {
        let mut leader = self.leader.lock();
        let files = &mut leader.files;
        let left = match !is_needed && files.is_current_large() {
            true => files.leave_current(),
            false => Ok(()),
        };
        let given = left.and_then(|()| files.give_back());
        given.inspect_err(|error| self.latch(error.clone()))
    }

    /// True when files of generations before this one could be freed.
    pub(crate) fn has_full_below(&self, generation: u64) -> bool {
        self.leader.lock().files.has_full_below(generation)
    }

    /// Bytes of all files on the medium, and bytes that were written to them since the opening.
    pub(crate) fn bytes_on_medium_and_written(&self) -> (u64, u64) {
        let leader = self.leader.lock();
        (leader.files.disk_bytes(), leader.files.bytes_written)
    }

    /// Frees files the metadata no longer names.
    pub(crate) fn recycle_below(&self, generation: u64) -> Result<()> {
        let mut leader = self.leader.lock();
        let recycled = leader.files.recycle_below(generation);
        self.note_live(&leader);
        recycled
    }

    /// Files from a generation on, oldest first, up to where their records are written.
    pub(crate) fn parts_from(&self, generation: u64) -> Vec<LogPart> {
        self.leader.lock().files.parts_from(generation)
    }

    /// Last record before the oldest file needed at `generation`: replay will read no record up to
    /// it again.
    pub(crate) fn sequence_before(&self, generation: u64) -> Sequence {
        self.leader.lock().files.sequence_before(generation)
    }

    /// Bytes of files with records still needed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> LogStats {
        let leader = self.leader.lock();
        let mut samples = leader.sync_samples.clone();
        samples.sort_unstable();
        LogStats {
            bytes_written: leader.files.bytes_written,
            syncs: leader.syncs,
            sync_median: samples.get(samples.len() / 2).copied().unwrap_or_default(),
            disk_bytes: leader.files.disk_bytes(),
            begun: leader.begun,
        }
    }
}

impl State {
    /// Takes the tasks whose record is published, or all when no more will be.
    fn take_woken(&mut self) -> Vec<Waker> {
        if self.wakers.is_empty() {
            return Vec::new();
        }
        let (published, failed) = (self.published, self.failed.is_some());
        let due = |(sequence, _): &mut (Sequence, Waker)| failed || *sequence <= published;
        self.wakers
            .extract_if(.., due)
            .map(|(_, waker)| waker)
            .collect()
    }

    fn latch(&mut self, error: Error) {
        if self.failed.is_none() {
            tracing::error!(%error, "a write failed: the database accepts no writes until it is reopened");
            self.failed = Some(error);
        }
    }

    fn check_failed(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) if error.kind() == ErrorKind::ReadOnly => Err(error.clone()),
            Some(error) => {
                let kind = if error.kind() == ErrorKind::Full {
                    ErrorKind::Full
                } else {
                    ErrorKind::Closed
                };
                Err(Error::new(
                    kind,
                    format!("the database accepts no writes after a failure: {error}; reopen it"),
                ))
            }
        }
    }

    fn check(&self) -> Result<()> {
        self.check_failed()?;
        if self.closed {
            return Err(Error::new(ErrorKind::Closed, "the database is closed"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
