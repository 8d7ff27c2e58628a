//! What the medium and its users do wrong: no space, errors, short reads, no right to write, two
//! owners, foreign files. Each gives a clear error; nothing acknowledged is lost; nothing panics.

use crate::support::{
    Action, Dice, Event, Fields, Maker, Progress, Run, Step, assert_sound, batch_of, keeping_table,
    read_back, small_options, steps, workload,
};
use headwater_engine::{Database, DeleteSpec, Error, ErrorKind, FlushRule, LatePolicy, Options};
use headwater_io::{FaultKind, FaultyFiles, Joiner, SystemThreads, Threads};
use headwater_types::{ClosedRange, StreamName, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A workload without reopenings, so that the database at hand stays the same one.
fn workload_without_reopening() -> Vec<Action> {
    workload(21, 60, 8, 25, 0)
}

fn run(disk: &FaultyFiles, options: &'static Options) -> Run<'static> {
    Run::new(Arc::new(disk.clone()), options)
}

fn options() -> &'static Options {
    static OPTIONS: std::sync::OnceLock<Options> = std::sync::OnceLock::new();
    OPTIONS.get_or_init(small_options)
}

/// Plays the workload until something fails, the last close included. Gives the database, the error
/// and how far it came.
fn play_until_it_fails(
    disk: &FaultyFiles,
    actions: &[Action],
) -> (Option<Database>, Result<(), Error>, Progress) {
    let mut run = run(disk, options());
    match run.open() {
        Err(error) => (None, Err(error), run.progress),
        Ok(db) => {
            let result = run.play_on(db.clone(), actions).and_then(|db| db.flush());
            (Some(db), result, run.progress)
        }
    }
}

fn assert_steps(db: &Database, steps: &[Step<'_>], progress: &Progress, what: &str) -> usize {
    let found = read_back(db).steps_found(steps, progress.acknowledged, progress.submitted);
    found.unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// What has to come first in a database that holds nothing yet.
fn declared(found: usize) -> impl Iterator<Item = Action> {
    std::iter::once(keeping_table()).filter(move |_| found == 0)
}

/// Opens, finds what was acknowledged, writes more, closes, and finds that too.
fn assert_recovers(disk: &FaultyFiles, steps: &[Step<'_>], progress: &Progress, what: &str) {
    let mut run = run(disk, options());
    let db = run.open().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = assert_steps(&db, steps, progress, what);
    let more: Vec<Action> = declared(found)
        .chain((0..2).map(|i| Action::Write(Maker::new(i).events(5, 90))))
        .collect();
    let mut all = steps[..found].to_vec();
    all.extend(self::steps(&more));
    let db = run
        .play_on(db, &more)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    db.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(db);
    assert_sound(disk, options());
    let db = run.open().unwrap();
    assert_eq!(
        read_back(&db).steps_found(&all, all.len(), all.len()),
        Ok(all.len()),
        "{what}"
    );
}

#[test]
fn a_full_disk_says_full_and_loses_nothing() {
    let actions = workload_without_reopening();
    let steps = steps(&actions);
    let disk = FaultyFiles::new(1);
    run(&disk, options()).play(&actions).unwrap();
    let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
    let mut capacity = 0;
    let mut failures = 0;
    while capacity < used {
        let what = format!("capacity {capacity}");
        let disk = FaultyFiles::new(capacity);
        disk.capacity(capacity);
        let (db, result, progress) = play_until_it_fails(&disk, &actions);
        if let Err(error) = result {
            failures += 1;
            assert_eq!(error.kind(), ErrorKind::Full, "{what}: {error}");
            if let Some(db) = &db {
                // Reads go on, and the answer stays the same.
                assert_steps(db, &steps, &progress, &what);
                let again = db.flush().map_err(|e| e.kind());
                assert!(
                    matches!(again, Ok(()) | Err(ErrorKind::Full)),
                    "{what}: {again:?}"
                );
                assert_steps(db, &steps, &progress, &what);
            }
        }
        drop(db);
        disk.capacity(u64::MAX);
        assert_recovers(&disk, &steps, &progress, &what);
        // Finer where the database has just been made and every byte is a new place to fail.
        capacity += if failures % 2 == 0 { 9_973 } else { 4_099 };
    }
    assert!(failures > 20, "{failures} of {capacity}");
}

#[test]
fn a_write_that_is_in_the_log_is_acknowledged_though_storing_it_further_fails() {
    let options = Options {
        flush_rule: FlushRule::LabExact { memory_events: 16 },
        late_policy: LatePolicy::conventional().into(),
        ..small_options()
    };
    let disk = FaultyFiles::new(9);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let event = |time: i64| Event {
        stream: StreamName::new("m", [("device", "1")]),
        time,
        fields: Fields::from([("v".to_owned(), Value::F64(1.5))]),
    };
    for time in 0..14 {
        db.commit(batch_of(&[event(time)])).unwrap();
    }
    let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
    // The log's file has room; a segment has none.
    disk.capacity(used);
    for time in 14..20 {
        assert_eq!(db.commit(batch_of(&[event(time)])).unwrap().accepted, 1);
    }
    let rows = |db: &Database| read_back(db).streams.values().map(Vec::len).sum::<usize>();
    assert_eq!((rows(&db), db.stats().unwrap().partitions), (20, 0));
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Full);
    // Attempts leave nothing behind that fills the disk further.
    assert_eq!(disk.files().iter().map(|(_, len)| len).sum::<u64>(), used);
    // There is space again: life goes on without opening anew.
    disk.capacity(u64::MAX);
    db.commit(batch_of(&[event(20)])).unwrap();
    assert_eq!((rows(&db), db.stats().unwrap().partitions), (21, 1));
    db.close().unwrap();
    drop(db);
    assert_eq!(rows(&run.open().unwrap()), 21);
}

/// The life of a full disk with a reserve: what was taken in is stored, writes say full, deletes
/// and reads go on, and when there is space again writes go on by themselves. Nothing latches.
#[test]
fn a_reserve_keeps_a_full_disk_from_stopping_anything_but_writes() {
    let options = Options {
        reserve_bytes: 96 << 10,
        shards: 1,
        ..small_options()
    };
    // Of a kind that no codec makes smaller, so that the disk is soon full, and stays so.
    let event = |time: i64| {
        let mut dice = Dice::new(time.unsigned_abs());
        let text = (0..63).map(|_| format!("{:08x}", dice.next() >> 32));
        Event {
            stream: StreamName::new("m", [("device", "1")]),
            time,
            fields: Fields::from([("text".to_owned(), Value::String(text.collect()))]),
        }
    };
    let rows = |db: &Database| read_back(db).streams.values().map(Vec::len).sum::<usize>();
    let mut met = 0;
    for room in (0..40_000).step_by(9_973) {
        let what = format!("room {room}");
        let disk = FaultyFiles::new(9);
        let run = Run::new(Arc::new(disk.clone()), &options);
        let db = run.open().unwrap();
        for time in 0..40 {
            db.commit(batch_of(&[event(time)])).unwrap();
        }
        db.flush().unwrap();
        let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
        disk.capacity(used + room);
        let mut written = 40;
        let refused = loop {
            match db.commit(batch_of(&[event(written)])) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            if written % 20 == 0 {
                // A step that finds no space takes that of the reserve.
                db.flush().unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Full, "{what}: {refused}");
        assert_eq!(rows(&db) as i64, written, "{what}");
        // What a rewriting gave back since is somebody else's: there is half of the reserve, and no
        // space to make it again.
        let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
        disk.capacity(used + (48 << 10));
        run.clock.advance(std::time::Duration::from_secs(1));
        let again = db.commit(batch_of(&[event(written)])).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Full, "{what}: {again}");
        // Deletes work, and are carried out.
        let spec = DeleteSpec {
            table: "m".into(),
            tags: Vec::new(),
            range: ClosedRange::nanos(0, 19),
        };
        db.delete(&spec).unwrap_or_else(|e| panic!("{what}: {e}"));
        db.flush().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(rows(&db) as i64, written - 20, "{what}");
        // There is space again.
        disk.capacity(u64::MAX);
        run.clock.advance(std::time::Duration::from_secs(1));
        db.commit(batch_of(&[event(written)]))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(rows(&db) as i64, written - 19, "{what}");
        assert_eq!(
            disk.read_file("/db/reserve").unwrap().len(),
            96 << 10,
            "{what}"
        );
        db.close().unwrap();
        drop(db);
        assert_sound(&disk, &options);
        met += 1;
    }
    assert!(met > 4, "{met}");
}

/// Whoever met the failure is told of it, and everybody else that the database is closed because of
/// it.
fn assert_failed(error: &Error, what: &str) {
    assert!(
        matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed),
        "{what}: {error:?}"
    );
    assert!(
        error.to_string().contains("os error") || error.to_string().contains("I/O"),
        "{what}: {error:?}"
    );
}

/// A fault of one kind at the operation with this number, and everything that may follow it. False
/// when nothing failed: the fault came while the database was closed, or not at all.
fn fault_at(kind: FaultKind, number: u64, actions: &[Action], steps: &[Step<'_>]) -> bool {
    let what = format!("{kind:?} at {number}");
    let disk = FaultyFiles::new(number);
    disk.fail_next(kind, number);
    let (db, result, progress) = play_until_it_fails(&disk, actions);
    let failed = result.is_err();
    if let Err(error) = result {
        assert_failed(&error, &what);
        if let Some(db) = &db {
            assert_steps(db, steps, &progress, &what);
            let refused = db.commit(batch_of(&Maker::new(1).events(3, 0)));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed, "{what}");
            assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Closed, "{what}");
            assert_steps(db, steps, &progress, &what);
        }
    }
    drop(db.map(|db| db.close()));
    // The power fails right then, or the database is opened again, or both, one after the other.
    for seed in [0, 1, number + 2] {
        assert_recovers(
            &disk.after_crash(seed),
            steps,
            &progress,
            &format!("{what}, then cut, seed {seed}"),
        );
    }
    let mut next = run(&disk, options());
    // A fault that still waits comes while the database is opened, and the next attempt succeeds.
    let db = match next.open() {
        Err(error) if !failed && error.kind() == ErrorKind::Io => next.open(),
        other => other,
    };
    let db = db.unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = assert_steps(&db, steps, &progress, &what);
    let more: Vec<Action> = [
        Action::Write(Maker::new(number).events(5, 90)),
        Action::Flush,
        Action::Write(Maker::new(1).events(5, 90)),
    ]
    .into_iter()
    .take(1 + number as usize % 3)
    .collect();
    let more: Vec<Action> = declared(found).chain(more).collect();
    let mut all = steps[..found].to_vec();
    all.extend(self::steps(&more));
    let db = next
        .play_on(db, &more)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    disk.crash_now();
    drop(db);
    for seed in [0, 1, number + 2] {
        let what = format!("{what}, opened again, then cut, seed {seed}");
        let db = run(&disk.after_crash(seed), options())
            .open()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(
            read_back(&db).steps_found(&all, all.len(), all.len()),
            Ok(all.len()),
            "{what}"
        );
    }
    failed
}

fn faults_of(kind: FaultKind, stride: usize) {
    let actions = workload(22, 24, 6, 13, 0);
    let steps = steps(&actions);
    let mut failures = 0;
    let mut quiet = 0;
    for number in (0..).step_by(stride) {
        // Behind the last failure come the operations of closing.
        if fault_at(kind, number, &actions, &steps) {
            (failures, quiet) = (failures + 1, 0);
        } else if quiet < 6 {
            quiet += 1;
        } else {
            break;
        }
    }
    assert!(failures > 20, "{kind:?}: {failures}");
}

#[test]
fn a_failed_write_latches_and_loses_nothing() {
    faults_of(FaultKind::WriteError, 2);
}

#[test]
fn a_failed_sync_latches_and_loses_nothing() {
    faults_of(FaultKind::SyncError, 1);
}

#[test]
fn a_failed_sync_that_drops_what_was_written_loses_nothing() {
    faults_of(FaultKind::SyncErrorReverting, 1);
}

#[test]
fn short_reads_change_nothing() {
    let actions = workload_without_reopening();
    let steps = steps(&actions);
    let disk = FaultyFiles::new(3);
    disk.short_reads();
    let mut run = run(&disk, options());
    run.play(&actions).unwrap();
    let db = run.open().unwrap();
    assert_eq!(
        read_back(&db).steps_found(&steps, steps.len(), steps.len()),
        Ok(steps.len())
    );
    drop(db);
    assert_sound(&disk, options());
}

#[test]
fn a_failed_read_is_an_error_and_no_damage() {
    let actions = workload_without_reopening();
    let steps = steps(&actions);
    let disk = FaultyFiles::new(4);
    run(&disk, options()).play(&actions).unwrap();
    for number in 0..60 {
        let disk = disk.after_crash(1);
        disk.fail_next(FaultKind::ReadError, number);
        let what = format!("read {number}");
        match run(&disk, options()).open() {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}"),
            Ok(db) => {
                let snapshot = db.snapshot().unwrap();
                for table in db.tables() {
                    for name in snapshot.streams(&table.name, &[]).unwrap_or_default() {
                        if let Ok(scan) =
                            snapshot.scan(&name, &headwater_engine::ScanSpec::default())
                        {
                            for error in crate::support::collect(scan).1 {
                                assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
                            }
                        }
                    }
                }
            }
        }
        let db = run(&disk, options()).open().unwrap();
        assert_eq!(
            read_back(&db).steps_found(&steps, steps.len(), steps.len()),
            Ok(steps.len()),
            "{what}"
        );
    }
}

#[test]
fn files_that_cannot_be_written_are_an_io_error() {
    let actions = workload_without_reopening();
    let steps = steps(&actions);
    let disk = FaultyFiles::new(5);
    let mut first = run(&disk, options());
    let db = first.open().unwrap();
    let db = first.play_on(db, &actions[..20]).unwrap();
    let at_hand = db.clone();
    disk.read_only();
    let error = first.play_on(db, &actions[20..]).unwrap_err();
    assert_failed(&error, "read-only");
    assert_steps(&at_hand, &steps, &first.progress, "read-only");
    assert_eq!(
        at_hand
            .commit(batch_of(&Maker::new(1).events(1, 0)))
            .unwrap_err()
            .kind(),
        ErrorKind::Closed
    );
    drop(at_hand.close());
    drop(at_hand);
    let error = run(&disk, options()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("/db"), "{error}");
    assert_recovers(&disk.after_crash(0), &steps, &first.progress, "read-only");
}

#[test]
fn closing_says_when_events_could_not_be_stored() {
    let disk = FaultyFiles::new(11);
    let db = run(&disk, options()).open().unwrap();
    db.commit(batch_of(&Maker::new(1).events(3, 0))).unwrap();
    disk.fail_next(FaultKind::WriteError, 0);
    db.commit(batch_of(&Maker::new(2).events(3, 0)))
        .unwrap_err();
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_second_owner_is_told_about_the_first() {
    let disk = FaultyFiles::new(6);
    let first = run(&disk, options()).open().unwrap();
    let error = run(&disk, options()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(
        error
            .to_string()
            .contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    // Who only looks needs no lock.
    assert_sound(&disk, options());
    first.close().unwrap();
    drop(first);
    run(&disk, options()).open().unwrap();
}

#[test]
fn a_directory_that_holds_no_database() {
    let must = Options {
        must_exist: true,
        ..small_options()
    };
    let disk = FaultyFiles::new(7);
    let open =
        |disk: &FaultyFiles, options: &Options| Run::new(Arc::new(disk.clone()), options).open();
    assert_eq!(open(&disk, &must).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        disk.operations(),
        0,
        "nothing is made where a database must be"
    );
    assert_eq!(
        headwater_engine::check(run(&disk, options()).env, options().clone())
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );

    // Something else is in the way.
    disk.write_file("/db", b"a file").unwrap();
    let error = open(&disk, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let disk = FaultyFiles::new(7);
    disk.write_file("/db/log", b"a file").unwrap();
    assert_eq!(open(&disk, options()).unwrap_err().kind(), ErrorKind::Io);

    // Foreign files do not disturb, and stay.
    let disk = FaultyFiles::new(7);
    for name in [
        "/db/notes.txt",
        "/db/log/notes.txt",
        "/db/segment/notes.txt",
        "/db/log/x.log",
        "/db/segment/x.seg.bak",
    ] {
        disk.write_file(name, b"mine").unwrap();
    }
    let error = open(&disk, &must).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

    // Metadata that is none, beside data: never made anew.
    let disk = FaultyFiles::new(7);
    run(&disk, options())
        .play(&workload_without_reopening())
        .unwrap();
    disk.write_file("/db/meta.redb", b"this is not redb")
        .unwrap();
    let before = disk.files();
    let error = open(&disk, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("meta.redb"), "{error}");
    assert_eq!(disk.files().len(), before.len());
}

#[test]
fn a_newer_format_is_refused() {
    let disk = FaultyFiles::new(8);
    run(&disk, options())
        .play(&workload_without_reopening())
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    std::fs::write(&path, disk.read_file("/db/meta.redb").unwrap()).unwrap();
    {
        let meta = redb::Database::open(&path).unwrap();
        let transaction = meta.begin_write().unwrap();
        let state: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("state");
        transaction
            .open_table(state)
            .unwrap()
            .insert("format_version", 4)
            .unwrap();
        transaction.commit().unwrap();
    }
    disk.write_file("/db/meta.redb", std::fs::read(&path).unwrap())
        .unwrap();
    let error = run(&disk, options()).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("version 4"), "{error}");
}

/// Starts so many threads, and then no more.
#[derive(Debug)]
struct FewThreads(AtomicUsize);

impl Threads for FewThreads {
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Option<Box<dyn Joiner>>> {
        let left = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        if left.is_err() {
            return Err(std::io::Error::other("no more threads"));
        }
        SystemThreads.spawn(name, body)
    }
}

#[test]
fn a_database_that_gets_no_threads_lets_go_of_its_files() {
    for threads in 0..4 {
        let disk = FaultyFiles::new(10);
        let mut env = run(&disk, options()).env;
        env.threads = Arc::new(FewThreads(AtomicUsize::new(threads)));
        let error = Database::open_in(env, small_options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{threads}: {error}");
        run(&disk, options())
            .open()
            .unwrap_or_else(|e| panic!("{threads}: {e}"));
    }
}
