//! How long and how much a question may take.

use crate::error::ApiError;
use crate::request::{Deadline, too_much};
use axum::http::StatusCode;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Values that one answer may hold, or computing it may keep.
pub(crate) const VALUES_MAX: usize = 1_000_000;
/// Streams that one question may read.
pub(crate) const STREAMS_MAX: usize = 100_000;

/// Held by whoever waits for an answer; dropped, it tells the thread that works on it.
#[derive(Debug, Default)]
pub(crate) struct Present(Arc<AtomicBool>);

impl Present {
    /// What the working thread looks at.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is left to one question. Of the thread that works on it.
#[derive(Debug)]
pub(crate) struct Budget {
    deadline: Deadline,
    gone: Arc<AtomicBool>,
    values: Cell<usize>,
    streams: Cell<usize>,
}

impl Budget {
    pub(crate) fn new(allowed: Duration, gone: Arc<AtomicBool>) -> Budget {
        Budget {
            deadline: Deadline::after(allowed),
            gone,
            values: Cell::new(VALUES_MAX),
            streams: Cell::new(STREAMS_MAX),
        }
    }

    /// # Errors
    /// When the time is over or the asker has gone.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.gone.load(Ordering::Relaxed) {
            // Nobody reads it.
            return Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "E_CANCELLED",
                "the client went away",
            ));
        }
        self.deadline.check()
    }

    /// Counts values that are kept.
    ///
    /// # Errors
    /// When there are more than an answer may hold.
    pub(crate) fn take_values(&self, count: usize) -> Result<(), ApiError> {
        match self.values.get().checked_sub(count) {
            Some(left) => {
                self.values.set(left);
                Ok(())
            }
            None => Err(too_much(format!(
                "the answer, or what it is computed from, is more than {VALUES_MAX} values: ask for a shorter range, fewer fields, wider intervals, or set a LIMIT"
            ))),
        }
    }

    /// Gives back what is not kept any more.
    pub(crate) fn give_values(&self, count: usize) {
        self.values.set(self.values.get().saturating_add(count));
    }

    /// How many values may still be kept.
    pub(crate) fn values_left(&self) -> usize {
        self.values.get()
    }

    /// Of all that was counted since there were `before` left, only so many values are still kept.
    ///
    /// # Errors
    /// When there are more than an answer may hold.
    pub(crate) fn keep_only(&self, before: usize, kept: usize) -> Result<(), ApiError> {
        self.values.set(before);
        self.take_values(kept)
    }

    /// Counts streams that are read.
    ///
    /// # Errors
    /// When there are more than a question may read.
    pub(crate) fn take_stream(&self) -> Result<(), ApiError> {
        match self.streams.get().checked_sub(1) {
            Some(left) => {
                self.streams.set(left);
                Ok(())
            }
            None => Err(too_much(format!(
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
        let present = Present::default();
        let budget = Budget::new(Duration::from_secs(3_600), present.gone());
        budget.check().unwrap();
        drop(present);
        assert_eq!(budget.check().unwrap_err().code, "E_CANCELLED");
        let present = Present::default();
        let late = Budget::new(Duration::ZERO, present.gone());
        assert_eq!(late.check().unwrap_err().code, "E_TIMEOUT");
    }

    #[test]
    fn values_and_streams_are_counted() {
        let budget = Budget::new(Duration::from_secs(3_600), Present::default().gone());
        budget.take_values(VALUES_MAX).unwrap();
        assert_eq!(budget.take_values(1).unwrap_err().code, "E_LIMIT");
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
        assert_eq!(budget.take_stream().unwrap_err().code, "E_LIMIT");
    }
}
