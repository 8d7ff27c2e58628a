//! Notes of the program around a database: kept over crashes, in backups, within limits.

use crate::support::{Run, assert_sound, small_options};
use headwater_engine::{Error, ErrorKind, Options, backup, restore};
use headwater_io::{Env, FaultyFiles, Files};
use headwater_types::{Batch, StreamName};
use std::path::Path;
use std::sync::Arc;

fn run<'a>(disk: &FaultyFiles, options: &'a Options) -> Run<'a> {
    Run::new(Arc::new(disk.clone()), options)
}

#[test]
fn notes_are_kept_changed_and_taken_away() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    assert_eq!(db.note("a").unwrap(), None, "there never was one");
    db.set_note("a", Some(b"one")).unwrap();
    db.set_note("b", Some(b"")).unwrap();
    db.set_note("a", Some(&[0xff; 9])).unwrap();
    db.set_note("gone", Some(b"x")).unwrap();
    db.set_note("gone", None).unwrap();
    db.set_note("never", None).unwrap();
    drop(db);
    let db = run(&disk, &options).open().unwrap();
    assert_eq!(db.note("a").unwrap(), Some(vec![0xff; 9]));
    assert_eq!(db.note("b").unwrap(), Some(Vec::new()));
    assert_eq!(db.note("gone").unwrap(), None);
    db.close().unwrap();
    let closed = db.set_note("a", None).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
    assert_sound(&disk, &options);
}

#[test]
fn notes_beyond_the_limits_are_refused_and_the_others_stay() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    for number in 0..64 {
        db.set_note(&number.to_string(), Some(b"kept")).unwrap();
    }
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    refused(db.set_note("one more", Some(b"")));
    refused(db.set_note("", Some(b"")));
    refused(db.set_note(&"n".repeat(65), Some(b"")));
    refused(db.set_note("0", Some(&vec![0; (256 << 10) + 1])));
    // One that is there may change.
    db.set_note("63", Some(b"changed")).unwrap();
    db.set_note("0", None).unwrap();
    db.set_note("one more", Some(b"")).unwrap();
    assert_eq!(db.note("1").unwrap().unwrap(), b"kept");
    let mut batch = Batch::new();
    let stream = StreamName::new("k", [("d", "1")]);
    batch.stream(&stream).row(1, [("v", 1.0.into())]).unwrap();
    db.commit(batch).unwrap();
    db.close().unwrap();
    assert_sound(&disk, &options);
}

#[test]
fn a_note_that_was_acknowledged_is_there_after_a_power_cut_at_any_operation() {
    let options = small_options();
    let mut cut = 0;
    loop {
        cut += 1;
        let disk = FaultyFiles::new(cut);
        let db = run(&disk, &options).open().unwrap();
        disk.crash_at(disk.operations() + cut);
        let mut kept = 0;
        for number in 1..=4_u8 {
            if db.set_note("n", Some(&[number])).is_err() {
                break;
            }
            kept = number;
        }
        drop(db);
        let after = disk.after_crash(cut);
        let db = run(&after, &options).open().unwrap();
        let found = db.note("n").unwrap().map_or(0, |note| note[0]);
        assert!(
            (kept..=kept + 1).contains(&found),
            "cut at operation {cut}: {kept} acknowledged, {found} found"
        );
        if kept == 4 {
            break;
        }
    }
    assert!(cut > 10, "{cut} operations");
}

#[test]
fn notes_go_along_into_backups() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    db.set_note("names", Some(b"plant")).unwrap();
    let env = Env {
        files: Arc::new(disk.clone()) as Arc<dyn Files>,
        ..Env::memory()
    };
    backup(&env, &options, Path::new("/backup")).unwrap();
    db.close().unwrap();
    let elsewhere = Options {
        dir: "/elsewhere".into(),
        ..options
    };
    restore(&env, Path::new("/backup"), &elsewhere).unwrap();
    let db = run(&disk, &elsewhere).open().unwrap();
    assert_eq!(db.note("names").unwrap().unwrap(), b"plant");
}
