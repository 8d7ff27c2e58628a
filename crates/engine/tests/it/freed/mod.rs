//! Rows that were freed since somebody else has them: aggregates and newest rows stay, rows are
//! elsewhere and never absent, over late events, deletes, restarts, backups, repairs, snapshots,
//! indexes, power cuts; and a copy that has everything answers for all of it.

mod failures;
mod far;
mod lives;
mod losing;

use crate::support::{Fields, collect, small_options};
use far::far;
use headwater_engine::{
    AggregateSpec, BackupOptions, Bins, Database, DeleteSpec, Error, ErrorKind, IndexSpec, Options,
    Reader, RepairMode, ScanSpec, Snapshot, TableChange, backup_with, repair, restore,
    verify_backup,
};
use headwater_io::{Clock, Env, FaultyFiles, ManualClock, NoThreads, SeededChance};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Timestamp, Value};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// Rows of each stream.
const ROWS: i64 = 6_000;
const STREAMS: u64 = 3;

struct World {
    disk: FaultyFiles,
    clock: Arc<ManualClock>,
    options: Options,
    /// Each process has other numbers by chance.
    processes: AtomicU64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            disk: FaultyFiles::new(seed),
            clock: Arc::new(ManualClock::new(Timestamp::from_nanos(START))),
            processes: AtomicU64::new(seed * 1000),
            options: Options {
                partition_target_bytes: 16 << 10,
                partition_bytes_max: 32 << 10,
                leaf_events: 128,
                bucket_events: 16,
                groups_max: 64,
                ..small_options()
            },
        }
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            chance: Arc::new(SeededChance::new(
                self.processes.fetch_add(1, Ordering::Relaxed),
            )),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        }
    }

    fn try_open(&self) -> Result<Database, Error> {
        Database::open_in(self.env(), self.options.clone())
    }

    fn open(&self) -> Database {
        self.try_open().unwrap()
    }

    fn on(&self, disk: FaultyFiles) -> World {
        World {
            disk,
            clock: Arc::clone(&self.clock),
            options: self.options.clone(),
            processes: AtomicU64::new(self.processes.load(Ordering::Relaxed) + 100),
        }
    }

    fn assert_sound(&self) {
        let report = headwater_engine::check(self.env(), self.options.clone()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        assert!(report.damaged_snapshots.is_empty());
    }

    /// Names of the files of segments.
    fn segments(&self) -> BTreeSet<String> {
        let files = self.disk.files().into_iter();
        let inside = files.filter(|(path, _)| path.starts_with("/db/segment"));
        let names = inside.filter_map(|(path, _)| Some(path.file_name()?.to_str()?.to_owned()));
        names.collect()
    }

    /// Closes a database and opens it again.
    fn again(&self, db: Database) -> Database {
        db.close().unwrap();
        drop(db);
        self.open()
    }

    /// Each partition has one file, and so many have lost their rows.
    fn assert_freed(&self, db: &Database, freed: u64) {
        let names = self.segments();
        assert_eq!(db.freed_rows().unwrap().partitions, freed, "{names:?}");
        assert_eq!(self.stubs() as u64, freed, "{names:?}");
        assert_eq!(names.len(), db.partitions().len(), "{names:?}");
    }

    fn stubs(&self) -> usize {
        let names = self.segments();
        names.iter().filter(|n| n.ends_with(".stub")).count()
    }
}

fn stream(id: u64) -> StreamName {
    StreamName::new("m", [("id", id.to_string())])
}

fn value(id: u64, row: i64) -> f64 {
    ((row * 7919 + id as i64 * 31) % 1009) as f64 / 8.0
}

fn rows(id: u64, from: i64, to: i64) -> Batch {
    let mut batch = Batch::new();
    let name = stream(id);
    let entry = batch.stream(&name);
    for row in from..to {
        let fields = [("v", Value::F64(value(id, row)))];
        entry.row(START + row * SECOND, fields).unwrap();
    }
    batch
}

fn fill(db: &Database) -> Result<(), Error> {
    for from in (0..ROWS).step_by(500) {
        for id in 0..STREAMS {
            db.commit(rows(id, from, from + 500))?;
        }
        db.flush()?;
    }
    db.compact()
}

/// All segments of a database, as somebody who has all of them would say.
fn all(db: &Database) -> Vec<(u64, u64)> {
    let held = db.hold_state(None).unwrap();
    let segments = held.state().segments();
    segments.map(|s| (s.id, s.bytes)).collect()
}

/// Frees all that may be freed: exactly what was said to be freeable.
fn free(db: &Database) -> u64 {
    let all = all(db);
    let freeable = db.freeable_rows(&all, Timestamp::MAX, usize::MAX).unwrap();
    let freed = db.free_rows(&all, Timestamp::MAX, u64::MAX).unwrap();
    assert_eq!(freed.partitions, freeable.len() as u64, "{freeable:?}");
    assert_eq!(
        db.freeable_rows(&all, Timestamp::MAX, usize::MAX).unwrap(),
        []
    );
    freed.partitions
}

fn range(from: i64, to: i64) -> ClosedRange {
    ClosedRange::nanos(START + from * SECOND, START + to * SECOND)
}

fn totals(snapshot: &Snapshot, id: u64, range: ClosedRange) -> Result<(u64, f64), Error> {
    let spec = AggregateSpec {
        range,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = snapshot.aggregate(&stream(id), "v", &spec)?;
    let sums = bins.iter().map(|bin| &bin.aggregate);
    Ok(sums.fold((0, 0.0), |(count, sum), a| {
        (
            count + a.count,
            sum + a.mean().unwrap_or(0.0) * a.count as f64,
        )
    }))
}

fn assert_close(found: (u64, f64), expected: (u64, f64), what: &str) {
    assert_eq!(found.0, expected.0, "{what}");
    let scale = expected.1.abs().max(1.0);
    assert!(
        (found.1 - expected.1).abs() < 1e-9 * scale,
        "{what}: {found:?} {expected:?}"
    );
}

fn expected(id: u64, from: i64, to: i64) -> (u64, f64) {
    let values = (from..to).map(|row| value(id, row));
    ((to - from) as u64, values.sum())
}

/// The rows of a stream in a range, or that some are elsewhere.
fn scan(snapshot: &Snapshot, id: u64, range: ClosedRange) -> Result<Vec<(i64, Fields)>, Error> {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let (rows, mut errors) = collect(snapshot.scan(&stream(id), &spec)?);
    match errors.pop() {
        None => Ok(rows),
        Some(error) => Err(error),
    }
}

fn is_elsewhere<T: std::fmt::Debug>(found: Result<T, Error>) {
    let error = found.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}");
}

/// Everything but rows is as it was before they were freed.
fn assert_aggregates_stay(snapshot: &Snapshot) {
    for id in 0..STREAMS {
        let found = totals(snapshot, id, ClosedRange::ALL).unwrap();
        assert_close(found, expected(id, 0, ROWS), "all of a stream");
        // From the stored buckets on.
        for level in [6, 8, 12] {
            let level = Level::clamped(level);
            let spec = AggregateSpec {
                range: ClosedRange::ALL,
                bins: Bins::Level(level),
                first_last: false,
            };
            for bin in snapshot.aggregate(&stream(id), "v", &spec).unwrap() {
                let span = level.bucket_span(level.bucket_of(bin.start));
                let row = |at: Timestamp| (at.as_nanos() - START).div_euclid(SECOND);
                let (from, to) = (row(span.first).max(0), (row(span.last) + 1).min(ROWS));
                let from = from + i64::from(START + from * SECOND < span.first.as_nanos());
                let to = (from..to).filter(|r| START + r * SECOND <= span.last.as_nanos());
                let rows: Vec<i64> = to.collect();
                let sum = rows.iter().map(|row| value(id, *row)).sum();
                let found = &bin.aggregate;
                let found = (
                    found.count,
                    found.mean().unwrap_or(0.0) * found.count as f64,
                );
                assert_close(found, (rows.len() as u64, sum), "a bucket");
            }
        }
        let newest = snapshot.last(&stream(id)).unwrap();
        assert_eq!(newest[0].value, Value::F64(value(id, ROWS - 1)));
        assert_eq!(newest[0].time.as_nanos(), START + (ROWS - 1) * SECOND);
    }
}

#[test]
fn rows_are_elsewhere_and_aggregates_and_newest_rows_stay_also_when_opened_again() {
    let world = World::new(1);
    let db = world.open();
    fill(&db).unwrap();
    let before = db.stats().unwrap();
    assert!(db.partitions().len() > 3);
    // What is said to be elsewhere up to another length is not what there is.
    let other: Vec<(u64, u64)> = all(&db)
        .iter()
        .map(|(id, bytes)| (*id, bytes - 1))
        .collect();
    assert_eq!(
        db.free_rows(&other, Timestamp::MAX, u64::MAX)
            .unwrap()
            .partitions,
        0
    );
    // Nothing that ends later.
    let none = db.free_rows(&all(&db), Timestamp::from_nanos(START), u64::MAX);
    assert_eq!(none.unwrap().partitions, 0);
    let freeable = |held: &[(u64, u64)], before, most| {
        let freeable = db.freeable_rows(held, before, most).unwrap();
        freeable.len()
    };
    assert_eq!(freeable(&other, Timestamp::MAX, 9), 0);
    assert_eq!(freeable(&all(&db), Timestamp::from_nanos(START), 9), 0);
    assert_eq!(freeable(&all(&db), Timestamp::MAX, 2), 2);
    let state = db.state_number().unwrap();
    let freed = db.free_rows(&all(&db), Timestamp::MAX, u64::MAX).unwrap();
    assert!(freed.partitions + 2 >= db.partitions().len() as u64);
    assert_eq!(db.freed_rows().unwrap(), freed);
    assert_eq!(free(&db), 0, "once");
    // To who copies it nothing has changed.
    assert_eq!(db.state_number().unwrap(), state);
    let after = db.stats().unwrap();
    assert_eq!(after.partitions_freed, freed.partitions);
    assert_eq!(after.freed_bytes, freed.bytes);
    assert_eq!(after.segment_bytes, before.segment_bytes - freed.bytes);
    assert!(after.segment_bytes * 2 < before.segment_bytes, "{after:?}");
    assert_eq!(after.events, before.events);
    world.assert_freed(&db, freed.partitions);
    let files = world.disk.files().into_iter();
    let of_segments = files.filter(|(path, _)| path.starts_with("/db/segment"));
    let on_disk: u64 = of_segments.map(|(_, bytes)| bytes).sum();
    assert!(on_disk < after.segment_bytes + 8_000, "{on_disk}");
    let look = |snapshot: &Snapshot| {
        assert_aggregates_stay(snapshot);
        is_elsewhere(scan(snapshot, 1, ClosedRange::ALL));
        is_elsewhere(scan(snapshot, 1, range(1000, 1001)));
        is_elsewhere(totals(snapshot, 1, range(1001, 2003)));
        let missing = |range, level| {
            let found = snapshot.coverage(&stream(1), range, level).unwrap();
            found.iter().map(|c| c.missing.len()).sum::<usize>()
        };
        assert!(missing(range(0, 900), None) > 0);
        assert_eq!(missing(ClosedRange::ALL, Some(Level::clamped(8))), 0);
    };
    look(&db.snapshot().unwrap());
    let reader = Reader::open_in(world.env(), world.options.clone()).unwrap();
    look(&reader.snapshot());
    // Nothing is compacted, aged or written again.
    let alter = TableChange {
        raw_for: Some(Some(Duration::from_secs(600))),
        ..TableChange::default()
    };
    db.alter_table("m", &alter).unwrap();
    db.compact().unwrap();
    db.maintain().unwrap();
    look(&db.snapshot().unwrap());
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let db = world.open();
    look(&db.snapshot().unwrap());
    assert_eq!(db.freed_rows().unwrap(), freed);
    db.close().unwrap();
}

#[test]
fn who_reads_before_goes_on_to_read_rows_and_they_go_with_the_last() {
    let world = World::new(2);
    let db = world.open();
    fill(&db).unwrap();
    let before = db.snapshot().unwrap();
    let freed = free(&db);
    assert!(freed > 0);
    let rows = scan(&before, 2, ClosedRange::ALL).unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    // What comes now goes to the new files.
    db.commit(rows_of_late(1)).unwrap();
    db.flush().unwrap();
    assert_eq!(scan(&before, 2, ClosedRange::ALL).unwrap(), rows);
    drop(before);
    assert_eq!(
        db.free_rows(&[], Timestamp::MAX, u64::MAX)
            .unwrap()
            .partitions,
        0
    );
    world.assert_freed(&db, freed);
    is_elsewhere(scan(&db.snapshot().unwrap(), 2, ClosedRange::ALL));
    db.close().unwrap();
    world.assert_sound();
}

/// A late row between two others, and one in place of another.
fn rows_of_late(id: u64) -> Batch {
    let mut batch = Batch::new();
    let name = stream(id);
    let entry = batch.stream(&name);
    for time in [START + 777 * SECOND + 1, START + 900 * SECOND] {
        entry.row(time, [("v", Value::F64(5000.0))]).unwrap();
    }
    batch
}

#[test]
fn late_events_become_late_runs_and_a_copy_that_has_everything_answers_for_all() {
    let world = World::new(3);
    let db = world.open();
    fill(&db).unwrap();
    let far = far(&db);
    assert!(free(&db) > 0);
    for round in 0..5 {
        db.commit(rows_of_late(1)).unwrap();
        if round % 2 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let snapshot = db.snapshot().unwrap();
    // Where a late row fell the rows would be needed; elsewhere nothing has changed.
    is_elsewhere(totals(&snapshot, 1, ClosedRange::ALL));
    let level = Level::clamped(8);
    let bucket = level.bucket_of(Timestamp::from_nanos(START + 777 * SECOND));
    let bucket = level.bucket_span(bucket);
    let behind = level.bucket_span(level.bucket_of(Timestamp::from_nanos(START + 2000 * SECOND)));
    is_elsewhere(totals(&snapshot, 1, bucket));
    assert!(totals(&snapshot, 1, behind).unwrap().0 > 0);
    assert_close(
        totals(&snapshot, 0, ClosedRange::ALL).unwrap(),
        expected(0, 0, ROWS),
        "other",
    );
    // The copy gets what came, of the same segments, and knows all.
    far.follow(&db);
    let reader = far.reader();
    let copy = reader.snapshot();
    let found = scan(&copy, 1, ClosedRange::ALL).unwrap();
    assert_eq!(found.len(), ROWS as usize + 1);
    let (count, sum) = expected(1, 0, ROWS);
    let sum = sum + 10_000.0 - value(1, 900);
    assert_close(
        totals(&copy, 1, ClosedRange::ALL).unwrap(),
        (count + 1, sum),
        "the copy",
    );
    drop(snapshot);
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let db = world.open();
    is_elsewhere(totals(&db.snapshot().unwrap(), 1, ClosedRange::ALL));
    // Somebody else who begins now gets what is here, and the rest is no rows of its.
    let held = db.hold_state(None).unwrap();
    let missing = held.state().segments().map(|segment| {
        let missing = held.missing(segment.id, 0, segment.bytes).unwrap();
        missing.iter().map(|range| range.len()).sum::<u64>()
    });
    assert_eq!(missing.sum::<u64>(), db.freed_rows().unwrap().bytes);
    drop(held);
    db.close().unwrap();
}

fn delete(db: &Database, id: Option<u64>, range: ClosedRange) -> Result<u64, Error> {
    let tags = id.map(|id| ("id".to_owned(), id.to_string()));
    db.delete(&DeleteSpec {
        table: "m".into(),
        tags: tags.into_iter().collect(),
        range,
    })
}

#[test]
fn deletes_take_all_that_a_stream_has_and_no_part_of_it() {
    let world = World::new(4);
    let db = world.open();
    fill(&db).unwrap();
    let far = far(&db);
    assert!(free(&db) > 0);
    let before = db.stats().unwrap();
    is_elsewhere(delete(&db, Some(1), range(1000, 1010)));
    is_elsewhere(delete(&db, None, range(1000, i64::from(i32::MAX))));
    assert_aggregates_stay(&db.snapshot().unwrap());
    // Where nothing was freed, or nothing is, it may be any part.
    delete(&db, Some(1), range(-500, -1)).unwrap();
    delete(&db, Some(1), ClosedRange::ALL).unwrap();
    db.flush().unwrap();
    db.maintain().unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(totals(&snapshot, 1, ClosedRange::ALL).unwrap().0, 0);
    assert!(scan(&snapshot, 1, ClosedRange::ALL).unwrap().is_empty());
    assert_close(
        totals(&snapshot, 2, ClosedRange::ALL).unwrap(),
        expected(2, 0, ROWS),
        "2",
    );
    is_elsewhere(scan(&snapshot, 2, ClosedRange::ALL));
    assert_eq!(db.stats().unwrap().events, before.events - ROWS as u64);
    far.follow(&db);
    let reader = far.reader();
    let copy = reader.snapshot();
    assert_eq!(totals(&copy, 1, ClosedRange::ALL).unwrap().0, 0);
    assert_eq!(
        scan(&copy, 2, ClosedRange::ALL).unwrap().len(),
        ROWS as usize
    );
    drop((snapshot, copy));
    // What is written there anew is a late run, and stays.
    db.commit(rows(1, 100, 110)).unwrap();
    db.flush().unwrap();
    assert_eq!(
        scan(&db.snapshot().unwrap(), 1, range(0, 5000))
            .unwrap()
            .len(),
        10
    );
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let db = world.open();
    assert_eq!(
        scan(&db.snapshot().unwrap(), 1, range(0, 5000))
            .unwrap()
            .len(),
        10
    );
    let tags = |id: u64| vec![("id".to_owned(), id.to_string())];
    for id in 0..STREAMS {
        db.drop_streams("m", &tags(id)).unwrap();
    }
    db.flush().unwrap();
    db.maintain().unwrap();
    let db = world.again(db);
    db.maintain().unwrap();
    let db = world.again(db);
    world.assert_freed(&db, 0);
    db.close().unwrap();
    world.assert_sound();
}

#[test]
fn retention_and_the_end_of_a_table_take_what_stays_along() {
    let world = World::new(5);
    let db = world.open();
    fill(&db).unwrap();
    let freed = free(&db);
    world.clock.advance(Duration::from_secs(ROWS as u64));
    let change = TableChange {
        retention: Some(Some(Duration::from_secs(ROWS as u64 / 2))),
        ..TableChange::default()
    };
    db.alter_table("m", &change).unwrap();
    db.maintain().unwrap();
    let left = db.freed_rows().unwrap().partitions;
    assert!(left > 0 && left < freed, "{left} of {freed}");
    assert_eq!(world.stubs() as u64, left);
    db.drop_table("m").unwrap();
    db.maintain().unwrap();
    assert_eq!(db.freed_rows().unwrap().partitions, 0);
    let db = world.again(db);
    assert_eq!(world.stubs(), 0);
    db.close().unwrap();
    drop(db);
    world.assert_sound();
}

#[test]
fn a_named_snapshot_keeps_its_rows_and_one_made_later_has_none() {
    let world = World::new(6);
    let db = world.open();
    fill(&db).unwrap();
    db.create_snapshot("with").unwrap();
    assert_eq!(free(&db), 0, "a snapshot has the rows");
    db.drop_snapshot("with").unwrap();
    assert!(free(&db) > 0);
    db.create_snapshot("without").unwrap();
    let look = |db: &Database| {
        let named = db.snapshot_named("without").unwrap();
        assert_aggregates_stay(&named);
        is_elsewhere(scan(&named, 0, ClosedRange::ALL));
    };
    look(&db);
    // It keeps what stays of a partition that goes.
    db.drop_table("m").unwrap();
    db.maintain().unwrap();
    let named = db.snapshot_named("without");
    assert!(named.unwrap().table_names().is_empty());
    let db = world.again(db);
    db.drop_snapshot("without").unwrap();
    let db = world.again(db);
    assert_eq!(world.stubs(), 0);
    db.close().unwrap();
    drop(db);
    world.assert_sound();
}

#[test]
fn an_index_made_before_stays_true_and_one_made_later_waits_for_nothing() {
    let world = World::new(7);
    let db = world.open();
    fill(&db).unwrap();
    let spec = |name: &str| IndexSpec {
        name: name.into(),
        table: "m".into(),
        fields: vec!["v".into()],
    };
    db.create_index(&spec("before")).unwrap();
    db.build_index("before", &mut |_| ControlFlow::Continue(()))
        .unwrap();
    assert!(free(&db) > 0);
    db.create_index(&spec("after")).unwrap();
    db.maintain().unwrap();
    db.commit(rows_of_late(1)).unwrap();
    db.commit(rows(0, ROWS, ROWS + 5)).unwrap();
    db.flush().unwrap();
    db.maintain().unwrap();
    assert_close(
        totals(&db.snapshot().unwrap(), 2, ClosedRange::ALL).unwrap(),
        expected(2, 0, ROWS),
        "2",
    );
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let db = world.open();
    db.maintain().unwrap();
    db.close().unwrap();
    world.assert_sound();
}

#[test]
fn a_backup_has_what_stays_and_a_later_one_only_what_is_new() {
    let world = World::new(8);
    let db = world.open();
    fill(&db).unwrap();
    let to = Path::new("/backup");
    let verify = BackupOptions { verify: true };
    let take = |how: &BackupOptions| backup_with(&world.env(), &world.options, to, how).unwrap();
    let whole = take(&verify);
    let freed = db.free_rows(&all(&db), Timestamp::MAX, u64::MAX).unwrap();
    let first = take(&verify);
    assert!(first.damages.is_empty(), "{:?}", first.damages);
    assert!(first.bytes < whole.bytes - freed.bytes / 2);
    db.commit(rows_of_late(1)).unwrap();
    db.flush().unwrap();
    let second = take(&verify);
    assert!(second.damages.is_empty() && second.files_mended == 0);
    assert!(second.bytes_copied < first.bytes_copied, "{second:?}");
    let report = verify_backup(&world.env(), to).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    assert!(report.freed_leaves > 0);
    db.close().unwrap();
    drop(db);
    let options = Options {
        dir: "/restored".into(),
        ..world.options.clone()
    };
    let report = restore(&world.env(), to, &options).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let db = Database::open_in(world.env(), options).unwrap();
    assert_eq!(db.freed_rows().unwrap(), freed);
    let snapshot = db.snapshot().unwrap();
    assert_close(
        totals(&snapshot, 2, ClosedRange::ALL).unwrap(),
        expected(2, 0, ROWS),
        "2",
    );
    is_elsewhere(scan(&snapshot, 2, ClosedRange::ALL));
    drop(snapshot);
    db.close().unwrap();
}

#[test]
fn a_repair_leaves_what_was_freed_as_it_is_and_finds_it_without_metadata() {
    let world = World::new(9);
    let db = world.open();
    fill(&db).unwrap();
    let freed = db.free_rows(&all(&db), Timestamp::MAX, u64::MAX).unwrap();
    db.commit(rows_of_late(1)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    let report = repair(&world.env(), &world.options, RepairMode::DryRun).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    world
        .env()
        .files
        .remove(Path::new("/db/meta.redb"))
        .unwrap();
    let report = repair(&world.env(), &world.options, RepairMode::Act).unwrap();
    assert!(!report.findings.is_empty());
    assert!(report.after.is_sound(), "{:?}", report.after.damages);
    let db = world.open();
    assert_eq!(db.freed_rows().unwrap(), freed);
    let snapshot = db.snapshot().unwrap();
    for id in [0, 2] {
        let found = totals(&snapshot, id, ClosedRange::ALL).unwrap();
        assert_close(found, expected(id, 0, ROWS), "after a repair");
    }
    is_elsewhere(totals(&snapshot, 1, ClosedRange::ALL));
    assert_eq!(scan(&snapshot, 1, range(-9, -1)).unwrap().len(), 0);
    drop(snapshot);
    db.commit(rows_of_late(2)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    world.assert_sound();
}
