//! Signals between writers and workers.
//!
//! Invariants: a waiting thread has the lock from its last check of the condition on; a wake-up
//! without the lock may be missed, and every wait ends by itself after a while. Concurrency: the
//! lock protects no other data, and no other lock is taken with it.

use crate::{Error, Result};
use headwater_io::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which a wait checks again, even if a wake-up was missed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(crate) struct Signals {
    lock: Mutex<()>,
    /// A worker may have work to do.
    work_available: Condvar,
    /// Memory was freed.
    freed: Condvar,
    /// The error of the last job, for writers that wait for memory.
    step_error: Mutex<Option<Error>>,
    stop: AtomicBool,
    threads: AtomicBool,
}

/// A writer that waits for memory.
pub(crate) struct WaitingWriter<'a> {
    signals: &'a Signals,
    guard: MutexGuard<'a, ()>,
}

impl WaitingWriter<'_> {
    /// Wakes workers, and waits until memory was freed or this time is over.
    pub(crate) fn wait(&mut self, longest: Duration) {
        self.signals.work_available.notify_all();
        self.signals.freed.wait_for(&mut self.guard, longest);
    }
}

impl Signals {
    /// True with worker threads; otherwise writers do the work.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Acquire)
    }

    pub(crate) fn set_threads(&self, any: bool) {
        self.threads.store(any, Ordering::Release);
    }

    /// True when the database is being closed: workers must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Wakes all waiting threads.
    pub(crate) fn wake_all(&self) {
        let _held = self.lock.lock();
        self.work_available.notify_all();
        self.freed.notify_all();
    }

    /// Wakes workers, which look for due work.
    pub(crate) fn wake_workers(&self) {
        let _held = self.lock.lock();
        self.work_available.notify_all();
    }

    /// Wakes workers without the lock, for writers: a worker that was just about to wait checks
    /// again a little later.
    pub(crate) fn nudge_workers(&self) {
        self.work_available.notify_all();
    }

    /// Wakes writers that wait for memory.
    pub(crate) fn memory_freed(&self) {
        let _held = self.lock.lock();
        self.freed.notify_all();
    }

    /// Begins to wait for memory; check whether memory is available after this call.
    pub(crate) fn writer_waits(&self) -> WaitingWriter<'_> {
        WaitingWriter {
            signals: self,
            guard: self.lock.lock(),
        }
    }

    /// Waits until a worker may have work to do, or for a while.
    pub(crate) fn wait_for_work(&self) {
        let mut held = self.lock.lock();
        if !self.is_stopped() {
            self.work_available.wait_for(&mut held, LOOK_AGAIN);
        }
    }

    /// Waits, at most until the database is closed.
    pub(crate) fn pause(&self, clock: &dyn Clock, pause: Duration) {
        let deadline = clock.monotonic() + pause;
        let mut held = self.lock.lock();
        while !self.is_stopped() {
            let left = deadline.saturating_sub(clock.monotonic());
            if left.is_zero() {
                break;
            }
            self.work_available
                .wait_for(&mut held, left.min(LOOK_AGAIN));
        }
    }

    /// Notes the failure or success of the newest job.
    pub(crate) fn note_step<T>(&self, result: &Result<T>) {
        *self.step_error.lock() = result.as_ref().err().cloned();
    }

    /// The error of the newest job, if it failed.
    pub(crate) fn step_error(&self) -> Option<Error> {
        self.step_error.lock().clone()
    }
}
