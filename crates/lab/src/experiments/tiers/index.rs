//! Queries with the index in the fast tier and without, while every read of the large medium takes
//! 200 µs.

use super::FastTierDir;
use super::slow::{Reading, Slow};
use crate::baselines::{Survival, options};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, real, signed, time_round, turns,
    unsigned,
};
use crate::table;
use headwater::{
    AggregateSpec, Batch, Bins, ClosedRange, Comparison, Database, Filter, Level, ScanSpec,
    StreamName, StreamRows, Value, Values,
};
use headwater_engine::TierParts;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(200);
const BEGIN: i64 = 1_700_000_000;
const NANOS: i64 = 1_000_000_000;
const BATCH: usize = 10_000;

#[derive(Serialize)]
pub(super) struct QueryCase {
    what: &'static str,
    with: Rounds,
    without: Rounds,
    reads_with: f64,
    reads_without: f64,
}

/// A database on the slow medium.
struct SlowDatabase {
    db: Database,
    reading: Arc<Reading>,
}

fn name() -> StreamName {
    StreamName::new("sine", [("id", "0")])
}

/// Six floats an event, of which one is above 0.999 in one of a thousand spans.
fn fill(db: &Database, points: usize) -> Result<(), Failure> {
    let mut dice = Random::new(5);
    for first in (0..points).step_by(BATCH) {
        let seconds: Vec<usize> = (first..(first + BATCH).min(points)).collect();
        let mut rows = StreamRows::new(name());
        rows.times = seconds
            .iter()
            .map(|s| (BEGIN + signed(*s)) * NANOS)
            .collect();
        for field in 0..6 {
            let value = |second: &usize| {
                let wave = (real(*second) / (600.0 + f64::from(field) * 77.0)).sin() * 0.9;
                let is_rare = field == 0 && (second / 1_000).is_multiple_of(1_000);
                if is_rare {
                    1.5
                } else {
                    wave + dice.unit() * 0.01
                }
            };
            let values = seconds.iter().map(value).collect();
            rows = rows.with_column(format!("x{field}"), Values::F64(values));
        }
        let mut batch = Batch::new();
        batch.push(rows);
        db.commit(batch)?;
    }
    db.flush()?;
    db.compact()?;
    Ok(())
}

/// Opens the database in a folder, its large medium slow from the start.
fn open(dir: &Path, fast: &FastTierDir, with_index: bool) -> Result<SlowDatabase, Failure> {
    let mut options = options(dir, Survival::Process);
    // Data cached in memory is not queried.
    options.memory_budget_bytes = 1 << 20;
    options.fast_dir = Some(fast.tier(dir));
    options.fast_parts = TierParts {
        index: with_index,
        pins: true,
        ..TierParts::NONE
    };
    let (env, reading) = Slow::env(LATENCY);
    let db = Database::open_in(env, options)?;
    Ok(SlowDatabase { db, reading })
}

/// A query; returns the number of matching rows or buckets.
type QueryFn = fn(&Database, &mut Random, usize) -> Result<usize, Failure>;

fn tile(db: &Database, dice: &mut Random, points: usize) -> Result<usize, Failure> {
    let level = Level::clamped(8 + i32::try_from(dice.below(5)).unwrap_or(0));
    let second = BEGIN + signed(dice.below(unsigned(points)));
    let offset = second >> (level.get() + 9);
    let found = db.snapshot()?.tile(&name(), "x1", level, offset)?;
    Ok(found.len())
}

fn aggregate(db: &Database, dice: &mut Random, points: usize) -> Result<usize, Failure> {
    // Whole buckets of about an hour.
    let width = 1i64 << 12;
    let first = (BEGIN + signed(dice.below(unsigned(points) / 2))) / width * width;
    let range = ClosedRange::nanos(first * NANOS, (first + 64 * width) * NANOS - 1);
    let spec = AggregateSpec {
        range,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = db.snapshot()?.aggregate(&name(), "x2", &spec)?;
    Ok(bins.len())
}

fn filter(db: &Database, _: &mut Random, _: usize) -> Result<usize, Failure> {
    let spec = ScanSpec {
        filters: vec![Filter {
            field: "x0".to_owned(),
            comparison: Comparison::Greater,
            value: Value::F64(1.0),
        }],
        ..ScanSpec::default()
    };
    let mut rows = 0;
    for chunk in db.snapshot()?.scan(&name(), &spec)? {
        rows += chunk?.times.len();
    }
    Ok(rows)
}

pub(super) fn measure(
    bench: &Bench,
    fast: &FastTierDir,
    points: usize,
    targets: &mut Targets,
) -> Result<Vec<QueryCase>, Failure> {
    let dirs = [bench.path("indexed"), bench.path("plain")];
    for (dir, with_index) in dirs.iter().zip([true, false]) {
        let side = open(dir, fast, with_index)?;
        fill(&side.db, points)?;
        // The copies of the index are made in the background.
        side.db.maintain()?;
        side.db.close()?;
    }
    let [indexed, plain] = &dirs;
    let sides = [open(indexed, fast, true)?, open(plain, fast, false)?];
    let [with_index, _] = &sides;
    size(&with_index.db, targets)?;
    let asked: [(&'static str, QueryFn, u64); 3] = [
        ("tile at or above the base level", tile, 200),
        ("aggregate over whole buckets", aggregate, 200),
        ("filter that 0.1 % of stretches meet", filter, 5),
    ];
    let mut questions = Vec::new();
    for (what, ask, times) in asked {
        let mut reads = [0.0; 2];
        let candidates = sides.iter().zip(&mut reads).map(|(side, reads)| {
            Candidate::new(what, move |round| {
                let mut dice = Random::new(unsigned(round));
                let before = side.reading.reads();
                let taken = time_round(|| {
                    let mut found = 0;
                    for _ in 0..times {
                        found += ask(&side.db, &mut dice, points)?;
                    }
                    match found {
                        0 => Err("nothing was found".into()),
                        _ => Ok(times),
                    }
                })?;
                *reads = real(side.reading.reads() - before) / real(times);
                Ok(taken)
            })
        });
        let rounds = turns(bench.rounds(), candidates.collect())?;
        let [with, without] = <[Rounds; 2]>::try_from(rounds).map_err(|_| "two sides")?;
        let [reads_with, reads_without] = reads;
        questions.push(QueryCase {
            what,
            with,
            without,
            reads_with,
            reads_without,
        });
    }
    print(&questions);
    for question in &questions {
        targets.add(
            format!("{}: time with by without", question.what),
            Bound::AtMost(0.6),
            " ×",
            question.with.times_of(&question.without),
        );
    }
    if let Some(tile) = questions.first() {
        targets.add(
            "reads of the large medium for a tile",
            Bound::AtMost(0.0),
            "",
            tile.reads_with,
        );
    }
    Ok(questions)
}

/// Size of rebuildable data, relative to the other data (E-13).
fn size(db: &Database, targets: &mut Targets) -> Result<(), Failure> {
    let stats = db.stats()?;
    let (secondary, primary) = (stats.fast_index_bytes, stats.segment_bytes);
    println!("\nE-13: {secondary} bytes of the index in the tier beside {primary} of segments\n");
    targets.add(
        "E-13: the index, which can be made anew, by the segments",
        Bound::AtMost(0.1),
        " ×",
        real(secondary) / real(primary.max(1)),
    );
    Ok(())
}

fn print(questions: &[QueryCase]) {
    let line = |q: &QueryCase| {
        vec![
            q.what.to_owned(),
            q.with.time(),
            q.with.spread(),
            format!("{:.2}", q.reads_with),
            q.without.time(),
            q.without.spread(),
            format!("{:.2}", q.reads_without),
            format!("{:.2} ×", q.with.times_of(&q.without)),
        ]
    };
    let heads = [
        "large medium at 200 µs a read",
        "index in the tier",
        "spread",
        "reads",
        "without",
        "spread",
        "reads",
        "time",
    ];
    table::print(&heads, &questions.iter().map(line).collect::<Vec<_>>());
}
