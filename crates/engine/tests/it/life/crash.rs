//! Power cuts all over a life with retention, aging and expiry.

use super::{DAY, SECOND, count, stream, times};
use crate::cuts::{cuts, seeds};
use crate::support::{START, small_options};
use headwater_engine::{
    AggregateSpec, Bins, Database, Duplicates, Error, ErrorKind, Options, REFUSED_ENDED, TableSpec,
};
use headwater_io::{Clock, Env, FaultyFiles, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, Timestamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a life under test handed in, and how far it came.
#[derive(Default)]
struct Handed {
    /// Stream, time, expiry, and whether it was acknowledged.
    rows: Vec<(i64, i64, Option<i64>, bool)>,
}

const HALF_DAY: i64 = 43_200 * SECOND;

/// Four days in half-days: events every half hour, some that expire after six hours, flushes and
/// compactions, and with them retention after two days and aging after one.
fn four_days(
    env: &Env,
    clock: &ManualClock,
    options: &Options,
    handed: &mut Handed,
) -> Result<(), Error> {
    let db = Database::open_in(env.clone(), options.clone())?;
    let spec = TableSpec {
        retention: Some(DAY * 2),
        raw_for: Some(DAY),
        ..TableSpec::new("m")
    };
    db.create_table(&spec)?;
    for half_day in 0..8 {
        let now = clock.now().as_nanos();
        for expires_at in [None, Some(now + HALF_DAY / 2)] {
            let name = stream(if expires_at.is_none() { 1 } else { 2 });
            let mut batch = Batch::new();
            if let Some(at) = expires_at {
                batch.expire_at(Timestamp::from_nanos(at));
            }
            let from = handed.rows.len();
            for i in 0..24 {
                let time = now - HALF_DAY + i * 1800 * SECOND;
                batch
                    .stream(&name)
                    .row(time, [("v", Value::F64(i as f64))])
                    .unwrap();
                handed.rows.push((
                    if expires_at.is_none() { 1 } else { 2 },
                    time,
                    expires_at,
                    false,
                ));
            }
            let written = db.commit(batch)?;
            assert!(written.refused.is_empty(), "{:?}", written.refused);
            handed.rows[from..].iter_mut().for_each(|r| r.3 = true);
        }
        if half_day % 2 == 0 {
            db.flush()?;
        } else {
            db.compact()?;
        }
        clock.advance(DAY / 2);
    }
    db.close()
}

/// What must hold after the crash, whenever it came.
fn check_after_a_crash(env: &Env, options: &Options, handed: &Handed, what: &str) {
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    let now = env.clock.now().as_nanos();
    for compacted in [false, true] {
        if compacted {
            db.compact().unwrap();
        }
        let snapshot = db.snapshot().unwrap();
        for id in [1, 2] {
            let name = stream(id);
            let of = |least: i64, acknowledged: bool| -> Vec<i64> {
                let rows = handed.rows.iter().filter(|(s, time, expiry, acked)| {
                    *s == id
                        && *time >= least
                        && expiry.is_none_or(|e| e > now)
                        && (*acked || !acknowledged)
                });
                rows.map(|(_, time, ..)| *time).collect()
            };
            let (found, counted) = match snapshot.last(&name) {
                Ok(_) => (
                    times(&snapshot, &name),
                    count(&snapshot, &name, ClosedRange::ALL),
                ),
                Err(_) => (Vec::new(), 0),
            };
            let everything = of(i64::MIN, false);
            assert!(found.iter().all(|t| everything.contains(t)), "{what}: {id}");
            // Rows are there for a day at least, aggregates of them for two.
            for time in of(now - 2 * HALF_DAY, true) {
                assert!(found.contains(&time), "{what}: {id}: {time} is gone");
            }
            let least = of(now - 4 * HALF_DAY, true).len() as u64;
            let most = everything.len() as u64;
            assert!(
                (least..=most).contains(&counted),
                "{what}: {id}: {counted} of {least} to {most}"
            );
            if compacted {
                let kept = of(now - 4 * HALF_DAY - HALF_DAY / 4, false).len() as u64;
                assert!(
                    counted <= kept,
                    "{what}: {id}: {counted}, {kept} can be left"
                );
            }
        }
    }
    db.close().unwrap();
    drop(db);
    let report = headwater_engine::check(env.clone(), options.clone()).unwrap();
    assert!(report.is_sound(), "{what}: {:#?}", report.damages);
}

#[test]
fn retention_aging_and_expiry_survive_a_power_cut_at_any_operation() {
    let options = Options {
        clock_jump_max: DAY * 10,
        ..small_options()
    };
    let live = |disk: &FaultyFiles, handed: &mut Handed| {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let env = Env {
            files: Arc::new(disk.clone()),
            threads: Arc::new(NoThreads),
            clock: Arc::clone(&clock) as Arc<_>,
            ..Env::memory()
        };
        let ended = four_days(&env, &clock, &options, handed);
        (env, ended)
    };
    let whole = FaultyFiles::new(1);
    let mut handed = Handed::default();
    let (env, ended) = live(&whole, &mut handed);
    ended.unwrap();
    let operations = whole.operations();
    check_after_a_crash(&env, &options, &handed, "uncut");
    for cut in cuts(operations, 5) {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut handed = Handed::default();
        let (env, ended) = live(&disk, &mut handed);
        if !disk.crashed() {
            ended.unwrap();
            continue;
        }
        for seed in seeds(3) {
            let env = Env {
                files: Arc::new(disk.after_crash(seed)),
                ..env.clone()
            };
            let what = format!(
                "cut at {cut} of {operations} ({}), seed {seed}",
                disk.interrupted().unwrap_or_default()
            );
            check_after_a_crash(&env, &options, &handed, &what);
        }
    }
}

/// The values of each row of one stream, by time.
type Rows = BTreeMap<i64, Vec<f64>>;

fn count_and_sum(rows: &Rows) -> (u64, f64) {
    let values = rows.values().flatten();
    (values.clone().count() as u64, values.sum())
}

/// Rows of a table whose rows are aged after a day, and which of them were acknowledged.
#[derive(Default)]
struct Counted {
    acknowledged: Rows,
    /// As it would be with the batch that was being written.
    perhaps: Option<Rows>,
}

/// Half-days with rows in order and late ones, flushes and compactions, and three openings: before
/// the second the clock jumps years ahead, before the third it is put right. Nothing ends, so the
/// counts are exact.
fn three_openings(
    env: &Env,
    clock: &ManualClock,
    options: &Options,
    duplicates: Duplicates,
    counted: &mut Counted,
) -> Result<(), Error> {
    const WRONG: i64 = 3 * 365 * 2 * HALF_DAY;
    let mut now = START;
    for opening in 0..3 {
        let ahead = if opening == 1 { WRONG } else { 0 };
        clock.set(Timestamp::from_nanos(now + ahead));
        let db = Database::open_in(env.clone(), options.clone())?;
        if opening == 0 {
            let spec = TableSpec {
                raw_for: Some(DAY),
                duplicates,
                ..TableSpec::new("m")
            };
            db.create_table(&spec)?;
        }
        for half_day in 0..5 {
            let in_order = (0..24).map(|i| now - HALF_DAY + i * 1800 * SECOND);
            let late = (1..8).map(|i| now - i * HALF_DAY / 3 * 2);
            let mut batch = Batch::new();
            let floor = db.tables()[0].aged_to.map_or(i64::MIN, Timestamp::as_nanos);
            let mut after = counted.acknowledged.clone();
            for (i, time) in in_order.chain(late).enumerate() {
                let value = (i * 7 + half_day) as f64;
                let row = [("v", Value::F64(value))];
                batch.stream(&stream(1)).row(time, row).unwrap();
                if time >= floor {
                    let values = after.entry(time).or_default();
                    if duplicates == Duplicates::Last {
                        values.clear();
                    }
                    values.push(value);
                }
            }
            counted.perhaps = Some(after.clone());
            let written = db.commit(batch)?;
            assert!(written.refused.iter().all(|r| r.code == REFUSED_ENDED));
            counted.acknowledged = after;
            counted.perhaps = None;
            match (half_day + opening) % 3 {
                0 => db.flush()?,
                1 => db.compact()?,
                _ => {}
            }
            now += HALF_DAY;
            clock.advance(DAY / 2);
        }
        if opening != 1 {
            db.close()?;
        }
    }
    Ok(())
}

fn check_counts(env: &Env, clock: &ManualClock, options: &Options, counted: &Counted, what: &str) {
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    let found = |what: &str| -> (u64, f64) {
        let snapshot = db.snapshot().unwrap();
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            first_last: false,
        };
        match snapshot.aggregate(&stream(1), "v", &spec) {
            Ok(bins) => bins.first().map_or((0, 0.0), |bin| {
                let count = bin.aggregate.count;
                (count, bin.aggregate.mean().unwrap() * count as f64)
            }),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}");
                (0, 0.0)
            }
        }
    };
    let same = |a: (u64, f64), b: (u64, f64)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6;
    let first = found(what);
    let least = count_and_sum(&counted.acknowledged);
    let most = counted.perhaps.as_ref().map(count_and_sum);
    assert!(
        same(first, least) || most.is_some_and(|most| same(first, most)),
        "{what}: found {first:?}, expected {least:?} or {most:?}"
    );
    for at in ["compacted", "aged"] {
        db.compact().unwrap();
        let now = found(what);
        assert!(same(now, first), "{what}, {at}: {now:?} of {first:?}");
        clock.advance(DAY * 3);
    }
    db.close().unwrap();
    drop(db);
    let report = headwater_engine::check(env.clone(), options.clone()).unwrap();
    assert!(report.is_sound(), "{what}: {:#?}", report.damages);
}

fn counts_are_exact(duplicates: Duplicates) {
    let options = small_options();
    let live = |disk: &FaultyFiles, counted: &mut Counted| {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let env = Env {
            files: Arc::new(disk.clone()),
            threads: Arc::new(NoThreads),
            clock: Arc::clone(&clock) as Arc<_>,
            ..Env::memory()
        };
        let ended = three_openings(&env, &clock, &options, duplicates, counted);
        (env, clock, ended)
    };
    let whole = FaultyFiles::new(1);
    let mut counted = Counted::default();
    let (env, clock, ended) = live(&whole, &mut counted);
    ended.unwrap();
    let operations = whole.operations();
    check_counts(&env, &clock, &options, &counted, "uncut");
    for cut in cuts(operations, 10) {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut counted = Counted::default();
        let (env, clock, ended) = live(&disk, &mut counted);
        if !disk.crashed() {
            ended.unwrap();
            continue;
        }
        let env = Env {
            files: Arc::new(disk.after_crash(cut)),
            ..env
        };
        let what = format!(
            "{duplicates:?}, cut at {cut} of {operations} ({})",
            disk.interrupted().unwrap_or_default()
        );
        check_counts(&env, &clock, &options, &counted, &what);
    }
}

#[test]
fn counts_of_what_is_aged_are_exact_after_a_power_cut_at_any_operation() {
    counts_are_exact(Duplicates::Last);
}

#[test]
fn counts_of_what_is_aged_are_exact_after_a_power_cut_where_all_rows_are_kept() {
    counts_are_exact(Duplicates::Keep);
}
