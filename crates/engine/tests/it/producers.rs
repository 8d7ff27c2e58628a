//! Numbered batches: written again, they are stored once, also after a crash, after the log was
//! recycled, beside one another.

use crate::cuts::cuts;
use crate::support::{Run, assert_sound, small_options};
use headwater_engine::{
    Database, Duplicates, Durability, ErrorKind, Options, ScanSpec, TableSpec, Written,
};
use headwater_io::{Env, FaultyFiles};
use headwater_types::{Batch, StreamName, Value};
use std::sync::Arc;

const BATCHES: u64 = 40;

fn stream() -> StreamName {
    StreamName::new("k", [("device", "1")])
}

/// Two rows; equal times are kept, so one stored twice shows.
fn batch(producer: &str, number: u64) -> Batch {
    let mut batch = Batch::new();
    let rows = batch.stream(&stream());
    for row in 0..2 {
        let id = number * 10 + row;
        let time = (number as i64 % 7) * 1000 + number as i64;
        rows.row(time, [("id", id.into())]).unwrap();
    }
    batch.set_producer(producer, number);
    batch
}

fn open(disk: &FaultyFiles, options: &Options) -> Result<Database, headwater_engine::Error> {
    Run::new(Arc::new(disk.clone()), options).open()
}

fn make_table(db: &Database) -> Result<(), headwater_engine::Error> {
    if db.tables().is_empty() {
        let mut spec = TableSpec::new("k");
        spec.duplicates = Duplicates::Keep;
        db.create_table(&spec)?;
    }
    Ok(())
}

/// All ids there are, sorted.
fn ids(db: &Database) -> Vec<u64> {
    let snapshot = db.snapshot().unwrap();
    let Ok(scan) = snapshot.scan(&stream(), &ScanSpec::default()) else {
        return Vec::new();
    };
    let mut ids: Vec<u64> = scan
        .flat_map(|chunk| chunk.unwrap().columns[0].to_values())
        .map(|value| match value {
            Some(Value::U64(id)) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort_unstable();
    ids
}

fn expected(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    numbers.flat_map(|n| [n * 10, n * 10 + 1]).collect()
}

#[test]
fn a_batch_written_again_is_acknowledged_and_not_stored_again() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    let db = open(&disk, &options).unwrap();
    make_table(&db).unwrap();
    let first = db.commit(batch("a", 5)).unwrap();
    assert_eq!((first.accepted, first.repeated), (2, false));
    let again = db.commit(batch("a", 5)).unwrap();
    let nothing = Written {
        accepted: 0,
        replaced: 0,
        refused: Vec::new(),
        repeated: true,
    };
    assert_eq!(again, nothing);
    assert_eq!(db.commit(batch("a", 3)).unwrap(), nothing);
    assert!(
        !db.commit(batch("b", 6)).unwrap().repeated,
        "another producer"
    );
    assert!(!db.commit(batch("a", 7)).unwrap().repeated);
    // In flight, not yet acknowledged.
    let tickets = [
        db.write(batch("a", 8)).unwrap(),
        db.write(batch("a", 8)).unwrap(),
    ];
    let written = tickets.map(|t| t.wait().unwrap().accepted);
    assert_eq!(written, [2, 0]);
    assert_eq!(ids(&db), expected([5, 6, 7, 8].into_iter()));
    let error = db.commit(batch("", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = db.commit(batch(&"x".repeat(256), 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn numbers_outlive_the_log() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    for closed in [true, false] {
        let mut db = open(&disk, &options).unwrap();
        make_table(&db).unwrap();
        let name = format!("closed {closed}");
        for number in 1..200 {
            db.commit(batch(&name, number)).unwrap();
            if number % 40 == 0 {
                db.flush().unwrap();
            }
        }
        let before = ids(&db);
        if closed {
            db.close().unwrap();
            drop(db);
        } else {
            drop(db);
        }
        db = open(&disk, &options).unwrap();
        for number in 1..200 {
            assert!(
                db.commit(batch(&name, number)).unwrap().repeated,
                "{number}"
            );
        }
        assert_eq!(ids(&db), before);
        db.close().unwrap();
    }
    assert_sound(&disk, &options);
}

/// What a producer does: every batch, then all of it again after whatever happens, from the first
/// or from the newest acknowledged.
fn deliver(
    db: &Database,
    from: u64,
    acknowledged: &mut u64,
) -> Result<(), headwater_engine::Error> {
    make_table(db)?;
    for number in from..=BATCHES {
        db.commit(batch("gateway", number))?;
        *acknowledged = (*acknowledged).max(number);
        match number % 11 {
            5 => db.flush()?,
            9 => db.compact()?,
            _ => {}
        }
    }
    db.close()
}

fn sweep(options: &Options, stride: u64) {
    let counting = FaultyFiles::new(1);
    deliver(&open(&counting, options).unwrap(), 1, &mut 0).unwrap();
    for cut in cuts(counting.operations(), stride) {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut acknowledged = 0;
        if let Ok(db) = open(&disk, options)
            && deliver(&db, 1, &mut acknowledged).is_ok()
        {
            continue;
        }
        for seed in [0, 1, cut + 2] {
            let disk = disk.after_crash(seed);
            let what = format!("cut {cut} seed {seed} {:?}", disk.interrupted());
            let db = open(&disk, options).unwrap();
            // The number of a batch is there exactly when its rows are.
            let there = ids(&db);
            let count = there.len() as u64 / 2;
            assert_eq!(there, expected(1..=count), "{what}");
            if options.durability == Durability::Synced {
                assert!(count >= acknowledged, "{what}: {count} {acknowledged}");
            }
            let from = match options.durability {
                Durability::Synced if seed % 2 == 0 => acknowledged + 1,
                _ => 1,
            };
            deliver(&db, from, &mut 0).unwrap();
            drop(db);
            let db = open(&disk, options).unwrap();
            assert_eq!(ids(&db), expected(1..=BATCHES), "{what}");
            assert!(db.commit(batch("gateway", BATCHES)).unwrap().repeated);
        }
    }
}

#[test]
fn each_batch_is_stored_once_wherever_a_power_cut_falls() {
    sweep(&small_options(), 3);
    let written = Options {
        durability: Durability::Written,
        ..small_options()
    };
    sweep(&written, 7);
}

#[test]
fn the_producer_that_wrote_longest_ago_is_forgotten_beyond_the_limit() {
    let options = Options {
        durability: Durability::Written,
        ..small_options()
    };
    let disk = FaultyFiles::new(1);
    let db = open(&disk, &options).unwrap();
    make_table(&db).unwrap();
    db.commit(batch("first", 1)).unwrap();
    db.commit(batch("second", 2)).unwrap();
    for number in 0..4095 {
        db.commit(batch(&format!("p{number}"), 3)).unwrap();
    }
    assert!(db.commit(batch("second", 2)).unwrap().repeated);
    assert!(!db.commit(batch("first", 1)).unwrap().repeated);
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(&disk, &options).unwrap();
    // That one more made the second go.
    assert!(!db.commit(batch("second", 2)).unwrap().repeated);
    assert!(db.commit(batch("first", 1)).unwrap().repeated);
}

#[test]
fn writers_that_bring_the_same_batches_store_them_once() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        dir: dir.path().into(),
        ..small_options()
    };
    let db = Database::open_in(Env::system(), options).unwrap();
    make_table(&db).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 1..=100 {
                    db.commit(batch("gateway", number)).unwrap();
                }
            });
        }
    });
    assert_eq!(ids(&db), expected(1..=100));
}
