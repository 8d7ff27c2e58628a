//! What ends beside writers: tables that are dropped while values with an expiry come, rows that
//! are aged while others do.

use super::{DAY, SECOND, World, count, stream, write};
use crate::support::{START, small_options};
use headwater_engine::{
    Database, DeleteSpec, Duplicates, ErrorKind, FieldSpec, Options, TableSpec,
};
use headwater_io::{Env, FaultyFiles, ManualClock, NoThreads, SystemThreads};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, Timestamp, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

#[test]
fn a_value_that_expires_does_not_bring_a_dropped_table_back() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
    let env = Env {
        clock: Arc::clone(&clock) as Arc<_>,
        threads: Arc::new(SystemThreads),
        ..Env::memory()
    };
    let db = Database::open_in(env, small_options()).unwrap();
    for round in 0..200 {
        let mut batch = Batch::new();
        let old = [("old", Value::F64(1.0)), ("v", Value::F64(1.0))];
        batch.stream(&stream(1)).row(START, old).unwrap();
        db.commit(batch).unwrap();
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut batch = Batch::new();
                batch.expire_at(Timestamp::from_nanos(START + 100 * SECOND));
                for id in 1..20 {
                    let row = [("v", Value::F64(2.0))];
                    batch.stream(&stream(id)).row(START + 1, row).unwrap();
                }
                together.wait();
                db.commit(batch)
            });
            together.wait();
            db.drop_table("m").unwrap();
            match writer.join().unwrap() {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
        });
        // What is there now was made after the drop.
        for table in db.tables() {
            let names: Vec<&str> = table.fields.iter().map(|f| f.name.as_str()).collect();
            assert_eq!(names, ["v"], "round {round}");
            db.drop_table("m").unwrap();
        }
    }
    db.close().unwrap();
}

/// Writes a batch, again where aging has moved just then. Gives the number of rows that were taken.
fn commit_when_it_can(db: &Database, batch: impl Fn() -> Batch) -> u64 {
    loop {
        match db.commit(batch()) {
            Ok(written) => return written.accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
    }
}

#[test]
fn nothing_is_lost_where_flushes_and_writes_run_beside_aging() {
    for (duplicates, budget) in [
        (Duplicates::Keep, 1 << 20),
        (Duplicates::Last, 1 << 20),
        (Duplicates::Keep, 4 << 20),
    ] {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
        let env = Env {
            clock: Arc::clone(&clock) as Arc<_>,
            threads: Arc::new(SystemThreads),
            ..Env::memory()
        };
        let options = Options {
            memory_budget_bytes: budget,
            shards: 2,
            busy_timeout: Duration::from_secs(86_400),
            partition_target_bytes: 64 << 10,
            partition_bytes_max: 128 << 10,
            leaf_events: 256,
            reserve_bytes: 0,
            ..Options::new("/db")
        };
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        let spec = TableSpec {
            duplicates,
            raw_for: Some(DAY),
            fields: vec![FieldSpec {
                name: "v".into(),
                field_type: FieldType::F64,
            }],
            ..TableSpec::new("m")
        };
        db.create_table(&spec).unwrap();
        let accepted: [AtomicU64; 4] = Default::default();
        let handed: [AtomicU64; 4] = Default::default();
        let done = AtomicBool::new(false);
        let counted = |id: usize| {
            let snapshot = db.snapshot().unwrap();
            match snapshot.stream_info(&stream(id as i64)) {
                Ok(_) => count(&snapshot, &stream(id as i64), ClosedRange::ALL),
                Err(_) => 0,
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Thirty days in order of time, long ago; each instant once.
                for step in 0..60 {
                    for id in 0..4usize {
                        handed[id].fetch_add(900, Ordering::SeqCst);
                        let from = START - (60 - step) * 43_200 * SECOND;
                        let written = commit_when_it_can(&db, || {
                            let mut batch = Batch::new();
                            let rows = batch.stream(&stream(id as i64));
                            for i in 0..900 {
                                let value = Value::F64(i as f64);
                                rows.row(from + i * 48 * SECOND, [("v", value)]).unwrap();
                            }
                            batch
                        });
                        accepted[id].fetch_add(written, Ordering::SeqCst);
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                for id in 0..4 {
                    let least = accepted[id].load(Ordering::SeqCst);
                    let found = counted(id);
                    let most = handed[id].load(Ordering::SeqCst);
                    assert!(least <= found && found <= most, "{least} {found} {most}");
                }
                std::thread::yield_now();
            }
        });
        db.compact().unwrap();
        for (id, accepted) in accepted.iter().enumerate() {
            let accepted = accepted.load(Ordering::SeqCst);
            assert_eq!(counted(id), accepted, "{duplicates:?} {budget}");
            assert!(accepted > 60 * 900 / 2, "an import was refused: {accepted}");
        }
        db.close().unwrap();
        drop(db);
        assert!(headwater_engine::check(env, options).unwrap().is_sound());
    }
}

#[test]
fn rows_written_beside_aged_buckets_are_counted_with_them_until_a_delete() {
    let mut world = World::new(Options {
        clock_jump_max: DAY * 10_000,
        late_runs_max: 2,
        ..small_options()
    });
    let spec = TableSpec {
        duplicates: Duplicates::Keep,
        raw_for: Some(DAY),
        ..TableSpec::new("m")
    };
    world.db().create_table(&spec).unwrap();
    let names: Vec<StreamName> = (1..4).map(stream).collect();
    for name in &names {
        write(world.db(), name, START, 2000);
    }
    world
        .clock
        .set(Timestamp::from_nanos(START + 400 * 86_400 * SECOND));
    world.db().compact().unwrap();
    world
        .clock
        .set(Timestamp::from_nanos(START + 3600 * SECOND));
    let whole = |world: &World| -> Vec<u64> {
        let snapshot = world.db().snapshot().unwrap();
        names
            .iter()
            .map(|n| count(&snapshot, n, ClosedRange::ALL))
            .collect()
    };
    assert_eq!(whole(&world), [2000; 3]);
    for round in 1..6 {
        for name in &names {
            write(world.db(), name, START + round * 100 * SECOND, 300);
        }
        let expected = 2000 + round as u64 * 300;
        assert_eq!(whole(&world), [expected; 3], "in memory");
        world.db().flush().unwrap();
        assert_eq!(whole(&world), [expected; 3], "stored");
        if round == 3 {
            world.db().compact().unwrap();
            assert_eq!(whole(&world), [expected; 3], "rewritten");
            world.reopen();
        }
    }
    let spec = DeleteSpec {
        table: "m".into(),
        tags: vec![("id".into(), "1".into())],
        range: ClosedRange::nanos(i64::MIN, START + 100_000 * SECOND),
    };
    world.db().delete(&spec).unwrap();
    for _ in 0..2 {
        assert_eq!(whole(&world), [0, 3500, 3500]);
        world.db().compact().unwrap();
    }
    world.clock.advance(DAY * 3);
    world.db().compact().unwrap();
    assert_eq!(whole(&world), [0, 3500, 3500]);
    world.reopen();
    assert_eq!(whole(&world), [0, 3500, 3500]);
    world.assert_sound();
}

#[test]
fn a_bucket_of_aged_rows_at_the_edge_of_a_delete_stays_whenever_a_power_cut_falls() {
    let disk = FaultyFiles::new(1);
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(START)));
    let env = |disk: &FaultyFiles| Env {
        files: Arc::new(disk.clone()),
        clock: Arc::clone(&clock) as Arc<_>,
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let open = |disk: &FaultyFiles| Database::open_in(env(disk), small_options()).unwrap();
    let db = open(&disk);
    let spec = TableSpec {
        raw_for: Some(DAY),
        ..TableSpec::new("m")
    };
    db.create_table(&spec).unwrap();
    write(&db, &stream(1), START, 3600);
    db.flush().unwrap();
    clock.advance(DAY * 3);
    db.compact().unwrap();
    assert!(db.partitions().iter().any(|p| p.is_aged));
    db.close().unwrap();
    let found = |db: &Database| count(&db.snapshot().unwrap(), &stream(1), ClosedRange::ALL);
    // It names more than half of many a bucket, with the middle of its values, and none as a whole.
    let (mut cut_short, mut from) = (0, 100);
    for operations in 0..60 {
        let disk = disk.after_crash(1);
        let db = open(&disk);
        assert_eq!(found(&db), 3600);
        disk.crash_at(disk.operations() + operations);
        from = (from + 331) % 3500;
        let first = START + from * SECOND;
        let spec = DeleteSpec {
            table: "m".into(),
            tags: Vec::new(),
            range: ClosedRange::nanos(first, first + 60 * SECOND),
        };
        cut_short += u64::from(db.delete(&spec).is_err());
        disk.crash_now();
        drop(db);
        let db = open(&disk.after_crash(1));
        let before = found(&db);
        db.compact().unwrap();
        assert_eq!(before, found(&db), "cut after {operations} operations");
    }
    assert!((5..55).contains(&cut_short), "{cut_short} of 60 cut short");
}
