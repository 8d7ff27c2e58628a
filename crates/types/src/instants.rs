//! Instants for rows without a time.
//!
//! Invariants: an [`Instants`] never returns an instant twice, nor one before the `now` of its
//! call. Concurrency: called by any number of threads at once, without a lock. Failure: after the
//! last representable instant, that instant is returned again.

use crate::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};

/// Assigns instants of their own to rows without a time, a nanosecond apart, so that no row
/// replaces another, on any path and on any thread.
///
/// ```
/// use headwater_types::{Instants, Timestamp};
/// let (instants, now) = (Instants::default(), Timestamp::from_nanos(100));
/// assert_eq!(instants.next(now).as_nanos(), 100);
/// assert_eq!(instants.take(now, 3).as_nanos(), 101);
/// assert_eq!(instants.next(now).as_nanos(), 104);
/// assert_eq!(instants.next(Timestamp::from_nanos(500)).as_nanos(), 500);
/// ```
#[derive(Debug)]
pub struct Instants {
    /// The first unused instant.
    free: AtomicI64,
}

impl Default for Instants {
    fn default() -> Instants {
        Instants {
            free: AtomicI64::new(i64::MIN),
        }
    }
}

impl Instants {
    /// The next instant, `now` or later.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        self.take(now, 1)
    }

    /// First of `count` consecutive instants, a nanosecond apart, at `now` or later.
    pub fn take(&self, now: Timestamp, count: u64) -> Timestamp {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let first = |free: i64| free.max(now.as_nanos());
        let given = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                Some(first(free).saturating_add(count))
            });
        let free = given.unwrap_or_else(|free| free);
        Timestamp::from_nanos(first(free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instant_is_given_twice_to_threads_that_ask_at_once() {
        let instants = Instants::default();
        let ask = |seed: i64| {
            let mut own = Vec::new();
            for round in 0..500 {
                let now = Timestamp::from_nanos(round * 3);
                let count = (seed + round) % 5 + 1;
                let first = instants.take(now, count.unsigned_abs()).as_nanos();
                assert!(first >= now.as_nanos());
                own.extend(first..first + count);
            }
            own
        };
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || ask(seed))).collect();
            let given = threads.into_iter().map(|thread| thread.join());
            given
                .flat_map(Result::unwrap_or_default)
                .collect::<Vec<_>>()
        });
        let given = all.len();
        assert_eq!(
            given,
            (0..8)
                .map(|s| (0..500).map(|r| (s + r) % 5 + 1).sum::<i64>())
                .sum::<i64>() as usize
        );
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), given);
    }

    #[test]
    fn at_the_end_of_time_nothing_overflows() {
        let instants = Instants::default();
        let last = Timestamp::from_nanos(i64::MAX - 1);
        assert_eq!(instants.take(last, 5), last);
        assert_eq!(instants.next(last).as_nanos(), i64::MAX);
    }
}
