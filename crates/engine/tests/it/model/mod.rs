//! Random operations against a plain sorted map, over every read path.

mod compare;
mod plain;
mod world;

pub(crate) use compare::{compare, reference, same_aggregate};
pub(crate) use plain::{FIELDS, Random, random_value};

use compare::check;
use headwater_engine::{CheckReport, Duplicates, FlushRule, LatePolicy, MergeScope, Stats};
use world::{Setup, World, options};

fn run(seed: u64, steps: usize, setup: Setup) -> (Stats, CheckReport) {
    let mut world = World::new(seed, setup);
    for step in 0..steps {
        world.step();
        if step % 20 == 19 {
            let snapshot = world.db().snapshot().unwrap();
            let visible = world.visible();
            check(&snapshot, &visible, &mut world.random);
        }
    }
    world.reopen();
    let snapshot = world.db().snapshot().unwrap();
    let visible = world.visible();
    check(&snapshot, &visible, &mut world.random);
    drop(snapshot);
    let stats = world.db().stats().unwrap();
    world.db.take().unwrap().close().unwrap();
    let report = headwater_engine::check(world.env.clone(), options(&world.setup)).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
    (stats, report)
}

/// What happened over several runs, so that a test can tell that it tested something.
#[derive(Debug, Default)]
struct Happened {
    merged: u64,
    late_run: u64,
    folded: u64,
    compacted: u64,
    cut: u64,
    blocks: u64,
    partitions: u64,
}

impl Happened {
    fn add(&mut self, (stats, report): (Stats, CheckReport)) {
        self.merged += stats.events_merge;
        self.late_run += stats.events_late_run;
        self.folded += stats.events_fold;
        self.compacted += stats.events_compaction;
        self.cut += stats.events_delete;
        self.partitions = self.partitions.max(stats.partitions);
        self.blocks += report.blocks;
    }
}

pub(crate) fn policies() -> Vec<LatePolicy> {
    let mut out = Vec::new();
    for scope in [MergeScope::Touched, MergeScope::Overlap] {
        for retain in [0, 10] {
            for policy in [
                LatePolicy::conventional(),
                LatePolicy::separate(0.5),
                LatePolicy::separate(0.9),
            ] {
                out.push(LatePolicy {
                    merge_scope: scope,
                    retain_events: retain,
                    ..policy
                });
            }
        }
    }
    out
}

/// Further seeds for a longer run:
/// `HEADWATER_MODEL_SEEDS=100 cargo test -p headwater-engine model`.
fn extra_seeds() -> u64 {
    std::env::var("HEADWATER_MODEL_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[test]
fn random_operations_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 1;
    for round in 0..=extra_seeds() {
        for policy in policies() {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                for late_runs_max in [0, 3] {
                    let setup = Setup {
                        duplicates,
                        policy,
                        rule: FlushRule::Production,
                        late_runs_max,
                        tall: false,
                        switches: false,
                    };
                    happened.add(run(seed + round * 10_000, 60, setup));
                    seed += 1;
                }
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run > 1000 && happened.folded > 1000,
        "{happened:?}"
    );
    assert!(
        happened.compacted > 1000
            && happened.cut > 1000
            && happened.blocks > 100
            && happened.partitions > 5,
        "{happened:?}"
    );
}

#[test]
fn long_random_operations_equal_a_sorted_map() {
    let mut happened = Happened::default();
    for (seed, duplicates) in [
        (77, Duplicates::Last),
        (78, Duplicates::Keep),
        (79, Duplicates::Last),
    ] {
        let setup = Setup {
            duplicates,
            policy: LatePolicy::default(),
            rule: FlushRule::Production,
            late_runs_max: 3,
            tall: true,
            switches: false,
        };
        happened.add(run(seed, 400, setup));
    }
    println!("{happened:?}");
    assert!(
        happened.blocks > 50 && happened.folded > 1000,
        "{happened:?}"
    );
}

#[test]
fn random_operations_under_the_papers_rule_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 1000;
    for round in 0..=extra_seeds() {
        for policy in policies() {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                let rule = FlushRule::LabExact { memory_events: 40 };
                let setup = Setup {
                    duplicates,
                    policy,
                    rule,
                    late_runs_max: 0,
                    tall: false,
                    switches: false,
                };
                happened.add(run(seed + round * 10_000, 60, setup));
                seed += 1;
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run == 0 && happened.folded == 0,
        "{happened:?}"
    );
}

#[test]
fn random_operations_while_policies_change_equal_a_sorted_map() {
    let mut happened = Happened::default();
    let mut seed = 5000;
    for round in 0..=extra_seeds() {
        for memory_events in [None, Some(40), Some(150)] {
            for duplicates in [Duplicates::Last, Duplicates::Keep] {
                for late_runs_max in [0, 3] {
                    let setup = Setup {
                        duplicates,
                        policy: LatePolicy::default(),
                        rule: memory_events.map_or(FlushRule::Production, |memory_events| {
                            FlushRule::LabExact { memory_events }
                        }),
                        late_runs_max,
                        tall: false,
                        switches: true,
                    };
                    happened.add(run(seed + round * 10_000, 100, setup));
                    seed += 1;
                }
            }
        }
    }
    println!("{happened:?}");
    assert!(
        happened.merged > 1000 && happened.late_run > 500 && happened.folded > 500,
        "{happened:?}"
    );
}
