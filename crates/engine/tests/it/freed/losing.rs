//! Rows that are lost to make room for newer ones: recorded, elsewhere in reads, never the newest.

use super::{
    STREAMS, World, assert_aggregates_stay, fill, free, is_elsewhere, range, rows, scan, stream,
    totals,
};
use crate::cuts::cuts;
use headwater_engine::{Database, Error, ErrorKind, LostRows};
use headwater_types::ClosedRange;

fn lose_all(db: &Database) -> Result<LostRows, Error> {
    let mut lost = LostRows::default();
    loop {
        let step = db.lose_oldest_rows()?;
        if step == LostRows::default() {
            return Ok(lost);
        }
        assert_eq!(step.partitions, 1);
        assert!(step.bytes > 0 && step.rows > 0, "{step:?}");
        lost = lost.and(step);
    }
}

#[test]
fn the_oldest_go_first_the_newest_stay_and_the_loss_is_recorded() {
    let world = World::new(1);
    let mut db = world.open();
    fill(&db).unwrap();
    assert_eq!(db.lost_rows().unwrap(), LostRows::default());
    let first = db.lose_oldest_rows().unwrap();
    let oldest = db.partitions().iter().map(|p| p.range.first).min().unwrap();
    assert_eq!(first.span.unwrap().first, oldest);
    let more = lose_all(&db).unwrap();
    let lost = db.lost_rows().unwrap();
    assert_eq!(lost, first.and(more));
    world.assert_freed(&db, lost.partitions);
    assert!(
        lost.partitions < db.partitions().len() as u64,
        "the newest stay"
    );
    for _ in 0..2 {
        let snapshot = db.snapshot().unwrap();
        assert_aggregates_stay(&snapshot);
        for id in 0..STREAMS {
            is_elsewhere(scan(&snapshot, id, ClosedRange::ALL));
            let newest = range(super::ROWS - 1, super::ROWS - 1);
            assert_eq!(scan(&snapshot, id, newest).unwrap().len(), 1, "{id}");
        }
        drop(snapshot);
        assert_eq!(db.lost_rows().unwrap(), lost);
        db = world.again(db);
    }
    // What is freed because a copy has it is no loss.
    free(&db);
    assert_eq!(db.lost_rows().unwrap(), lost);
    db.close().unwrap();
    drop(db);
    world.assert_sound();
}

#[test]
fn a_full_disk_takes_new_rows_again_once_the_oldest_are_lost() {
    let mut world = World::new(3);
    world.options.reserve_bytes = 1 << 20;
    let db = world.open();
    fill(&db).unwrap();
    assert!(db.check_space().is_ok());
    // Not one byte more fits.
    let used: u64 = world.disk.files().iter().map(|(_, bytes)| bytes).sum();
    world.disk.capacity(used);
    let mut next = super::ROWS;
    let full = loop {
        match db
            .commit(rows(0, next, next + 500))
            .and_then(|_| db.flush())
        {
            Ok(()) => next += 500,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    let mut lost = LostRows::default();
    while let Err(error) = db.check_space() {
        assert_eq!(error.kind(), ErrorKind::Full);
        let step = db.lose_oldest_rows().unwrap();
        assert!(step.partitions > 0, "nothing more may be lost: {lost:?}");
        lost = lost.and(step);
        // The space is looked at again after a while only.
        world.clock.advance(std::time::Duration::from_secs(2));
    }
    // Some more, as room for what comes.
    for _ in 0..6 {
        lost = lost.and(db.lose_oldest_rows().unwrap());
    }
    assert_eq!(db.lost_rows().unwrap(), lost);
    let newest = rows(0, next + 1_000, next + 1_100);
    db.commit(newest).unwrap();
    // What was accepted is in the log, and is stored once there is enough room.
    while let Err(error) = db.flush() {
        assert_eq!(error.kind(), ErrorKind::Full);
        assert!(db.lose_oldest_rows().unwrap().partitions > 0, "{error}");
    }
    let snapshot = db.snapshot().unwrap();
    let found = scan(&snapshot, 0, range(next + 1_000, next + 1_099)).unwrap();
    assert_eq!(found.len(), 100);
    let kept = totals(&snapshot, 0, range(0, super::ROWS - 1)).unwrap();
    assert_eq!(kept.0, super::ROWS as u64, "aggregates stay");
}

#[test]
fn a_power_cut_records_exactly_the_loss_that_there_is() {
    let uncut = World::new(5);
    let db = uncut.open();
    fill(&db).unwrap();
    let filled = uncut.disk.operations();
    let total = lose_all(&db).unwrap();
    let operations = uncut.disk.operations();
    drop(db);
    assert!(total.partitions > 2, "{total:?}");
    let mut partly = 0;
    for cut in cuts(operations - filled, 11).map(|cut| cut + filled) {
        let world = World::new(5);
        let db = world.open();
        fill(&db).unwrap();
        world.disk.crash_at(cut);
        drop(lose_all(&db));
        drop(db);
        let world = world.on(world.disk.after_crash(cut));
        let db = world.open();
        let lost = db.lost_rows().unwrap();
        assert_eq!(
            db.freed_rows().unwrap().partitions,
            lost.partitions,
            "{cut}"
        );
        partly += u64::from(lost.partitions > 0 && lost.partitions < total.partitions);
        let snapshot = db.snapshot().unwrap();
        assert_aggregates_stay(&snapshot);
        for id in 0..STREAMS {
            match scan(&snapshot, id, ClosedRange::ALL) {
                Ok(rows) => assert_eq!(rows.len() as i64, super::ROWS, "{cut}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Elsewhere, "{cut}: {error}");
                    assert!(lost.partitions > 0, "{cut}");
                }
            }
            assert!(!snapshot.last(&stream(id)).unwrap().is_empty());
        }
    }
    assert!(partly > 0);
}
