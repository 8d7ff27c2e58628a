//! Ingest and queries on files while the policy is `adaptive`, compared with `conventional`: the
//! paper's table III and figures 12 to 14.
//!
//! Memory is small (8 MiB), so that a set is flushed and merged many times. Rivals write the same
//! events in turn.

use super::Sizes;
use super::sets::{Set, paper};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, time_round_with_drain, turns,
};
use crate::table;
use headwater::{
    Batch, ClosedRange, Database, Durability, LatePolicy, Options, ScanSpec, StreamName,
    StreamRows, Timestamp, Values,
};
use serde::Serialize;
use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

const MEMORY: usize = 8 << 20;
/// Rows of a batch.
const BATCH: usize = 1_000;
/// Batches between two rounds of queries.
const BATCHES_BETWEEN: usize = 4;
/// Widths of queries, ms: the paper's.
const WIDTHS_MS: [i64; 3] = [500, 1_000, 5_000];
/// Start of the events: times are never negative.
const BEGIN: i64 = 1_704_067_200_000_000_000;

fn name() -> StreamName {
    StreamName::new("delays", [("id", "1")])
}

fn open(dir: &Path, conventional: bool) -> Result<Database, Failure> {
    let mut options = Options {
        memory_budget_bytes: MEMORY,
        durability: Durability::Written,
        ..Options::new(dir)
    };
    if conventional {
        options.late_policy = LatePolicy::conventional().into();
    }
    Ok(Database::open(options)?)
}

/// The events as batches: a value that changes a little each time.
fn batches(set: &Set, sizes: &Sizes) -> Vec<StreamRows> {
    let times = set.make(sizes.points, sizes.seed).generated;
    let mut random = Random::new(sizes.seed);
    let mut hundredths = 2_000i64;
    times
        .chunks(BATCH)
        .map(|part| {
            let mut rows = StreamRows::new(name());
            rows.times = part.iter().map(|t| BEGIN + t).collect();
            let values = part
                .iter()
                .map(|_| {
                    hundredths += random.below(7) as i64 - 3;
                    hundredths as f64 / 100.0
                })
                .collect();
            rows.with_column("v", Values::F64(values))
        })
        .collect()
}

fn write(db: &Database, rows: &StreamRows) -> Result<u64, Failure> {
    let mut batch = Batch::new();
    batch.push(rows.clone());
    Ok(db.commit(batch)?.accepted)
}

/// Rounds of one set.
#[derive(Serialize)]
pub(crate) struct Ingest {
    set: String,
    adaptive: Rounds,
    conventional: Rounds,
}

/// Writes each set as fast as possible, and drains it.
pub(crate) fn ingest(
    bench: &Bench,
    sizes: &Sizes,
    targets: &mut Targets,
) -> Result<Vec<Ingest>, Failure> {
    let mut all = Vec::new();
    for set in paper() {
        let batches = batches(&Set::Paper(set), sizes);
        let candidate = |conventional: bool| {
            let batches = &batches;
            let title = if conventional {
                "conventional"
            } else {
                "adaptive"
            };
            Candidate::new(title, move |_| {
                let dir = bench.path("ingest");
                let mut db = open(&dir, conventional)?;
                let taken = time_round_with_drain(
                    &mut db,
                    |db| batches.iter().map(|rows| write(db, rows)).sum(),
                    |db| Ok(db.flush()?),
                )?;
                db.close()?;
                drop(db);
                std::fs::remove_dir_all(dir)?;
                Ok(taken)
            })
        };
        let mut rounds = turns(bench.rounds(), vec![candidate(false), candidate(true)])?;
        let conventional = rounds.pop().ok_or("no rounds")?.drained();
        let adaptive = rounds.pop().ok_or("no rounds")?.drained();
        eprintln!("{}: ingest done", set.name());
        all.push(Ingest {
            set: set.name(),
            adaptive,
            conventional,
        });
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|i| {
            vec![
                i.set.clone(),
                format!("{:.2}", i.adaptive.per_second() / 1e6),
                i.adaptive.spread(),
                format!("{:.2}", i.conventional.per_second() / 1e6),
                i.conventional.spread(),
                format!("{:.2} ×", i.conventional.times_of(&i.adaptive)),
            ]
        })
        .collect();
    println!("\nIngest, drained, memory of 8 MiB, batches of {BATCH}, on files, unsynced:\n");
    table::print(
        &[
            "set",
            "adaptive, million/s",
            "spread",
            "conventional, million/s",
            "spread",
            "throughput, adaptive of conventional",
        ],
        &rows,
    );
    for one in &all {
        targets.add(
            format!("{}: throughput, adaptive of conventional, drained", one.set),
            Bound::AtLeast(0.95),
            " ×",
            one.conventional.times_of(&one.adaptive),
        );
    }
    Ok(all)
}

/// Latencies of one kind of query on one set, µs: the median of each round, and its 99th
/// percentile.
#[derive(Serialize)]
pub(crate) struct Query {
    set: String,
    kind: &'static str,
    width_ms: i64,
    queries: usize,
    adaptive: [Spread; 2],
    conventional: [Spread; 2],
}

/// A measurement of several rounds.
#[derive(Clone, Copy, Serialize)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(rounds: impl Iterator<Item = f64>) -> Spread {
        let all: Vec<f64> = rounds.collect();
        let (median, _, _) = table::median(all.clone());
        Spread {
            median,
            least: all.iter().copied().fold(f64::MAX, f64::min),
            most: all.iter().copied().fold(0.0, f64::max),
        }
    }

    /// Whether it is larger by more than the variation of rounds.
    fn is_above(&self, other: &Spread) -> bool {
        self.median > other.most && self.least > other.median
    }
}

/// Latencies by kind (recent, historical) and width.
type Latencies = [[Vec<f64>; WIDTHS_MS.len()]; 2];

const KINDS: [&str; 2] = ["recent", "historical"];

/// Writes a set and queries it while it is written: the newest stretch, and one at a random place.
pub(crate) fn queries(
    bench: &Bench,
    sizes: &Sizes,
    targets: &mut Targets,
) -> Result<Vec<Query>, Failure> {
    let mut all = Vec::new();
    for set in paper() {
        let batches = batches(&Set::Paper(set), sizes);
        let latencies: [RefCell<Vec<Latencies>>; 2] = Default::default();
        // Results of every query of a round: equal under both policies.
        let found = RefCell::new(Vec::<Vec<u64>>::new());
        let candidates = latencies
            .iter()
            .enumerate()
            .map(|(index, latencies)| {
                let (batches, found) = (&batches, &found);
                Candidate::new(["adaptive", "conventional"][index], move |round| {
                    let dir = bench.path("queries");
                    let db = open(&dir, index == 1)?;
                    let (warm_up, _) = bench.rounds();
                    let (mut told, mut took) = (Vec::new(), Latencies::default());
                    let seconds =
                        query_while_writing(&db, batches, sizes.seed, &mut told, &mut took)?;
                    if round >= warm_up {
                        latencies.borrow_mut().push(took);
                    }
                    db.close()?;
                    drop(db);
                    std::fs::remove_dir_all(dir)?;
                    found.borrow_mut().push(told);
                    Ok(crate::harness::RoundResult {
                        operations: batches.len() as u64,
                        wall_seconds: seconds,
                        ..Default::default()
                    })
                })
            })
            .collect();
        turns(bench.rounds(), candidates)?;
        if !found.borrow().windows(2).all(|pair| pair[0] == pair[1]) {
            return Err(format!("{}: the policies answer differently", set.name()).into());
        }
        eprintln!("{}: queries done", set.name());
        let [adaptive, conventional] = latencies.map(RefCell::into_inner);
        for (kind_index, kind) in KINDS.into_iter().enumerate() {
            for (width, width_ms) in WIDTHS_MS.into_iter().enumerate() {
                let told = |rounds: &[Latencies]| {
                    [50, 99].map(|percent| {
                        Spread::of(
                            rounds
                                .iter()
                                .map(|r| quantile(&r[kind_index][width], percent)),
                        )
                    })
                };
                all.push(Query {
                    set: set.name(),
                    kind,
                    width_ms,
                    queries: adaptive.iter().map(|r| r[kind_index][width].len()).sum(),
                    adaptive: told(&adaptive),
                    conventional: told(&conventional),
                });
            }
        }
    }
    print_queries(&all, targets);
    Ok(all)
}

fn quantile(results: &[f64], percent: usize) -> f64 {
    let mut results = results.to_vec();
    results.sort_by(f64::total_cmp);
    let at = (results.len() * percent / 100).min(results.len().saturating_sub(1));
    results.get(at).copied().unwrap_or(0.0)
}

fn query_while_writing(
    db: &Database,
    batches: &[StreamRows],
    seed: u64,
    found: &mut Vec<u64>,
    latencies: &mut Latencies,
) -> Result<f64, Failure> {
    let mut random = Random::new(seed);
    let start = Instant::now();
    let mut newest = BEGIN;
    for (index, rows) in batches.iter().enumerate() {
        write(db, rows)?;
        newest = rows.times.iter().copied().fold(newest, i64::max);
        if index % BATCHES_BETWEEN != BATCHES_BETWEEN - 1 {
            continue;
        }
        for (kind, _) in KINDS.iter().enumerate() {
            for (at, width_ms) in WIDTHS_MS.into_iter().enumerate() {
                let width = width_ms * 1_000_000;
                let from = if kind == 0 {
                    newest - width
                } else {
                    BEGIN + random.below((newest - BEGIN - width).max(1) as u64) as i64
                };
                let range = ClosedRange::new(
                    Timestamp::from_nanos(from + 1),
                    Timestamp::from_nanos(from + width),
                );
                let spec = ScanSpec {
                    range,
                    ..ScanSpec::default()
                };
                let begun = Instant::now();
                let mut rows = 0;
                for chunk in db.snapshot()?.scan(&name(), &spec)? {
                    rows += chunk?.times.len() as u64;
                }
                let took = begun.elapsed().as_secs_f64() * 1e6;
                found.push(rows);
                latencies[kind][at].push(took);
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn print_queries(all: &[Query], targets: &mut Targets) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|q| {
            vec![
                q.set.clone(),
                format!("{}, {} ms", q.kind, q.width_ms),
                q.queries.to_string(),
                format!("{:.1}", q.adaptive[0].median),
                format!("{:.1}", q.conventional[0].median),
                format!("{:.1}", q.adaptive[1].median),
                format!("{:.1}", q.conventional[1].median),
            ]
        })
        .collect();
    println!("\nQueries while a set is written, µs:\n");
    table::print(
        &[
            "set",
            "query",
            "queries",
            "p50 adaptive",
            "p50 conventional",
            "p99 adaptive",
            "p99 conventional",
        ],
        &rows,
    );
    for kind in KINDS {
        for (at, name) in ["p50", "p99"].into_iter().enumerate() {
            let of_kind = || all.iter().filter(|q| q.kind == kind);
            let slower = of_kind().filter(|q| q.adaptive[at].is_above(&q.conventional[at]));
            targets.add(
                format!(
                    "{kind} queries while writing: sets and widths, of {}, whose {name} is above conventional's beyond the \
                     spread of rounds",
                    of_kind().count()
                ),
                Bound::AtMost(0.0),
                "",
                slower.count() as f64,
            );
            let ratios =
                of_kind().map(|q| q.adaptive[at].median / q.conventional[at].median.max(1e-9));
            targets.add(
                format!("… {name} of adaptive by conventional's, median over them"),
                Bound::AtMost(1.0),
                " ×",
                table::median(ratios.collect()).0,
            );
        }
    }
}
