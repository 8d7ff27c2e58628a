//! How far the least load is from the best division, found by trying all of them.

use headwater_io::queue::{PlacementRule, Placements};
use proptest::prelude::*;
use std::time::Duration;

/// The smallest greatest load of a set over all divisions.
fn best(rates: &[u128], sets: usize) -> u128 {
    fn assign(rates: &[u128], loads: &mut [u128]) -> u128 {
        let Some((rate, rest)) = rates.split_first() else {
            return loads.iter().copied().max().unwrap_or(0);
        };
        (0..loads.len())
            .map(|set| {
                loads[set] += rate;
                let found = assign(rest, loads);
                loads[set] -= rate;
                found
            })
            .min()
            .unwrap_or(0)
    }
    assign(rates, &mut vec![0; sets])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes in whatever order, the fullest set has less than twice the load it had to
    /// have: (2 - 1/sets) times, by Graham's bound for lists.
    #[test]
    fn the_fullest_set_is_within_the_bound_for_lists(
        micros in prop::collection::vec(1_u64..50_000, 0..8),
        sets in 1_usize..4,
    ) {
        let mut placements = Placements::new(sets, PlacementRule::LeastLoad);
        let mut rates = Vec::new();
        for (stream, micros) in (0..).zip(&micros) {
            let interval = Duration::from_micros(*micros);
            placements.set_of(stream, Some(interval));
            rates.push(1_000_000_000_000_000_000 / interval.as_nanos());
        }
        let fullest = placements.loads().iter().map(|load| load.rate).max().unwrap();
        let total: u128 = placements.loads().iter().map(|load| load.rate).sum();
        prop_assert_eq!(total, rates.iter().sum::<u128>());
        let sets = sets as u128;
        prop_assert!(
            fullest * sets <= best(&rates, sets as usize) * (2 * sets - 1),
            "{:?}", placements.loads()
        );
    }

    /// No set stays empty while another has two streams, by either rule.
    #[test]
    fn no_set_is_idle_beside_one_with_two_streams(
        seconds in prop::collection::vec(1_u64..1000, 0..12),
        sets in 1_usize..6,
    ) {
        for rule in [PlacementRule::LeastLoad, PlacementRule::LargestMeanInterval] {
            let mut placements = Placements::new(sets, rule);
            for (stream, seconds) in (0..).zip(&seconds) {
                placements.set_of(stream, Some(Duration::from_secs(*seconds)));
            }
            let streams: Vec<u64> = placements.loads().iter().map(|load| load.streams).collect();
            prop_assert!(!(streams.contains(&0) && streams.iter().any(|n| *n > 1)), "{streams:?}");
        }
    }
}

/// What the paper's rule does with one fast stream and many slow ones, and what it costs.
#[test]
fn the_largest_mean_interval_leaves_sets_nearly_idle() {
    let of = |rule| {
        let mut placements = Placements::new(4, rule);
        // Streams of 1, 2, 3 and 4 seconds, again and again.
        for stream in 0..400 {
            placements.set_of(stream, Some(Duration::from_secs(1 + stream % 4)));
        }
        let rates = placements.loads().iter().map(|load| load.rate);
        (rates.clone().max().unwrap(), rates.sum::<u128>())
    };
    let (paper, total) = of(PlacementRule::LargestMeanInterval);
    let (ours, _) = of(PlacementRule::LeastLoad);
    assert!(paper * 2 > total, "{paper} of {total}");
    assert!(ours * 4 < total + total / 50, "{ours} of {total}");
}
