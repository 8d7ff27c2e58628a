//! Counters of accepted and written data, by cause and kind. Always on; persisted in the metadata.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reason why events were written to leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// In-order events, for the first time.
    Flush,
    /// A merge of late events into leaves of the main run: the late events and the rewritten ones.
    Merge,
    /// Late events written as a separate run.
    LateRun,
    /// Late runs merged into the main run.
    Fold,
    /// A partition rewritten or split.
    Compaction,
    /// The rest of a leaf with deleted rows.
    Delete,
}

/// Names of the persisted counters, in the order of the fields of [`Counters`].
const NAMES: [&str; 14] = [
    "events_accepted",
    "bytes_accepted",
    "events_flush",
    "events_merge",
    "events_late_run",
    "events_fold",
    "events_compaction",
    "events_delete",
    "bytes_log",
    "bytes_leaf",
    "bytes_index",
    "bytes_meta",
    "merges",
    "flushes",
];

/// Persisted beside the counters: the day since 1970 UTC of the newest compaction.
pub(crate) const COMPACTION_DAY: &str = "compaction_day";
/// The bytes written for compaction on that day.
pub(crate) const COMPACTION_DAY_BYTES: &str = "compaction_day_bytes";

/// The counters. Each is a sum since the database was made, as of the last job, plus the increase
/// since.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    values: [AtomicU64; NAMES.len()],
}

macro_rules! accessors {
    ($($name:ident = $index:expr),* $(,)?) => {
        $(pub(crate) fn $name(&self) -> u64 { self.values[$index].load(Ordering::Relaxed) })*
    };
}

impl Counters {
    accessors! {
        events_accepted = 0,
        bytes_accepted = 1,
        bytes_log = 8,
        bytes_leaf = 9,
        bytes_index = 10,
        bytes_meta = 11,
        merges = 12,
        flushes = 13,
    }

    pub(crate) fn load(&self, saved: &std::collections::BTreeMap<String, u64>) {
        for (value, name) in self.values.iter().zip(NAMES) {
            value.store(saved.get(name).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<(&'static str, u64)> {
        NAMES
            .iter()
            .zip(&self.values)
            .map(|(n, v)| (*n, v.load(Ordering::Relaxed)))
            .collect()
    }

    fn add(&self, index: usize, count: u64) {
        if let Some(value) = self.values.get(index) {
            value.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds the counts of another set.
    pub(crate) fn absorb(&self, other: &Counters) {
        for (index, value) in other.values.iter().enumerate() {
            self.add(index, value.load(Ordering::Relaxed));
        }
    }

    /// Events written because of arrivals: for the first time, or rewritten for late ones.
    pub(crate) fn written_for_arrivals(&self) -> u64 {
        [Cause::Flush, Cause::Merge, Cause::LateRun, Cause::Fold]
            .into_iter()
            .map(|cause| self.events_by_cause(cause))
            .sum()
    }

    pub(crate) fn accepted(&self, events: u64, bytes: u64) {
        self.add(0, events);
        self.add(1, bytes);
    }

    pub(crate) fn events_written(&self, cause: Cause, events: u64) {
        self.add(2 + cause as usize, events);
    }

    pub(crate) fn events_by_cause(&self, cause: Cause) -> u64 {
        self.values
            .get(2 + cause as usize)
            .map_or(0, |v| v.load(Ordering::Relaxed))
    }

    pub(crate) fn bytes(&self, log: u64, leaf: u64, index: u64, meta: u64) {
        self.add(8, log);
        self.add(9, leaf);
        self.add(10, index);
        self.add(11, meta);
    }

    pub(crate) fn count_merge(&self) {
        self.add(12, 1);
    }

    pub(crate) fn count_flush(&self) {
        self.add(13, 1);
    }
}
