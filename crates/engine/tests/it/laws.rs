//! The laws of the design (section 2), each a test of its name. The model test and the crash sweep
//! check them on random input.

use crate::model::{Random, same_aggregate};
use headwater_engine::{
    AggregateSpec, Bins, Database, Duplicates, ErrorKind, FlushRule, LatePolicy, Options,
    REFUSED_TYPE, ScanSpec, Snapshot, Stats, TableSpec, check,
};
use headwater_io::{Clock, Env, FaultyFiles, ManualClock, MemoryFiles, NoThreads};
use headwater_types::{
    Aggregate, Batch, ClosedRange, Column, FieldType, Level, StreamName, StreamRows, Timestamp,
    Value, Values,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 1,
        leaf_events: 64,
        bucket_events: 8,
        ..Options::new("/db")
    }
}

fn memory() -> Env {
    Env {
        threads: Arc::new(NoThreads),
        files: Arc::new(MemoryFiles::new()),
        ..Env::memory()
    }
}

fn sensor(id: usize) -> StreamName {
    StreamName::new("sensors", [("id", id.to_string())])
}

fn floats(name: &StreamName, rows: &[(i64, f64)]) -> Batch {
    let mut batch = Batch::new();
    let mut entry = StreamRows::new(name.clone());
    entry.times = rows.iter().map(|(t, _)| *t).collect();
    batch.push(entry.with_column("v", Values::F64(rows.iter().map(|(_, v)| *v).collect())));
    batch
}

fn scan(db: &Database, name: &StreamName) -> Vec<(i64, Option<Value>)> {
    let snapshot = db.snapshot().unwrap();
    let mut out = Vec::new();
    for chunk in snapshot.scan(name, &ScanSpec::default()).unwrap() {
        let chunk = chunk.unwrap();
        out.extend(
            chunk
                .times
                .iter()
                .copied()
                .zip(chunk.columns[0].to_values()),
        );
    }
    out
}

#[test]
fn law_1_what_was_acknowledged_is_found_after_any_crash() {
    for seed in 0..8 {
        let mut files = FaultyFiles::new(seed);
        let mut written: BTreeMap<i64, f64> = BTreeMap::new();
        for round in 0..6i64 {
            let env = Env {
                files: Arc::new(files.clone()),
                threads: Arc::new(NoThreads),
                ..Env::memory()
            };
            let db = Database::open_in(env, options()).unwrap();
            for batch in 0..5i64 {
                let rows: Vec<(i64, f64)> = (0..20)
                    .map(|i| {
                        (
                            ((round * 5 + batch) * 37 + i * 11) % 900,
                            (round * 100 + i) as f64,
                        )
                    })
                    .collect();
                db.commit(floats(&sensor(1), &rows)).unwrap();
                for (t, v) in rows {
                    written.insert(t, v);
                }
                if batch == 2 && round % 2 == 0 {
                    db.flush().unwrap();
                }
            }
            files.crash_now();
            drop(db);
            files = files.after_crash(seed);
        }
        let env = Env {
            files: Arc::new(files),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        };
        let db = Database::open_in(env.clone(), options()).unwrap();
        let expected: Vec<(i64, Option<Value>)> = written
            .iter()
            .map(|(t, v)| (*t, Some(Value::F64(*v))))
            .collect();
        assert_eq!(scan(&db, &sensor(1)), expected);
        db.close().unwrap();
        drop(db);
        assert!(check(env, options()).unwrap().is_sound());
    }
}

#[test]
fn law_2_leaves_of_a_run_are_ordered_and_apart() {
    for duplicates in [Duplicates::Last, Duplicates::Keep] {
        let env = memory();
        let db = Database::open_in(env.clone(), options()).unwrap();
        db.create_table(&TableSpec {
            duplicates,
            ..TableSpec::new("sensors")
        })
        .unwrap();
        let mut random = Random::new(5);
        for _ in 0..60 {
            let rows: Vec<(i64, f64)> = (0..40)
                .map(|_| (random.below(500) as i64, random.below(9) as f64))
                .collect();
            db.commit(floats(&sensor(1), &rows)).unwrap();
            db.flush().unwrap();
        }
        let stats = db.stats().unwrap();
        assert!(stats.merges > 5 && stats.leaves > 1, "{stats:?}");
        db.close().unwrap();
        drop(db);
        // The check compares every pair of neighbouring leaves and every row inside a leaf.
        let report = check(env, options()).unwrap();
        assert!(report.is_sound() && report.leaves > 1, "{report:#?}");
    }
}

#[test]
fn law_3_a_tile_equals_the_scan_at_every_level() {
    let db = Database::open_in(memory(), options()).unwrap();
    let mut random = Random::new(11);
    let mut all: BTreeMap<i64, f64> = BTreeMap::new();
    let mut time = -40_000_000_000i64;
    for round in 0..60 {
        let rows: Vec<(i64, f64)> = (0..100)
            .map(|_| {
                time += random.below(500_000_000) as i64;
                let late = if random.chance(5) {
                    random.below(20_000_000_000) as i64
                } else {
                    0
                };
                (time - late, random.below(10_000) as f64 / 100.0)
            })
            .collect();
        db.commit(floats(&sensor(1), &rows)).unwrap();
        all.extend(rows);
        if round % 7 == 0 {
            db.flush().unwrap();
        }
    }
    let snapshot = db.snapshot().unwrap();
    for level in (-20..=40).map(Level::clamped) {
        let mut by_bucket: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
        for (t, v) in &all {
            by_bucket
                .entry(level.bucket_of(Timestamp::from_nanos(*t)))
                .or_default()
                .push((*t, *v));
        }
        let mut offsets: Vec<i64> = by_bucket.keys().map(|b| b.div_euclid(512)).collect();
        offsets.dedup();
        // Fine levels have a tile for every few rows: a sample of them will do.
        let stride = offsets.len().div_ceil(40);
        for offset in offsets.into_iter().step_by(stride) {
            let tile = snapshot.tile(&sensor(1), "v", level, offset).unwrap();
            let expected: Vec<(&i64, &Vec<(i64, f64)>)> =
                by_bucket.range(offset * 512..=offset * 512 + 511).collect();
            assert_eq!(
                tile.len(),
                expected.len(),
                "level {} offset {offset}",
                level.get()
            );
            for ((bucket, found), (number, rows)) in tile.iter().zip(expected) {
                assert_eq!(bucket, number);
                let times: Vec<i64> = rows.iter().map(|(t, _)| *t).collect();
                let column =
                    Column::from_values(Values::F64(rows.iter().map(|(_, v)| *v).collect()));
                let reference = Aggregate::of(&times, &column, 0..times.len());
                same_aggregate(
                    found,
                    &reference,
                    &format!("level {} bucket {bucket}", level.get()),
                );
            }
        }
    }
}

#[test]
fn law_4_committed_bytes_never_change_and_files_stay_while_a_snapshot_names_them() {
    let files = FaultyFiles::new(1);
    let env = Env {
        files: Arc::new(files.clone()),
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let options = Options {
        partition_target_bytes: 4 << 10,
        partition_bytes_max: 16 << 10,
        ..options()
    };
    let db = Database::open_in(env, options).unwrap();
    let mut random = Random::new(3);
    let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut compared = 0;
    for round in 0..40 {
        let rows: Vec<(i64, f64)> = (0..80)
            .map(|i| (round * 1000 + i * 10 - random.below(3000) as i64, i as f64))
            .collect();
        db.commit(floats(&sensor(1), &rows)).unwrap();
        db.flush().unwrap();
        for (path, _) in files.files() {
            if path.extension().is_some_and(|e| e == "seg") {
                let now = files.read_file(&path).unwrap();
                let name = path.display().to_string();
                if let Some(before) = seen.get(&name) {
                    assert!(
                        now.starts_with(before),
                        "{name} changed below its committed length"
                    );
                    compared += 1;
                }
                seen.insert(name, now);
            }
        }
    }
    assert!(compared > 20);
    let snapshot = db.snapshot().unwrap();
    let segments = || {
        let all = files
            .files()
            .into_iter()
            .map(|(p, _)| p.display().to_string());
        all.filter(|p| p.ends_with(".seg")).collect::<Vec<_>>()
    };
    let before = segments();
    let rows_before = scan(&db, &sensor(1));
    db.compact().unwrap();
    assert!(
        before.iter().all(|p| segments().contains(p)),
        "a file a snapshot names is gone"
    );
    let chunks: usize = snapshot
        .scan(&sensor(1), &ScanSpec::default())
        .unwrap()
        .map(|c| c.unwrap().times.len())
        .sum();
    assert_eq!(chunks, rows_before.len());
    drop(snapshot);
    assert!(
        before.iter().all(|p| !segments().contains(p)),
        "replaced files stay: {:?}",
        segments()
    );
    assert_eq!(scan(&db, &sensor(1)), rows_before);
}

#[test]
fn law_5_in_order_events_are_written_once() {
    for rule in [
        FlushRule::Production,
        FlushRule::LabExact { memory_events: 256 },
    ] {
        for policy in [LatePolicy::conventional(), LatePolicy::separate(0.5)] {
            let options = Options {
                flush_rule: rule,
                late_policy: policy.into(),
                late_runs_max: 0,
                ..options()
            };
            let db = Database::open_in(memory(), options).unwrap();
            let mut time = 0;
            for _ in 0..700 {
                let rows: Vec<(i64, f64)> = (0..128)
                    .map(|_| {
                        time += 1_000_000_000;
                        (time, (time % 77) as f64)
                    })
                    .collect();
                db.commit(floats(&sensor(1), &rows)).unwrap();
            }
            let during = db.stats().unwrap();
            assert!(during.flushes > 1, "memory was never used up: {during:?}");
            db.flush().unwrap();
            let stats = db.stats().unwrap();
            assert_eq!(stats.events_accepted, 700 * 128);
            assert_eq!(
                stats.events_written(),
                stats.events_accepted,
                "{rule:?} {policy:?}: {stats:?}"
            );
            assert_eq!(stats.wa_events(), 1.0);
        }
    }
}

fn law_6_run(steady: bool, wild: bool) -> (Stats, Vec<(i64, Option<Value>)>) {
    let db = Database::open_in(memory(), options()).unwrap();
    let mut random = Random::new(9);
    for round in 0..100i64 {
        if steady {
            for id in 0..5 {
                let rows: Vec<(i64, f64)> = (0..128)
                    .map(|i| {
                        (
                            (round * 128 + i) * 1_000_000_000 + 1_700_000_000_000_000_000,
                            i as f64,
                        )
                    })
                    .collect();
                db.commit(floats(&sensor(id), &rows)).unwrap();
            }
        }
        if wild {
            let rows: Vec<(i64, f64)> = (0..6).map(|_| (random.next() as i64, 1.0)).collect();
            db.commit(floats(&sensor(99), &rows)).unwrap();
        }
        if round % 4 == 3 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    (
        db.stats().unwrap(),
        if steady {
            scan(&db, &sensor(3))
        } else {
            Vec::new()
        },
    )
}

#[test]
fn law_6_a_wild_clock_and_a_bad_line_hurt_only_themselves() {
    let (alone, rows) = law_6_run(true, false);
    let (wild, _) = law_6_run(false, true);
    let (both, same_rows) = law_6_run(true, true);
    assert_eq!(rows, same_rows);
    let others = both.events_written().saturating_sub(wild.events_written());
    assert!(
        others as f64 <= alone.events_written() as f64 * 1.05,
        "others {others}, alone {}, wild {}",
        alone.events_written(),
        wild.events_written()
    );

    let db = Database::open_in(memory(), options()).unwrap();
    db.commit(floats(&sensor(1), &[(1, 1.0)])).unwrap();
    let mut batch = Batch::new();
    batch
        .stream(&sensor(1))
        .row(2, [("v", 2.0.into())])
        .unwrap();
    batch
        .stream(&sensor(2))
        .row(3, [("v", "no number".into()), ("w", 7i64.into())])
        .unwrap();
    batch
        .stream(&sensor(3))
        .row(4, [("v", 4i64.into())])
        .unwrap();
    let written = db.commit(batch).unwrap();
    assert_eq!((written.accepted, written.refused.len()), (2, 1));
    assert_eq!(
        (
            written.refused[0].entry,
            written.refused[0].row,
            written.refused[0].code
        ),
        (1, 0, REFUSED_TYPE)
    );
    assert!(
        written.refused[0].message.contains("is f64, found string"),
        "{}",
        written.refused[0].message
    );
    assert_eq!(scan(&db, &sensor(1)).len(), 2);
    assert_eq!(scan(&db, &sensor(3)), [(4, Some(Value::F64(4.0)))]);
    assert_eq!(
        db.snapshot()
            .unwrap()
            .streams("sensors", &[])
            .unwrap()
            .len(),
        2
    );
}

/// Writes ten budgets while a snapshot is held that was taken in the middle of small writes, so
/// that it sees parts of chunks.
fn law_9_run(budget: usize, rows_of_a_write: i64) {
    let options = Options {
        memory_budget_bytes: budget,
        ..options()
    };
    let db = Database::open_in(memory(), options).unwrap();
    let mut time = 0;
    let mut write = |rows: i64| {
        for id in 0..3 {
            let rows = (time..time + rows).map(|t| (t, t as f64));
            let rows: Vec<(i64, f64)> = rows.collect();
            db.commit(floats(&sensor(id), &rows)).unwrap();
        }
        time += rows;
    };
    let mut written = 0;
    while written < 1000 {
        write(rows_of_a_write);
        written += rows_of_a_write;
    }
    let held = db.snapshot().unwrap();
    let in_use = db.stats().unwrap().memory_bytes;
    let before = visible_rows(&held);
    assert_eq!(before.len(), 3 * written as usize);
    let rounds = 10 * budget as i64 / (3 * 16) / 4096;
    for _ in 0..rounds {
        write(rows_of_a_write);
        write(4096 - rows_of_a_write);
        let stats = db.stats().unwrap();
        assert!(stats.memory_bytes <= budget as u64, "{stats:?}");
        assert!(
            stats.pinned_bytes <= in_use + in_use / 8,
            "{in_use}: {stats:?}"
        );
    }
    assert!(db.stats().unwrap().pinned_bytes > 0);
    assert_eq!(visible_rows(&held), before);
    drop(held);
    assert_eq!(db.stats().unwrap().pinned_bytes, 0);
}

fn visible_rows(snapshot: &Snapshot) -> Vec<(i64, Option<Value>)> {
    let mut out = Vec::new();
    for id in 0..3 {
        for chunk in snapshot.scan(&sensor(id), &ScanSpec::default()).unwrap() {
            let chunk = chunk.unwrap();
            let values = chunk.columns[0].to_values();
            out.extend(chunk.times.iter().copied().zip(values));
        }
    }
    out
}

#[test]
fn law_9_a_held_snapshot_costs_writers_nothing_and_at_most_the_memory_in_use_when_it_was_taken() {
    law_9_run(1 << 20, 1000);
    law_9_run(1 << 20, 7);
    law_9_run(4 << 20, 100);
}

/// What a table under [`law_7_run`] must hold of each stream, by time: the values of all its rows
/// there.
type Acknowledged = [BTreeMap<i64, Vec<f64>>; 3];

/// Count and sum of each stream, over all time and in one bin.
fn counted(db: &Database) -> Vec<(u64, f64)> {
    let snapshot = db.snapshot().unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    (0..3)
        .map(|id| {
            let bins = match snapshot.aggregate(&sensor(id), "v", &spec) {
                Ok(bins) => bins,
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) => panic!("{error}"),
            };
            let sum = |bin: &headwater_engine::Bin| {
                bin.aggregate.mean().unwrap() * bin.aggregate.count as f64
            };
            let count = bins.iter().map(|b| b.aggregate.count).sum();
            (count, bins.iter().map(sum).sum())
        })
        .collect()
}

fn assert_counted(db: &Database, expected: &Acknowledged, what: &str) {
    for (id, (count, sum)) in counted(db).into_iter().enumerate() {
        let values: Vec<f64> = expected[id].values().flatten().copied().collect();
        let wanted: f64 = values.iter().sum();
        assert_eq!(count, values.len() as u64, "{what}: stream {id}");
        assert!(
            (sum - wanted).abs() <= 1e-9 * wanted.abs().max(1.0),
            "{what}: stream {id}: {sum}, expected {wanted}"
        );
    }
}

/// In-order and late writes into a table whose rows are aged after a day, with power cuts and
/// openings between them. Everything that was accepted must be counted at every moment.
fn law_7_run(seed: u64, duplicates: Duplicates) {
    const SECOND: i64 = 1_000_000_000;
    const DAY: i64 = 86_400 * SECOND;
    let start = 19_000 * DAY;
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(start)));
    let mut files = FaultyFiles::new(seed);
    let mut random = Random::new(seed * 2 + u64::from(duplicates == Duplicates::Keep));
    let options = Options {
        clock_jump_max: Duration::from_secs(20 * 86_400),
        partition_target_bytes: 16 << 10,
        partition_bytes_max: 32 << 10,
        reserve_bytes: 0,
        ..options()
    };
    let mut expected = Acknowledged::default();
    let mut newest = start - 30 * DAY;
    let mut accepted = 0;
    for life in 0..4 {
        let env = Env {
            files: Arc::new(files.clone()),
            threads: Arc::new(NoThreads),
            clock: Arc::clone(&clock) as Arc<_>,
            ..Env::memory()
        };
        let what = |at: &str| format!("seed {seed}, {duplicates:?}, life {life}, {at}");
        let db = Database::open_in(env, options.clone()).unwrap();
        if life == 0 {
            let spec = TableSpec {
                duplicates,
                raw_for: Some(Duration::from_secs(86_400)),
                ..TableSpec::new("sensors")
            };
            db.create_table(&spec).unwrap();
        }
        assert_counted(&db, &expected, &what("opened"));
        for round in 0..16 {
            // A stretch in order, which an import or a slow device brings, and now and then what
            // comes late, even by weeks.
            let late = random.chance(40);
            let from = match random.below(4) {
                _ if !late => newest,
                0 => newest - (random.below(3 * 86_400) as i64) * SECOND,
                _ => newest - (random.below(20_000) as i64) * SECOND,
            };
            let (count, step) = (random.below(900) as i64 + 1, random.below(120) as i64 + 1);
            for (id, written) in expected.iter_mut().enumerate() {
                if id > 0 && random.chance(40) {
                    continue;
                }
                let rows: Vec<(i64, f64)> = (0..count)
                    .map(|i| (from + i * step * SECOND, random.below(1000) as f64))
                    .collect();
                let result = db.commit(floats(&sensor(id), &rows)).unwrap();
                accepted += result.accepted;
                let refused: Vec<usize> = result.refused.iter().map(|r| r.row).collect();
                for (_, (time, value)) in (0..).zip(&rows).filter(|(i, _)| !refused.contains(i)) {
                    let values = written.entry(*time).or_default();
                    if duplicates == Duplicates::Last {
                        values.clear();
                    }
                    values.push(*value);
                }
            }
            if !late {
                newest += count * step * SECOND;
                let ahead = newest - clock.now().as_nanos();
                clock.advance(Duration::from_nanos(ahead.max(0).unsigned_abs()));
            }
            match random.below(8) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2 => clock.advance(Duration::from_secs(random.below(86_400))),
                _ => {}
            }
            assert_counted(&db, &expected, &what(&format!("round {round}")));
        }
        if random.chance(50) {
            files.crash_now();
        } else {
            db.close().unwrap();
            files.crash_now();
        }
        drop(db);
        files = files.after_crash(seed + life);
    }
    let env = Env {
        files: Arc::new(files),
        threads: Arc::new(NoThreads),
        clock: Arc::clone(&clock) as Arc<_>,
        ..Env::memory()
    };
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    clock.advance(Duration::from_secs(3 * 86_400));
    db.compact().unwrap();
    assert_counted(
        &db,
        &expected,
        &format!("seed {seed}, {duplicates:?}, all aged"),
    );
    assert!(
        scan(&db, &sensor(0)).is_empty(),
        "everything was to be aged"
    );
    assert!(
        accepted > 3_000,
        "seed {seed}: only {accepted} rows came in"
    );
    db.close().unwrap();
    drop(db);
    let report = check(env, options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
}

#[test]
fn law_7_whatever_was_acknowledged_and_not_ended_is_counted_aged_or_not() {
    for seed in 0..5 {
        law_7_run(seed, Duplicates::Keep);
        law_7_run(seed, Duplicates::Last);
    }
}

#[test]
fn an_i64_field_that_gets_a_float_is_widened_and_stays_readable() {
    let db = Database::open_in(memory(), options()).unwrap();
    let name = sensor(1);
    let mut sum = 0.0;
    for i in 0..200i64 {
        let mut batch = Batch::new();
        batch.stream(&name).row(i, [("v", Value::I64(i))]).unwrap();
        db.commit(batch).unwrap();
        sum += i as f64;
        if i % 50 == 49 {
            db.flush().unwrap();
        }
    }
    db.commit(floats(&name, &[(1000, 0.5), (100, 0.25)]))
        .unwrap();
    sum += 0.75 - 100.0;
    let table = &db.tables()[0];
    assert_eq!(table.fields[0].field_type, FieldType::F64);
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
            db.compact().unwrap();
        }
        let rows = scan(&db, &name);
        assert_eq!(rows.len(), 201);
        assert_eq!(rows[100], (100, Some(Value::F64(0.25))));
        assert_eq!(rows[7], (7, Some(Value::F64(7.0))));
        let snapshot = db.snapshot().unwrap();
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            first_last: false,
        };
        let bin = &snapshot.aggregate(&name, "v", &spec).unwrap()[0];
        assert!((bin.aggregate.mean().unwrap() - sum / 201.0).abs() < 1e-9);
    }
    // An integer a float cannot hold is refused, not rounded.
    let mut batch = Batch::new();
    batch
        .stream(&name)
        .row(5000, [("v", Value::I64(i64::MAX))])
        .unwrap();
    assert_eq!(db.commit(batch).unwrap().refused[0].code, REFUSED_TYPE);
}

#[test]
fn a_closed_database_says_so() {
    let db = Database::open_in(memory(), options()).unwrap();
    db.commit(floats(&sensor(1), &[(1, 1.0)])).unwrap();
    db.close().unwrap();
    assert_eq!(
        db.commit(floats(&sensor(1), &[(2, 1.0)]))
            .unwrap_err()
            .kind(),
        ErrorKind::Closed
    );
    assert_eq!(db.snapshot().unwrap_err().kind(), ErrorKind::Closed);
}
