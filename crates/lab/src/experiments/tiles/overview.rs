//! the whole channel in about a thousand buckets, as it grows; ours and SQLite tuned, whose
//! answers must agree.

use super::channel::{BEGIN, Channel, FIELD, stream};
use super::{add_ratio, name_of};
use crate::baselines::{Overview, Sqlite, Store, Survival, Window, options};
use crate::harness::{Bench, Bound, Candidate, Failure, Rounds, Targets, time_round, turns};
use crate::table;
use headwater::{AggregateSpec, Bins, ClosedRange, Database, Extremes, Level, Timestamp};
use std::path::Path;

/// SQLite reads every row: beyond this many it is left out.
const SQLITE_MAX: u64 = 1_000_000;
const OURS: &str = "headwater";
const THEIRS: &str = "sqlite tuned";

/// The level at which `points` seconds are 512 to 1,023 buckets; the finest bucket is a second.
fn level(points: u64) -> u32 {
    points.max(1).ilog2().saturating_sub(9)
}

pub(super) fn measure(
    bench: &Bench,
    sizes: &[u64],
    large: &Path,
    large_points: u64,
) -> Result<Vec<Rounds>, Failure> {
    let mut candidates = Vec::new();
    for points in sizes {
        let (dir, rival_dir) = (bench.path("overview"), bench.path("sqlite"));
        let db = Database::open(options(&dir, Survival::Process))?;
        Channel::new().write(&db, *points, 1_000)?;
        db.flush()?;
        let expected = ours(&db, *points)?;
        candidates.push(candidate(db, *points));
        if *points > SQLITE_MAX {
            continue;
        }
        let mut sqlite = Sqlite::open(&rival_dir, Survival::Process)?;
        let (seconds, values) = Channel::new().take(*points);
        sqlite.write(&Window {
            seconds: &seconds,
            values: &[&values],
        })?;
        sqlite.drain()?;
        same(&expected, &theirs(&sqlite, *points)?)?;
        let points = *points;
        candidates.push(Candidate::new(name_of(THEIRS, points), move |_| {
            time_round(|| theirs(&sqlite, points).map(|_| 1))
        }));
    }
    let db = Database::open(options(large, Survival::Process))?;
    candidates.push(candidate(db, large_points));
    let rounds = turns(bench.rounds(), candidates)?;
    let rows: Vec<Vec<String>> = rounds
        .iter()
        .map(|r| vec![r.name.clone(), r.time(), r.spread()])
        .collect();
    table::print(
        &["whole channel in 512 to 1,023 buckets", "a query", "spread"],
        &rows,
    );
    println!();
    Ok(rounds)
}

fn candidate<'a>(db: Database, points: u64) -> Candidate<'a> {
    const TIMES: u64 = 20;
    Candidate::new(name_of(OURS, points), move |_| {
        time_round(|| {
            for _ in 0..TIMES {
                ours(&db, points)?;
            }
            Ok(TIMES)
        })
    })
}

fn ours(db: &Database, points: u64) -> Result<Overview, Failure> {
    let level = Level::new(i32::try_from(level(points))?).ok_or("no such level")?;
    let nanos = |second: i64| Timestamp::from_nanos(second * 1_000_000_000);
    let spec = AggregateSpec {
        range: ClosedRange::new(nanos(BEGIN), nanos(BEGIN + points as i64 - 1)),
        bins: Bins::Level(level),
        first_last: false,
    };
    let bins = db.snapshot()?.aggregate(&stream()?, FIELD, &spec)?;
    bins.iter()
        .map(|bin| {
            let aggregate = &bin.aggregate;
            let Extremes::F64(least, greatest) = aggregate.extremes else {
                return Err("a bin without extremes".into());
            };
            let mean = aggregate.mean().ok_or("a bin without a mean")?;
            let number = level.bucket_of(bin.start);
            Ok((
                number,
                i64::try_from(aggregate.count)?,
                least,
                greatest,
                mean,
            ))
        })
        .collect()
}

fn theirs(sqlite: &Sqlite, points: u64) -> Result<Overview, Failure> {
    sqlite.overview(BEGIN, BEGIN + points as i64 - 1, level(points))
}

fn same(ours: &Overview, theirs: &Overview) -> Result<(), Failure> {
    let equal = ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(a, b)| {
            (a.0, a.1, a.2, a.3) == (b.0, b.1, b.2, b.3)
                && (a.4 - b.4).abs() <= 1e-9 * a.4.abs().max(1.0)
        });
    if equal {
        Ok(())
    } else {
        Err(format!(
            "SQLite gives another overview: {:?} and {:?}",
            ours.first(),
            theirs.first()
        )
        .into())
    }
}

pub(super) fn judge(rounds: &[Rounds], targets: &mut Targets) {
    let ours: Vec<&Rounds> = rounds.iter().filter(|r| r.name.starts_with(OURS)).collect();
    add_ratio(
        targets,
        "R-2: overview of the largest store against the smallest".to_owned(),
        Bound::AtMost(1.3),
        ours.last().copied(),
        ours.first().copied(),
    );
    for one in &ours {
        let rival = one.name.replacen(OURS, THEIRS, 1);
        let rival = rounds.iter().find(|r| r.name == rival);
        let what = format!("R-2: overview, {}, against SQLite", one.name);
        add_ratio(targets, what, Bound::AtMost(1.0), Some(one), rival);
    }
}
