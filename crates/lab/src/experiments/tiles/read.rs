//! Tiles at random places and levels: from the pyramid, from rows below its base, from a store a
//! hundred times larger, and from memory before anything is flushed.

use super::channel::{BEGIN, Channel, FIELD, stream};
use super::{Arguments, name_of};
use crate::baselines::{Survival, options};
use crate::harness::{Bench, Bound, Candidate, Failure, Random, Targets, time_round, turns};
use crate::table;
use headwater::{Database, Level};
use serde::Serialize;
use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

/// The base level of the pyramid at one event a second: buckets of about 128 events.
const BASE: i32 = 7;
/// Maximum points of the store in memory: below the automatic flush.
const IN_MEMORY_MAX: u64 = 1_000_000;

/// Times of single tiles, over all rounds.
#[derive(Serialize)]
pub(super) struct Latencies {
    name: String,
    tiles: usize,
    p50_ms: f64,
    p99_ms: f64,
    /// Level and median there.
    by_level: Vec<(i32, f64)>,
}

const ABOVE: &str = "at or above the base level";
const BELOW: &str = "below the base level";
const OVERVIEW: &str = "coarsest tile";
const MEMORY: &str = "coarsest tile, all points in memory";

pub(super) fn tiles(
    bench: &Bench,
    arguments: &Arguments,
    small: &Path,
    large: &Path,
) -> Result<Vec<Latencies>, Failure> {
    let memory = Database::open(options(&bench.path("memory"), Survival::Process))?;
    let in_memory = arguments.points.min(IN_MEMORY_MAX);
    Channel::new().write(&memory, in_memory, 1_000)?;
    type Times = RefCell<Vec<(i32, f64)>>;
    let mut named: Vec<(String, Times)> = Vec::new();
    let top = |points: u64| ((points as f64).log2().ceil() as i32 - 9).max(BASE);
    let stores = [(small, arguments.points), (large, arguments.large)];
    for (_, points) in stores {
        for what in [ABOVE, BELOW, OVERVIEW] {
            named.push((name_of(what, points), Times::default()));
        }
    }
    named.push((name_of(MEMORY, in_memory), Times::default()));
    let levels = |name: &str, points: u64| match name {
        _ if name.starts_with(ABOVE) => BASE..=top(points),
        _ if name.starts_with(BELOW) => 0..=BASE - 1,
        _ => top(points)..=top(points),
    };
    let mut candidates = Vec::new();
    for (index, (name, times)) in named.iter().enumerate() {
        let (dir, points) = *stores.get(index / 3).unwrap_or(&(small, in_memory));
        let kept = (index >= 6).then(|| memory.clone());
        let levels = levels(name, points);
        candidates.push(Candidate::new(name.clone(), move |round| {
            // After reopening, a tile is read from the file unless an earlier tile of the round
            // needed the same data.
            let db = match &kept {
                Some(db) => db.clone(),
                None => Database::open(options(dir, Survival::Process))?,
            };
            let stream = stream()?;
            let mut dice = Random::new(round as u64 * 100 + index as u64);
            let one = time_round(|| {
                for _ in 0..arguments.tiles {
                    let level = *levels.start()
                        + dice.below((levels.end() - levels.start() + 1) as u64) as i32;
                    let place = BEGIN + dice.below(points) as i64;
                    let took = tile(&db, &stream, level, place, points)?;
                    times.borrow_mut().push((level, took));
                }
                Ok(arguments.tiles as u64)
            })?;
            if kept.is_none() {
                db.close()?;
            }
            Ok(one)
        }));
    }
    let (warm_up, _) = bench.rounds();
    turns(bench.rounds(), candidates)?;
    memory.close()?;
    let skip = warm_up * arguments.tiles;
    let all: Vec<Latencies> = named
        .into_iter()
        .map(|(name, times)| summary(name, times.into_inner().split_off(skip)))
        .collect();
    print(&all);
    Ok(all)
}

/// Reads the tile of a level that contains a second, and checks that it counts every point;
/// milliseconds.
fn tile(
    db: &Database,
    stream: &headwater::StreamName,
    level: i32,
    second: i64,
    points: u64,
) -> Result<f64, Failure> {
    let shift = u32::try_from(level + 9)?;
    let offset = second >> shift;
    let level = Level::new(level).ok_or("no such level")?;
    let start = Instant::now();
    let buckets = db.snapshot()?.tile(stream, FIELD, level, offset)?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let (first, end) = (offset << shift, (offset + 1) << shift);
    let expected = end.min(BEGIN + points as i64) - first.max(BEGIN);
    let found: u64 = buckets.iter().map(|(_, a)| a.count).sum();
    if found as i64 == expected {
        Ok(took)
    } else {
        Err(format!("tile {level:?}.{offset} counts {found} points, not {expected}").into())
    }
}

fn quantile(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(at.min(last)).copied().unwrap_or(0.0)
}

fn summary(name: String, times: Vec<(i32, f64)>) -> Latencies {
    let all: Vec<f64> = times.iter().map(|(_, t)| *t).collect();
    let mut levels: Vec<i32> = times.iter().map(|(l, _)| *l).collect();
    levels.sort_unstable();
    levels.dedup();
    let at = |level: i32| -> Vec<f64> {
        let mine = times.iter().filter(|(l, _)| *l == level);
        mine.map(|(_, t)| *t).collect()
    };
    Latencies {
        name,
        tiles: all.len(),
        p50_ms: quantile(&all, 0.5),
        p99_ms: quantile(&all, 0.99),
        by_level: levels
            .iter()
            .map(|l| (*l, quantile(&at(*l), 0.5)))
            .collect(),
    }
}

fn print(all: &[Latencies]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|l| {
            let levels: Vec<String> = l
                .by_level
                .iter()
                .map(|(level, p50)| format!("{level}: {p50:.3}"))
                .collect();
            vec![
                l.name.clone(),
                l.tiles.to_string(),
                format!("{:.3}", l.p50_ms),
                format!("{:.3}", l.p99_ms),
                levels.join(", "),
            ]
        })
        .collect();
    table::print(
        &["tiles", "read", "p50 ms", "p99 ms", "p50 ms by level"],
        &rows,
    );
    println!();
}

pub(super) fn judge(all: &[Latencies], targets: &mut Targets) -> Result<(), Failure> {
    let [
        small_above,
        small_below,
        small_top,
        above,
        below,
        top,
        memory,
    ] = all
    else {
        return Err("seven kinds of tiles".into());
    };
    for (one, wanted) in [
        (small_above, 0.15),
        (small_below, 1.3),
        (above, 0.15),
        (below, 1.3),
    ] {
        targets.add(
            format!("tile p50, {}", one.name),
            Bound::AtMost(wanted),
            " ms",
            one.p50_ms,
        );
    }
    for (what, large, small) in [
        (ABOVE, above, small_above),
        (BELOW, below, small_below),
        (OVERVIEW, top, small_top),
    ] {
        targets.add(
            format!("tile {what}: the larger store against the smaller"),
            Bound::AtMost(1.3),
            " ×",
            large.p50_ms / small.p50_ms.max(1e-9),
        );
    }
    targets.add(
        format!("tile p50, {}", memory.name),
        Bound::AtMost(1.3),
        " ms",
        memory.p50_ms,
    );
    Ok(())
}
