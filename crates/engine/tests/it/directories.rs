//! Directories of footers that change very many streams: a reader of one stream reads little of
//! the footers, what it reads is what whole footers say, and damage is found and told as ever.

use headwater_engine::{Database, ErrorKind, Options, ReadStats, RepairMode, check, repair};
use headwater_io::{Env, FaultyFiles};
use headwater_types::{Batch, StreamName, Value};
use std::path::PathBuf;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;
/// Of so many streams a segment gets no checkpoint.
const STREAMS: i64 = 6_000;
const ROUNDS: i64 = 3;

fn meter(number: i64) -> StreamName {
    StreamName::new("meters", [("id", format!("m{number:06}"))])
}

fn options() -> Options {
    Options {
        shards: 1,
        groups_max: 10_000,
        ..Options::new("/db")
    }
}

fn env_of(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

fn write(db: &Database, round: i64) {
    let mut batch = Batch::new();
    for number in 0..STREAMS {
        let value = Value::I64(number * 10 + round);
        batch
            .stream(&meter(number))
            .row(round * SECOND, [("kwh", value)])
            .unwrap();
    }
    db.commit(batch).unwrap();
    db.flush().unwrap();
}

fn filled() -> FaultyFiles {
    let disk = FaultyFiles::new(1);
    let db = Database::open_in(env_of(&disk), options()).unwrap();
    for round in 0..ROUNDS {
        write(&db, round);
    }
    db.close().unwrap();
    disk
}

fn segment(disk: &FaultyFiles) -> PathBuf {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let segments: Vec<PathBuf> = files.filter(|p| p.starts_with("/db/segment")).collect();
    let [path] = &segments[..] else {
        panic!("one partition, found {segments:?}");
    };
    path.clone()
}

/// Where the footers of a segment lie, and which version each has.
fn footers(bytes: &[u8]) -> Vec<(std::ops::Range<usize>, u8)> {
    let magic = b"HWFOOT\x00\x01";
    let ends = bytes.windows(8).enumerate().filter(|(_, w)| w == magic);
    let ranges = ends.map(|(at, _)| {
        let length = u32::from_le_bytes(bytes[at - 8..at - 4].try_into().unwrap());
        at + 8 - length as usize..at + 8
    });
    ranges
        .map(|range| (range.clone(), bytes[range.start]))
        .collect()
}

/// The newest value of a stream.
fn newest(db: &Database, number: i64) -> Result<Option<i64>, ErrorKind> {
    let found = db.snapshot().unwrap().last(&meter(number));
    let found = found.map_err(|error| error.kind())?;
    Ok(found.first().and_then(|last| match last.value {
        Value::I64(value) => Some(value),
        _ => None,
    }))
}

#[test]
fn one_stream_of_very_many_is_found_by_directories() {
    let disk = filled();
    let bytes = disk.read_file(segment(&disk)).unwrap();
    let footers = footers(&bytes);
    assert_eq!(footers.len() as i64, ROUNDS);
    assert!(footers.iter().all(|(_, version)| *version == 3));
    let all: usize = footers.iter().map(|(range, _)| range.len()).sum();
    let db = Database::open_in(env_of(&disk), options()).unwrap();
    let before = ReadStats::by_this_thread();
    assert_eq!(newest(&db, 4_321), Ok(Some(43_210 + ROUNDS - 1)));
    let touched = (ReadStats::by_this_thread() - before).bytes;
    assert!(
        touched * 10 < all as u64,
        "{touched} bytes were read, of {all} bytes of footers"
    );
    for number in 0..STREAMS {
        assert_eq!(newest(&db, number), Ok(Some(number * 10 + ROUNDS - 1)));
    }
    assert_eq!(newest(&db, STREAMS), Err(ErrorKind::NotFound));
    // What comes behind what directories said is as ever, also in a further opening.
    write(&db, ROUNDS);
    db.close().unwrap();
    drop(db);
    let db = Database::open_in(env_of(&disk), options()).unwrap();
    for number in (0..STREAMS).step_by(77) {
        assert_eq!(newest(&db, number), Ok(Some(number * 10 + ROUNDS)));
        let rows = db
            .snapshot()
            .unwrap()
            .stream_info(&meter(number))
            .unwrap()
            .rows;
        assert_eq!(rows as i64, ROUNDS + 1);
    }
    db.close().unwrap();
    drop(db);
    let report = check(env_of(&disk), options()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
}

#[test]
fn a_changed_byte_of_a_footer_is_found_wherever_it_is() {
    let disk = filled();
    let path = segment(&disk);
    let bytes = disk.read_file(&path).unwrap();
    let (footer, _) = footers(&bytes)[1].clone();
    let places = [
        footer.start,
        footer.start + 3,
        footer.start + footer.len() / 3,
        footer.end - 30,
        footer.end - 18,
        footer.end - 14,
        footer.end - 10,
        footer.end - 3,
    ];
    for at in places {
        let disk = disk.after_crash(1);
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        disk.write_file(&path, damaged).unwrap();
        let report = check(env_of(&disk), options()).unwrap();
        assert!(!report.is_sound(), "byte {at} of {footer:?}");
        // Who asks for streams finds right values or the damage, and once it was met, nothing but
        // that; so that no step builds on a part of what was there.
        let db = Database::open_in(env_of(&disk), options()).unwrap();
        let mut met = false;
        for number in 0..STREAMS {
            match newest(&db, number) {
                Ok(found) => {
                    assert!(!met, "byte {at}: stream {number} after damage was met");
                    assert_eq!(found, Some(number * 10 + ROUNDS - 1), "byte {at}");
                }
                Err(kind) => {
                    assert_eq!(kind, ErrorKind::Corrupt, "byte {at}");
                    met = true;
                }
            }
        }
        // Who reads by directories has their checksums, and no use for that of the whole footer.
        let is_of_all = (footer.end - 12..footer.end - 8).contains(&at);
        assert!(met != is_of_all, "byte {at} of {footer:?}: {met}");
        // Rows that come are kept; a repair finds them.
        let mut batch = Batch::new();
        let value = Value::I64(-7);
        batch
            .stream(&meter(1))
            .row(9 * SECOND, [("kwh", value)])
            .unwrap();
        db.commit(batch).unwrap();
        drop(db.flush());
        drop(db.close());
        drop(db);
        repair(&env_of(&disk), &options(), RepairMode::Act).unwrap();
        let db = Database::open_in(env_of(&disk), options()).unwrap();
        assert_eq!(newest(&db, 1), Ok(Some(-7)), "byte {at}");
        db.close().unwrap();
        drop(db);
        let report = check(env_of(&disk), options()).unwrap();
        assert!(report.is_sound(), "byte {at}: {:#?}", report.damages);
    }
}
