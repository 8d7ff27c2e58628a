//! Databases that earlier versions wrote: each must open, hold what it held, and go on.
//!
//! `tests/compat/NAME.zst` has the files of a database as a process left it that was killed, with
//! events in the log that no segment has; `NAME.txt` what it held. With
//! `HEADWATER_WRITE_COMPAT=NAME` in the environment the present version writes a new pair; a pair
//! that is there is never written again. `life_2` has a named snapshot, and indexes of which one
//! was not made yet. `tests/compat/aged` holds a database with a defect of its time:
//! `life/older.rs`.

use crate::support::{self, Run, collect, small_options, workload};
use headwater_engine::{AggregateSpec, Bins, Database, IndexSpec, ScanSpec, Snapshot};
use headwater_io::{Files, MemoryFiles, OpenMode};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Timestamp};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRS: [&str; 3] = ["/db", "/db/log", "/db/segment"];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat")
}

/// The files of a database: for each the length of its path and its own (u32 little-endian), the
/// path and the bytes.
fn pack(files: &dyn Files) -> Vec<u8> {
    let mut out = Vec::new();
    for dir in DIRS {
        let mut names = files.list(Path::new(dir)).unwrap();
        names.sort();
        for name in names {
            let path = format!("{dir}/{name}");
            // The lock names a process, and folders are none.
            let Ok(file) = files.open(Path::new(&path), OpenMode::Read) else {
                continue;
            };
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_exact_at(0, &mut bytes).unwrap();
            out.extend((path.len() as u32).to_le_bytes());
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(path.as_bytes());
            out.extend(bytes);
        }
    }
    out
}

pub(crate) fn unpack(mut archive: &[u8]) -> Arc<dyn Files> {
    let files = MemoryFiles::new();
    for dir in DIRS {
        files.create_dir_all(Path::new(dir)).unwrap();
    }
    let mut take = |count: usize| {
        let (taken, rest) = archive.split_at_checked(count)?;
        archive = rest;
        Some(taken)
    };
    while let Some(head) = take(8) {
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let path = std::str::from_utf8(take(number(0)).unwrap()).unwrap();
        let file = files.open(Path::new(path), OpenMode::CreateNew).unwrap();
        file.write_all_at(0, take(number(4)).unwrap()).unwrap();
    }
    Arc::new(files)
}

/// The rows of a stream, as text.
fn rows_of(snapshot: &Snapshot, name: &StreamName, out: &mut String) {
    writeln!(out, "{name}").unwrap();
    let (rows, errors) = collect(snapshot.scan(name, &ScanSpec::default()).unwrap());
    assert!(errors.is_empty(), "{errors:?}");
    for (time, fields) in rows {
        writeln!(out, "  {time} {fields:?}").unwrap();
    }
}

/// Everything a database holds, as text: rows, and the buckets of one stream at three levels; its
/// indexes, and what its named snapshots hold.
fn dump(db: &Database) -> String {
    // Aggregates and newest values are compared with the rows there.
    support::read_back(db);
    let snapshot = db.snapshot().unwrap();
    let mut out = String::new();
    for table in db.tables() {
        writeln!(out, "table {} {:?}", table.name, table.duplicates).unwrap();
        for field in &table.fields {
            writeln!(out, "  field {} {}", field.name, field.field_type).unwrap();
        }
        for name in snapshot.streams(&table.name, &[]).unwrap() {
            rows_of(&snapshot, &name, &mut out);
        }
    }
    for level in [0, 5, 9] {
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Level(Level::new(level).unwrap()),
            first_last: false,
        };
        for bin in snapshot.aggregate(&steady(), "v", &spec).unwrap() {
            let aggregate = bin.aggregate;
            let (count, mean) = (aggregate.count, aggregate.mean());
            writeln!(
                out,
                "  level {level} {} {count} {mean:?}",
                bin.start.as_nanos()
            )
            .unwrap();
        }
    }
    for index in db.indexes() {
        writeln!(
            out,
            "index {} {} {:?}",
            index.name, index.table, index.fields
        )
        .unwrap();
    }
    for info in db.snapshots() {
        let named = db.snapshot_named(&info.name).unwrap();
        writeln!(out, "snapshot {} {}", info.name, info.sequence).unwrap();
        for table in named.table_names() {
            for name in named.streams(&table, &[]).unwrap() {
                rows_of(&named, &name, &mut out);
            }
        }
    }
    out
}

/// A stream with a pyramid.
fn steady() -> StreamName {
    StreamName::new("steady", [("id", "1")])
}

fn write_steady(db: &Database, seconds: std::ops::Range<i64>) {
    let mut batch = Batch::new();
    for second in seconds {
        let value = (second * 7 % 101) as f64 / 10.0;
        let rows = batch.stream(&steady());
        rows.row(second * 1_000_000_000, [("v", value.into())])
            .unwrap();
    }
    assert!(db.commit(batch).unwrap().refused.is_empty());
}

fn write_fixture(name: &str) {
    let options = small_options();
    let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
    let mut run = Run::new(Arc::clone(&files), &options);
    run.play(&workload(11, 160, 23, 61, 47)).unwrap();
    let db = run.open().unwrap();
    write_steady(&db, 0..1500);
    for name in ["by_v", "waits"] {
        db.create_index(&IndexSpec {
            name: name.into(),
            table: "steady".into(),
            fields: vec!["v".into()],
        })
        .unwrap();
    }
    let built = db.build_index("by_v", &mut |_| ControlFlow::Continue(()));
    assert!(built.unwrap());
    db.create_snapshot("then").unwrap();
    // Of what the snapshot holds some is written again.
    write_steady(&db, 100..130);
    db.flush().unwrap();
    // These stay in the log.
    write_steady(&db, 1500..1600);
    write_steady(&db, 700..710);
    let text = dump(&db);
    let archive = zstd::bulk::compress(&pack(&*files), 19).unwrap();
    // Not closed: as if the process had been killed.
    std::mem::forget(db);
    std::fs::create_dir_all(folder()).unwrap();
    for (kind, bytes) in [("zst", archive), ("txt", text.into_bytes())] {
        let path = folder().join(format!("{name}.{kind}"));
        assert!(!path.exists(), "{} is there already", path.display());
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn databases_of_earlier_versions_open_hold_what_they_held_and_go_on() {
    if let Ok(name) = std::env::var("HEADWATER_WRITE_COMPAT") {
        write_fixture(&name);
    }
    let mut opened = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "zst") {
            continue;
        }
        let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
        let archive = std::fs::read(&path).unwrap();
        let files = unpack(&zstd::bulk::decompress(&archive, 64 << 20).unwrap());
        let options = small_options();
        let report = support::check(Arc::clone(&files), &options);
        assert!(report.damages.is_empty(), "{path:?}: {:?}", report.damages);
        let run = Run::new(Arc::clone(&files), &options);
        let db = run.open().unwrap();
        assert!(db.recovery().events_replayed > 0, "{path:?}: an empty log");
        let found = dump(&db);
        crate::indexes::assert_agree(&db);
        let differs = found.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert!(found == expected, "{path:?}: {differs:?}");
        // It goes on: with the files of then, and after all of it was written again.
        write_steady(&db, 2000..2300);
        db.flush().unwrap();
        let grown = dump(&db);
        assert_eq!(
            grown
                .lines()
                .filter(|l| l.contains("2000000000000 "))
                .count(),
            2
        );
        db.compact().unwrap();
        assert_eq!(dump(&db), grown);
        for index in db.indexes() {
            let built = db.build_index(&index.name, &mut |_| ControlFlow::Continue(()));
            assert!(built.unwrap(), "{path:?}: {index:?}");
        }
        crate::indexes::assert_agree(&db);
        db.close().unwrap();
        drop(db);
        let db = run.open().unwrap();
        assert_eq!(dump(&db), grown);
        db.close().unwrap();
        drop(db);
        let report = support::check(files, &options);
        assert!(report.damages.is_empty(), "{path:?}: {:?}", report.damages);
        let newest = db_newest(&grown);
        assert_eq!(newest, Some(Timestamp::from_nanos(2299 * 1_000_000_000)));
        opened += 1;
    }
    assert!(opened > 0, "no database in tests/compat");
}

/// The newest row of the steady stream in a text.
fn db_newest(text: &str) -> Option<Timestamp> {
    let rows = text
        .lines()
        .skip_while(|l| *l != steady().to_string())
        .skip(1);
    let times = rows.map_while(|l| l.trim().split(' ').next()?.parse().ok());
    times.last().map(Timestamp::from_nanos)
}
