//! Limits of statements: memory, time, rows. The settings `sql.*` of a server set them; time is
//! enforced in `session` and `guards/statement`, memory in `guards`, rows in `answer`.
//!
//! Invariants: a statement never reserves more than [`Limits::memory`], all statements together
//! never more than [`Limits::all_memory`]; a statement's reservations end with its pool. Operators
//! reserve only a part of the memory that a statement uses: [`crate::guards`] counts the rest.
//! Concurrency: counters only; no lock.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

/// Limits of statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of one statement for sorting, grouping and joining.
    pub memory: usize,
    /// Maximum bytes of all statements together.
    pub all_memory: usize,
    /// Maximum duration of a statement, including the reading of its answer; `None` = unlimited.
    pub time: Option<Duration>,
    /// Maximum rows of an answer; `None` = unlimited.
    pub rows: Option<u64>,
    /// Maximum bytes of a statement's text.
    pub text_bytes: usize,
    /// Number of parts of a statement that are read and computed in parallel.
    pub parallel: usize,
    /// Maximum plans in the cache.
    pub plans: usize,
    /// Maximum stream names of a table in memory; a table with more streams is read page by page.
    pub names: usize,
}

impl Default for Limits {
    /// 256 MiB a statement, 512 MiB in all, no limit of time and rows, texts up to 1 MiB, two
    /// parts, 256 plans, 16,384 names of streams a table.
    fn default() -> Limits {
        Limits {
            memory: 256 << 20,
            all_memory: 512 << 20,
            time: None,
            rows: None,
            text_bytes: 1 << 20,
            parallel: 2,
            plans: 256,
            names: 16_384,
        }
    }
}

/// The memory of all statements.
#[derive(Debug)]
pub(crate) struct AllMemory {
    limit: usize,
    used: AtomicUsize,
    /// Bytes in use by statements, as counted by the allocator.
    allocated: AtomicI64,
    /// Number of statements with memory in use.
    running: AtomicUsize,
}

impl AllMemory {
    pub(crate) fn new(limit: usize) -> AllMemory {
        AllMemory {
            limit,
            used: AtomicUsize::new(0),
            allocated: AtomicI64::new(0),
            running: AtomicUsize::new(0),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds to the memory in use; `bytes` may be negative.
    pub(crate) fn add_allocated(&self, bytes: i64) {
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Memory in use by all statements together, and their number.
    pub(crate) fn allocated(&self) -> (usize, usize) {
        let held = usize::try_from(self.allocated.load(Ordering::Relaxed)).unwrap_or(0);
        (held, self.running.load(Ordering::Relaxed))
    }

    /// Bytes currently reserved.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Adds if the sum does not exceed the limit.
fn try_add(used: &AtomicUsize, additional: usize, limit: usize) -> bool {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(additional).filter(|sum| *sum <= limit)
    })
    .is_ok()
}

/// The memory of one statement.
#[derive(Debug)]
pub(crate) struct StatementMemory {
    limit: usize,
    used: AtomicUsize,
    all_memory: Arc<AllMemory>,
}

impl StatementMemory {
    pub(crate) fn new(limit: usize, all_memory: Arc<AllMemory>) -> StatementMemory {
        StatementMemory {
            limit,
            used: AtomicUsize::new(0),
            all_memory,
        }
    }
}

impl fmt::Display for StatementMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "statement memory of {} bytes", self.limit)
    }
}

impl MemoryPool for StatementMemory {
    fn name(&self) -> &str {
        "statement"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
        self.all_memory
            .used
            .fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
        self.all_memory.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let refused = |whose: &str, limit: usize| {
            DataFusionError::ResourcesExhausted(format!(
                "{whose} would need more than the {} MiB allowed ({} requested {additional} more bytes): read a shorter range, fewer columns, or group more coarsely",
                limit >> 20,
                reservation.consumer().name()
            ))
        };
        if !try_add(&self.used, additional, self.limit) {
            return Err(refused("the statement", self.limit));
        }
        if !try_add(&self.all_memory.used, additional, self.all_memory.limit) {
            self.used.fetch_sub(additional, Ordering::Relaxed);
            return Err(refused("all statements together", self.all_memory.limit));
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}
