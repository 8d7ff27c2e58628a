//! How long and how much a question may take.
//!
//! Concurrency: a [`Budget`] belongs to the one thread that works on the question; a
//! [`CancelToken`] is shared with who waits for the answer.

use crate::error::{Error, Kind, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Values that one answer may hold, or computing it may keep.
pub const VALUES_MAX: usize = 1_000_000;
/// Streams that one question may read.
pub const STREAMS_MAX: usize = 100_000;

/// Tells a thread that works that nobody waits any more.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// The work may end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Held by whoever waits for an answer; dropped, it cancels the work.
#[derive(Debug, Default)]
pub struct CancelGuard(CancelToken);

impl CancelGuard {
    /// What the working thread looks at.
    #[must_use]
    pub fn token(&self) -> CancelToken {
        self.0.clone()
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// When work on an answer gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline that never comes.
    pub const NEVER: Deadline = Deadline(None);

    /// So long from now.
    #[must_use]
    pub fn after(allowed: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(allowed))
    }

    /// # Errors
    /// [`Kind::Timeout`] when the time is over.
    pub fn check(self) -> Result<()> {
        if self.0.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        Err(Error::new(
            Kind::Timeout,
            "the answer takes longer than a request may (setting request.timeout); ask for a shorter range",
        ))
    }
}

/// What is left to one question. Of the thread that works on it.
#[derive(Debug)]
pub struct Budget {
    deadline: Cell<Deadline>,
    cancel: CancelToken,
    values: Cell<usize>,
    streams: Cell<usize>,
}

impl Budget {
    /// [`VALUES_MAX`] values of [`STREAMS_MAX`] streams, until the deadline or until it is
    /// cancelled.
    #[must_use]
    pub fn new(deadline: Deadline, cancel: CancelToken) -> Budget {
        Budget {
            deadline: Cell::new(deadline),
            cancel,
            values: Cell::new(VALUES_MAX),
            streams: Cell::new(STREAMS_MAX),
        }
    }

    /// # Errors
    /// When the time is over or the asker has gone.
    pub fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() {
            // Nobody reads it.
            return Err(Error::new(Kind::Cancelled, "the client went away"));
        }
        self.deadline.get().check()
    }

    /// From now on the work has until then: some of it was handed on, and it goes on with the rest.
    pub fn renew(&self, deadline: Deadline) {
        self.deadline.set(deadline);
    }

    /// Counts values that are kept.
    ///
    /// # Errors
    /// When there are more than an answer may hold.
    pub fn take_values(&self, count: usize) -> Result<()> {
        match self.values.get().checked_sub(count) {
            Some(left) => {
                self.values.set(left);
                Ok(())
            }
            None => Err(Error::limit(format!(
                "the answer, or what it is computed from, is more than {VALUES_MAX} values: ask for a shorter range, fewer fields, wider intervals, or set a LIMIT"
            ))),
        }
    }

    /// Whether so many values would fit, without counting them.
    ///
    /// # Errors
    /// When there are more than an answer may hold.
    pub(crate) fn has_room_for(&self, count: usize) -> Result<()> {
        self.take_values(count)?;
        self.give_values(count);
        Ok(())
    }

    /// Gives back what is not kept any more.
    pub fn give_values(&self, count: usize) {
        self.values.set(self.values.get().saturating_add(count));
    }

    /// How many values may still be kept.
    #[must_use]
    pub fn values_left(&self) -> usize {
        self.values.get()
    }

    /// Of all that was counted since there were `before` left, only so many values are still kept.
    ///
    /// # Errors
    /// When there are more than an answer may hold.
    pub fn keep_only(&self, before: usize, kept: usize) -> Result<()> {
        self.values.set(before);
        self.take_values(kept)
    }

    /// Counts streams that are read.
    ///
    /// # Errors
    /// When there are more than a question may read.
    pub fn take_stream(&self) -> Result<()> {
        match self.streams.get().checked_sub(1) {
            Some(left) => {
                self.streams.set(left);
                Ok(())
            }
            None => Err(Error::limit(format!(
                "the question is about more than {STREAMS_MAX} streams: choose by more tags"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn work_ends_when_the_asker_goes_or_the_time_is_over() {
        let waiting = CancelGuard::default();
        let budget = Budget::new(Deadline::NEVER, waiting.token());
        budget.check().unwrap();
        drop(waiting);
        assert_eq!(budget.check().unwrap_err().kind(), Kind::Cancelled);
        let late = Budget::new(Deadline::after(Duration::ZERO), CancelToken::default());
        assert_eq!(late.check().unwrap_err().kind(), Kind::Timeout);
        late.renew(Deadline::NEVER);
        late.check().unwrap();
    }

    #[test]
    fn values_and_streams_are_counted() {
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        budget.take_values(VALUES_MAX).unwrap();
        assert_eq!(budget.take_values(1).unwrap_err().kind(), Kind::Limit);
        budget.give_values(5);
        budget.take_values(5).unwrap();
        budget.give_values(9);
        let before = budget.values_left();
        budget.take_values(7).unwrap();
        budget.keep_only(before, 2).unwrap();
        assert_eq!(budget.values_left(), before - 2);
        for _ in 0..STREAMS_MAX {
            budget.take_stream().unwrap();
        }
        assert_eq!(budget.take_stream().unwrap_err().kind(), Kind::Limit);
    }
}
