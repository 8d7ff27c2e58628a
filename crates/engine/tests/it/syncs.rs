//! Each sync of a life, of a file or of a folder, fails once. What it left behind looks well until
//! the power goes, and the next sync says that all is well. The database is opened again in the
//! same boot, writes, and loses its power: whatever it acknowledged, before the failure and after,
//! is there.

use crate::support::{Event, Fields, Run, START, batch_of, check, collect, small_options};
use headwater_engine::{Database, Error, ErrorKind, Options, ScanSpec};
use headwater_io::{FaultKind, FaultyFiles};
use headwater_types::{StreamName, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

fn event(number: u64) -> Event {
    let text: String = (0..30)
        .map(|i| format!("{:08x}", number * 7919 + i))
        .collect();
    Event {
        stream: StreamName::new(format!("t{}", number % 2), [("device", "1")]),
        // Some late, in partitions that are stored already.
        time: START + ((number * 37) % 64) as i64 * 1_000_000_000_000 + number as i64,
        fields: Fields::from([
            ("number".to_owned(), Value::U64(number)),
            ("text".to_owned(), Value::String(text)),
        ]),
    }
}

/// Rows as they were written and acknowledged, over several lives.
#[derive(Default)]
struct Rows {
    begun: u64,
    acknowledged: BTreeSet<u64>,
}

impl Rows {
    fn write(&mut self, db: &Database, count: u64) -> Result<(), Error> {
        for _ in 0..count {
            let number = self.begun;
            self.begun += 1;
            db.commit(batch_of(&[event(number)]))?;
            self.acknowledged.insert(number);
        }
        Ok(())
    }

    fn assert_found(&self, db: &Database, what: &str) {
        let mut found = BTreeSet::new();
        let snapshot = db.snapshot().unwrap();
        for table in db.tables() {
            let name = StreamName::new(table.name, [("device", "1")]);
            let (rows, errors) = match snapshot.scan(&name, &ScanSpec::default()) {
                Ok(scan) => collect(scan),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            assert!(errors.is_empty(), "{what}: {errors:?}");
            for (_, fields) in rows {
                let Some(Value::U64(number)) = fields.get("number") else {
                    panic!("{what}: {fields:?}");
                };
                assert!(found.insert(*number), "{what}: {number} is there twice");
            }
        }
        let lost: Vec<_> = self.acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "{what}: acknowledged and lost: {lost:?}");
        assert!(found.iter().all(|n| *n < self.begun), "{what}");
    }
}

/// One opening: writes over several log files, with steps in between, and closes.
fn live(disk: &FaultyFiles, options: &Options, rows: &mut Rows) -> Result<(), Error> {
    let db = Run::new(Arc::new(disk.clone()), options).open()?;
    let result = (|| {
        rows.write(&db, 22)?;
        db.flush()?;
        rows.write(&db, 22)?;
        db.compact()?;
        rows.write(&db, 9)
    })();
    let closed = db.close();
    result.and(closed)
}

/// Plays lives until one has met the fault, and one after it went well; then the last one, whose
/// power goes. False when nothing failed.
fn sync_fails(kind: FaultKind, number: u64) -> bool {
    let options = small_options();
    let disk = FaultyFiles::new(number);
    disk.fail_next(kind, number);
    let mut rows = Rows::default();
    let mut failed = false;
    for life in 0..2 {
        let what = format!("{kind:?} at {number}, life {life}");
        match live(&disk, &options, &mut rows) {
            Ok(()) => {}
            Err(error) => {
                let kind = error.kind();
                assert!(
                    matches!(kind, ErrorKind::Io | ErrorKind::Closed),
                    "{what}: {error}"
                );
                assert!(!failed, "{what}: it failed once, and now: {error}");
                failed = true;
                // Right then.
                for seed in [0, 1, number + 2] {
                    let run = Run::new(Arc::new(disk.after_crash(seed)), &options);
                    let what = format!("{what}, then cut, seed {seed}");
                    let db = run.open().unwrap_or_else(|e| panic!("{what}: {e}"));
                    rows.assert_found(&db, &what);
                }
                break;
            }
        }
    }
    // The same boot goes on.
    let run = Run::new(Arc::new(disk.clone()), &options);
    let what = format!("{kind:?} at {number}, opened again");
    let db = match run.open() {
        Err(error) if !failed && error.kind() == ErrorKind::Io => {
            failed = true;
            run.open()
        }
        other => other,
    };
    let db = db.unwrap_or_else(|e| panic!("{what}: {e}"));
    rows.assert_found(&db, &what);
    let written = match number % 4 {
        0 => rows.write(&db, 1),
        1 => rows.write(&db, 3).and_then(|()| db.flush()),
        2 => rows.write(&db, 40),
        _ => rows
            .write(&db, 20)
            .and_then(|()| db.compact())
            .and_then(|()| rows.write(&db, 20)),
    };
    if let Err(error) = written {
        assert!(!failed, "{what}: {error}");
        failed = true;
    }
    disk.crash_now();
    drop(db);
    assert_survives_cuts(&disk, number, (&rows, &options), &what);
    failed
}

/// After any cut of the power the database opens by itself, has the rows, and is sound.
fn assert_survives_cuts(
    disk: &FaultyFiles,
    number: u64,
    (rows, options): (&Rows, &Options),
    what: &str,
) {
    for seed in [0, 1, number + 2] {
        let what = format!("{what}, then cut, seed {seed}");
        let disk = disk.after_crash(seed);
        let db = Run::new(Arc::new(disk.clone()), options)
            .open()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        rows.assert_found(&db, &what);
        drop(db);
        let report = check(Arc::new(disk), options);
        assert!(report.is_sound(), "{what}: {report:#?}");
    }
}

fn every_sync_fails(kind: FaultKind) {
    let (mut failures, mut quiet) = (0, 0);
    for number in 0.. {
        if sync_fails(kind, number) {
            (failures, quiet) = (failures + 1, 0);
        } else if quiet < 8 {
            // That of the metadata's end is heard of by nobody; behind the last failure come the
            // syncs of a further life.
            quiet += 1;
        } else {
            break;
        }
    }
    assert!(failures > 150, "{kind:?}: {failures}");
}

/// One life in which a sync finds no space, and which goes on as far as it may. Says whether it
/// did, and whether it was of a folder.
fn sync_finds_no_space(number: u64) -> (bool, bool) {
    let options = small_options();
    let disk = FaultyFiles::new(number);
    disk.fail_next(FaultKind::SyncFull, number);
    let what = format!("no space for sync {number}");
    let mut rows = Rows::default();
    let (mut failed, mut of_folder) = (false, false);
    match Run::new(Arc::new(disk.clone()), &options).open() {
        Err(_) => failed = true,
        Ok(db) => {
            for round in 0..6 {
                let done = rows.write(&db, 11).and_then(|()| match round % 3 {
                    2 => db.compact(),
                    _ => db.flush(),
                });
                let Err(error) = done else { continue };
                failed = true;
                let kind = error.kind();
                assert!(
                    matches!(kind, ErrorKind::Full | ErrorKind::Io | ErrorKind::Closed),
                    "{what}: {error}"
                );
                if ["/db:", "/db/log:", "/db/segment:"]
                    .iter()
                    .any(|folder| error.to_string().contains(&format!("sync {folder}")))
                {
                    // Names that perhaps do not stay: nothing is built on them, and it is said so.
                    of_folder = true;
                    assert_ne!(kind, ErrorKind::Full, "{what}: {error}");
                    let next = rows.write(&db, 1).unwrap_err();
                    assert_eq!(next.kind(), ErrorKind::Closed, "{what}: {next}");
                }
            }
            disk.crash_now();
            drop(db);
        }
    }
    disk.crash_now();
    assert_survives_cuts(&disk, number, (&rows, &options), &what);
    (failed, of_folder)
}

#[test]
fn nothing_is_built_on_a_sync_that_found_no_space() {
    let (mut failures, mut of_folders, mut quiet) = (0, 0, 0);
    for number in 0.. {
        let (failed, of_folder) = sync_finds_no_space(number);
        of_folders += u64::from(of_folder);
        if failed {
            (failures, quiet) = (failures + 1, 0);
        } else if quiet < 8 {
            quiet += 1;
        } else {
            break;
        }
    }
    assert!(failures > 100 && of_folders > 4, "{failures} {of_folders}");
}

#[test]
fn nothing_is_built_on_what_a_failed_sync_left() {
    every_sync_fails(FaultKind::SyncError);
}

#[test]
fn nothing_is_built_on_what_a_failed_sync_took_back() {
    every_sync_fails(FaultKind::SyncErrorReverting);
}
