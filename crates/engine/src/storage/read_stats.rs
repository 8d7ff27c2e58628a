//! Read stats of the calling thread, so that a program can determine the cost of one of its reads.
//!
//! Concurrency: each thread has its own counts, since a read runs on the thread that calls it.

use std::cell::Cell;
use std::ops::Sub;

/// Read stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Leaves with rows that were read, from files or from the cache.
    pub leaves: u64,
    /// Pages of these leaves.
    pub pages: u64,
    /// Buckets of the pyramid that were read.
    pub buckets: u64,
    /// Bytes read from segments and indexes.
    pub bytes: u64,
    /// Rows that indexes returned as candidates for a filter.
    pub candidates: u64,
}

impl Sub for ReadStats {
    type Output = ReadStats;

    fn sub(self, before: ReadStats) -> ReadStats {
        ReadStats {
            leaves: self.leaves.wrapping_sub(before.leaves),
            pages: self.pages.wrapping_sub(before.pages),
            buckets: self.buckets.wrapping_sub(before.buckets),
            bytes: self.bytes.wrapping_sub(before.bytes),
            candidates: self.candidates.wrapping_sub(before.candidates),
        }
    }
}

thread_local! {
    static TOUCHED: Cell<ReadStats> = const {
        Cell::new(ReadStats { leaves: 0, pages: 0, buckets: 0, bytes: 0, candidates: 0 })
    };
}

impl ReadStats {
    /// Read stats of this thread since it started: the difference of two results is the cost of the
    /// reads between them.
    ///
    /// ```
    /// use headwater_types::{Batch, StreamName};
    /// use headwater_engine::{Database, Options, ScanSpec, ReadStats};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// db.flush()?;
    /// let before = ReadStats::by_this_thread();
    /// assert_eq!(db.snapshot()?.scan(&pump, &ScanSpec::default())?.count(), 1);
    /// assert_eq!((ReadStats::by_this_thread() - before).leaves, 1);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    #[must_use]
    pub fn by_this_thread() -> ReadStats {
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
