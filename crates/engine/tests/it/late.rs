//! Predictions for late data, against counts: the model and the shadow replay beside the plain simulation of the policies.

use crate::model::Random;
use crate::papers::Simulation;
use headwater_engine::late::{
    Candidate, Configuration, Lateness, Lognormal, Shadow, Tracker, flank_capacity, predict,
};
use headwater_engine::{LatePolicy, MergeScope, Split};

const MEMORY: usize = 512;

/// The paper's synthetic data: an event every `dt`, lognormal delays; timestamps in order of arrival, 1 ms for each event.
pub(crate) fn lognormal_arrivals(
    seed: u64,
    count: usize,
    dt: f64,
    mu: f64,
    sigma: f64,
) -> Vec<i64> {
    let mut random = Random::new(seed);
    let mut unit = || (random.below(1 << 40) as f64 + 0.5) / (1u64 << 40) as f64;
    let mut events: Vec<(f64, i64)> = (0..count)
        .map(|i| {
            let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
            (i as f64 * dt + (mu + sigma * normal).exp(), i as i64)
        })
        .collect();
    events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    events.into_iter().map(|(_, i)| i * 1_000_000).collect()
}

fn candidate(flank: Option<usize>, retain: u32, scope: MergeScope, leaf_events: u32) -> Candidate {
    Candidate {
        policy: LatePolicy {
            split: flank.map_or(Split::Conventional, |f| Split::Separate {
                flank_share: f as f64 / MEMORY as f64,
            }),
            retain_events: retain,
            merge_scope: scope,
        },
        leaf_events,
    }
}

/// Candidates of every kind.
fn candidates() -> Vec<Candidate> {
    let mut out = Vec::new();
    for (scope, leaf) in [(MergeScope::Overlap, 512), (MergeScope::Touched, 128)] {
        for (flank, retain) in [
            (None, 0),
            (None, 128),
            (Some(64), 0),
            (Some(256), 0),
            (Some(256), 64),
            (Some(448), 0),
        ] {
            out.push(candidate(flank, retain, scope, leaf));
        }
    }
    out
}

/// The write amplification a plain simulation counts, and its merges.
fn simulated(candidate: &Candidate, times: &[i64]) -> (f64, u64) {
    let flank = match candidate.policy.split {
        Split::Conventional => None,
        Split::Separate { flank_share } => Some(flank_capacity(MEMORY, flank_share)),
    };
    let mut simulation = Simulation::new(
        MEMORY,
        flank,
        candidate.policy.retain_events as usize,
        candidate.leaf_events as usize,
        candidate.policy.merge_scope,
    );
    for time in times {
        simulation.insert(*time);
    }
    (
        simulation.written() as f64 / times.len() as f64,
        simulation.merges(),
    )
}

#[test]
fn predictions_are_what_a_plain_simulation_counts() {
    let configuration = Configuration {
        memory_events: MEMORY as f64,
        late_runs_max: 0,
    };
    let candidates = candidates();
    // Little, much and very much disorder: the paper's M3, M7 and M12.
    for (seed, dt, mu, sigma) in [
        (1, 50.0, 4.0, 2.0),
        (2, 10.0, 4.0, 1.5),
        (3, 10.0, 5.0, 2.0),
    ] {
        let times = lognormal_arrivals(seed, 120_000, dt, mu, sigma);
        let mut shadow = Shadow::new(&candidates, &configuration, None, 1e6);
        let mut seen = Lateness::new(MEMORY as u64);
        let mut tracker = Tracker::new();
        for part in times.chunks(100) {
            shadow.observe(part);
            tracker.observe(part, &mut seen);
        }
        let lateness = seen.law().unwrap();
        let delays = Lognormal::new(mu, sigma).in_units_of(dt);
        for (candidate, counted) in candidates.iter().zip(shadow.counts()) {
            let (expected, merges) = simulated(candidate, &times);
            let what = format!("mu {mu}, sigma {sigma}, dt {dt}, {candidate:?}");
            let replayed = counted.written as f64 / counted.events as f64;
            assert!(
                (replayed / expected - 1.0).abs() < 0.012,
                "{what}: replayed {replayed}, expected {expected}"
            );
            assert!(
                counted.merges.abs_diff(merges) <= 2,
                "{what}: {} merges, expected {merges}",
                counted.merges
            );
            // One merge is one sample: with few of them the count itself is uncertain, and one merge is missing at the end.
            let few = 1.5 / (merges as f64).max(1.0) * (expected - 1.0);
            let mut predictions = vec![("lateness", predict(candidate, &configuration, &lateness))];
            // The heaviest tail is hardly seen in so few events: there the law of all delays promises more.
            if dt > 20.0 || sigma < 2.0 {
                predictions.push(("delays", predict(candidate, &configuration, &delays)));
            }
            for (name, predicted) in predictions {
                assert!(
                    (predicted / expected - 1.0).abs() < 0.05 + few,
                    "{what}: from {name} {predicted}, expected {expected} ({merges} merges)"
                );
            }
        }
    }
}

#[test]
fn order_costs_nothing_whatever_the_policy() {
    let configuration = Configuration {
        memory_events: MEMORY as f64,
        late_runs_max: 0,
    };
    let times: Vec<i64> = (0..50_000).map(|i| i * 1000).collect();
    let mut seen = Lateness::new(MEMORY as u64);
    let mut tracker = Tracker::new();
    tracker.observe(&times, &mut seen);
    let law = seen.law().unwrap();
    let mut shadow = Shadow::new(&candidates(), &configuration, Some(-1000), 1000.0);
    shadow.observe(&times);
    for (candidate, counted) in candidates().iter().zip(shadow.counts()) {
        assert_eq!(
            predict(candidate, &configuration, &law),
            1.0,
            "{candidate:?}"
        );
        assert_eq!(
            (counted.written, counted.merges),
            (50_000, 0),
            "{candidate:?}"
        );
    }
}

#[test]
fn late_runs_are_written_twice_and_merged_together() {
    let times = lognormal_arrivals(5, 200_000, 50.0, 5.0, 2.0);
    let mut seen = Lateness::new(MEMORY as u64);
    Tracker::new().observe(&times, &mut seen);
    let law = seen.law().unwrap();
    let one = [candidate(Some(256), 64, MergeScope::Touched, 128)];
    for late_runs_max in [1, 4] {
        let configuration = Configuration {
            memory_events: MEMORY as f64,
            late_runs_max,
        };
        let mut shadow = Shadow::new(&one, &configuration, None, 1e6);
        shadow.observe(&times);
        let counted = shadow.counts()[0].write_amplification;
        let predicted = predict(&one[0], &configuration, &law);
        assert!(
            (predicted / counted - 1.0).abs() < 0.06,
            "{late_runs_max}: predicted {predicted}, replayed {counted}"
        );
    }
}
