//! Named snapshots: each reads as what it held when it was made, less what users deleted since,
//! over compaction, retention, restarts, backups; their bounds; what differs between two.

mod changes;
mod differences;
mod failures;

use crate::model::Random;
use crate::support::{Content, Fields, read_snapshot, small_options};
use headwater_engine::{
    BackupOptions, Database, DeleteSpec, DiffSpec, DiffStretch, Error, ErrorKind, Options, Reader,
    Snapshot, SnapshotEnd, TableChange, backup_with, restore, verify_backup,
};
use headwater_io::{Clock, Env, FaultyFiles, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

struct World {
    disk: FaultyFiles,
    clock: Arc<ManualClock>,
    options: Options,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            disk: FaultyFiles::new(seed),
            clock: Arc::new(ManualClock::new(Timestamp::from_nanos(START))),
            options: small_options(),
        }
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
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
        }
    }

    fn assert_sound(&self) {
        let report = headwater_engine::check(self.env(), self.options.clone()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        assert!(report.damaged_snapshots.is_empty());
    }

    /// Names of segment files, and of what says that only snapshots keep them.
    fn segments(&self) -> BTreeSet<String> {
        let files = self.disk.files().into_iter();
        let inside = files.filter(|(path, _)| path.starts_with("/db/segment"));
        let names = inside.filter_map(|(path, _)| Some(path.file_name()?.to_str()?.to_owned()));
        names.collect()
    }
}

fn stream(table: &str, id: u64) -> StreamName {
    StreamName::new(table, [("id", id.to_string())])
}

/// Rows of a stream, a second apart.
fn rows(table: &str, id: u64, first: i64, count: i64, value: f64) -> Batch {
    let mut batch = Batch::new();
    let name = stream(table, id);
    let entry = batch.stream(&name);
    for row in first..first + count {
        let time = START + row * SECOND;
        entry
            .row(time, [("v", Value::F64(value + row as f64))])
            .unwrap();
    }
    batch
}

/// Writes 300 rows of each of three streams.
fn three_streams(db: &Database, value: f64) {
    for id in 0..3 {
        db.commit(rows("k", id, 0, 300, value)).unwrap();
    }
}

fn range(first: i64, last: i64) -> ClosedRange {
    ClosedRange::nanos(START + first * SECOND, START + last * SECOND)
}

fn delete(db: &Database, table: &str, id: Option<u64>, first: i64, last: i64) {
    let tags = id.map(|id| ("id".to_owned(), id.to_string()));
    let spec = DeleteSpec {
        table: table.to_owned(),
        tags: tags.into_iter().collect(),
        range: range(first, last),
    };
    db.delete(&spec).unwrap();
}

/// Everything that a snapshot shows, with its aggregates compared with its rows.
fn content(snapshot: &Snapshot) -> Content {
    let names = snapshot.table_names();
    let infos = names.iter().map(|name| snapshot.table_info(name).unwrap());
    read_snapshot(snapshot, &infos.collect::<Vec<_>>())
}

type Rows = BTreeMap<(StreamName, i64), Fields>;

fn all_rows(snapshot: &Snapshot) -> Rows {
    let mut out = Rows::new();
    for (name, rows) in &content(snapshot).streams {
        for (time, fields) in rows {
            out.insert((name.clone(), *time), fields.clone());
        }
    }
    out
}

fn named(db: &Database, name: &str) -> Rows {
    all_rows(&db.snapshot_named(name).unwrap())
}

fn names(db: &Database) -> Vec<String> {
    db.snapshots().into_iter().map(|s| s.name).collect()
}

#[test]
fn a_snapshot_stays_what_it_was_over_writes_compactions_retention_and_restarts() {
    let world = World::new(1);
    let db = world.open();
    for id in 0..3 {
        db.commit(rows("k", id, 0, 400, 0.5)).unwrap();
    }
    let before = all_rows(&db.snapshot().unwrap());
    let info = db.create_snapshot("before").unwrap();
    assert_eq!((info.streams, info.tables, info.events), (3, 1, 1200));
    assert_eq!((info.kept_bytes, info.own_bytes), (0, 0));
    assert_eq!(named(&db, "before"), before);
    // Written again, rewritten, and then too old.
    for id in 0..3 {
        db.commit(rows("k", id, 0, 400, 9.5)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(named(&db, "before"), before);
    let change = TableChange {
        retention: Some(Some(Duration::from_secs(60))),
        ..TableChange::default()
    };
    db.alter_table("k", &change).unwrap();
    for _ in 0..40 {
        world.clock.advance(Duration::from_secs(3000));
        db.maintain().unwrap();
    }
    assert!(all_rows(&db.snapshot().unwrap()).is_empty());
    assert_eq!(named(&db, "before"), before);
    let info = &db.snapshots()[0];
    assert!(info.kept_bytes == info.bytes && info.own_bytes == info.bytes);
    assert_eq!(db.stats().unwrap().snapshot_bytes, info.bytes);
    let open = db.snapshot_named("before").unwrap();
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    // Killed, and opened again.
    let killed = world.on(world.disk.after_crash(1));
    let db = killed.open();
    assert_eq!(named(&db, "before"), before);
    killed.assert_sound();
    // A second one, of the empty table; the first goes, and its files with it.
    db.create_snapshot("after").unwrap();
    db.drop_snapshot("before").unwrap();
    assert_eq!(names(&db), ["after"]);
    assert_eq!(db.stats().unwrap().snapshot_bytes, 0);
    assert!(killed.segments().is_empty(), "{:?}", killed.segments());
    assert_eq!(all_rows(&open), before, "who reads it goes on");
    let error = db.drop_snapshot("before").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = db.snapshot_named("before").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn what_users_delete_later_is_not_in_a_snapshot_either() {
    let world = World::new(2);
    let db = world.open();
    for (table, id) in [("k", 0), ("k", 1), ("l", 0), ("l", 1), ("m", 0)] {
        db.commit(rows(table, id, 0, 300, 0.5)).unwrap();
    }
    db.create_snapshot("s").unwrap();
    let mut expected = named(&db, "s");
    delete(&db, "k", Some(0), 100, 199);
    let inside = |t: i64| (START + 100 * SECOND..=START + 199 * SECOND).contains(&t);
    expected.retain(|(name, t), _| *name != stream("k", 0) || !inside(*t));
    assert_eq!(named(&db, "s"), expected);
    // A dropped stream, made again: it is another one.
    let tags = [("id".to_owned(), "1".to_owned())];
    assert_eq!(db.drop_streams("l", &tags).unwrap(), 1);
    db.commit(rows("l", 1, 0, 50, 7.5)).unwrap();
    expected.retain(|(name, _), _| *name != stream("l", 1));
    // A dropped table, made again.
    db.drop_table("m").unwrap();
    db.commit(rows("m", 0, 0, 50, 7.5)).unwrap();
    expected.retain(|(name, _), _| name.table() != "m");
    assert_eq!(named(&db, "s"), expected);
    let past = db.snapshot_named("s").unwrap();
    assert_eq!(past.table_names(), ["k", "l"]);
    assert_eq!(past.streams("l", &[]).unwrap(), [stream("l", 0)]);
    // What was written over what was deleted is later.
    db.commit(rows("k", 0, 120, 10, 3.5)).unwrap();
    db.compact().unwrap();
    assert_eq!(named(&db, "s"), expected);
    drop(past);
    db.close().unwrap();
    drop(db);
    let db = world.open();
    assert_eq!(named(&db, "s"), expected);
    world.assert_sound();
    // Deletes that came before a snapshot are in it, whether they were carried out or not.
    delete(&db, "k", None, 0, 49);
    db.create_snapshot("t").unwrap();
    let now = all_rows(&db.snapshot().unwrap());
    assert_eq!(named(&db, "t"), now);
    db.commit(rows("k", 0, 0, 50, 1.5)).unwrap();
    assert_eq!(named(&db, "t"), now);
}

#[test]
fn names_are_taken_once_and_some_cannot_be() {
    let world = World::new(3);
    let db = world.open();
    for bad in ["", "now", "a\nb", &"x".repeat(300)] {
        let error = db.create_snapshot(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    db.create_snapshot("a").unwrap();
    let error = db.create_snapshot("a").unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    for number in 1..64 {
        db.create_snapshot(&format!("s{number}")).unwrap();
    }
    let error = db.create_snapshot("one more").unwrap_err();
    assert!(error.to_string().contains("64 snapshots"), "{error}");
    db.drop_snapshot("s7").unwrap();
    db.create_snapshot("one more").unwrap();
    assert_eq!(names(&db).len(), 64);
}

#[test]
fn expired_values_of_then_are_gone_in_a_snapshot_and_no_others() {
    let world = World::new(4);
    let db = world.open();
    for (first, lives) in [(0, 100), (100, 10_000)] {
        let at = Timestamp::from_nanos(START + lives * SECOND);
        let mut batch = rows("k", 0, first, 100, 0.5);
        batch.expire_at(at);
        db.commit(batch).unwrap();
    }
    world.clock.advance(Duration::from_secs(500));
    db.create_snapshot("s").unwrap();
    let expected = named(&db, "s");
    assert_eq!(expected.len(), 100);
    world.clock.advance(Duration::from_secs(20_000));
    db.maintain().unwrap();
    db.compact().unwrap();
    assert!(all_rows(&db.snapshot().unwrap()).is_empty());
    assert_eq!(named(&db, "s"), expected);
    drop(db);
    assert_eq!(named(&world.open(), "s"), expected);
}

#[test]
fn snapshots_end_by_age_and_by_bytes_and_say_so() {
    let mut world = World::new(5);
    world.options.snapshot_age_max = Some(Duration::from_secs(3600));
    let db = world.open();
    db.commit(rows("k", 0, 0, 300, 0.5)).unwrap();
    db.create_snapshot("old").unwrap();
    let info = &db.snapshots()[0];
    let after = info.ends.unwrap().as_nanos() - info.created.as_nanos();
    assert_eq!(after, 3600 * SECOND);
    world.clock.advance(Duration::from_secs(3000));
    db.create_snapshot("new").unwrap();
    world.clock.advance(Duration::from_secs(1000));
    db.maintain().unwrap();
    assert_eq!(names(&db), ["new"]);
    let error = db.snapshot_named("old").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert!(error.to_string().contains("age_max"), "{error}");
    db.close().unwrap();
    drop(db);
    let most = 2000;
    world.options.snapshot_bytes_max = Some(most);
    let db = world.open();
    let ended = db.ended_snapshots();
    assert_eq!(
        (ended[0].name.as_str(), ended[0].why),
        ("old", SnapshotEnd::Age)
    );
    db.commit(rows("k", 0, 0, 300, 77.5)).unwrap();
    db.create_snapshot("newer").unwrap();
    for round in 0..4 {
        db.commit(rows("k", 0, 0, 300, f64::from(round))).unwrap();
        db.compact().unwrap();
        db.maintain().unwrap();
        assert!(db.stats().unwrap().snapshot_bytes <= most);
    }
    assert!(names(&db).len() < 2, "{:?}", db.snapshots());
    let ended = db.ended_snapshots();
    assert!(
        ended
            .iter()
            .any(|e| e.name == "new" && e.why == SnapshotEnd::Bytes)
    );
}

#[test]
fn a_backup_has_the_snapshots_too_and_so_does_a_reader() {
    let world = World::new(6);
    let db = world.open();
    three_streams(&db, 0.5);
    db.create_snapshot("s").unwrap();
    three_streams(&db, 5.5);
    db.compact().unwrap();
    delete(&db, "k", Some(1), 0, 99);
    let expected = named(&db, "s");
    let reader = Reader::open_in(world.env(), world.options.clone()).unwrap();
    assert_eq!(reader.snapshots().len(), 1);
    let seen = reader.snapshot_named("s").unwrap();
    assert_eq!(all_rows(&seen), expected);
    let to = Path::new("/backup");
    for _ in 0..2 {
        let how = BackupOptions { verify: true };
        let report = backup_with(&world.env(), &world.options, to, &how).unwrap();
        assert!(report.damages.is_empty());
        assert!(verify_backup(&world.env(), to).unwrap().is_sound());
        db.compact().unwrap();
    }
    // The snapshot goes while somebody beside the owner reads it.
    db.drop_snapshot("s").unwrap();
    assert_eq!(all_rows(&seen), expected);
    let elsewhere = Options {
        dir: PathBuf::from("/restored"),
        ..world.options.clone()
    };
    restore(&world.env(), to, &elsewhere).unwrap();
    let restored = Database::open_in(world.env(), elsewhere).unwrap();
    assert_eq!(named(&restored, "s"), expected);
    assert_eq!(names(&db).len(), 0);
}

/// What differs between two states, row by row.
fn differing(a: &Rows, b: &Rows) -> BTreeMap<StreamName, BTreeMap<i64, &'static str>> {
    let mut out: BTreeMap<StreamName, BTreeMap<i64, &'static str>> = BTreeMap::new();
    for (name, time) in a.keys().chain(b.keys()) {
        let key = (name.clone(), *time);
        let what = match (a.get(&key), b.get(&key)) {
            (Some(_), None) => "removed",
            (None, Some(_)) => "added",
            (Some(a), Some(b)) if a != b => "changed",
            _ => continue,
        };
        out.entry(name.clone()).or_default().insert(*time, what);
    }
    out
}

/// Compares a snapshot with another one, or with the present, by [`Snapshot::diff`] and row by row.
fn compare(db: &Database, name: &str, random: &mut Random, held: &BTreeMap<String, Rows>) {
    let a = db.snapshot_named(name).unwrap();
    let other = held.keys().nth(random.below(held.len() as u64) as usize);
    let b = match other.filter(|_| random.chance(50)) {
        Some(other) => db.snapshot_named(other).unwrap(),
        None => db.snapshot().unwrap(),
    };
    let mut expected = differing(&all_rows(&a), &all_rows(&b));
    a.diff(&b, &DiffSpec::default(), |found| {
        let mut rows = expected.remove(&found.stream).unwrap();
        for stretch in found.stretches {
            let (first, last) = (
                stretch.range.first.as_nanos(),
                stretch.range.last.as_nanos(),
            );
            let inside = rows.range(first..=last).map(|(t, what)| (*t, *what));
            let inside: Vec<_> = inside.collect();
            assert_eq!(inside.first().unwrap().0, first, "{}", found.stream);
            assert_eq!(inside.last().unwrap().0, last, "{}", found.stream);
            for (what, count) in [
                ("removed", stretch.removed),
                ("added", stretch.added),
                ("changed", stretch.changed),
            ] {
                let of = inside.iter().filter(|(_, w)| *w == what);
                assert_eq!(of.count() as u64, count, "{what} of {}", found.stream);
            }
            rows.retain(|t, _| !(first..=last).contains(t));
        }
        assert!(rows.is_empty(), "{}: {rows:?}", found.stream);
        Ok(())
    })
    .unwrap();
    assert!(expected.is_empty(), "{expected:?}");
}

/// Random lives: rows of three streams, statements, snapshots that are held over all of it.
fn live(seed: u64, steps: u64) {
    let mut world = World::new(seed);
    let mut random = Random::new(seed);
    world.options.shards = 1 + random.below(2) as u16;
    let mut db = world.open();
    let mut held: BTreeMap<String, Rows> = BTreeMap::new();
    let mut made = 0;
    for step in 0..steps {
        let what = format!("seed {seed}, step {step}");
        let tables = ["k", "l"];
        let table = tables[random.below(2) as usize];
        let id = random.below(3);
        let first = random.below(2 + step * 20) as i64;
        match random.below(100) {
            0..=54 => {
                let count = 1 + random.below(120) as i64;
                let value = random.below(1000) as f64;
                db.commit(rows(table, id, first, count, value)).unwrap();
            }
            55..=64 if db.tables().iter().any(|t| t.name == table) => {
                let id = random.chance(50).then_some(id);
                let last = first + random.below(200) as i64;
                delete(&db, table, id, first, last);
                let gone = range(first, last);
                for rows in held.values_mut() {
                    rows.retain(|(name, t), _| {
                        name.table() != table
                            || id.is_some_and(|id| *name != stream(table, id))
                            || !gone.contains(Timestamp::from_nanos(*t))
                    });
                }
            }
            65..=66 if db.tables().iter().any(|t| t.name == table) => {
                let tags = [("id".to_owned(), id.to_string())];
                db.drop_streams(table, &tags).unwrap();
                for rows in held.values_mut() {
                    rows.retain(|(name, _), _| *name != stream(table, id));
                }
            }
            67 if db.tables().iter().any(|t| t.name == table) => {
                db.drop_table(table).unwrap();
                for rows in held.values_mut() {
                    rows.retain(|(name, _), _| name.table() != table);
                }
            }
            68..=69 if db.tables().iter().any(|t| t.name == table) => {
                let seconds = [None, Some(1000), Some(100_000)][random.below(3) as usize];
                let change = TableChange {
                    retention: Some(seconds.map(Duration::from_secs)),
                    ..TableChange::default()
                };
                db.alter_table(table, &change).unwrap();
            }
            70..=74 => db.compact().unwrap(),
            75..=79 => db.flush().unwrap(),
            80..=82 => {
                world.clock.advance(Duration::from_secs(random.below(400)));
                db.maintain().unwrap();
            }
            83..=88 if held.len() < 6 => {
                made += 1;
                let name = format!("s{made}");
                let now = all_rows(&db.snapshot().unwrap());
                db.create_snapshot(&name).unwrap();
                assert_eq!(named(&db, &name), now, "{what}");
                held.insert(name, now);
            }
            89..=91 if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                let name = held.keys().nth(at).cloned().unwrap();
                db.drop_snapshot(&name).unwrap();
                held.remove(&name);
            }
            92..=95 => {
                if random.chance(50) {
                    db.close().unwrap();
                    drop(db);
                } else {
                    world.disk.crash_now();
                    drop(db);
                    world.disk = world.disk.after_crash(random.below(1 << 20));
                }
                if random.chance(30) {
                    world.assert_sound();
                }
                db = world.open();
            }
            _ => {
                for (name, rows) in &held {
                    assert_eq!(named(&db, name), *rows, "{what}, snapshot {name}");
                    compare(&db, name, &mut random, &held);
                }
            }
        }
    }
    for (name, rows) in &held {
        assert_eq!(named(&db, name), *rows, "seed {seed}, snapshot {name}");
        db.drop_snapshot(name).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let left = world.segments();
    let of_snapshots = left.iter().filter(|name| name.ends_with(".kept"));
    assert_eq!(of_snapshots.count(), 0, "{left:?}");
    let partitions = world.open().partitions().len();
    let files = left.iter().filter(|name| name.ends_with(".seg"));
    assert_eq!(files.count(), partitions, "{left:?}");
}

#[test]
fn random_lives_with_snapshots_held_over_all_of_them() {
    for seed in 0..12 {
        live(seed, 250);
    }
}

#[test]
fn what_differs_is_told_by_stretches_and_what_was_only_rewritten_does_not() {
    let world = World::new(13);
    let db = world.open();
    three_streams(&db, 0.5);
    db.create_snapshot("a").unwrap();
    // Late rows that say the same, and a rewriting: nothing differs.
    db.commit(rows("k", 1, 40, 20, 0.5)).unwrap();
    db.compact().unwrap();
    db.create_snapshot("b").unwrap();
    let stretches = |from: &str, to: &Snapshot, spec: &DiffSpec| {
        let mut out = Vec::new();
        let from = db.snapshot_named(from).unwrap();
        from.diff(to, spec, |found| {
            let name = found.stream.tag("id").unwrap().to_owned();
            out.extend(found.stretches.into_iter().map(|s| (name.clone(), s)));
            Ok(())
        })
        .unwrap();
        out
    };
    let b = db.snapshot_named("b").unwrap();
    assert!(stretches("a", &b, &DiffSpec::default()).is_empty());
    db.commit(rows("k", 1, 50, 10, 9.5)).unwrap();
    db.commit(rows("k", 1, 55, 1, 0.5)).unwrap();
    db.commit(rows("k", 2, 290, 20, 0.5)).unwrap();
    let now = db.snapshot().unwrap();
    let stretch = |first, last, added, changed| DiffStretch {
        range: range(first, last),
        removed: 0,
        added,
        changed,
    };
    let expected = [
        ("1".to_owned(), stretch(50, 54, 0, 5)),
        ("1".to_owned(), stretch(56, 59, 0, 4)),
        ("2".to_owned(), stretch(300, 309, 10, 0)),
    ];
    for from in ["a", "b"] {
        assert_eq!(stretches(from, &now, &DiffSpec::default()), expected);
    }
    let spec = DiffSpec {
        tags: vec![("id".into(), "1".into())],
        range: range(0, 52),
        ..DiffSpec::default()
    };
    assert_eq!(
        stretches("a", &now, &spec),
        [("1".to_owned(), stretch(50, 52, 0, 3))]
    );
    let missing = DiffSpec {
        table: Some("other".into()),
        ..DiffSpec::default()
    };
    let error = now.diff(&b, &missing, |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
