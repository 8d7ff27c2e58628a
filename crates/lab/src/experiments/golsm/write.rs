//! G-4 to G-7: windows written in order and in random order.

use super::{Arguments, BEGIN, Results, TAGS, beat, sensor_values};
use crate::baselines::{Points, STORES, Store, Survival, Window};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, time_round, time_round_with_drain,
    turns,
};
use crate::machine::SyncProbe;
use crate::table;
use serde::Serialize;
use std::cell::RefCell;

#[derive(Serialize)]
pub(super) struct Measurement {
    width_seconds: u32,
    durability: &'static str,
    sync_median_us: f64,
    rounds: Rounds,
    microseconds_per_call: f64,
    cpu_seconds_per_million_points: f64,
    /// Time of a call by that of ours.
    times_of_ours: f64,
}

#[derive(Serialize)]
pub(super) struct RandomMeasurement {
    store: String,
    drained: bool,
    random_to_linear: f64,
    linear: Rounds,
    random: Rounds,
}

/// Values that windows are cut from.
const VALUES: usize = 1 << 16;

/// Windows of one width, and their values.
struct Windows {
    width: usize,
    values: Vec<Vec<f64>>,
}

impl Windows {
    fn new(width: u32) -> Windows {
        Windows {
            width: width as usize,
            values: sensor_values(VALUES.max(width as usize * 2)),
        }
    }

    /// Writes one window; the values depend on its start alone.
    fn write(&self, store: &mut dyn Store, begin: i64) -> Result<(), Failure> {
        let seconds: Vec<i64> = (begin..begin + self.width as i64).collect();
        let values: Vec<&[f64]> = self.values_at(begin)?;
        store.write(&Window {
            seconds: &seconds,
            values: &values,
        })
    }

    fn values_at(&self, begin: i64) -> Result<Vec<&[f64]>, Failure> {
        self.values
            .iter()
            .map(|v| {
                let at = (begin - BEGIN) as usize % (v.len() - self.width);
                v.get(at..at + self.width).ok_or("too few values".into())
            })
            .collect()
    }
}

/// G-4 and G-5: windows in order.
pub(super) fn linear(
    bench: &Bench,
    arguments: &Arguments,
    survives: Survival,
    width: u32,
    probe: &mut SyncProbe,
    results: &mut Results,
    targets: &mut Targets,
) -> Result<(), Failure> {
    let windows = Windows::new(width);
    let step = i64::from(width) * 2;
    let calls = (arguments.points / (u64::from(width) * TAGS as u64)).clamp(1, 1_000);
    let probe = RefCell::new(probe);
    let mut stores = Vec::new();
    for (name, open) in STORES {
        let dir = bench.path("store");
        stores.push((name, open(&dir, TAGS, survives)?, BEGIN));
    }
    let candidates = stores
        .iter_mut()
        .map(|(name, store, next)| {
            // The slowest store must not use most of the time.
            let calls = if name.ends_with("paper") {
                calls.div_ceil(5).min(20)
            } else {
                calls
            };
            let (windows, probe) = (&windows, &probe);
            Candidate::new(*name, move |_| {
                let before = store.syncs()?;
                let mut one = time_round(|| {
                    for _ in 0..calls {
                        windows.write(store.as_mut(), *next)?;
                        *next += step;
                    }
                    Ok(calls)
                })?;
                one.syncs = before.zip(store.syncs()?).map(|(a, b)| b - a);
                if survives == Survival::PowerCut {
                    probe.borrow_mut().sample(8)?;
                }
                Ok(one)
            })
        })
        .collect();
    let rounds = turns(bench.rounds(), candidates)?;
    check_equal(&windows, step, &mut stores)?;
    let sync = probe.borrow().median_us();
    let [ours, tuned, redb, ..] = rounds.as_slice() else {
        return Err("a store is missing".into());
    };
    let ratios = [
        ("SQLite", tuned.times_of(ours)),
        ("redb", redb.times_of(ours)),
    ];
    let synced = (survives == Survival::PowerCut).then_some(sync);
    let what = format!("linear write 10 × {width} s, {}", survives.name());
    match (width, survives) {
        (1500, Survival::PowerCut) => beat(targets, &what, &ratios, 8.0, synced),
        (1500, Survival::Process) => beat(targets, &what, &ratios, 10.0, None),
        (5, Survival::PowerCut) => {
            beat(targets, &what, &ratios, 1.5, synced);
            targets.add(
                format!("{what}: syncs a call"),
                Bound::AtMost(1.0),
                "",
                ours.syncs_per_operation().unwrap_or(f64::NAN),
            );
        }
        _ => {}
    }
    for one in &rounds {
        results.writes.push(Measurement {
            width_seconds: width,
            durability: survives.name(),
            sync_median_us: sync,
            microseconds_per_call: one.seconds() * 1e6,
            cpu_seconds_per_million_points: one.cpu_per_million() / f64::from(width) / TAGS as f64,
            times_of_ours: one.times_of(ours),
            rounds: one.clone(),
        });
    }
    Ok(())
}

/// Verifies that every store returns the written points: all of its first window, and of its last.
fn check_equal(
    windows: &Windows,
    step: i64,
    stores: &mut [(&'static str, Box<dyn Store>, i64)],
) -> Result<(), Failure> {
    for (name, store, next) in stores {
        for begin in [BEGIN, *next - step] {
            let mut found = Points::default();
            let tags: Vec<usize> = (0..TAGS).collect();
            store.read(&tags, begin, begin + step - 1, &mut found)?;
            let expected: Vec<f64> = windows.values_at(begin)?.concat();
            if found.values != expected {
                return Err(format!(
                    "{name}: the window at {begin} holds {} points of {}, or others",
                    found.values.len(),
                    expected.len()
                )
                .into());
            }
        }
    }
    Ok(())
}

pub(super) fn print(results: &[Measurement]) {
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|f| {
            vec![
                format!("10 × {} s, {}", f.width_seconds, f.durability),
                f.rounds.name.clone(),
                f.rounds.time(),
                f.rounds.spread(),
                format!("{:.2}", f.times_of_ours),
                format!("{:.3}", f.cpu_seconds_per_million_points),
                f.rounds
                    .syncs_per_operation()
                    .map_or("—".to_owned(), |s| format!("{s:.2}")),
                if f.durability == Survival::PowerCut.name() {
                    format!("{:.0} µs", f.sync_median_us)
                } else {
                    "—".to_owned()
                },
            ]
        })
        .collect();
    table::print(
        &[
            "linear write",
            "store",
            "a call",
            "spread",
            "of ours",
            "CPU s per million points",
            "syncs a call",
            "sync median",
        ],
        &rows,
    );
}

/// G-6 and G-7: the same number of windows in order and at random times, with and without deferred
/// work.
pub(super) fn random(
    bench: &Bench,
    arguments: &Arguments,
    probe: &mut SyncProbe,
    results: &mut Results,
    targets: &mut Targets,
) -> Result<(), Failure> {
    const WIDTH: u32 = 1500;
    let windows = Windows::new(WIDTH);
    let calls = (arguments.random_points / (u64::from(WIDTH) * TAGS as u64)).max(2);
    let step = i64::from(WIDTH) * 2;
    let in_order: Vec<i64> = (0..calls as i64).map(|i| BEGIN + i * step).collect();
    let mut dice = Random::new(7);
    let anywhere: Vec<i64> = (0..calls)
        .map(|_| BEGIN + dice.below(calls * step as u64) as i64)
        .collect();
    println!();
    let mut candidates = Vec::new();
    for (name, open) in STORES.iter().take(3) {
        for begins in [&in_order, &anywhere] {
            // Rivals are slow: a tenth of the calls suffices.
            let share = if *name == "headwater" { 1 } else { 10 };
            let windows = &windows;
            candidates.push(Candidate::new(*name, move |_| {
                let dir = bench.path("store");
                let mut store = open(&dir, TAGS, Survival::PowerCut)?;
                let calls = begins.len().div_ceil(share);
                let one = time_round_with_drain(
                    &mut store,
                    |store| {
                        for begin in begins.iter().take(calls) {
                            windows.write(store.as_mut(), *begin)?;
                        }
                        Ok(calls as u64)
                    },
                    |store| store.drain(),
                )?;
                drop(store);
                std::fs::remove_dir_all(dir)?;
                Ok(one)
            }));
        }
    }
    let rounds = turns(bench.rounds(), candidates)?;
    probe.sample(8)?;
    compare(&rounds, results, targets);
    print_random(&results.random, probe);
    Ok(())
}

/// Compares each store's writes at random with its writes in order, before and after draining.
fn compare(rounds: &[Rounds], results: &mut Results, targets: &mut Targets) {
    for drained in [false, true] {
        for pair in rounds.chunks(2) {
            let [linear, random] = pair else { continue };
            let (linear, random) = if drained {
                (linear.drained(), random.drained())
            } else {
                (linear.clone(), random.clone())
            };
            let ratio = random.times_of(&linear);
            if linear.name == "headwater" {
                let (what, wanted) = if drained {
                    ("random-order write against linear, drained", 3.0)
                } else {
                    ("random-order write against linear, before draining", 1.3)
                };
                targets.add(what, Bound::AtMost(wanted), " ×", ratio);
            }
            results.random.push(RandomMeasurement {
                store: linear.name.clone(),
                drained,
                random_to_linear: ratio,
                linear,
                random,
            });
        }
    }
}

/// Prints the comparisons as a table.
fn print_random(results: &[RandomMeasurement], probe: &SyncProbe) {
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|f| {
            vec![
                f.store.clone(),
                if f.drained { "yes" } else { "no" }.to_owned(),
                f.linear.time(),
                f.linear.spread(),
                f.random.time(),
                f.random.spread(),
                format!("{:.2}", f.random_to_linear),
                format!("{:.0} µs", probe.median_us()),
            ]
        })
        .collect();
    table::print(
        &[
            "10 × 1,500 s, synced",
            "drained",
            "in order, a call",
            "spread",
            "at random, a call",
            "spread",
            "random of linear",
            "sync median",
        ],
        &rows,
    );
}
