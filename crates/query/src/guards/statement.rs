//! Account of a statement's memory, and its deadline.
//!
//! Invariants: while a thread works for a statement, the statement is the thread's current one, and
//! the memory that the thread allocates and frees meanwhile counts for the statement. An account is
//! never negative. Concurrency: several threads may work for one statement; accounts are atomic
//! counters, and a thread settles its own share at each check, and when it leaves. Failure: a
//! statement that may not continue gets an error at its next check; a statement is never ended from
//! outside.

use super::allocator;
use crate::answer::too_slow;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::limits::AllMemory;
use datafusion::common::Result;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// Memory that a statement may use beyond the reservations of its operators: for current batches,
/// and for their results. All statements together may use this much beyond their common limit, too.
pub(super) const UNDER_WAY: usize = 64 << 20;

/// Maximum bytes of a constant during planning: it is copied with the plan, compared, and printed
/// in names.
const FOLDED_MAX: usize = 1 << 20;
/// Maximum bytes of a constant computed by a function with large results.
const GROWN_MAX: usize = 64 << 10;
/// Maximum bytes of all constants of a statement.
const ALL_FOLDED_MAX: usize = 4 << 20;

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// Bytes that the thread had allocated when its account was last settled.
    static SETTLED: Cell<i64> = const { Cell::new(0) };
    /// If the allocator does not count: bytes that functions have returned since the last batch was
    /// passed on.
    static RETURNED: Cell<usize> = const { Cell::new(0) };
    /// Bytes of values that a window has returned since the last batch was passed on.
    static WINDOW_BYTES: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone)]
struct Current {
    statement: Arc<Statement>,
    planning: bool,
}

/// A statement's account and its deadline.
pub(crate) struct Statement {
    cancel: CancelToken,
    deadline: Option<(Instant, Duration)>,
    /// Bytes that its operators may reserve.
    memory: usize,
    allocated: AtomicI64,
    folded: AtomicUsize,
    all_memory: Arc<AllMemory>,
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("deadline", &self.deadline)
            .field("held", &self.allocated)
            .finish_non_exhaustive()
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Statement {
    pub(crate) fn new(
        deadline: Option<(Instant, Duration)>,
        memory: usize,
        all_memory: Arc<AllMemory>,
    ) -> Arc<Statement> {
        all_memory.begin();
        Arc::new(Statement {
            cancel: CancelToken::of_task(),
            deadline,
            memory,
            allocated: AtomicI64::new(0),
            folded: AtomicUsize::new(0),
            all_memory,
        })
    }

    /// Bytes that its operators may reserve.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Makes the statement the current one of this thread, until the returned guard is dropped.
    pub(crate) fn enter(self: &Arc<Statement>) -> Inside {
        self.enter_as(false)
    }

    fn enter_as(self: &Arc<Statement>, planning: bool) -> Inside {
        let before = CURRENT.with_borrow_mut(|current| {
            if let Some(now) = current
                && Arc::ptr_eq(&now.statement, self)
                && now.planning == planning
            {
                return None;
            }
            let entered = Current {
                statement: Arc::clone(self),
                planning,
            };
            Some(current.replace(entered))
        });
        if let Some(before) = &before {
            settle(before.as_ref());
        }
        Inside {
            before,
            _of_this_thread: PhantomData,
        }
    }

    /// Plans for the statement, on this thread.
    pub(crate) fn plan<T>(self: &Arc<Statement>, work: impl FnOnce() -> T) -> T {
        let _inside = self.enter_as(true);
        work()
    }

    /// Runs a future that plans for the statement.
    pub(crate) async fn scope<T>(self: &Arc<Statement>, work: impl Future<Output = T>) -> T {
        self.scope_as(true, work).await
    }

    /// Runs a future that works for the statement.
    pub(crate) async fn work<T>(self: &Arc<Statement>, work: impl Future<Output = T>) -> T {
        self.scope_as(false, work).await
    }

    async fn scope_as<T>(
        self: &Arc<Statement>,
        planning: bool,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|context| -> Poll<T> {
            let _inside = self.enter_as(planning);
            Pin::as_mut(&mut work).poll(context)
        })
        .await
    }

    fn add(&self, bytes: i64) {
        let mut before = self.allocated.load(Ordering::Relaxed);
        loop {
            // Memory that was allocated elsewhere is sometimes freed here.
            let after = before.saturating_add(bytes).max(0);
            match self.allocated.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return self.all_memory.add_allocated(after - before),
                Err(now) => before = now,
            }
        }
    }

    /// Adds memory that another thread has allocated.
    pub(super) fn take_over(&self, bytes: usize) {
        if allocator::allocated() != 0 {
            self.add(signed(bytes));
        }
    }

    /// Subtracts memory that another thread will free.
    pub(super) fn hand_over(&self, bytes: usize) {
        if allocator::allocated() != 0 {
            self.add(-signed(bytes));
        }
    }

    /// Checks whether the statement may continue.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancel.is_set() {
            return Err(
                Error::time_limit("the statement was cancelled: the client disconnected").into(),
            );
        }
        if let Some((at, limit)) = self.deadline
            && Instant::now() >= at
        {
            return Err(too_slow(limit).into());
        }
        self.check_memory(0, "its result so far")
    }

    /// Checks that the statement may use `bytes` more.
    pub(super) fn check_memory(&self, bytes: usize, what: &str) -> Result<()> {
        let held = self.allocated.load(Ordering::Relaxed);
        let held = usize::try_from(held).unwrap_or(0);
        let wanted = held.saturating_add(bytes);
        let refused = |whose: &str, limit: usize| {
            let error = Error::memory_limit(format!(
                "{whose} would need more than the {} MiB allowed ({what} needs {bytes} bytes, {held} are in use)",
                limit >> 20
            ));
            error.with_hint("compute smaller values, or read a shorter range or fewer columns")
        };
        if wanted > self.memory.saturating_add(UNDER_WAY) {
            return Err(refused("the statement", self.memory).into());
        }
        // Large statements end first: at least one running statement uses as much as the average.
        let (all, running) = self.all_memory.allocated();
        if all.saturating_add(bytes) > self.all_memory.limit().saturating_add(UNDER_WAY)
            && wanted >= all / running.max(1)
        {
            return Err(refused("all statements together", self.all_memory.limit()).into());
        }
        Ok(())
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        self.all_memory
            .add_allocated(-self.allocated.load(Ordering::Relaxed));
        self.all_memory.end();
    }
}

/// A thread at work for a statement.
pub(crate) struct Inside {
    /// The thread's previous work; `None` = the same statement.
    before: Option<Option<Current>>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let left = CURRENT.with_borrow_mut(|current| std::mem::replace(current, before));
            settle(left.as_ref());
        }
    }
}

/// Adds the memory that this thread has allocated since the last call to an account.
fn settle(current: Option<&Current>) {
    let taken = allocator::allocated();
    let grown = taken.wrapping_sub(SETTLED.replace(taken));
    if grown != 0
        && let Some(current) = current
    {
        current.statement.add(grown);
    }
}

/// Checks whether the statement of this thread may continue; without a statement it may.
pub(crate) fn checkpoint() -> Result<()> {
    CURRENT.with_borrow(|current| match current {
        None => Ok(()),
        Some(now) => {
            settle(Some(now));
            now.statement.check()
        }
    })
}

/// Checks that the current statement may use `bytes` more.
pub(super) fn check_memory(bytes: usize, what: &str) -> Result<()> {
    CURRENT.with_borrow(|current| {
        let Some(now) = current else {
            return Ok(());
        };
        settle(Some(now));
        let bytes = bytes.saturating_add(RETURNED.get());
        now.statement.check_memory(bytes, what)
    })
}

/// Checks that a constant of `bytes` may be built during planning. A refused constant is computed
/// when the statement runs, where it may be allowed.
pub(super) fn check_fold(bytes: usize, grows: bool, what: &str) -> Result<()> {
    let folded = CURRENT.with_borrow(|current| match current {
        Some(now) if now.planning => Some(now.statement.folded.load(Ordering::Relaxed)),
        Some(_) => None,
        None => Some(0),
    });
    let Some(folded) = folded else {
        return Ok(());
    };
    let most = if grows { GROWN_MAX } else { FOLDED_MAX };
    if bytes > most || folded.saturating_add(bytes) > ALL_FOLDED_MAX {
        return Err(Error::memory_limit(format!(
            "{what} needs {bytes} bytes; a constant may have {most}, and all constants of a statement {ALL_FOLDED_MAX}"
        ))
        .into());
    }
    Ok(())
}

/// Records that a value of `bytes` was built.
pub(super) fn record_built(bytes: usize) {
    CURRENT.with_borrow(|current| {
        let Some(now) = current else { return };
        if now.planning {
            now.statement.folded.fetch_add(bytes, Ordering::Relaxed);
        } else if allocator::allocated() == 0 {
            RETURNED.set(RETURNED.get().saturating_add(bytes));
        }
    });
}

/// Records that a window returned a value of `bytes`. At the end of a batch all values are
/// concatenated, and memory is doubled for a while, or more if the buffer grows.
pub(super) fn record_window_value(bytes: usize) -> Result<()> {
    record_built(bytes);
    let all = WINDOW_BYTES.get().saturating_add(bytes);
    WINDOW_BYTES.set(all);
    check_memory(all.saturating_mul(2), "a window")
}

/// Records that a batch was passed on: it includes all values built before, or they were dropped.
pub(super) fn handed_on() {
    RETURNED.set(0);
    WINDOW_BYTES.set(0);
}
