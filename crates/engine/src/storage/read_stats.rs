//! What reads of this thread touched, so that a program can tell what one of its reads cost.
//!
//! Concurrency: each thread counts for itself, since a read runs on the thread that asks for it.

use std::cell::Cell;
use std::ops::Sub;

/// Counts of what reads touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Leaves of which rows were taken, from files or from the cache.
    pub leaves: u64,
    /// Pages of these leaves.
    pub pages: u64,
    /// Buckets of the pyramid that were looked at.
    pub buckets: u64,
    /// Bytes read from segments and indexes.
    pub bytes: u64,
    /// Rows that indexes named as those that may pass a filter.
    pub candidates: u64,
}

impl Sub for Touched {
    type Output = Touched;

    fn sub(self, before: Touched) -> Touched {
        Touched {
            leaves: self.leaves.wrapping_sub(before.leaves),
            pages: self.pages.wrapping_sub(before.pages),
            buckets: self.buckets.wrapping_sub(before.buckets),
            bytes: self.bytes.wrapping_sub(before.bytes),
            candidates: self.candidates.wrapping_sub(before.candidates),
        }
    }
}

thread_local! {
    static TOUCHED: Cell<Touched> = const {
        Cell::new(Touched { leaves: 0, pages: 0, buckets: 0, bytes: 0, candidates: 0 })
    };
}

impl Touched {
    /// What reads of this thread have touched since it began: the difference of two of these is
    /// what lies between them.
    ///
    /// ```
    /// use headwater_types::{Batch, StreamName};
    /// use headwater_engine::{Database, Options, ScanSpec, Touched};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// db.flush()?;
    /// let before = Touched::by_this_thread();
    /// assert_eq!(db.snapshot()?.scan(&pump, &ScanSpec::default())?.count(), 1);
    /// assert_eq!((Touched::by_this_thread() - before).leaves, 1);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    #[must_use]
    pub fn by_this_thread() -> Touched {
        TOUCHED.get()
    }
}

pub(crate) fn leaf(pages: u64) {
    let mut now = TOUCHED.get();
    now.leaves += 1;
    now.pages += pages;
    TOUCHED.set(now);
}

pub(crate) fn buckets(count: u64) {
    let mut now = TOUCHED.get();
    now.buckets += count;
    TOUCHED.set(now);
}

pub(crate) fn bytes(count: u64) {
    let mut now = TOUCHED.get();
    now.bytes += count;
    TOUCHED.set(now);
}

pub(crate) fn candidates(count: u64) {
    let mut now = TOUCHED.get();
    now.candidates += count;
    TOUCHED.set(now);
}
