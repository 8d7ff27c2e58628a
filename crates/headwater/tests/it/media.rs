//! A database on two media, by the facade alone: killed, opened again, checked, backed up,
//! restored, repaired.

use headwater::io::{FaultyFiles, Files, MemoryFiles, NoThreads};
use headwater::{
    BackupOptions, Batch, Database, Env, Media, Options, RepairMode, ScanSpec, StreamName,
    backup_in, check_in, repair_in, restore_in, verify_backup_in,
};
use std::path::Path;
use std::sync::Arc;

/// Segments on one medium, the log on another, everything else with the segments.
fn env(files: Arc<dyn Files>, log: Arc<dyn Files>) -> Env {
    Env {
        files,
        media: Media {
            log: Some(log),
            ..Media::default()
        },
        threads: Arc::new(NoThreads),
        ..Env::system()
    }
}

fn pump() -> StreamName {
    StreamName::new("pumps", [("id", "p1")])
}

fn write(db: &Database, times: std::ops::Range<i64>) {
    let mut batch = Batch::new();
    for time in times {
        let row = [("pressure", time.into())];
        batch.stream(&pump()).row(time, row).unwrap();
    }
    db.commit(batch).unwrap();
}

fn rows(db: &Database) -> usize {
    let scan = db.snapshot().unwrap();
    let scan = scan.scan(&pump(), &ScanSpec::default()).unwrap();
    scan.map(|chunk| chunk.unwrap().times.len()).sum()
}

#[test]
fn a_killed_database_finds_everything_on_both_media() {
    let (files, log) = (FaultyFiles::new(1), FaultyFiles::new(2));
    let options = Options::new("/db");
    let db = Database::open_in(
        env(Arc::new(files.clone()), Arc::new(log.clone())),
        options.clone(),
    );
    let db = db.unwrap();
    write(&db, 0..100);
    db.flush().unwrap();
    write(&db, 100..150);
    // Nothing that the process does from here on reaches a medium.
    files.crash_now();
    log.crash_now();
    drop(db);
    let (files, log) = (files.after_crash(3), log.after_crash(4));
    let lies_on = |disk: &FaultyFiles, part: &str| {
        let part = Path::new("/db").join(part);
        disk.files().iter().any(|(path, _)| path.starts_with(&part))
    };
    assert!(lies_on(&files, "segment") && lies_on(&files, "meta.redb"));
    assert!(lies_on(&log, "log") && !lies_on(&files, "log"));
    assert!(!lies_on(&log, "segment") && !lies_on(&log, "meta.redb"));
    let db = Database::open_in(env(Arc::new(files), Arc::new(log)), options).unwrap();
    assert_eq!(db.recovery().events_replayed, 50);
    assert_eq!(rows(&db), 150);
}

#[test]
fn a_database_on_two_media_is_cared_for_through_the_facade() {
    let env = env(Arc::new(MemoryFiles::new()), Arc::new(MemoryFiles::new()));
    let options = Options::new("/db");
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    write(&db, 0..100);
    db.close().unwrap();
    drop(db);
    assert!(check_in(&env, options.clone()).unwrap().is_sound());
    let (to, how) = (Path::new("/backup"), BackupOptions::default());
    backup_in(&env, &options, to, &how).unwrap();
    assert!(verify_backup_in(&env, to).unwrap().is_sound());
    let copy = Options::new("/copy");
    assert!(restore_in(&env, to, &copy).unwrap().is_sound());
    let repaired = repair_in(&env, &copy, RepairMode::Act).unwrap();
    assert!(repaired.findings.is_empty(), "{repaired:#?}");
    assert_eq!(rows(&Database::open_in(env, copy).unwrap()), 100);
}
