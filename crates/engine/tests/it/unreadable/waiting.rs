//! What waits for a damaged partition to be repaired: rows, deletes, drops, time.

use super::{
    Rows, SECOND, START, around, assert_as_written, content, env, missing, of_stream, open,
    options, scan, stream, write_at,
};
use crate::support::Run;
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Options, REFUSED_UNREADABLE, RepairMode, TableSpec,
    repair,
};
use headwater_io::FaultyFiles;
use headwater_types::{Batch, ClosedRange, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The newest partition that holds the stream, by the span that has this time.
fn hit_at(db: &Database, time: i64) -> (PathBuf, ClosedRange) {
    let time = headwater_types::Timestamp::from_nanos(time);
    let found = db.partitions().into_iter().find(|p| p.range.contains(time));
    found.map(|p| (p.file, p.range)).unwrap()
}

/// A database of one shard and stream, closed, whose segment at `time` has another header.
fn without_partition_at(
    options: &Options,
    time: i64,
) -> (FaultyFiles, Rows, (PathBuf, ClosedRange)) {
    let disk = FaultyFiles::new(1);
    let db = open(&disk, options).unwrap();
    let mut rows = Rows::new();
    for second in 0..600 {
        write_at(&db, &mut rows, &[START + second * SECOND]).unwrap();
        if second % 100 == 99 {
            db.flush().unwrap();
        }
    }
    let hit = hit_at(&db, time);
    db.close().unwrap();
    drop(db);
    disk.flip_bit(&hit.0, 30, 2).unwrap();
    (disk, rows, hit)
}

fn one_shard() -> Options {
    Options {
        shards: 1,
        ..options()
    }
}

#[test]
fn rows_for_a_damaged_partition_are_refused_when_the_log_may_keep_no_more_and_others_go_on() {
    let options = one_shard();
    let (disk, mut rows, hit) = without_partition_at(&options, START);
    let db = open(&disk, &options).unwrap();
    let inside = |n: i64| hit.1.first.as_nanos().max(START) + 1_000 + n * 16;
    assert!(
        hit.1
            .contains(headwater_types::Timestamp::from_nanos(inside(60_000)))
    );
    let (mut accepted, mut refused) = (0u64, 0);
    for part in 0..600 {
        let mut batch = Batch::new();
        let mut outside = Vec::new();
        for n in 0..200 {
            let time = inside(part * 200 + n);
            batch
                .stream(&stream(0))
                .row(time, [("n", Value::I64(n))])
                .unwrap();
            rows.insert((stream(0), time), n);
        }
        // Of the same batch and stream, and stored as ever.
        for n in 0..5 {
            let time = START + (10_000 + part * 5 + n) * SECOND;
            batch
                .stream(&stream(0))
                .row(time, [("n", Value::I64(n))])
                .unwrap();
            rows.insert((stream(0), time), n);
            outside.push(time);
        }
        let written = db.commit(batch).unwrap();
        accepted += written.accepted;
        for row in &written.refused {
            assert_eq!(
                (row.code, row.entry),
                (REFUSED_UNREADABLE, 0),
                "{}",
                row.message
            );
            assert!(row.message.contains("headwater repair"), "{}", row.message);
            assert!(row.message.contains(".seg"), "{}", row.message);
            assert!(row.row < 200, "a row outside of the span was refused");
            let time = inside(part * 200 + row.row as i64);
            rows.remove(&(stream(0), time)).unwrap();
            refused += 1;
        }
        assert_eq!(written.accepted + written.refused.len() as u64, 205);
    }
    assert!(refused > 1_000 && accepted > 20_000, "{accepted} {refused}");
    db.flush().unwrap();
    let held = db.stats().unwrap().memory_bytes;
    assert!(held < options.memory_budget_bytes as u64, "{held}");
    assert_as_written(&db, &rows, std::slice::from_ref(&hit), "full");
    disk.crash_now();
    drop(db);
    let disk = disk.after_crash(2);
    let db = open(&disk, &options).unwrap();
    assert_as_written(&db, &rows, std::slice::from_ref(&hit), "opened again");
    db.close().unwrap();
    drop(db);
    let report = repair(&env(&disk), &options, RepairMode::Act).unwrap();
    assert_eq!(report.lost, Vec::<String>::new());
    let db = open(&disk, &options).unwrap();
    assert_eq!(missing(&db, &rows, "repaired"), []);
}

#[test]
fn deletes_reach_a_damaged_partition_when_it_has_been_repaired() {
    let options = one_shard();
    for opened_between in [false, true] {
        let (disk, mut rows, hit) = without_partition_at(&options, START + 300 * SECOND);
        let db = open(&disk, &options).unwrap();
        let middle = START + 300 * SECOND;
        write_at(&db, &mut rows, &[middle + SECOND / 2]).unwrap();
        let range = ClosedRange::nanos(middle - 40 * SECOND, middle + 40 * SECOND);
        let spec = DeleteSpec {
            table: "m".into(),
            tags: vec![("device".into(), "1".into())],
            range,
        };
        db.delete(&spec).unwrap();
        rows.retain(|(name, time), _| {
            *name != stream(1) || !range.contains(headwater_types::Timestamp::from_nanos(*time))
        });
        // Written after it, so it stays.
        write_at(&db, &mut rows, &[middle + SECOND / 3]).unwrap();
        db.flush().unwrap();
        assert_as_written(&db, &rows, std::slice::from_ref(&hit), "deleted");
        // Whoever asks for nothing but what is deleted meets no damage.
        let mut inside = range.intersect(&hit.1);
        inside.first = inside
            .first
            .max(headwater_types::Timestamp::from_nanos(middle - 9 * SECOND));
        inside.last = headwater_types::Timestamp::from_nanos(middle - SECOND);
        let (found, errors) = scan(&db, &stream(1), &inside);
        assert!(
            found.is_empty() && errors.is_empty(),
            "{found:?} {errors:?}"
        );
        assert!(!scan(&db, &stream(2), &inside).1.is_empty());
        db.close().unwrap();
        drop(db);
        if opened_between {
            let db = open(&disk, &options).unwrap();
            write_at(&db, &mut rows, &[START + 9_000 * SECOND]).unwrap();
            db.compact().unwrap();
            assert_as_written(&db, &rows, std::slice::from_ref(&hit), "opened again");
            db.close().unwrap();
        }
        let report = repair(&env(&disk), &options, RepairMode::Act).unwrap();
        assert_eq!(report.lost, Vec::<String>::new());
        let db = open(&disk, &options).unwrap();
        assert_eq!(missing(&db, &rows, "repaired"), []);
        db.compact().unwrap();
        assert_eq!(missing(&db, &rows, "repaired and compacted"), []);
    }
}

#[test]
fn a_dropped_table_keeps_its_damaged_partition_until_it_has_been_repaired() {
    let options = one_shard();
    let (disk, _, hit) = without_partition_at(&options, START);
    let db = open(&disk, &options).unwrap();
    let before = content(&disk, &hit.0);
    db.drop_table("m").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let mut rows = Rows::new();
    write_at(&db, &mut rows, &[START]).unwrap();
    db.flush().unwrap();
    assert_as_written(&db, &rows, &[], "made again");
    db.close().unwrap();
    drop(db);
    assert!(content(&disk, &hit.0) == before);
    repair(&env(&disk), &options, RepairMode::Act).unwrap();
    let db = open(&disk, &options).unwrap();
    db.compact().unwrap();
    assert_eq!(missing(&db, &rows, "repaired"), []);
    assert_eq!(db.partitions().len(), 1);
}

#[test]
fn time_that_passes_over_a_damaged_partition_leaves_it_as_it_is() {
    let day = Duration::from_secs(86_400);
    for (retention, raw_for) in [(Some(day), None), (None, Some(day))] {
        let options = one_shard();
        let disk = FaultyFiles::new(1);
        let run = Run::new(Arc::new(disk.clone()), &options);
        run.clock.set(headwater_types::Timestamp::from_nanos(START));
        let db = run.open().unwrap();
        let spec = TableSpec {
            retention,
            raw_for,
            ..TableSpec::new("m")
        };
        db.create_table(&spec).unwrap();
        let mut rows = Rows::new();
        for minute in 0..600 {
            write_at(&db, &mut rows, &[START + minute * 60 * SECOND]).unwrap();
        }
        db.flush().unwrap();
        let hit = hit_at(&db, START + 300 * 60 * SECOND);
        db.close().unwrap();
        drop(db);
        disk.flip_bit(&hit.0, 30, 2).unwrap();
        let left = content(&disk, &hit.0);
        // One of them that the log has rows for.
        let db = run.open().unwrap();
        write_at(&db, &mut rows, &[START + 300 * 60 * SECOND + 5]).unwrap();
        // A look at the clock before it goes on: it must not seem to have jumped.
        db.compact().unwrap();
        run.clock.advance(day * 3);
        let mut newer = Rows::new();
        for _ in 0..3 {
            write_at(&db, &mut newer, &[START + 4000 * 60 * SECOND]).unwrap();
            db.compact().unwrap();
        }
        assert_eq!(db.partitions_unreadable(), 1);
        for range in around(&[ClosedRange::nanos(i64::MIN, hit.1.last.as_nanos())]) {
            let (_, errors) = scan(&db, &stream(1), &range);
            assert!(errors.is_empty(), "{errors:?}");
        }
        // What retention has ended nobody has to read; of what is aged the aggregates are missing.
        let (_, errors) = scan(&db, &stream(1), &ClosedRange::ALL);
        assert_eq!(errors.is_empty(), retention.is_some(), "{errors:?}");
        db.close().unwrap();
        drop(db);
        assert!(content(&disk, &hit.0) == left);
        let report = repair(&env(&disk), &options, RepairMode::Act).unwrap();
        assert_eq!(report.lost, Vec::<String>::new());
        let db = run.open().unwrap();
        db.compact().unwrap();
        assert_eq!(db.partitions_unreadable(), 0);
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            first_last: false,
        };
        let bins = db
            .snapshot()
            .unwrap()
            .aggregate(&stream(1), "n", &spec)
            .unwrap();
        let count: u64 = bins.iter().map(|b| b.aggregate.count).sum();
        let of = |rows: &Rows| of_stream(rows, &stream(1), &ClosedRange::ALL).len() as u64;
        let kept = if retention.is_some() { 0 } else { of(&rows) };
        assert_eq!(count, kept + of(&newer), "{retention:?} {raw_for:?}");
    }
}
