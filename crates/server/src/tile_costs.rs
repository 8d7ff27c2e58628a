//! Measured costs of reading tiles: whether one may be read on the runtime's own thread.
//!
//! Why: passing a request to another thread and its answer back takes two changes of threads, a
//! good part of the time of a usual tile. So tiles of a kind that was quick are read on the thread
//! of their request. Tiles of a kind that has not been read yet, or took long (many rows without
//! buckets, a slow disk), are read on another thread, so that other requests do not wait for them.
//!
//! Invariants: the costs affect only the choice of a thread, never an answer. A kind consists of
//! channels and a level. Two kinds may share a measurement: then a slow kind moves the other off
//! the runtime too, and a quick kind admits the other until that one has been measured.
//! Concurrency: measurements are single words; a lost concurrent update does no harm.

use headwater::Level;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Longest time that a read may block a thread of the runtime.
const QUICK_US: u32 = 500;
/// Value of a kind without a measurement.
const UNKNOWN: u32 = u32::MAX;
const KINDS: usize = 4_096;

/// Times of reading by kind, in microseconds: the mean of the newest and of the mean before.
#[derive(Debug)]
pub(crate) struct TileCosts {
    kinds: Box<[AtomicU32]>,
}

impl TileCosts {
    pub(crate) fn new() -> TileCosts {
        TileCosts {
            kinds: (0..KINDS).map(|_| AtomicU32::new(UNKNOWN)).collect(),
        }
    }

    /// The measurement of these channels at this level.
    pub(crate) fn of<'a>(
        &self,
        channels: impl IntoIterator<Item = &'a str>,
        level: Level,
    ) -> TileCost<'_> {
        let mut hasher = DefaultHasher::new();
        for channel in channels {
            channel.hash(&mut hasher);
        }
        hasher.write_i32(level.get());
        TileCost {
            metric: self.kinds.get(hasher.finish() as usize % KINDS),
        }
    }
}

/// The measurement of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileCost<'a> {
    metric: Option<&'a AtomicU32>,
}

impl TileCost<'_> {
    pub(crate) fn is_quick(self) -> bool {
        self.metric
            .is_some_and(|figure| figure.load(Ordering::Relaxed) <= QUICK_US)
    }

    pub(crate) fn learn(self, took: Duration) {
        let Some(figure) = self.metric else { return };
        // The largest number stands for an unknown kind.
        let took = u32::try_from(took.as_micros()).map_or(UNKNOWN - 1, |us| us.min(UNKNOWN - 1));
        let next = match figure.load(Ordering::Relaxed) {
            UNKNOWN => took,
            before => before.midpoint(took),
        };
        figure.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level() -> Level {
        Level::clamped(7)
    }

    #[test]
    fn an_unknown_kind_is_not_quick() {
        let costs = TileCosts::new();
        assert!(!costs.of(["pump.rpm"], level()).is_quick());
    }

    #[test]
    fn a_kind_is_quick_after_it_was_and_slow_until_it_has_been_quick_again() {
        let costs = TileCosts::new();
        let cost = || costs.of(["pump.rpm"], level());
        cost().learn(Duration::from_micros(100));
        assert!(cost().is_quick());
        cost().learn(Duration::from_millis(4));
        assert!(!cost().is_quick());
        let mut again = 0;
        while !cost().is_quick() {
            cost().learn(Duration::from_micros(100));
            again += 1;
        }
        assert_eq!(again, 3);
    }

    #[test]
    fn a_time_without_bounds_is_slow_and_not_unknown() {
        let costs = TileCosts::new();
        costs.of(["pump.rpm"], level()).learn(Duration::MAX);
        assert!(!costs.of(["pump.rpm"], level()).is_quick());
        for _ in 0..32 {
            costs.of(["pump.rpm"], level()).learn(Duration::ZERO);
        }
        assert!(costs.of(["pump.rpm"], level()).is_quick());
    }

    #[test]
    fn levels_and_channels_are_kinds_of_their_own() {
        let costs = TileCosts::new();
        costs.of(["pump.rpm"], level()).learn(Duration::ZERO);
        // Hash collisions may join some kinds, but not all.
        let others = (0..64).map(|n| format!("pump.{n}"));
        assert!(
            others
                .into_iter()
                .any(|c| !costs.of([c.as_str()], level()).is_quick())
        );
        let levels = (-20..=6).map(Level::clamped);
        assert!(
            levels
                .into_iter()
                .any(|l| !costs.of(["pump.rpm"], l).is_quick())
        );
        // The time of a request for several channels is their sum.
        assert!(!costs.of(["pump.rpm", "pump.on"], level()).is_quick());
    }
}
