//! What power cuts, full disks, damage and repairs do to named snapshots.

use super::{World, all_rows, delete, named, names, range, rows, stream, three_streams};
use crate::cuts::{cuts, seeds};
use crate::support::{check, collect, read_back};
use headwater_engine::{
    Database, DeleteSpec, Error, ErrorKind, RepairMode, ScanSpec, Snapshot, SnapshotEnd, TableSpec,
    repair,
};
use headwater_io::{Files, OpenMode};
use headwater_types::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What was done with a snapshot, in the order in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Created(&'static str),
    Dropped(&'static str),
    Deleted,
}

/// Makes and drops snapshots between everything that moves files; notes what was acknowledged.
fn work(db: &Database, done: &mut Vec<Done>) -> Result<(), Error> {
    db.commit(rows("k", 0, 0, 120, 0.5))?;
    db.commit(rows("k", 1, 0, 120, 0.5))?;
    db.create_snapshot("a")?;
    done.push(Done::Created("a"));
    db.commit(rows("k", 0, 0, 120, 5.5))?;
    db.compact()?;
    db.create_snapshot("b")?;
    done.push(Done::Created("b"));
    let spec = DeleteSpec {
        table: "k".into(),
        tags: vec![("id".into(), "1".into())],
        range: range(0, 59),
    };
    db.delete(&spec)?;
    done.push(Done::Deleted);
    db.flush()?;
    db.commit(rows("k", 0, 0, 120, 7.5))?;
    db.compact()?;
    db.drop_snapshot("a")?;
    done.push(Done::Dropped("a"));
    db.create_snapshot("a")?;
    done.push(Done::Created("a"));
    db.drop_snapshot("b")?;
    done.push(Done::Dropped("b"));
    db.close()
}

/// The sum of a stream's values, and their number: enough to tell the states of [`work`] apart.
fn sum(snapshot: &Snapshot, id: u64) -> (usize, f64) {
    let (rows, errors) = collect(
        snapshot
            .scan(&stream("k", id), &ScanSpec::default())
            .unwrap(),
    );
    assert!(errors.is_empty(), "{errors:?}");
    let values = rows.iter().map(|(_, fields)| match fields.get("v") {
        Some(Value::F64(value)) => *value,
        other => panic!("{other:?}"),
    });
    (rows.len(), values.sum())
}

fn expected(values: f64, first: i64) -> (usize, f64) {
    let rows = first..120;
    let sum = rows.clone().map(|row| values + row as f64).sum();
    (rows.count(), sum)
}

#[test]
fn a_power_cut_leaves_each_snapshot_whole_or_not_there() {
    let uncut = World::new(1);
    let mut all = Vec::new();
    work(&uncut.open(), &mut all).unwrap();
    let operations = uncut.disk.operations();
    for cut in cuts(operations, 5) {
        let world = World::new(cut);
        world.disk.crash_at(cut);
        let mut done = Vec::new();
        if let Ok(db) = world.try_open() {
            drop(work(&db, &mut done));
        }
        if !world.disk.crashed() {
            continue;
        }
        for seed in seeds(3) {
            let what = format!("cut at {cut}, seed {seed}, done {done:?}");
            let after = world.on(world.disk.after_crash(seed));
            let db = after.open();
            let names = names(&db);
            let doubt = all.get(done.len());
            let is_there = |name: &'static str| {
                let made = done.iter().filter(|d| **d == Done::Created(name)).count();
                let dropped = done.iter().filter(|d| **d == Done::Dropped(name)).count();
                made > dropped
            };
            for name in ["a", "b"] {
                let may_differ =
                    doubt == Some(&Done::Created(name)) || doubt == Some(&Done::Dropped(name));
                let found = names.iter().any(|n| n == name);
                assert!(found == is_there(name) || may_differ, "{what}: {names:?}");
            }
            let is_deleted = done.contains(&Done::Deleted);
            let may_be = doubt == Some(&Done::Deleted);
            for name in names {
                let snapshot = db.snapshot_named(&name).unwrap();
                let second = done.contains(&Done::Dropped("a"));
                let values = match (name.as_str(), second) {
                    ("a", false) => 0.5,
                    ("a", true) => 7.5,
                    _ => 5.5,
                };
                assert_eq!(sum(&snapshot, 0), expected(values, 0), "{what}: {name}");
                let other = sum(&snapshot, 1);
                let (masked, whole) = (expected(0.5, 60), expected(0.5, 0));
                assert!(
                    other == if is_deleted { masked } else { whole } || may_be && other == masked,
                    "{what}: {name}: {other:?}"
                );
            }
            // Life goes on, and in the end nothing is left of any.
            for info in db.snapshots() {
                db.drop_snapshot(&info.name).unwrap();
            }
            db.commit(rows("k", 2, 0, 10, 0.5)).unwrap();
            db.create_snapshot("c").unwrap();
            db.compact().unwrap();
            db.drop_snapshot("c").unwrap();
            db.close().unwrap();
            drop(db);
            after.assert_sound();
            let partitions = after.open().partitions().len();
            assert_eq!(
                after.segments().len(),
                partitions,
                "{what}: {:?}",
                after.segments()
            );
        }
    }
}

#[test]
fn on_a_full_disk_the_oldest_snapshot_gives_way() {
    let mut world = World::new(8);
    world.options.reserve_bytes = 64 << 10;
    let db = world.open();
    for id in 0..3 {
        db.commit(rows("k", id, 0, 800, 0.5)).unwrap();
    }
    db.create_snapshot("first").unwrap();
    for id in 0..3 {
        db.commit(rows("k", id, 0, 800, 5.5)).unwrap();
    }
    db.compact().unwrap();
    db.create_snapshot("second").unwrap();
    assert!(db.snapshots()[0].own_bytes > 0);
    let used: u64 = world.disk.files().iter().map(|(_, len)| len).sum();
    world.disk.capacity(used + (8 << 10));
    let mut refused = 0;
    let mut round = 0;
    while names(&db).len() == 2 {
        round += 1;
        assert!(round < 200, "{:?}", db.stats().unwrap());
        world.clock.advance(Duration::from_secs(1));
        match db.commit(rows("k", 3, round * 100, 100, 0.5)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let ended = db.ended_snapshots();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (ended[0].name.as_str(), ended[0].why),
        ("first", SnapshotEnd::FullDisk)
    );
    let error = db.snapshot_named("first").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert!(error.to_string().contains("the disk was full"), "{error}");
    let second = named(&db, "second");
    assert_eq!(second.len(), 2400);
    world.disk.capacity(u64::MAX);
    world.clock.advance(Duration::from_secs(1));
    drop(db.commit(rows("k", 3, 0, 1, 0.5)));
    world.clock.advance(Duration::from_secs(1));
    db.commit(rows("k", 3, 0, 1, 0.5)).unwrap();
    db.close().unwrap();
    drop(db);
    world.assert_sound();
    let db = world.open();
    assert_eq!(named(&db, "second"), second);
    assert_eq!(db.ended_snapshots().len(), 1);
}

#[test]
fn on_a_nearly_full_disk_a_snapshot_is_made_whole_or_not_at_all() {
    let prepared = |capacity: Option<u64>| {
        let world = World::new(9);
        let db = world.open();
        for id in 0..3 {
            db.commit(rows("k", id, 0, 200, 0.5)).unwrap();
        }
        if let Some(more) = capacity {
            let used: u64 = world.disk.files().iter().map(|(_, len)| len).sum();
            world.disk.capacity(used + more);
        }
        let made = db.create_snapshot("s").map(drop);
        (world, db, made)
    };
    let (mut made, mut refused) = (0, 0);
    for more in (0..90).map(|i| i * 67) {
        let (world, db, result) = prepared(Some(more));
        match result {
            Ok(()) => {
                made += 1;
                assert_eq!(named(&db, "s").len(), 600);
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Full, "{more}: {error}");
            }
        }
        let was_made = names(&db).len();
        drop(db);
        world.disk.capacity(u64::MAX);
        let db = world.open();
        assert!(names(&db).len() >= was_made, "{more}");
        for name in names(&db) {
            assert_eq!(named(&db, &name).len(), 600, "{more}");
            db.drop_snapshot(&name).unwrap();
        }
        assert_eq!(read_back(&db).streams.len(), 3);
        drop(db);
        world.assert_sound();
    }
    assert!(made > 5 && refused > 5, "{made} made, {refused} refused");
}

#[test]
fn damage_of_what_only_a_snapshot_keeps_is_found_and_repaired_without_it() {
    let world = World::new(10);
    let db = world.open();
    three_streams(&db, 0.5);
    db.create_snapshot("s").unwrap();
    three_streams(&db, 5.5);
    db.compact().unwrap();
    db.create_snapshot("t").unwrap();
    let now = all_rows(&db.snapshot().unwrap());
    db.close().unwrap();
    drop(db);
    let marks = world.segments();
    let kept = marks
        .iter()
        .find_map(|name| name.strip_suffix(".kept"))
        .unwrap();
    let path = format!("/db/segment/{kept}.seg");
    world.disk.flip_bit(&path, 90, 3).unwrap();
    let report = check(Arc::new(world.disk.clone()), &world.options);
    assert_eq!(report.damaged_snapshots, ["s"]);
    assert!(!report.is_sound());
    for mode in [RepairMode::DryRun, RepairMode::Act] {
        let report = repair(&world.env(), &world.options, mode).unwrap();
        assert_eq!(report.lost, ["snapshot `s`"]);
        assert!(report.after.is_sound(), "{report:#?}");
    }
    let db = world.open();
    assert_eq!(names(&db), ["t"]);
    assert_eq!(named(&db, "t"), now);
    assert_eq!(all_rows(&db.snapshot().unwrap()), now);
}

#[test]
fn metadata_that_are_made_anew_have_no_snapshots_and_nothing_of_them_comes_back() {
    let world = World::new(11);
    let db = world.open();
    db.create_table(&TableSpec::new("k")).unwrap();
    three_streams(&db, 0.5);
    db.create_snapshot("s").unwrap();
    delete(&db, "k", None, 0, 150);
    db.flush().unwrap();
    db.compact().unwrap();
    let now = all_rows(&db.snapshot().unwrap());
    assert_eq!(named(&db, "s"), now);
    db.close().unwrap();
    drop(db);
    world.disk.vanish("/db/meta.redb").unwrap();
    let report = repair(&world.env(), &world.options, RepairMode::Act).unwrap();
    assert!(report.after.is_sound());
    assert!(
        report
            .findings
            .iter()
            .any(|f| f.action.contains("without named snapshots")),
        "{report:#?}"
    );
    assert!(
        report.lost.iter().any(|l| l.contains("named snapshots")),
        "{report:#?}"
    );
    let db = world.open();
    assert!(names(&db).is_empty());
    assert_eq!(all_rows(&db.snapshot().unwrap()), now);
    db.close().unwrap();
    drop(db);
    assert!(!world.segments().iter().any(|name| name.ends_with(".kept")));
}

#[test]
fn what_is_beside_a_kept_segment_is_put_right_by_an_opening() {
    let world = World::new(12);
    let db = world.open();
    db.commit(rows("k", 0, 0, 300, 0.5)).unwrap();
    db.create_snapshot("s").unwrap();
    db.commit(rows("k", 0, 0, 300, 5.5)).unwrap();
    db.compact().unwrap();
    drop(db);
    let before = world.segments();
    let marks: Vec<&String> = before.iter().filter(|n| n.ends_with(".kept")).collect();
    assert!(!marks.is_empty(), "{before:?}");
    for mark in &marks {
        let path = PathBuf::from("/db/segment").join(mark);
        world.disk.remove(&path).unwrap();
    }
    let other = Path::new("/db/segment/9999.kept");
    drop(world.disk.open(other, OpenMode::CreateNew).unwrap());
    drop(world.open());
    assert_eq!(world.segments(), before);
}
