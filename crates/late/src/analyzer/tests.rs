//! Decisions over streams that stay the same, change and change back.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::Split;
use crate::choose::{Knobs, PolicyChoice};
use crate::model::Configuration;

fn first() -> Candidate {
    Candidate {
        policy: PolicyChoice::default().first(),
        leaf_events: 512,
    }
}

fn space(memory_events: f64) -> Space {
    Space {
        configuration: Configuration {
            memory_events,
            late_runs_max: 0,
        },
        leaf_events: 512,
        knobs: Knobs::paper(),
        frames: false,
    }
}

/// A millisecond between events; every fifth is late by up to `depth`.
struct Arrivals {
    at: i64,
    state: u64,
    depth: u64,
}

impl Arrivals {
    fn next(&mut self, count: usize) -> Vec<i64> {
        (0..count)
            .map(|_| {
                self.at += 1;
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let late = if self.at % 5 == 0 {
                    ((self.state >> 33) % self.depth) as i64
                } else {
                    0
                };
                (self.at - late) * 1_000_000
            })
            .collect()
    }
}

fn evaluate(analyzer: &mut Analyzer, memory: f64) -> Option<Decision> {
    assert!(analyzer.is_due());
    let evaluation = analyzer.evaluation(memory);
    let ranking = evaluation.rank(&space(evaluation.memory_events));
    analyzer.apply(ranking)
}

#[test]
fn a_change_needs_two_evaluations_and_a_gain() {
    let mut analyzer = Analyzer::new(first(), true);
    let mut arrivals = Arrivals {
        at: 0,
        state: 1,
        depth: 3000,
    };
    let mut decisions = 0;
    for round in 0..20 {
        analyzer.observe(7, &arrivals.next(EVENTS_PER_EVALUATION as usize));
        let decided = evaluate(&mut analyzer, 512.0);
        assert!(round > 0 || decided.is_none());
        decisions += usize::from(decided.is_some());
        if let Some(decision) = decided {
            assert!(decision.expected_to < decision.expected_from * 0.98);
            assert_eq!(analyzer.in_force(), decision.to);
        }
    }
    assert_eq!(decisions, 1);
    assert_eq!(analyzer.memory_events(), 512.0);
    // A fixed policy stays.
    analyzer.set_fixed(Some(first()));
    for _ in 0..4 {
        analyzer.observe(7, &arrivals.next(EVENTS_PER_EVALUATION as usize));
        assert_eq!(evaluate(&mut analyzer, 512.0), None);
    }
    assert_eq!(analyzer.in_force(), first());
}

/// Decisions on delays of e^(5 + 2N) ms, an event every 50 ms: the paper's M6, in which many splits
/// of memory cost nearly the same.
fn decisions_on_m6(seed: u64, evaluations: i64) -> (usize, Candidate) {
    let mut state = seed;
    let mut unit = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / (1u64 << 31) as f64
    };
    let mut events: Vec<(i64, i64)> = (0..evaluations * EVENTS_PER_EVALUATION as i64)
        .map(|i| {
            let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
            let generated = i * 50_000_000;
            let delay = ((5.0 + 2.0 * normal).exp() * 1e6) as i64;
            (generated + delay, generated)
        })
        .collect();
    events.sort_unstable();
    let times: Vec<i64> = events.into_iter().map(|(_, generated)| generated).collect();
    let begin = Candidate {
        policy: PolicyChoice::Adaptive(Knobs::paper()).first(),
        leaf_events: 512,
    };
    let mut analyzer = Analyzer::new(begin, true);
    for part in times.chunks(EVENTS_PER_EVALUATION as usize) {
        for batch in part.chunks(512) {
            analyzer.observe(7, batch);
        }
        // Measured writes always exceed the expected ones, so that the referee is called
        // repeatedly.
        let expected = analyzer
            .current()
            .map_or(1.0, |r| r.replayed.unwrap_or(r.predicted));
        analyzer.measure(16_384, (16_384.0 * expected * 1.2) as u64, 5);
        if analyzer.is_due() {
            evaluate(&mut analyzer, 512.0);
        }
    }
    (analyzer.decisions().count(), analyzer.in_force())
}

#[test]
fn candidates_that_cost_nearly_the_same_do_not_take_turns() {
    let mut all = 0;
    for seed in 1..=6 {
        let (decisions, in_force) = decisions_on_m6(seed, 40);
        all += decisions;
        // No distant candidate was chosen either.
        assert!(matches!(
            in_force.policy.split,
            Split::Separate { flank_share } if (0.2..=0.65).contains(&flank_share)
        ));
    }
    assert!(all <= 3, "{all} changes of policy in six runs");
}

#[test]
fn a_law_that_stays_is_seldom_ranked_and_one_that_changes_often() {
    let mut analyzer = Analyzer::new(first(), true);
    let mut arrivals = Arrivals {
        at: 0,
        state: 1,
        depth: 3000,
    };
    let mut rankings = |analyzer: &mut Analyzer, depth: u64, evaluations: usize| {
        arrivals.depth = depth;
        let mut ranked = Vec::new();
        for evaluation in 0..evaluations {
            analyzer.observe(7, &arrivals.next(EVENTS_PER_EVALUATION as usize));
            let due = analyzer.evaluation(512.0);
            let ranking = due.rank(&space(due.memory_events));
            if !ranking.is_empty() {
                ranked.push(evaluation);
            }
            analyzer.apply(ranking);
        }
        ranked
    };
    let learning = rankings(&mut analyzer, 3000, 64);
    assert!(learning.len() <= 20, "{learning:?}");
    // The mean over the newest rankings is known, and no candidate is better: from here on rankings
    // are few.
    let known = rankings(&mut analyzer, 3000, 64);
    assert!(known.len() <= 8, "{known:?}");
    // A third as deep: ranked again as soon as the histogram shows it.
    let changed = rankings(&mut analyzer, 1000, 8);
    assert!(
        changed.first().is_some_and(|first| *first <= 3),
        "{changed:?}"
    );
    assert!(changed.len() >= 3, "{changed:?}");
}

#[test]
fn the_referee_is_called_when_predictions_are_off() {
    let mut analyzer = Analyzer::new(first(), true);
    let mut arrivals = Arrivals {
        at: 0,
        state: 1,
        depth: 3000,
    };
    let mut replayed_at = None;
    for round in 0..60 {
        for _ in 0..16 {
            analyzer.observe(7, &arrivals.next(EVENTS_PER_EVALUATION as usize / 16));
        }
        // Measured writes exceed the predicted ones by a third.
        let written = analyzer
            .current()
            .map_or(1.0, |r| r.replayed.unwrap_or(r.predicted));
        analyzer.measure(16_384, (16_384.0 * written * 1.33) as u64, 5);
        evaluate(&mut analyzer, 512.0);
        if analyzer.ranking().iter().any(|r| r.replayed.is_some()) {
            replayed_at.get_or_insert(round);
        }
        assert!(analyzer.bytes() < 1 << 20, "{}", analyzer.bytes());
    }
    let here = *analyzer.current().unwrap();
    assert!(
        replayed_at.is_some_and(|round| round < 10),
        "{replayed_at:?}"
    );
    // Here the model is right, and the replay says so.
    let all: Vec<&Ranked> = analyzer
        .ranking()
        .iter()
        .filter(|r| r.replayed.is_some())
        .collect();
    assert!(!all.is_empty());
    for ranked in all {
        let replayed = ranked.replayed.unwrap();
        assert!(
            (replayed / ranked.predicted - 1.0).abs() < 0.1,
            "{ranked:?}"
        );
    }
    assert!(here.cost <= analyzer.ranking().first().unwrap().cost * 1.03);
}

#[test]
fn memory_is_shared_among_streams_and_that_of_the_analyzer_is_bounded() {
    let mut analyzer = Analyzer::new(first(), true);
    let mut all: Vec<Arrivals> = (0..300u64)
        .map(|i| Arrivals {
            at: 1000 * i as i64,
            state: i,
            depth: 3000,
        })
        .collect();
    for _ in 0..150 {
        for (stream, arrivals) in (0u32..).zip(&mut all) {
            analyzer.observe(stream, &arrivals.next(100));
            if analyzer.is_due() {
                evaluate(&mut analyzer, 300.0 * 512.0);
            }
        }
    }
    let memory = analyzer.memory_events();
    assert!((400.0..700.0).contains(&memory), "{memory}");
    assert!(analyzer.bytes() < 1 << 20, "{}", analyzer.bytes());
    // Between streams time goes back all the while; only the order inside them counts.
    let seen = analyzer.lateness();
    let share = seen.late_events() / seen.events();
    assert!((0.15..0.25).contains(&share), "{share}");
}

#[test]
fn what_is_kept_is_read_back_and_damage_is_an_error() {
    let mut analyzer = Analyzer::new(first(), true);
    let mut arrivals = Arrivals {
        at: 0,
        state: 1,
        depth: 3000,
    };
    for _ in 0..4 {
        analyzer.observe(7, &arrivals.next(EVENTS_PER_EVALUATION as usize));
        evaluate(&mut analyzer, 512.0);
    }
    let mut bytes = Vec::new();
    analyzer.encode(&mut bytes);
    assert!(bytes.len() < 4096, "{}", bytes.len());
    let back = Analyzer::decode(&bytes).unwrap();
    assert_eq!(back.in_force(), analyzer.in_force());
    assert!(back.decisions().eq(analyzer.decisions()));
    assert_eq!(back.events(), analyzer.events());
    let mut again = Vec::new();
    back.encode(&mut again);
    assert_eq!(again, bytes);
    assert!(back.is_adaptive());
    for end in 0..bytes.len() {
        Analyzer::decode(&bytes[..end]).unwrap_err();
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x55;
        // Damage gives an error or another state, and never a panic or an unbounded one.
        if let Ok(read) = Analyzer::decode(&other) {
            assert!(read.bytes() < 1 << 20);
        }
    }
}
