//! What power cuts, a full disk and damage do to rows that are freed.

use super::{
    ROWS, STREAMS, World, all, assert_aggregates_stay, assert_close, expected, fill, free,
    is_elsewhere, rows_of_late, scan, stream, totals,
};
use crate::cuts::{cuts, seeds};
use headwater_engine::{Database, Error, ErrorKind, RepairMode, repair};
use headwater_types::{ClosedRange, Timestamp};
use std::path::PathBuf;

/// What was done, in the order in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Nothing,
    Filled,
    Freed,
    Late,
    Dropped,
}

fn work(db: &Database, done: &mut Done) -> Result<(), Error> {
    fill(db)?;
    *done = Done::Filled;
    let held = db.hold_state(None)?;
    let all: Vec<(u64, u64)> = held.state().segments().map(|s| (s.id, s.bytes)).collect();
    drop(held);
    db.free_rows(&all, Timestamp::MAX, u64::MAX)?;
    *done = Done::Freed;
    db.commit(rows_of_late(1))?;
    *done = Done::Late;
    db.flush()?;
    db.commit(rows_of_late(1))?;
    db.flush()?;
    db.drop_streams("m", &[("id".into(), "2".into())])?;
    *done = Done::Dropped;
    db.flush()?;
    db.close()
}

/// Whatever was freed: the sums are what was acknowledged, or elsewhere where a late row fell; rows
/// are all there, or elsewhere.
fn look(db: &Database, done: Done, what: &str) {
    let snapshot = db.snapshot().unwrap();
    let names = snapshot.streams("m", &[]).unwrap();
    for id in 0..STREAMS {
        if !names.contains(&stream(id)) {
            assert!(id == 2 && done >= Done::Late, "{what}: {id}");
            continue;
        }
        let is_late = id == 1 && done >= Done::Freed;
        let may_be_gone = id == 2 && done >= Done::Late;
        match totals(&snapshot, id, ClosedRange::ALL) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Elsewhere, "{what}: {error}");
                assert!(is_late, "{what}: {id}");
            }
            Ok((0, _)) if may_be_gone => {}
            Ok(found) if is_late && found.0 == ROWS as u64 + 1 => {}
            Ok(found) => {
                assert!(!(id == 2 && done == Done::Dropped), "{what}");
                assert!(!(id == 1 && done >= Done::Late), "{what}: {found:?}");
                assert_close(found, expected(id, 0, ROWS), what);
            }
        }
        match scan(&snapshot, id, ClosedRange::ALL) {
            Ok(rows) if rows.is_empty() => assert!(may_be_gone, "{what}: {id}"),
            Ok(rows) => assert!(rows.len() >= ROWS as usize, "{what}: {id}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{what}: {error}"),
        }
    }
}

#[test]
fn a_power_cut_leaves_rows_whole_or_freed_and_every_sum_right() {
    let uncut = World::new(1);
    let mut done = Done::Nothing;
    let db = uncut.open();
    fill(&db).unwrap();
    let filled = uncut.disk.operations();
    db.close().unwrap();
    drop(db);
    let uncut = World::new(1);
    work(&uncut.open(), &mut done).unwrap();
    let operations = uncut.disk.operations();
    let mut freed = 0;
    for cut in cuts(operations - filled, 7).map(|cut| cut + filled) {
        let world = World::new(1);
        world.disk.crash_at(cut);
        let mut done = Done::Nothing;
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
            look(&db, done, &what);
            freed += db.freed_rows().unwrap().partitions;
            // Life goes on.
            free(&db);
            db.flush().unwrap();
            look(&db, done, &what);
            db.close().unwrap();
            drop(db);
            after.assert_sound();
            let db = after.open();
            let partitions = db.partitions().len();
            assert_eq!(
                after.segments().len(),
                partitions,
                "{what}: {:?}",
                after.segments()
            );
        }
    }
    assert!(freed > 0);
}

#[test]
fn a_full_disk_frees_nothing_and_loses_nothing() {
    let world = World::new(2);
    let db = world.open();
    fill(&db).unwrap();
    let used: u64 = world.disk.files().iter().map(|(_, bytes)| bytes).sum();
    world.disk.capacity(used + 500);
    let error = db
        .free_rows(&all(&db), Timestamp::MAX, u64::MAX)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(world.stubs(), 0);
    let rows = scan(&db.snapshot().unwrap(), 1, ClosedRange::ALL).unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    world.disk.capacity(u64::MAX);
    assert!(free(&db) > 0);
    assert_aggregates_stay(&db.snapshot().unwrap());
    db.close().unwrap();
    world.assert_sound();
}

#[test]
fn a_damaged_head_makes_one_partition_unreadable_and_a_repair_says_what_is_lost() {
    let world = World::new(3);
    let db = world.open();
    fill(&db).unwrap();
    let freed = free(&db);
    db.close().unwrap();
    drop(db);
    let mut names = world.segments().into_iter();
    let name = names.find(|name| name.ends_with(".stub")).unwrap();
    let partitions = world.segments().len();
    let path = PathBuf::from("/db/segment").join(name);
    world.disk.flip_bit(&path, 30, 3).unwrap();
    let report = headwater_engine::check(world.env(), world.options.clone()).unwrap();
    assert!(!report.is_sound());
    assert!(
        report.damages.iter().any(|d| d.file == path),
        "{:?}",
        report.damages
    );
    let db = world.open();
    assert_eq!(db.partitions_unreadable(), 1);
    assert_eq!(db.freed_rows().unwrap().partitions, freed - 1);
    let snapshot = db.snapshot().unwrap();
    let mut errors = (0..STREAMS).filter_map(|id| {
        let found = totals(&snapshot, id, ClosedRange::ALL);
        Some((id, found.err()?.kind()))
    });
    let (damaged, kind) = errors.next().unwrap();
    assert_eq!(kind, ErrorKind::Corrupt);
    drop(errors);
    drop(snapshot);
    db.close().unwrap();
    drop(db);
    assert_eq!(world.segments().len(), partitions, "nothing is removed");
    let report = repair(&world.env(), &world.options, RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{:?}", report.after.damages);
    assert!(
        report.lost.iter().any(|l| l.contains("on the cloud")),
        "{:?}",
        report.lost
    );
    assert!(
        report.quarantined.contains(&path),
        "{:?}",
        report.quarantined
    );
    let db = world.open();
    let snapshot = db.snapshot().unwrap();
    let (count, _) = totals(&snapshot, damaged, ClosedRange::ALL).unwrap();
    assert!(count > 0 && count < ROWS as u64);
    is_elsewhere(scan(&snapshot, damaged, ClosedRange::ALL));
    assert!(!snapshot.last(&stream(damaged)).unwrap().is_empty());
}
