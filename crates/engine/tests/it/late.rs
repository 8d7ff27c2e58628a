//! Predictions for late data, against counts: the model and the shadow replay beside the plain
//! simulation of the policies.

use crate::model::Random;
use crate::papers::Simulation;
use headwater_engine::{
    Database, Durability, FlushRule, Knobs, LatePolicy, MergeScope, Options, PolicyChoice, Split,
};
use headwater_io::{Env, ManualClock, NoThreads};
use headwater_late::{
    Candidate, Configuration, Lateness, Lognormal, Shadow, Tracker, flank_capacity, predict,
};
use headwater_types::{Batch, StreamName, Timestamp};
use std::sync::Arc;
use std::time::Duration;

const MEMORY: usize = 512;

/// The paper's synthetic data: an event every `dt`, lognormal delays; timestamps in order of
/// arrival, 1 ms for each event.
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
            // One merge is one sample: with few of them the count itself is uncertain, and one
            // merge is missing at the end.
            let few = 1.5 / (merges as f64).max(1.0) * (expected - 1.0);
            let mut predictions = vec![("lateness", predict(candidate, &configuration, &lateness))];
            // The heaviest tail is hardly seen in so few events: there the law of all delays
            // promises more.
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

/// A database in memory that follows the papers' rule: 512 events of memory, leaves of as many.
fn exact_options(choice: PolicyChoice) -> Options {
    Options {
        shards: 1,
        durability: Durability::Written,
        late_policy: choice,
        flush_rule: FlushRule::LabExact {
            memory_events: MEMORY as u32,
        },
        late_runs_max: 0,
        leaf_events: 512,
        memory_budget_bytes: 16 << 20,
        ..Options::new("/db")
    }
}

fn write_all(db: &Database, name: &StreamName, times: &[i64], rows: usize) {
    for part in times.chunks(rows) {
        let mut batch = Batch::new();
        for time in part {
            batch.stream(name).row(*time, [("v", 1.0.into())]).unwrap();
        }
        db.commit(batch).unwrap();
    }
}

#[test]
fn adaptive_finds_the_policy_that_writes_less_and_keeps_it_over_a_restart() {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let options = exact_options(PolicyChoice::Adaptive(Knobs::paper()));
    let name = StreamName::new("t", [("s", "1")]);
    let times = lognormal_arrivals(7, 120_000, 10.0, 4.0, 1.75);
    let (first, rest) = times.split_at(60_000);
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    db.set_late_policy(
        LatePolicy {
            merge_scope: MergeScope::Overlap,
            ..LatePolicy::conventional()
        }
        .into(),
    )
    .unwrap();
    write_all(&db, &name, &first[..2000], 8);
    db.set_late_policy(options.late_policy).unwrap();
    write_all(&db, &name, &first[2000..], 8);
    let report = db.late();
    let shard = &report.shards[0];
    assert_eq!(shard.decisions.len(), 1, "{:#?}", shard);
    let decision = shard.decisions[0];
    assert_eq!(decision.from.policy.split, Split::Conventional);
    assert_eq!(shard.in_force, decision.to);
    assert!(
        matches!(decision.to.policy.split, Split::Separate { flank_share } if (0.1..0.7).contains(&flank_share)),
        "{decision:?}"
    );
    assert!(
        decision.expected_to < 0.9 * decision.expected_from,
        "{decision:?}"
    );
    assert!(shard.candidates.len() >= 16 && shard.late_share > 0.5);
    assert_eq!(shard.memory_events, 512.0);
    assert!(
        shard
            .paper
            .is_some_and(|(memory, advice)| memory == 512 && advice.n_seq.is_some())
    );
    db.close().unwrap();
    drop(db);

    let db = Database::open_in(env, options).unwrap();
    let again = &db.late().shards[0];
    assert_eq!(
        (again.in_force, &again.decisions),
        (shard.in_force, &shard.decisions)
    );
    assert!(again.events >= 49_152 && again.late_share > 0.5);
    let before = db.stats().unwrap();
    write_all(&db, &name, rest, 8);
    let after = db.stats().unwrap();
    let written = (after.events_written() - before.events_written()) as f64;
    let measured = written / rest.len() as f64;
    let predicted = decision.expected_to;
    assert!(
        (measured / predicted - 1.0).abs() < 0.08,
        "{measured}, predicted {predicted}"
    );
    assert_eq!(db.late().shards[0].decisions.len(), 1);
}

#[test]
fn a_fixed_policy_is_obeyed_and_a_bad_one_refused() {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let fixed = LatePolicy {
        merge_scope: MergeScope::Overlap,
        ..LatePolicy::conventional()
    };
    let db = Database::open_in(env.clone(), exact_options(fixed.into())).unwrap();
    let name = StreamName::new("t", [("s", "1")]);
    write_all(
        &db,
        &name,
        &lognormal_arrivals(7, 50_000, 10.0, 5.0, 2.0),
        64,
    );
    let shard = &db.late().shards[0];
    assert_eq!((shard.in_force.policy, shard.decisions.len()), (fixed, 0));
    assert!(
        shard.candidates[0].predicted
            < 0.7
                * shard
                    .candidates
                    .iter()
                    .find(|c| c.candidate == shard.in_force)
                    .unwrap()
                    .predicted
    );
    let bad = LatePolicy::separate(1.0);
    let error = db.set_late_policy(bad.into()).unwrap_err();
    assert!(error.to_string().contains("above 0 and below 1"), "{error}");
    db.close().unwrap();
    drop(db);
    let options = Options {
        late_merge_interval: Some(Duration::ZERO),
        ..exact_options(fixed.into())
    };
    let error = Database::open_in(env, options).unwrap_err();
    assert!(error.to_string().contains("at least 1 second"), "{error}");
}

#[test]
fn disorder_between_devices_costs_nothing_and_a_wrong_clock_only_its_own() {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let options = Options {
        shards: 1,
        durability: Durability::Written,
        memory_budget_bytes: 1 << 20,
        ..Options::new("/db")
    };
    let db = Database::open_in(env, options).unwrap();
    let devices: Vec<StreamName> = (0..40)
        .map(|i| StreamName::new("t", [("device", i.to_string())]))
        .collect();
    // Each device sends what it has gathered in an hour, in turn: between devices time goes back
    // all the time.
    let hour = 3_600_000_000_000i64;
    for round in 0..12i64 {
        for (number, device) in devices.iter().enumerate() {
            let mut batch = Batch::new();
            let offset = (40 - number as i64) * 5 * hour;
            for i in 0..120 {
                let time = offset + round * hour + i * (hour / 120);
                batch.stream(device).row(time, [("v", 0.5.into())]).unwrap();
            }
            db.commit(batch).unwrap();
        }
        // A device that lives in another century, and now and then in the right one.
        let mut batch = Batch::new();
        let wrong = StreamName::new("t", [("device", "wrong")]);
        let time = if round % 3 == 0 {
            4_000_000_000_000_000_000 + round
        } else {
            round * hour
        };
        batch.stream(&wrong).row(time, [("v", 0.5.into())]).unwrap();
        db.commit(batch).unwrap();
    }
    let stats = db.stats().unwrap();
    assert!(
        stats.events_flush > 0,
        "memory was never used up: {stats:?}"
    );
    assert!(stats.late_events_in_memory <= 12, "{stats:?}");
    db.flush().unwrap();
    let stats = db.stats().unwrap();
    assert_eq!(stats.events_accepted, 40 * 12 * 120 + 12);
    assert!(
        stats.events_written() - stats.events_accepted <= 24,
        "only the wrong clock's events may be written again: {stats:?}"
    );
    assert!(db.late().shards[0].late_share < 0.001);
}

#[test]
fn late_events_do_not_wait_for_ever() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(
        1_700_000_000_000_000_000,
    )));
    let env = Env {
        threads: Arc::new(NoThreads),
        clock: Arc::clone(&clock) as Arc<_>,
        ..Env::memory()
    };
    let options = Options {
        shards: 1,
        late_policy: LatePolicy::default().into(),
        ..Options::new("/db")
    };
    let db = Database::open_in(env, options).unwrap();
    let name = StreamName::new("t", [("s", "1")]);
    let times: Vec<i64> = (0..1000).map(|i| i * 10).collect();
    write_all(&db, &name, &times, 100);
    db.flush().unwrap();
    write_all(&db, &name, &[55, 57], 1);
    clock.advance(Duration::from_secs(599));
    write_all(&db, &name, &[10_000], 1);
    assert_eq!(db.stats().unwrap().late_events_in_memory, 2);
    clock.advance(Duration::from_secs(2));
    write_all(&db, &name, &[10_010], 1);
    let stats = db.stats().unwrap();
    assert_eq!(
        (stats.late_events_in_memory, stats.events_in_memory),
        (0, 2),
        "{stats:?}"
    );
    // The next late event begins a wait of its own.
    write_all(&db, &name, &[58], 1);
    clock.advance(Duration::from_secs(590));
    write_all(&db, &name, &[10_020], 1);
    assert_eq!(db.stats().unwrap().late_events_in_memory, 1);
}
