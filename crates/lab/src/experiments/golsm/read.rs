//! G-1 to G-3 and G-8: windows read, and bytes per point.

use super::{Arguments, BEGIN, READ_TAGS, Results, TAGS, beat, sensor_values};
use crate::baselines::{Open, Points, STORES, Store, Survival, Window, bytes_in};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, time_round, turns,
};
use crate::table;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
pub(super) struct Measurement {
    reads: String,
    rounds: Rounds,
    microseconds_per_read: f64,
    /// Time of a read by that of our fastest candidate.
    times_of_first: f64,
}

/// Seconds of a written call.
const CALL: usize = 60;
const NARROW: i64 = 25;
const WIDE: i64 = 8_100;
/// G-3: windows at the end, as a dashboard of the last minutes reads them.
const LATEST: i64 = 90;

/// A store with the points in it.
struct LoadedStore {
    name: String,
    open: Open,
    dir: PathBuf,
    store: Option<Box<dyn Store>>,
    /// Opened again before each read.
    cold: bool,
}

impl LoadedStore {
    fn store(&mut self) -> Result<&mut dyn Store, Failure> {
        if self.store.is_none() {
            self.store = Some((self.open)(&self.dir, TAGS, Survival::Process)?);
        }
        match &mut self.store {
            Some(store) => Ok(store.as_mut()),
            None => Err("no store".into()),
        }
    }
}

pub(super) fn run(
    bench: &Bench,
    arguments: &Arguments,
    results: &mut Results,
    targets: &mut Targets,
) -> Result<(), Failure> {
    let seconds = arguments.seconds as usize;
    let values = sensor_values(seconds);
    let mut stores = Vec::new();
    for (name, open) in STORES {
        let mut ways = vec![("", false, true)];
        if name == "headwater" {
            ways = vec![
                (", memory", false, false),
                (", cached", false, true),
                (", cold", true, true),
            ];
        } else if !name.ends_with("paper") {
            ways.push((", cold", true, true));
        }
        for (way, cold, drained) in ways {
            let dir = bench.path("store");
            let mut store = open(&dir, TAGS, Survival::Process)?;
            fill(store.as_mut(), &values)?;
            if drained {
                store.drain()?;
            }
            if drained && !cold {
                let bytes = bytes_of(name, &dir)?;
                let points = (seconds * TAGS) as f64;
                results
                    .bytes_per_point
                    .push((name.to_owned(), bytes / points));
            }
            stores.push(LoadedStore {
                name: format!("{name}{way}"),
                open,
                dir,
                store: (!cold).then_some(store),
                cold,
            });
        }
    }
    let span = seconds as i64;
    for (what, width, from, reads) in [
        ("25 s anywhere", NARROW, 0, arguments.reads),
        (
            "90 s in the last 3 min",
            LATEST,
            span - 180,
            arguments.reads,
        ),
        (
            "8,100 s",
            WIDE.min(span * 3 / 4),
            0,
            arguments.reads.div_ceil(20),
        ),
    ] {
        let rounds = measure(bench, &mut stores, width, (from.max(0), span), reads)?;
        judge(what, &rounds, targets)?;
        let first = rounds.first().cloned().ok_or("no store")?;
        for one in rounds {
            results.reads.push(Measurement {
                reads: what.to_owned(),
                microseconds_per_read: one.seconds() * 1e6,
                times_of_first: one.times_of(&first),
                rounds: one,
            });
        }
    }
    print(results);
    for (store, bytes) in &results.bytes_per_point {
        if store == "headwater" {
            targets.add("bytes a point", Bound::AtMost(8.0), "", *bytes);
        }
    }
    Ok(())
}

fn fill(store: &mut dyn Store, values: &[Vec<f64>]) -> Result<(), Failure> {
    let count = values.first().map_or(0, Vec::len);
    let mut at = 0;
    while at < count {
        let end = (at + CALL).min(count);
        let seconds: Vec<i64> = (at..end).map(|s| BEGIN + s as i64).collect();
        let part: Vec<&[f64]> = values
            .iter()
            .map(|v| v.get(at..end).unwrap_or_default())
            .collect();
        store.write(&Window {
            seconds: &seconds,
            values: &part,
        })?;
        at = end;
    }
    Ok(())
}

/// Bytes of the points: ours without the log, which is recycled, and without the metadata's fixed
/// size.
fn bytes_of(name: &str, dir: &std::path::Path) -> std::io::Result<f64> {
    let dir = if name == "headwater" {
        dir.join("segment")
    } else {
        dir.to_owned()
    };
    Ok(bytes_in(&dir)? as f64)
}

/// Points of one of our leaves.
const LEAF: i64 = 2048;
/// Narrow cold reads between two openings: no leaf twice.
const COLD_READS: usize = 12;

/// Cold reads, and whether [`COLD_READS`] of them touch disjoint data: tags in threes, each range
/// of a leaf's length once. Otherwise the store has to be opened again for each.
fn cold_places(
    dice: &mut Random,
    width: i64,
    (from, to): (i64, i64),
    reads: u64,
) -> (Vec<([usize; READ_TAGS], i64)>, bool) {
    if width > LEAF || to - from < 4 * LEAF {
        let places = (0..reads.div_ceil(10)).map(|_| random_read(dice, width, (from, to)));
        return (places.collect(), false);
    }
    let mut out = Vec::new();
    while out.len() < reads as usize / 2 {
        let mut stretches: Vec<(usize, i64)> =
            (0..3).flat_map(|t| (0..4).map(move |s| (t, s))).collect();
        dice.shuffle(&mut stretches);
        for (tags, stretch) in stretches {
            let inside = dice.below((LEAF - width) as u64) as i64;
            let begin = BEGIN + from + stretch * LEAF + inside;
            out.push(([3 * tags, 3 * tags + 1, 3 * tags + 2], begin));
        }
    }
    (out, true)
}

/// One read: three tags and its start.
fn random_read(dice: &mut Random, width: i64, (from, to): (i64, i64)) -> ([usize; READ_TAGS], i64) {
    let mut tags: [usize; TAGS] = std::array::from_fn(|t| t);
    dice.shuffle(&mut tags);
    let room = (to - from - width).max(0) as u64;
    let begin = BEGIN + from + dice.below(room + 1) as i64;
    let [a, b, c, ..] = tags;
    ([a, b, c], begin)
}

fn measure(
    bench: &Bench,
    stores: &mut [LoadedStore],
    width: i64,
    span: (i64, i64),
    reads: u64,
) -> Result<Vec<Rounds>, Failure> {
    let candidates = stores
        .iter_mut()
        .map(|filled| {
            Candidate::new(filled.name.clone(), move |round| {
                // Everybody reads the same places in one round.
                let mut dice = Random::new(round as u64);
                let mut found = Points::default();
                let expected = (width as usize) * READ_TAGS;
                let check = |found: &Points| -> Result<(), Failure> {
                    if found.values.len() == expected {
                        Ok(())
                    } else {
                        Err(format!("{} points of {expected}", found.values.len()).into())
                    }
                };
                if !filled.cold {
                    let store = filled.store()?;
                    return time_round(|| {
                        for _ in 0..reads {
                            let (tags, begin) = random_read(&mut dice, width, span);
                            found.clear();
                            store.read(&tags, begin, begin + width - 1, &mut found)?;
                            check(&found)?;
                        }
                        Ok(reads)
                    });
                }
                let mut all = crate::harness::RoundResult::default();
                let (places, apart) = cold_places(&mut dice, width, span, reads);
                for (at, (tags, begin)) in places.into_iter().enumerate() {
                    if at % COLD_READS == 0 || !apart {
                        filled.store = None;
                        // Opens the files and reads their indexes.
                        let store = filled.store()?;
                        store.read(&[TAGS - 1], BEGIN, BEGIN, &mut found)?;
                    }
                    let store = filled.store()?;
                    found.clear();
                    let one = time_round(|| {
                        store.read(&tags, begin, begin + width - 1, &mut found)?;
                        Ok(1)
                    })?;
                    check(&found)?;
                    all.operations += 1;
                    all.wall_seconds += one.wall_seconds;
                    all.cpu_seconds += one.cpu_seconds;
                }
                Ok(all)
            })
        })
        .collect();
    let rounds = turns(bench.rounds(), candidates)?;
    same_points(stores, width, span)?;
    Ok(rounds)
}

/// Verifies that all stores return the same points, bit for bit.
fn same_points(stores: &mut [LoadedStore], width: i64, span: (i64, i64)) -> Result<(), Failure> {
    let mut dice = Random::new(99);
    for _ in 0..5 {
        let (tags, begin) = random_read(&mut dice, width, span);
        let mut first: Option<Points> = None;
        for filled in stores.iter_mut() {
            let mut found = Points::default();
            filled
                .store()?
                .read(&tags, begin, begin + width - 1, &mut found)?;
            match &first {
                None => first = Some(found),
                Some(first) if *first == found => {}
                Some(_) => return Err(format!("{} gives other points", filled.name).into()),
            }
        }
    }
    Ok(())
}

fn judge(what: &str, rounds: &[Rounds], targets: &mut Targets) -> Result<(), Failure> {
    let find = |name: &str| {
        rounds
            .iter()
            .find(|r| r.name == name)
            .ok_or_else(|| format!("no {name}"))
    };
    let (memory, cached, cold) = (
        find("headwater, memory")?,
        find("headwater, cached")?,
        find("headwater, cold")?,
    );
    let (tuned, redb) = (find("sqlite tuned")?, find("redb")?);
    let (tuned_cold, redb_cold) = (find("sqlite tuned, cold")?, find("redb, cold")?);
    match what {
        "25 s anywhere" => {
            let from = format!("read {what} × 3 tags, from memory");
            beat(
                targets,
                &from,
                &[("redb", redb.times_of(memory))],
                2.5,
                None,
            );
            beat(
                targets,
                &from,
                &[("SQLite", tuned.times_of(memory))],
                4.0,
                None,
            );
            targets.add(
                format!("read {what} × 3 tags, from cold leaves"),
                Bound::AtMost(50.0),
                " µs",
                cold.seconds() * 1e6,
            );
        }
        "8,100 s" => {
            for (how, ours, redb, tuned, wanted) in [
                ("memory", memory, redb, tuned, (15.0, 20.0)),
                ("decoded cache", cached, redb, tuned, (15.0, 20.0)),
                ("cold", cold, redb_cold, tuned_cold, (3.0, 4.0)),
            ] {
                let from = format!("read {what} × 3 tags, {how}");
                beat(
                    targets,
                    &from,
                    &[("redb", redb.times_of(ours))],
                    wanted.0,
                    None,
                );
                beat(
                    targets,
                    &from,
                    &[("SQLite", tuned.times_of(ours))],
                    wanted.1,
                    None,
                );
            }
        }
        _ => {}
    }
    Ok(())
}

fn print(results: &Results) {
    let rows: Vec<Vec<String>> = results
        .reads
        .iter()
        .map(|f| {
            vec![
                f.reads.clone(),
                f.rounds.name.clone(),
                f.rounds.time(),
                f.rounds.spread(),
                format!("{:.2}", f.times_of_first),
            ]
        })
        .collect();
    println!();
    table::print(
        &[
            "read × 3 tags",
            "store",
            "a read",
            "spread",
            "of ours from memory",
        ],
        &rows,
    );
    let rows: Vec<Vec<String>> = results
        .bytes_per_point
        .iter()
        .map(|(name, bytes)| vec![name.clone(), format!("{bytes:.2}")])
        .collect();
    println!();
    table::print(&["store", "bytes a point"], &rows);
}
