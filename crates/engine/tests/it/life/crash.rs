//! Power cuts all over a life with retention, aging and expiry.

use super::{DAY, SECOND, count, stream, times};
use crate::support::{START, small_options};
use headwater_codec::{Batch, ClosedRange, Timestamp, Value};
use headwater_engine::{Database, Error, Options, TableSpec};
use headwater_io::{Clock, Env, FaultyFiles, ManualClock, NoThreads};
use std::sync::Arc;

/// What a life under test handed in, and how far it came.
#[derive(Default)]
struct Handed {
    /// Stream, time, expiry, and whether it was acknowledged.
    rows: Vec<(i64, i64, Option<i64>, bool)>,
}

const HALF_DAY: i64 = 43_200 * SECOND;

/// Four days in half-days: events every half hour, some that expire after six hours, flushes and compactions, and with them
/// retention after two days and aging after one.
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
    for cut in (0..operations).step_by(5) {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut handed = Handed::default();
        let (env, ended) = live(&disk, &mut handed);
        if !disk.crashed() {
            ended.unwrap();
            continue;
        }
        for seed in 0..3 {
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
