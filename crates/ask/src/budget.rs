//! Limits of time and memory of a query.
//!
//! Concurrency: a [`Budget`] belongs to the one thread that executes the query; a [`CancelToken`]
//! is shared with the client that waits for the answer.

use crate::error::{Error, QueryErrorKind, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Default memory limit of one query.
pub const MEMORY_BYTES: usize = 128 << 20;
/// Approximate bytes of one retained value, including its share of the containers; for texts
/// without their bytes.
pub(crate) const VALUE_BYTES: usize = 48;
/// Granularity in bytes of the reservations from the shared memory.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a stream of a query: its name and its location.
const STREAM_BYTES: usize = 512;

/// Tells the executing thread that the client no longer waits.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Requests the end of the work.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Owned by the client that waits for an answer; dropping it cancels the work.
#[derive(Debug, Default)]
pub struct CancelGuard(CancelToken);

impl CancelGuard {
    /// The token that the executing thread checks.
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

/// Instant at which work on an answer is ended.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline that never expires.
    pub const NEVER: Deadline = Deadline(None);

    /// The deadline after this duration.
    #[must_use]
    pub fn after(allowed: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(allowed))
    }

    /// # Errors
    /// [`QueryErrorKind::Timeout`] after the deadline.
    pub fn check(self) -> Result<()> {
        if self.0.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        Err(Error::new(
            QueryErrorKind::Timeout,
            "the query takes longer than a request may (setting request.timeout); use a shorter range",
        ))
    }
}

/// Memory that queries share.
///
/// Invariant: the reservations never exceed the total. Concurrency: called from any thread.
#[derive(Debug)]
pub struct Memory {
    available: AtomicUsize,
    /// Limit of one query, in bytes.
    per_query: usize,
    /// Limit of all queries together, in bytes.
    total: usize,
}

impl Memory {
    /// Limits in bytes for one query, and for all queries together.
    ///
    /// ```
    /// use headwater_ask::{Budget, CancelToken, Deadline, Memory};
    /// let memory = Memory::new(64 << 20, 256 << 20);
    /// let budget = Budget::new(Deadline::NEVER, CancelToken::default()).within(&memory);
    /// assert!(budget.take_bytes(65 << 20).is_err());
    /// ```
    #[must_use]
    pub fn new(one: usize, total: usize) -> Arc<Memory> {
        Arc::new(Memory {
            available: AtomicUsize::new(total),
            per_query: one.min(total),
            total,
        })
    }

    fn reserve(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self
            .available
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    fn release(&self, bytes: usize) {
        let left = self.available.fetch_add(bytes, Ordering::AcqRel);
        let is_reserved = self
            .total
            .checked_sub(left)
            .is_some_and(|used| bytes <= used);
        assert!(is_reserved, "memory that goes back was reserved");
    }
}

/// Remaining limits of one query. Used by the thread that executes it.
#[derive(Debug)]
pub struct Budget {
    deadline: Cell<Deadline>,
    cancel: CancelToken,
    /// Memory in use, in bytes.
    used: Cell<usize>,
    /// Current limit in bytes, at most `limit`.
    ceiling: Cell<usize>,
    limit: usize,
    /// The shared memory, and the bytes of it that this query has reserved.
    shared: Option<(Arc<Memory>, Cell<usize>)>,
}

impl Budget {
    /// A budget of [`MEMORY_BYTES`], until the deadline or a cancellation.
    #[must_use]
    pub fn new(deadline: Deadline, cancel: CancelToken) -> Budget {
        Budget {
            deadline: Cell::new(deadline),
            cancel,
            used: Cell::new(0),
            ceiling: Cell::new(MEMORY_BYTES),
            limit: MEMORY_BYTES,
            shared: None,
        }
    }

    /// Uses the limit of the shared memory instead of [`MEMORY_BYTES`].
    #[must_use]
    pub fn within(mut self, memory: &Arc<Memory>) -> Budget {
        self.ceiling.set(memory.per_query);
        self.limit = memory.per_query;
        self.shared = Some((Arc::clone(memory), Cell::new(0)));
        self
    }

    /// # Errors
    /// After the deadline, or when the client has disconnected.
    pub fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() {
            // The client does not read the message.
            return Err(Error::new(
                QueryErrorKind::Cancelled,
                "the client disconnected",
            ));
        }
        self.deadline.get().check()
    }

    /// Sets a new deadline: a part of the work was sent, and the work continues with the rest.
    pub fn renew(&self, deadline: Deadline) {
        self.deadline.set(deadline);
    }

    /// Counts memory in use.
    ///
    /// # Errors
    /// [`QueryErrorKind::Limit`] above the limit of the query, [`QueryErrorKind::Busy`] when other
    /// queries use the remaining memory.
    pub fn take_bytes(&self, bytes: usize) -> Result<()> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.ceiling.get() {
            return Err(self.too_much());
        }
        if let Some((memory, reserved)) = &self.shared
            && used > reserved.get()
        {
            let more = (used - reserved.get()).next_multiple_of(PIECE_BYTES);
            if !memory.reserve(more) {
                return Err(Error::new(
                    QueryErrorKind::Busy,
                    format!(
                        "the running queries use all {} bytes that they may together (setting query.memory_all): retry in a moment",
                        memory.total
                    ),
                ));
            }
            reserved.set(reserved.get() + more);
        }
        self.used.set(used);
        Ok(())
    }

    fn too_much(&self) -> Error {
        let setting = match self.shared {
            Some(_) => " (setting query.memory)",
            None => "",
        };
        Error::limit(format!(
            "the query needs more than the {} bytes of memory that one query may use{setting}: use a shorter range, fewer fields, wider intervals, or a LIMIT",
            self.limit
        ))
    }

    /// Releases memory that is no longer in use.
    pub fn give_bytes(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes_in_use(&self) -> usize {
        self.used.get()
    }

    /// Replaces everything counted since `before` bytes were in use by `more_bytes`.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub fn keep_only(&self, before: usize, more_bytes: usize) -> Result<()> {
        assert!(before <= self.used.get(), "only later memory goes back");
        self.used.set(before);
        self.take_bytes(more_bytes)
    }

    /// Limits further memory to this many bytes, until [`Budget::uncap`].
    pub(crate) fn cap(&self, more_bytes: usize) {
        let ceiling = self.used.get().saturating_add(more_bytes);
        self.ceiling.set(ceiling.min(self.limit));
    }

    /// Ends the limit of [`Budget::cap`].
    pub(crate) fn uncap(&self) {
        self.ceiling.set(self.limit);
    }

    /// Counts values in use, of texts without their bytes.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub fn take_values(&self, count: usize) -> Result<()> {
        self.take_bytes(count.saturating_mul(VALUE_BYTES))
    }

    /// Whether `count` more values would fit, without counting them.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub(crate) fn check_fits(&self, count: usize) -> Result<()> {
        let before = self.used.get();
        self.take_values(count)?;
        self.used.set(before);
        Ok(())
    }

    /// Releases values that are no longer in use.
    pub fn give_values(&self, count: usize) {
        self.give_bytes(count.saturating_mul(VALUE_BYTES));
    }

    /// Counts a stream that is read.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub fn take_stream(&self) -> Result<()> {
        self.take_bytes(STREAM_BYTES)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some((memory, reserved)) = &self.shared {
            memory.release(reserved.get());
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
        assert_eq!(
            budget.check().unwrap_err().kind(),
            QueryErrorKind::Cancelled
        );
        let late = Budget::new(Deadline::after(Duration::ZERO), CancelToken::default());
        assert_eq!(late.check().unwrap_err().kind(), QueryErrorKind::Timeout);
        late.renew(Deadline::NEVER);
        late.check().unwrap();
    }

    #[test]
    fn questions_share_memory_and_give_it_back() {
        let memory = Memory::new(6 * PIECE_BYTES, 8 * PIECE_BYTES);
        let question = || Budget::new(Deadline::NEVER, CancelToken::default()).within(&memory);
        let (one, other) = (question(), question());
        let error = one.take_bytes(6 * PIECE_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Limit);
        assert!(error.message().contains("query.memory)"), "{error}");
        one.take_bytes(5 * PIECE_BYTES + 1).unwrap();
        let error = other.take_bytes(2 * PIECE_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Busy);
        assert!(error.message().contains("query.memory_all"), "{error}");
        // A refused request reserves nothing.
        other.take_bytes(2 * PIECE_BYTES).unwrap();
        drop(one);
        other.take_bytes(4 * PIECE_BYTES).unwrap();
        drop(other);
        assert_eq!(memory.available.load(Ordering::Relaxed), 8 * PIECE_BYTES);
    }

    #[test]
    fn values_and_streams_are_counted() {
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        budget.take_bytes(MEMORY_BYTES).unwrap();
        assert_eq!(
            budget.take_values(1).unwrap_err().kind(),
            QueryErrorKind::Limit
        );
        budget.give_values(5);
        budget.take_values(5).unwrap();
        budget.give_values(9);
        budget.give_bytes(4_096);
        let before = budget.bytes_in_use();
        budget.take_values(7).unwrap();
        budget.keep_only(before, 2).unwrap();
        assert_eq!(budget.bytes_in_use(), before + 2);
        budget.cap(10);
        assert_eq!(
            budget.take_bytes(11).unwrap_err().kind(),
            QueryErrorKind::Limit
        );
        budget.uncap();
        budget.take_bytes(11).unwrap();
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let streams = (0..).take_while(|_| budget.take_stream().is_ok()).count();
        assert!(streams > 100_000, "{streams}");
        assert_eq!(
            budget.take_stream().unwrap_err().kind(),
            QueryErrorKind::Limit
        );
    }
}
