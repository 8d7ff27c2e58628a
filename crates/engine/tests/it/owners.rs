//! One process owns a database: whatever becomes of its lock file, and whatever a forked child
//! does.

use crate::support::{
    Event, Fields, Run, START, assert_sound, batch_of, collect, read_back, small_options,
};
use headwater_engine::{
    Database, Error, ErrorKind, Options, Reader, ScanSpec, TableChange, TableSpec, backup,
};
use headwater_io::{
    Env, FaultyFiles, Files, Joiner, ManualClock, NoThreads, SeededChance, SystemThreads, Threads,
};
use headwater_types::{StreamName, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn event(time: i64) -> Event {
    Event {
        stream: StreamName::new("m", [("device", "1")]),
        time: START + time,
        fields: Fields::from([("v".to_owned(), Value::I64(time))]),
    }
}

fn write(db: &Database, from: i64, count: i64) -> Result<(), Error> {
    (from..from + count).try_for_each(|t| db.commit(batch_of(&[event(t)])).map(drop))
}

fn rows(db: &Database) -> usize {
    read_back(db).streams.values().map(Vec::len).sum()
}

#[test]
fn without_its_lock_file_a_database_has_still_one_owner() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let first = run.open().unwrap();
    write(&first, 0, 10).unwrap();
    for _ in 0..3 {
        disk.remove(Path::new("/db/lock")).unwrap();
        let error = Run::new(Arc::new(disk.clone()), &options)
            .open()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert!(
            error.to_string().contains("already open in this process"),
            "{error}"
        );
    }
    write(&first, 10, 10).unwrap();
    first.flush().unwrap();
    // Who reads beside it, and a backup, need no lock.
    let env = Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    };
    let reader = Reader::open_in(env.clone(), options.clone()).unwrap();
    let name = StreamName::new("m", [("device", "1")]);
    let (seen, _) = collect(reader.snapshot().scan(&name, &ScanSpec::default()).unwrap());
    assert_eq!(seen.len(), 20);
    backup(&env, &options, Path::new("/backup")).unwrap();
    first.close().unwrap();
    drop(first);
    assert_sound(&disk, &options);
    assert_eq!(rows(&run.open().unwrap()), 20);
}

#[test]
fn an_owner_whose_metadata_were_replaced_writes_nothing_more() {
    let options = small_options();
    for replaced in [false, true] {
        let disk = FaultyFiles::new(1);
        let run = Run::new(Arc::new(disk.clone()), &options);
        let first = run.open().unwrap();
        write(&first, 0, 10).unwrap();
        let meta = disk.read_file("/db/meta.redb").unwrap();
        disk.remove(Path::new("/db/meta.redb")).unwrap();
        disk.remove(Path::new("/db/lock")).unwrap();
        if replaced {
            disk.write_file("/db/meta.redb", &meta).unwrap();
        }
        let error = first.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("removed or replaced") && text.contains("/db/meta.redb"),
            "{text}"
        );
        let error = write(&first, 10, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        let before = disk.read_file("/db/meta.redb").ok();
        first.close().unwrap_err();
        drop(first);
        assert_eq!(disk.read_file("/db/meta.redb").ok(), before);
        if replaced {
            assert_eq!(rows(&run.open().unwrap()), 10);
        }
    }
}

/// With a log file that is begun while nothing is committed: it needs a commit too.
#[test]
fn an_owner_whose_metadata_are_gone_begins_no_log_file() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    let first = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    write(&first, 0, 1).unwrap();
    disk.remove(Path::new("/db/meta.redb")).unwrap();
    let error = (1..10_000)
        .find_map(|t| write(&first, t, 1).err())
        .expect("a file is full");
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[test]
fn on_a_machine_the_metadata_are_locked_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = Options {
        reserve_bytes: 0,
        ..Options::new(&path)
    };
    let first = Database::open(options.clone()).unwrap();
    write(&first, 0, 10).unwrap();
    let refused = || {
        let error = Database::open(options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        let text = error.to_string();
        assert!(text.contains("already open in this process"), "{text}");
    };
    refused();
    std::fs::remove_file(path.join("lock")).unwrap();
    refused();
    refused();
    write(&first, 10, 10).unwrap();
    first.close().unwrap();
    drop(first);
    let again = Database::open(options).unwrap();
    assert_eq!(rows(&again), 20);
}

/// Threads, in a process that can become a child made by `fork`.
#[derive(Debug)]
struct Forking {
    process: AtomicU32,
    threads: Arc<dyn Threads>,
}

impl Threads for Forking {
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Option<Box<dyn Joiner>>> {
        self.threads.spawn(name, body)
    }

    fn process(&self) -> u32 {
        self.process.load(Ordering::Acquire)
    }
}

fn contents(disk: &FaultyFiles) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    paths
        .map(|p| (p.clone(), disk.read_file(&p).unwrap()))
        .collect()
}

#[test]
fn a_forked_child_is_refused_and_writes_nothing() {
    for threaded in [false, true] {
        let threads: Arc<dyn Threads> = if threaded {
            Arc::new(SystemThreads)
        } else {
            Arc::new(NoThreads)
        };
        let options = small_options();
        let disk = FaultyFiles::new(1);
        let process = Arc::new(Forking {
            process: AtomicU32::new(100),
            threads,
        });
        let env = Env {
            files: Arc::new(disk.clone()),
            media: headwater_io::Media::default(),
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
            chance: Arc::new(SeededChance::new(7)),
            threads: Arc::clone(&process) as _,
        };
        let db = Database::open_in(env, options.clone()).unwrap();
        write(&db, 0, 10).unwrap();
        let ticket = db.write(batch_of(&[event(10)])).unwrap();
        // Where there are threads, one of them leads for it: not while the files are looked at.
        let ticket = if threaded {
            ticket.wait().unwrap();
            None
        } else {
            Some(ticket)
        };
        let snapshot = db.snapshot().unwrap();

        let before = (disk.operations(), contents(&disk));
        process.process.store(101, Ordering::Release);
        let refused = |what: &str, result: Result<(), Error>| {
            let error = result.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Forked, "{what}: {error}");
            assert_eq!(error.kind().as_str(), "forked");
            let text = error.to_string();
            for part in ["100", "101", "open the database after the fork"] {
                assert!(text.contains(part), "{what}: {text}");
            }
        };
        refused("commit", write(&db, 20, 1));
        refused("write", db.write(batch_of(&[event(21)])).map(drop));
        if let Some(ticket) = ticket {
            refused("wait", ticket.wait().map(drop));
        }
        refused("snapshot", db.snapshot().map(drop));
        refused("create", db.create_table(&TableSpec::new("x")).map(drop));
        refused(
            "alter",
            db.alter_table("m", &TableChange::default()).map(drop),
        );
        refused("drop", db.drop_table("m"));
        refused("flush", db.flush());
        refused("compact", db.compact());
        refused("stats", db.stats().map(drop));
        refused("backup", db.backup(Path::new("/backup")).map(drop));
        refused("close", db.close());
        // The end of a child: of its copy of the database, too. This test has one copy only, which
        // the parent goes on with.
        let childs = db.clone();
        drop(childs);
        // With threads, those of the parent go on meanwhile; here they have nothing to do.
        assert!(
            before == (disk.operations(), contents(&disk)),
            "the child changed something"
        );

        process.process.store(100, Ordering::Release);
        write(&db, 30, 5).unwrap();
        assert_eq!(rows(&db), 16);
        drop(snapshot);
        db.close().unwrap();
        drop(db);
        assert_sound(&disk, &options);
        assert_eq!(
            rows(&Run::new(Arc::new(disk), &options).open().unwrap()),
            16
        );
    }
}

#[test]
fn the_end_of_a_forked_child_changes_nothing() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    let process = Arc::new(Forking {
        process: AtomicU32::new(100),
        threads: Arc::new(SystemThreads),
    });
    let env = Env {
        files: Arc::new(disk.clone()),
        media: headwater_io::Media::default(),
        clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
        chance: Arc::new(SeededChance::new(7)),
        threads: Arc::clone(&process) as _,
    };
    let db = Database::open_in(env, options.clone()).unwrap();
    write(&db, 0, 10).unwrap();
    let before = (disk.operations(), contents(&disk));
    process.process.store(101, Ordering::Release);
    // Neither the last handle nor what it leaves behind stores, closes or unlocks anything, or
    // waits for a thread.
    drop(db);
    assert!(before == (disk.operations(), contents(&disk)));
    let error = Run::new(Arc::new(disk.clone()), &options)
        .open()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "the parent still owns it");
    // The parent is killed: what it acknowledged is there.
    disk.crash_now();
    let db = Run::new(Arc::new(disk.after_crash(0)), &options)
        .open()
        .unwrap();
    assert_eq!(rows(&db), 10);
}
