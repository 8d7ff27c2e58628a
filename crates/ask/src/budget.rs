//! Limits of time and memory of a query.
//!
//! Concurrency: a [`Budget`] belongs to the one thread that works on the query; a [`CancelToken`]
//! is shared with the client that waits for the answer.

use crate::error::{Error, Kind, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memory of one query, where nothing else is said.
pub const MEMORY_BYTES: usize = 128 << 20;
/// Bytes of one retained value, about, with its share of what contains it; of texts without their
/// bytes.
pub(crate) const VALUE_BYTES: usize = 48;
/// Memory is taken from what all queries share in parts of this size.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a stream of a query: its name, and its location.
const STREAM_BYTES: usize = 512;

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

/// Owned by the client that waits for an answer; dropping it cancels the work.
#[derive(Debug, Default)]
pub struct CancelGuard(CancelToken);

impl CancelGuard {
    /// The token that the working thread checks.
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

/// Memory that queries share.
///
/// Invariant: no more is reserved than there is, whatever the queries.
/// Concurrency: called from any thread.
#[derive(Debug)]
pub struct Memory {
    left: AtomicUsize,
    /// Of one query.
    one: usize,
    /// Of all of them.
    all: usize,
}

impl Memory {
    /// So many bytes for one query, and for all of them together.
    ///
    /// ```
    /// use headwater_ask::{Budget, CancelToken, Deadline, Memory};
    /// let memory = Memory::new(64 << 20, 256 << 20);
    /// let budget = Budget::new(Deadline::NEVER, CancelToken::default()).within(&memory);
    /// assert!(budget.take_bytes(65 << 20).is_err());
    /// ```
    #[must_use]
    pub fn new(one: usize, all: usize) -> Arc<Memory> {
        Arc::new(Memory {
            left: AtomicUsize::new(all),
            one: one.min(all),
            all,
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    fn give(&self, bytes: usize) {
        let left = self.left.fetch_add(bytes, Ordering::AcqRel);
        let is_reserved = self.all.checked_sub(left).is_some_and(|used| bytes <= used);
        assert!(is_reserved, "memory that goes back was reserved");
    }
}

/// Limits that remain to one query. Used by the thread that works on it.
#[derive(Debug)]
pub struct Budget {
    deadline: Cell<Deadline>,
    cancel: CancelToken,
    /// Memory in use, in bytes.
    used: Cell<usize>,
    /// Bytes that may be in use for now, at most `limit`.
    ceiling: Cell<usize>,
    limit: usize,
    /// The memory that queries share, and the bytes of it that this one has reserved.
    shared: Option<(Arc<Memory>, Cell<usize>)>,
}

impl Budget {
    /// [`MEMORY_BYTES`], until the deadline or until it is cancelled.
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

    /// With so much memory as queries share, instead of [`MEMORY_BYTES`].
    #[must_use]
    pub fn within(mut self, memory: &Arc<Memory>) -> Budget {
        self.ceiling.set(memory.one);
        self.limit = memory.one;
        self.shared = Some((Arc::clone(memory), Cell::new(0)));
        self
    }

    /// # Errors
    /// When the time is over or the client has disconnected.
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

    /// Counts memory in use.
    ///
    /// # Errors
    /// [`Kind::Limit`] when it is more than the query may keep, [`Kind::Busy`] when other queries
    /// keep what is left.
    pub fn take_bytes(&self, bytes: usize) -> Result<()> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.ceiling.get() {
            return Err(self.too_much());
        }
        if let Some((memory, reserved)) = &self.shared
            && used > reserved.get()
        {
            let more = (used - reserved.get()).next_multiple_of(PIECE_BYTES);
            if !memory.take(more) {
                return Err(Error::new(
                    Kind::Busy,
                    format!(
                        "the questions under way keep all {} bytes that they may together (setting query.memory_all): ask again in a moment",
                        memory.all
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
            "the answer, or what it is computed from, takes more than the {} bytes that one question may keep{setting}: ask for a shorter range, fewer fields, wider intervals, or set a LIMIT",
            self.limit
        ))
    }

    /// Gives back memory that is not in use any more.
    pub fn give_bytes(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes_kept(&self) -> usize {
        self.used.get()
    }

    /// Replaces everything counted since `before` bytes were in use by so many bytes.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub fn keep_only(&self, before: usize, more_bytes: usize) -> Result<()> {
        assert!(before <= self.used.get(), "only later memory goes back");
        self.used.set(before);
        self.take_bytes(more_bytes)
    }

    /// No more than so many bytes may be taken in addition, until [`Budget::uncap`].
    pub(crate) fn cap(&self, more_bytes: usize) {
        let ceiling = self.used.get().saturating_add(more_bytes);
        self.ceiling.set(ceiling.min(self.limit));
    }

    /// All of the limit may be taken.
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

    /// Whether so many values would fit, without counting them.
    ///
    /// # Errors
    /// As [`Budget::take_bytes`].
    pub(crate) fn has_room_for(&self, count: usize) -> Result<()> {
        let before = self.used.get();
        self.take_values(count)?;
        self.used.set(before);
        Ok(())
    }

    /// Gives values back that are not in use any more.
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
            memory.give(reserved.get());
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
    fn questions_share_memory_and_give_it_back() {
        let memory = Memory::new(6 * PIECE_BYTES, 8 * PIECE_BYTES);
        let question = || Budget::new(Deadline::NEVER, CancelToken::default()).within(&memory);
        let (one, other) = (question(), question());
        let error = one.take_bytes(6 * PIECE_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit);
        assert!(error.message().contains("query.memory)"), "{error}");
        one.take_bytes(5 * PIECE_BYTES + 1).unwrap();
        let error = other.take_bytes(2 * PIECE_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.message().contains("query.memory_all"), "{error}");
        // Nothing was taken by what was refused.
        other.take_bytes(2 * PIECE_BYTES).unwrap();
        drop(one);
        other.take_bytes(4 * PIECE_BYTES).unwrap();
        drop(other);
        assert_eq!(memory.left.load(Ordering::Relaxed), 8 * PIECE_BYTES);
    }

    #[test]
    fn values_and_streams_are_counted() {
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        budget.take_bytes(MEMORY_BYTES).unwrap();
        assert_eq!(budget.take_values(1).unwrap_err().kind(), Kind::Limit);
        budget.give_values(5);
        budget.take_values(5).unwrap();
        budget.give_values(9);
        budget.give_bytes(4_096);
        let before = budget.bytes_kept();
        budget.take_values(7).unwrap();
        budget.keep_only(before, 2).unwrap();
        assert_eq!(budget.bytes_kept(), before + 2);
        budget.cap(10);
        assert_eq!(budget.take_bytes(11).unwrap_err().kind(), Kind::Limit);
        budget.uncap();
        budget.take_bytes(11).unwrap();
        let budget = Budget::new(Deadline::NEVER, CancelToken::default());
        let streams = (0..).take_while(|_| budget.take_stream().is_ok()).count();
        assert!(streams > 100_000, "{streams}");
        assert_eq!(budget.take_stream().unwrap_err().kind(), Kind::Limit);
    }
}
