//! A store that counts its requests, by kind and day: the basis of a bucket's cost.
//!
//! Invariants: a request is counted when it is sent, whatever its result; bytes of a body once sent
//! or received. Days are UTC. Concurrency: shared freely. Failure: if the clock jumps, counts are
//! assigned to the days of the clock.

use crate::store::{Etag, Object, ObjectStore, Page, Put, StoreFailure};
use headwater_io::Clock;
use headwater_types::invariant::wide;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

const DAY_NANOS: i64 = 86_400_000_000_000;
/// Days that are retained.
const DAYS_MAX: usize = 31;

/// Counts of one kind of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Number of requests.
    pub requests: u64,
    /// Requests without an answer.
    pub failures: u64,
    /// Bytes of objects, in either direction.
    pub bytes: u64,
}

/// Requests of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayCounts {
    /// Objects and ranges of them.
    pub get: KindCounts,
    /// Puts of packs and heads.
    pub put: KindCounts,
    /// Lists of keys.
    pub list: KindCounts,
    /// Deletes of garbage.
    pub delete: KindCounts,
}

/// A store that counts.
#[derive(Debug)]
pub struct Counted<S> {
    store: S,
    clock: Arc<dyn Clock>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    days: BTreeMap<i64, DayCounts>,
    /// Of all days, also those that are forgotten.
    total: DayCounts,
}

impl<S: ObjectStore> Counted<S> {
    /// Counts the requests to a store.
    #[must_use]
    pub fn new(store: S, clock: Arc<dyn Clock>) -> Counted<S> {
        Counted {
            store,
            clock,
            counts: Mutex::default(),
        }
    }

    /// Counts by day, since 1970 UTC, the newest last.
    #[must_use]
    pub fn days(&self) -> Vec<(i64, DayCounts)> {
        let counts = self.counts.lock();
        counts
            .days
            .iter()
            .map(|(day, of_day)| (*day, *of_day))
            .collect()
    }

    /// Since it was made.
    #[must_use]
    pub fn total(&self) -> DayCounts {
        self.counts.lock().total
    }

    fn count<T>(
        &self,
        kind: impl Fn(&mut DayCounts) -> &mut KindCounts,
        answered: Result<T, StoreFailure>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T, StoreFailure> {
        let day = self.clock.now().as_nanos().div_euclid(DAY_NANOS);
        let (bytes, failures) = match &answered {
            Ok(answer) => (bytes(answer), 0),
            Err(_) => (0, 1),
        };
        let Counts { days, total } = &mut *self.counts.lock();
        for counts in [kind(days.entry(day).or_default()), kind(total)] {
            counts.requests += 1;
            counts.failures += failures;
            counts.bytes += bytes;
        }
        while days.len() > DAYS_MAX {
            days.pop_first();
        }
        answered
    }
}

impl<S: ObjectStore> ObjectStore for Counted<S> {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        let answered = self.store.get(key);
        let bytes = |found: &Option<Object>| found.as_ref().map_or(0, |o| wide(o.bytes.len()));
        self.count(|day| &mut day.get, answered, bytes)
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        let answered = self.store.get_range(key, from, bytes);
        let bytes = |found: &Option<Vec<u8>>| found.as_ref().map_or(0, |b| wide(b.len()));
        self.count(|day| &mut day.get, answered, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        let answered = self.store.create(key, bytes);
        self.count(|day| &mut day.put, answered, |_| wide(bytes.len()))
    }

    fn create_from(&self, key: &str, file: &File) -> Result<Put, StoreFailure> {
        let answered = self.store.create_from(key, file);
        // A file without a readable length could not be sent.
        let bytes = file.metadata().map_or(0, |told| told.len());
        self.count(|day| &mut day.put, answered, |_| bytes)
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        let answered = self.store.replace(key, bytes, expected);
        self.count(|day| &mut day.put, answered, |_| wide(bytes.len()))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        let answered = self.store.list(prefix, after);
        self.count(|day| &mut day.list, answered, |_| 0)
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        let answered = self.store.delete(key);
        self.count(|day| &mut day.delete, answered, |()| 0)
    }
}
