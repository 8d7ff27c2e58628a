//! Many streams, little memory, several threads, and what happens at the limits.

use headwater_engine::{
    AggregateSpec, Bins, Database, Durability, ErrorKind, Options, REFUSED_FUTURE, REFUSED_STREAMS,
    REFUSED_STRING, ScanSpec, check,
};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName, StreamRows, Values};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn sensor(id: u64) -> StreamName {
    StreamName::new("sensors", [("id", format!("device-{id:06}"))])
}

fn entry(id: u64, times: Vec<i64>, values: Vec<f64>) -> StreamRows {
    let mut rows = StreamRows::new(sensor(id));
    rows.times = times;
    rows.with_column("v", Values::F64(values))
}

fn count(db: &Database, name: &StreamName) -> u64 {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = db.snapshot().unwrap().aggregate(name, "v", &spec).unwrap();
    bins.first().map_or(0, |b| b.aggregate.count)
}

/// Bytes of memory that belong to this process alone.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|p| p.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

fn many_streams(streams: u64, rounds: i64, budget: usize) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_budget_bytes: budget,
        durability: Durability::Written,
        ..Options::new(dir.path().join("db"))
    };
    let before = resident_bytes();
    let db = Database::open(options.clone()).unwrap();
    for round in 0..rounds {
        for first in (0..streams).step_by(1000) {
            let mut batch = Batch::new();
            for id in first..(first + 1000).min(streams) {
                batch.push(entry(
                    id,
                    vec![round * 1_000_000_000 + id as i64],
                    vec![round as f64],
                ));
            }
            db.commit(batch).unwrap();
        }
        assert!(
            db.stats().unwrap().memory_bytes <= budget as u64,
            "{:?}",
            db.stats().unwrap()
        );
    }
    let used = resident_bytes().saturating_sub(before);
    db.flush().unwrap();
    let stats = db.stats().unwrap();
    println!("{streams} streams, {budget} bytes: {used} bytes resident, {stats:?}");
    assert_eq!(
        (stats.streams, stats.events),
        (streams, streams * rounds as u64)
    );
    // Nearly all of these files is footers; to rewrite them again and again would gain nothing.
    assert!(stats.events_compaction <= stats.events, "{stats:?}");
    // The budget, 160 bytes a stream, a quarter on top for what the allocator cannot use, and what
    // the test itself holds.
    let allowed = (budget as u64 + 160 * streams) * 5 / 4 + (32 << 20);
    assert!(used <= allowed, "{used} bytes resident, {allowed} allowed");
    for id in [0, 1, streams / 2, streams - 1] {
        assert_eq!(count(&db, &sensor(id)), rounds as u64);
    }
    db.close().unwrap();
    drop(db);
    let report = check(Env::system(), options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages.first());
    assert_eq!(report.rows, streams * rounds as u64);
}

/// Runs a test again in a process of its own, where nothing else uses memory. True in that process.
fn alone(name: &str) -> bool {
    if std::env::var_os("HEADWATER_ALONE").is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("HEADWATER_ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[test]
fn a_hundred_thousand_streams_fit_in_64_mib() {
    if alone("limits::a_hundred_thousand_streams_fit_in_64_mib") {
        many_streams(100_000, 3, 64 << 20);
    }
}

#[test]
fn a_thousand_streams_fit_in_4_mib() {
    if alone("limits::a_thousand_streams_fit_in_4_mib") {
        many_streams(1_000, 60, 4 << 20);
    }
}

#[test]
fn writers_readers_and_workers_run_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_budget_bytes: 1 << 20,
        durability: Durability::Written,
        partition_target_bytes: 64 << 10,
        partition_bytes_max: 128 << 10,
        groups_max: 8,
        ..Options::new(dir.path().join("db"))
    };
    let db = Database::open(options.clone()).unwrap();
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    const WRITERS: u64 = 3;
    const BATCHES: i64 = 150;
    const ROWS: i64 = 200;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let snapshot = db.snapshot().unwrap();
                    for name in snapshot.streams("sensors", &[]).unwrap_or_default() {
                        let mut rows = 0u64;
                        for chunk in snapshot.scan(&name, &ScanSpec::default()).unwrap() {
                            rows += chunk.unwrap().times.len() as u64;
                        }
                        // Batches are atomic, and a snapshot's scan and aggregate agree.
                        assert_eq!(rows % ROWS as u64, 0, "{name} shows part of a batch");
                        let spec = AggregateSpec {
                            range: ClosedRange::ALL,
                            bins: Bins::Whole,
                            first_last: false,
                        };
                        let bins = snapshot.aggregate(&name, "v", &spec).unwrap();
                        assert_eq!(bins.first().map_or(0, |b| b.aggregate.count), rows);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| {
                let db = db.clone();
                scope.spawn(move || {
                    for batch in 0..BATCHES {
                        // Every fifth batch arrives late.
                        let place = if batch % 5 == 4 { batch - 4 } else { batch };
                        let shift = if batch % 5 == 4 { 500_000 } else { 0 };
                        let times: Vec<i64> = (0..ROWS)
                            .map(|i| (place * ROWS + i) * 1_000_000 + shift)
                            .collect();
                        let values = times.iter().map(|t| (t % 1009) as f64).collect();
                        let mut one = Batch::new();
                        one.push(entry(id, times, values));
                        let ticket = db.write(one).unwrap();
                        if batch % 3 == 0 {
                            ticket.wait().unwrap();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        db.flush().unwrap();
        stop.store(true, Ordering::Release);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    for id in 0..WRITERS {
        assert_eq!(count(&db, &sensor(id)), (BATCHES * ROWS) as u64);
    }
    let stats = db.stats().unwrap();
    assert!(stats.flushes > 3, "{stats:?}");
    db.close().unwrap();
    drop(db);
    assert!(check(Env::system(), options).unwrap().is_sound());
}

#[test]
fn one_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path())).unwrap();
    let error = Database::open(Options::new(dir.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(
        error.to_string().contains(&std::process::id().to_string()),
        "{error}"
    );
    drop(db);
    Database::open(Options::new(dir.path())).unwrap();
}

#[test]
fn limits_refuse_rows_and_keep_the_rest() {
    let options = Options {
        string_bytes_max: 10,
        streams_max: 2,
        max_future: Some(Duration::from_secs(60)),
        ..Options::new("/db")
    };
    let env = Env::memory();
    let now = env.clock.now().as_nanos();
    let db = Database::open_in(env, options).unwrap();
    let mut batch = Batch::new();
    batch
        .stream(&sensor(1))
        .row(now, [("s", "short".into())])
        .unwrap();
    batch
        .stream(&sensor(1))
        .row(now + 1, [("s", "much too long".into())])
        .unwrap();
    batch
        .stream(&sensor(1))
        .row(now + 120_000_000_000, [("s", "later".into())])
        .unwrap();
    let written = db.commit(batch).unwrap();
    let codes: Vec<&str> = written.refused.iter().map(|r| r.code).collect();
    assert_eq!(
        (written.accepted, codes),
        (1, vec![REFUSED_STRING, REFUSED_FUTURE])
    );
    let mut batch = Batch::new();
    for id in 1..5 {
        batch.push(entry(id, vec![now + 5], vec![1.0]));
    }
    let written = db.commit(batch).unwrap();
    // One stream there is, and there is room for one more: the first of the new ones gets it.
    assert_eq!(written.accepted, 2, "{:?}", written.refused);
    assert!(
        written
            .refused
            .iter()
            .all(|r| r.code == REFUSED_STREAMS && r.message.contains("streams_max"))
    );
    let error = Database::open_in(
        Env::memory(),
        Options {
            shards: 0,
            ..Options::new("/x")
        },
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn an_oversized_batch_is_refused_whole() {
    let db = Database::open_in(
        Env::memory(),
        Options {
            batch_bytes_max: 1024,
            ..Options::new("/db")
        },
    )
    .unwrap();
    let mut batch = Batch::new();
    batch.push(entry(1, (0..1000).collect(), vec![0.0; 1000]));
    let error = db.commit(batch).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Invalid && error.to_string().contains("batch_bytes_max"),
        "{error}"
    );
    assert_eq!(db.stats().unwrap().events, 0);
}

/// Batches that define many streams: their names take memory until the metadata hold them. Those of
/// a batch that is refused take none.
fn names_only(env: Env, has_workers: bool) {
    let options = Options {
        memory_budget_bytes: 1 << 20,
        ..Options::new("/db")
    };
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    let write = |first: u64, all_or_nothing: bool| {
        let mut batch = Batch::new();
        for id in first..first + 1000 {
            batch.push(entry(id, vec![5], vec![0.5]));
        }
        if all_or_nothing {
            let text = [("v", "text".into())];
            batch.stream(&sensor(0)).row(7, text).unwrap();
            batch.require_all();
        }
        db.commit(batch).unwrap()
    };
    assert_eq!(write(0, false).accepted, 1000);
    db.flush().unwrap();
    assert_eq!(db.stats().unwrap().memory_bytes, 0);
    assert_eq!(write(1000, true).accepted, 0);
    assert_eq!(db.stats().unwrap().memory_bytes, 0);
    // As many rows, of streams whose names are longer by 300 bytes.
    let taken_by = |table: &str, length: usize| {
        let mut batch = Batch::new();
        for id in 0..200 {
            let stream = StreamName::new(table, [("id", format!("{id:0length$}"))]);
            let row = batch.stream(&stream).row(5, [("v", 0.5.into())]);
            row.unwrap();
        }
        assert_eq!(db.commit(batch).unwrap().accepted, 200);
        let taken = db.stats().unwrap().memory_bytes;
        db.flush().unwrap();
        assert_eq!(db.stats().unwrap().memory_bytes, 0);
        taken
    };
    let (short, long) = (taken_by("short", 4), taken_by("long", 304));
    // Workers may have stored them already.
    assert!(
        has_workers || (60_000..100_000).contains(&long.saturating_sub(short)),
        "{long} bytes with long names, {short} with short ones"
    );
    // More than fit: a write finds room all the same, since a commit stores the names.
    for first in (1000..12_000).step_by(1000) {
        assert_eq!(write(first, false).accepted, 1000);
    }
    // What steps of workers hold counts as well.
    assert!(has_workers || db.stats().unwrap().memory_bytes < 1 << 20);
    drop(db);
    let db = Database::open_in(env, options).unwrap();
    assert_eq!(
        db.snapshot()
            .unwrap()
            .streams("sensors", &[])
            .unwrap()
            .len(),
        12_000
    );
    db.flush().unwrap();
    assert_eq!(db.stats().unwrap().memory_bytes, 0);
}

#[test]
fn names_of_new_streams_count_as_memory_until_they_are_stored() {
    let without = Env {
        threads: std::sync::Arc::new(headwater_io::NoThreads),
        ..Env::memory()
    };
    names_only(without, false);
    let with = Env {
        threads: Env::system().threads,
        clock: Env::system().clock,
        ..Env::memory()
    };
    names_only(with, true);
}
