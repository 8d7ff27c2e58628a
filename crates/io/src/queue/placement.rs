//! Placement of streams in sets.
//!
//! Invariants: a stream is assigned to one set until it is released; the loads are exactly those of
//! the assigned streams, since rates are integers. Concurrency: plain values and functions, guarded
//! by their owner. Failure: none; without sets there is no choice.

use std::collections::BTreeMap;
use std::time::Duration;

/// Rule by which a new stream's set is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlacementRule {
    /// The paper's: the set whose streams have the largest mean interval. The number of streams of
    /// a set does not count, so a set with a thousand slow streams is preferred to one with a
    /// single fast stream. The mean of an empty set, which the paper does not define, counts as the
    /// largest: otherwise all streams would be assigned to the first set.
    LargestMeanInterval,
    /// The set with the lowest load, which is the sum of 1 / interval of its streams; an empty set
    /// first. Streams of unknown interval add no load, and are balanced by number.
    #[default]
    LeastLoad,
}

/// Load of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Number of its streams.
    pub streams: u64,
    /// Sum of the known intervals, in nanoseconds.
    pub interval_nanos: u128,
    /// Number of its streams that have a known interval.
    pub with_interval: u64,
    /// The sum of 1 / interval, in requests per [`RATE_SECONDS`] seconds.
    pub rate: u128,
}

/// The span in which [`Load::rate`] counts requests: long enough that rounding does not matter.
pub const RATE_SECONDS: u64 = 1_000_000_000;

impl Load {
    /// The load of streams with these intervals.
    #[must_use]
    pub fn of(intervals: &[Duration]) -> Load {
        let mut load = Load::default();
        for interval in intervals {
            load.add(Some(*interval));
        }
        load
    }

    fn add(&mut self, interval: Option<Duration>) {
        self.streams += 1;
        if let Some(interval) = interval {
            self.with_interval += 1;
            self.interval_nanos += nanos(interval);
            self.rate += rate(interval);
        }
    }

    fn subtract(&mut self, interval: Option<Duration>) {
        assert!(self.streams > 0, "a stream leaves a set that has none");
        self.streams -= 1;
        if let Some(interval) = interval {
            self.with_interval -= 1;
            self.interval_nanos -= nanos(interval);
            self.rate -= rate(interval);
        }
    }
}

/// No interval is shorter than a nanosecond.
fn nanos(interval: Duration) -> u128 {
    interval.as_nanos().max(1)
}

fn rate(interval: Duration) -> u128 {
    u128::from(RATE_SECONDS) * 1_000_000_000 / nanos(interval)
}

/// Set for a new stream; of equal ones the first. `None` without sets.
#[must_use]
pub fn choose(rule: PlacementRule, loads: &[Load]) -> Option<usize> {
    let mut best: Option<(usize, &Load)> = None;
    for (index, load) in loads.iter().enumerate() {
        let is_better = match best {
            None => true,
            Some((_, best)) => match rule {
                PlacementRule::LargestMeanInterval => has_larger_mean(load, best),
                PlacementRule::LeastLoad => (load.rate, load.streams) < (best.rate, best.streams),
            },
        };
        if is_better {
            best = Some((index, load));
        }
    }
    best.map(|(index, _)| index)
}

/// Whether the mean interval of `a` is larger; without known intervals it is the largest.
fn has_larger_mean(a: &Load, b: &Load) -> bool {
    match (a.with_interval, b.with_interval) {
        (_, 0) => false,
        (0, _) => true,
        (of_a, of_b) => a.interval_nanos * u128::from(of_b) > b.interval_nanos * u128::from(of_a),
    }
}

/// Sets of the streams.
#[derive(Clone, Debug)]
pub struct Placements {
    rule: PlacementRule,
    loads: Vec<Load>,
    streams: BTreeMap<u64, (usize, Option<Duration>)>,
}

impl Placements {
    /// Creates `sets` sets without streams, at least one.
    #[must_use]
    pub fn new(sets: usize, rule: PlacementRule) -> Placements {
        Placements {
            rule,
            loads: vec![Load::default(); sets.max(1)],
            streams: BTreeMap::new(),
        }
    }

    /// Set of a stream; a new stream is assigned to one. The interval counts only for new streams.
    pub fn set_of(&mut self, stream: u64, interval: Option<Duration>) -> usize {
        if let Some((set, _)) = self.streams.get(&stream) {
            return *set;
        }
        // There always is a set, and so a choice.
        let set = choose(self.rule, &self.loads).unwrap_or(0);
        if let Some(load) = self.loads.get_mut(set) {
            load.add(interval);
        }
        self.streams.insert(stream, (set, interval));
        set
    }

    /// Forgets a stream that has ended. False when it was not placed.
    pub fn release(&mut self, stream: u64) -> bool {
        let Some((set, interval)) = self.streams.remove(&stream) else {
            return false;
        };
        if let Some(load) = self.loads.get_mut(set) {
            load.subtract(interval);
        }
        true
    }

    /// The load of each set.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_paper_takes_the_largest_mean_interval_however_many_streams_it_is_of() {
        // Means 1 s, 10 s and 4 s; loads 1, 100 × 0.1 = 10 and 0.25 requests a second.
        let loads = [
            Load::of(&[seconds(1)]),
            Load::of(&[seconds(10); 100]),
            Load::of(&[seconds(4)]),
        ];
        assert_eq!(choose(PlacementRule::LargestMeanInterval, &loads), Some(1));
        assert_eq!(choose(PlacementRule::LeastLoad, &loads), Some(2));
    }

    #[test]
    fn means_are_compared_exactly() {
        // 10/3 s and 7/2 s.
        let loads = [
            Load::of(&[seconds(3), seconds(3), seconds(4)]),
            Load::of(&[seconds(3), seconds(4)]),
        ];
        assert_eq!(choose(PlacementRule::LargestMeanInterval, &loads), Some(1));
    }

    #[test]
    fn an_empty_set_is_taken_first_and_of_equal_ones_the_first() {
        let busy = Load::of(&[seconds(1000)]);
        for rule in [PlacementRule::LargestMeanInterval, PlacementRule::LeastLoad] {
            assert_eq!(choose(rule, &[busy, Load::default(), busy]), Some(1));
            assert_eq!(choose(rule, &[busy, busy]), Some(0));
            assert_eq!(choose(rule, &[]), None);
        }
    }

    #[test]
    fn placing_by_load_goes_as_computed_by_hand() {
        // Rates 4, 1, 1, 1, 1, 0.5 a second on two sets: 4 | 1 1 1 1, then both have 4, so the
        // first one gets the last.
        let mut placements = Placements::new(2, PlacementRule::LeastLoad);
        let millis = [250, 1000, 1000, 1000, 1000, 2000];
        let placed: Vec<usize> = (0..)
            .zip(millis)
            .map(|(stream, ms)| placements.set_of(stream, Some(Duration::from_millis(ms))))
            .collect();
        assert_eq!(placed, [0, 1, 1, 1, 1, 0]);
        let rates: Vec<u128> = placements.loads().iter().map(|load| load.rate).collect();
        assert_eq!(rates, [4_500_000_000, 4_000_000_000]);
    }

    #[test]
    fn placing_by_the_paper_goes_as_computed_by_hand() {
        // After 250 ms on the first and 1 s on the second, the second's mean remains the larger
        // one: it gets all the others.
        let mut placements = Placements::new(2, PlacementRule::LargestMeanInterval);
        let millis = [250, 1000, 1000, 1000, 1000, 2000];
        let placed: Vec<usize> = (0..)
            .zip(millis)
            .map(|(stream, ms)| placements.set_of(stream, Some(Duration::from_millis(ms))))
            .collect();
        assert_eq!(placed, [0, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_stream_stays_where_it_is_and_its_load_goes_with_it() {
        let mut placements = Placements::new(3, PlacementRule::LeastLoad);
        for stream in 0..9 {
            placements.set_of(stream, Some(seconds(stream + 1)));
        }
        let before = placements.loads().to_vec();
        let set = placements.set_of(4, Some(seconds(999)));
        assert_eq!(placements.loads(), before);
        assert!(placements.release(4));
        assert!(!placements.release(4));
        let rates = |loads: &[Load]| loads.iter().map(|load| load.rate).sum::<u128>();
        assert_eq!(rates(&before) - rates(placements.loads()), 200_000_000);
        assert_eq!(placements.set_of(4, Some(seconds(5))), set);
    }

    #[test]
    fn streams_of_unknown_intervals_are_divided_by_number() {
        let mut placements = Placements::new(3, PlacementRule::LeastLoad);
        let placed: Vec<usize> = (0..7).map(|s| placements.set_of(s, None)).collect();
        assert_eq!(placed, [0, 1, 2, 0, 1, 2, 0]);
    }
}
