//! The large medium stalls while the log lies in a fast tier: writes go on while there is room, and
//! then say `busy`; what lies in memory is read; whoever needs what only the large medium holds
//! stands in nobody's way; and all that was acknowledged meanwhile is found after a power cut.

use crate::support::small_options;
use headwater_engine::{Database, Error, ErrorKind, FastTier, Options, ScanSpec, check};
use headwater_io::{
    Clock, Env, FaultyFiles, File, Files, Lock, LockError, ManualClock, OpenMode, SeededChance,
    SystemThreads,
};
use headwater_types::{Batch, ClosedRange, StreamName};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

thread_local! {
    /// This thread must not need the large medium while it stalls.
    static FAST_ONLY: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
struct Stall {
    stalls: bool,
    /// Only such an operation does not come back, or any; and only on such a path, or any.
    only: (&'static str, &'static str),
    /// Operations that do not come back.
    stuck: usize,
    /// What threads asked of it that must not need it.
    touched: Vec<String>,
}

/// A medium below a folder that can stall: everything asked of it then waits.
#[derive(Clone, Debug)]
struct Stalling {
    disk: FaultyFiles,
    folder: PathBuf,
    stall: Arc<(Mutex<Stall>, Condvar)>,
}

#[derive(Debug)]
struct StallingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    medium: Stalling,
}

impl Stalling {
    fn new(disk: &FaultyFiles) -> Stalling {
        Stalling {
            disk: disk.clone(),
            folder: "/db".into(),
            stall: Arc::default(),
        }
    }

    fn pass(&self, what: &str, path: &Path) -> io::Result<()> {
        let (stall, changed) = &*self.stall;
        let mut stall = stall.lock().unwrap();
        let (kind, part) = stall.only;
        let is_meant = (kind.is_empty() || kind == what)
            && path.starts_with(&self.folder)
            && path.to_str().unwrap().contains(part);
        if !stall.stalls || !is_meant {
            return Ok(());
        }
        if FAST_ONLY.get() {
            let touched = format!("{what} of {}", path.display());
            stall.touched.push(touched.clone());
            return Err(io::Error::other(touched));
        }
        stall.stuck += 1;
        changed.notify_all();
        while stall.stalls {
            stall = changed.wait(stall).unwrap();
        }
        stall.stuck -= 1;
        Ok(())
    }

    fn begin(&self) {
        self.begin_with(("", ""));
    }

    /// Stalls at such an operation on such a path, as soon as somebody comes to it.
    fn begin_with(&self, only: (&'static str, &'static str)) {
        let mut stall = self.stall.0.lock().unwrap();
        stall.only = only;
        stall.stalls = true;
    }

    /// Waits until an operation is stuck.
    fn wait_until_stuck(&self, count: usize) {
        let (stall, changed) = &*self.stall;
        let mut stall = stall.lock().unwrap();
        while stall.stuck < count {
            stall = changed.wait(stall).unwrap();
        }
    }

    fn answer(&self) {
        let (stall, changed) = &*self.stall;
        let mut stall = stall.lock().unwrap();
        stall.stalls = false;
        changed.notify_all();
    }

    /// The medium answers again, and nobody asked it who must not need it.
    fn end(&self) {
        self.answer();
        let touched = self.stall.0.lock().unwrap().touched.clone();
        assert_eq!(touched, Vec::<String>::new());
    }
}

/// A test that fails leaves nobody waiting for the medium.
struct AnswersInTheEnd<'a>(&'a Stalling);

impl Drop for AnswersInTheEnd<'_> {
    fn drop(&mut self) {
        self.0.answer();
    }
}

impl File for StallingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.medium.pass("a read", &self.path)?;
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.medium.pass("a write", &self.path)?;
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.medium.pass("a sync", &self.path)?;
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.medium.pass("the length", &self.path)?;
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.medium.pass("a new length", &self.path)?;
        self.file.set_len(len)
    }
}

impl Files for Stalling {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.pass("an opening", path)?;
        Ok(Arc::new(StallingFile {
            file: self.disk.open(path, mode)?,
            path: path.to_owned(),
            medium: self.clone(),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.pass("a removal", path)?;
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.pass("a list", dir)?;
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.pass("a folder", dir)?;
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.pass("a sync of the folder", dir)?;
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.pass("a look for", path)?;
        self.disk.exists(path)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn Lock>, LockError> {
        self.disk.lock(path, owner)
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.disk.lock_file(path)
    }
}

/// A database with its log in `/fast`, on a medium that can stall, with a clock of its own.
struct StallSetup {
    disk: FaultyFiles,
    medium: Stalling,
    clock: Arc<ManualClock>,
    options: Options,
}

impl StallSetup {
    fn new(seed: u64) -> StallSetup {
        let disk = FaultyFiles::new(seed);
        StallSetup {
            medium: Stalling::new(&disk),
            disk,
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
            options: Options {
                fast_dir: Some("/fast".into()),
                busy_timeout: Duration::from_secs(5),
                // A rest would come while the clock runs.
                idle_after: None,
                late_merge_interval: None,
                ..small_options()
            },
        }
    }

    fn open(&self) -> Database {
        let env = Env {
            files: Arc::new(self.medium.clone()),
            clock: Arc::<ManualClock>::clone(&self.clock),
            chance: Arc::new(SeededChance::new(self.disk.operations())),
            threads: Arc::new(SystemThreads),
            ..Env::memory()
        };
        Database::open_in(env, self.options.clone()).unwrap()
    }

    /// The database as it is found after a power cut now.
    fn after_cut(&self, seed: u64) -> Database {
        let env = Env {
            files: Arc::new(self.disk.after_crash(seed)),
            ..Env::memory()
        };
        let report = check(env.clone(), self.options.clone()).unwrap();
        assert!(report.is_sound(), "seed {seed}: {report:#?}");
        Database::open_in(env, self.options.clone()).unwrap()
    }
}

/// Rows that are stored lie at the beginning of time, the others far away in partitions that are
/// not there yet.
const FAR: i64 = 1 << 60;

fn stream(table: &str) -> StreamName {
    StreamName::new(table, [("id", "1")])
}

fn write(
    db: &Database,
    table: &str,
    field: &str,
    times: std::ops::Range<i64>,
) -> Result<(), Error> {
    let mut batch = Batch::new();
    for time in times {
        // Nothing that would fit into a few bits.
        let value = time.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 10;
        let row = [(field, (value as f64).into())];
        batch.stream(&stream(table)).row(time, row).unwrap();
    }
    db.commit(batch).map(drop)
}

fn times(db: &Database, table: &str, range: ClosedRange) -> Vec<i64> {
    let snapshot = db.snapshot().unwrap();
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let scan = snapshot.scan(&stream(table), &spec).unwrap();
    scan.flat_map(|chunk| chunk.unwrap().times).collect()
}

fn far(written: i64) -> Vec<i64> {
    (FAR..FAR + written).collect()
}

/// Runs `body` on a thread that must not need the medium while it stalls, and fails should it wait
/// for somebody who does.
fn without<T: Send>(medium: &Stalling, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            FAST_ONLY.set(true);
            done.send(body()).unwrap();
        });
        is_done
            .recv_timeout(Duration::from_secs(300))
            .unwrap_or_else(|error| {
                medium.answer();
                panic!("a thread that needs nothing of the stalled medium did not end: {error}")
            })
    })
}

/// Writes and reads while the medium stalls. Gives the number of far rows that were acknowledged.
fn go_on_meanwhile(life: &StallSetup, db: &Database) -> i64 {
    without(&life.medium, || {
        let mut written = 0;
        for round in 0..150 {
            write(db, "pumps", "pressure", FAR + written..FAR + written + 25).unwrap();
            written += 25;
            if round == 70 {
                life.clock.advance(Duration::from_secs(10));
                // A definition needs no answer of the medium either.
                write(db, "pumps", "heat", FAR + written..FAR + written + 1).unwrap();
                written += 1;
            }
            if round % 10 == 9 {
                let found = times(db, "pumps", ClosedRange::nanos(FAR, i64::MAX));
                assert_eq!(found, far(written));
            }
        }
        let stats = db.stats().unwrap();
        assert!(stats.events_in_memory >= 1000, "{stats:?}");
        written
    })
}

#[test]
fn writes_and_reads_go_on_while_the_large_medium_stalls_and_all_of_it_is_found_after_a_cut() {
    // Wherever a step stands then: at its rows, at their sync, at that of the folder, or in the
    // transaction that commits it.
    for only in [
        ("", ""),
        ("a sync", ".seg"),
        ("a sync of the folder", ""),
        ("a write", "meta.redb"),
        ("a sync", "meta.redb"),
    ] {
        stall_in_a_step(only);
    }
}

fn stall_in_a_step(only: (&'static str, &'static str)) {
    let life = StallSetup::new(1);
    let db = life.open();
    write(&db, "pumps", "pressure", 0..400).unwrap();
    db.flush().unwrap();
    write(&db, "pumps", "pressure", 400..500).unwrap();
    // A file that is not there yet.
    write(&db, "fans", "pressure", 0..10).unwrap();
    life.medium.begin_with(only);
    let written = std::thread::scope(|scope| {
        let _answers = AnswersInTheEnd(&life.medium);
        let flush = scope.spawn(|| db.flush());
        life.medium.wait_until_stuck(1);
        let begun = life.log_files_begun();
        let written = go_on_meanwhile(&life, &db);
        assert!(
            life.log_files_begun() > begun + 3,
            "files of the log were begun"
        );
        life.disk.crash_now();
        life.medium.end();
        flush.join().unwrap().unwrap_err();
        written
    });
    drop(db);
    for seed in 0..5 {
        let found = life.after_cut(seed);
        let all: Vec<i64> = (0..500).chain(far(written)).collect();
        let pumps = times(&found, "pumps", ClosedRange::ALL);
        assert_eq!(pumps, all, "seed {seed}, {only:?}");
        assert_eq!(times(&found, "fans", ClosedRange::ALL).len(), 10);
    }
}

impl StallSetup {
    /// The newest generation that a header in the tier's log says.
    fn log_files_begun(&self) -> u64 {
        let generations = self.disk.files().into_iter().filter_map(|(path, _)| {
            let bytes = path
                .starts_with("/fast/log")
                .then(|| self.disk.read_file(&path))?;
            let bytes = bytes.ok()?;
            Some(u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?))
        });
        generations.max().unwrap_or(0)
    }
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Lets the clock run while `body` does something that waits by it.
fn while_time_passes<T>(clock: &ManualClock, body: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                clock.advance(Duration::from_millis(100));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let stops = Stops(&is_over);
        let done = body();
        drop(stops);
        done
    })
}

#[test]
fn when_memory_is_used_up_writes_say_busy_until_the_medium_answers_again() {
    let life = StallSetup::new(2);
    let db = life.open();
    write(&db, "pumps", "pressure", 0..400).unwrap();
    life.medium.begin();
    let mut written = 0;
    std::thread::scope(|scope| {
        let _answers = AnswersInTheEnd(&life.medium);
        let flush = scope.spawn(|| db.flush());
        life.medium.wait_until_stuck(1);
        while_time_passes(&life.clock, || {
            let refused = without(&life.medium, || {
                loop {
                    let next = FAR + written..FAR + written + 500;
                    match write(&db, "pumps", "pressure", next) {
                        Ok(()) => written += 500,
                        Err(error) => break error,
                    }
                }
            });
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
            let found = without(&life.medium, || {
                times(&db, "pumps", ClosedRange::nanos(FAR, i64::MAX))
            });
            assert_eq!(found, far(written));
            life.medium.end();
            flush.join().unwrap().unwrap();
            while let Err(error) =
                write(&db, "pumps", "pressure", FAR + written..FAR + written + 500)
            {
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            }
            written += 500;
        });
    });
    assert!(written > 1000, "{written}");
    db.close().unwrap();
    drop(db);
    let all: Vec<i64> = (0..400).chain(far(written)).collect();
    assert_eq!(times(&life.open(), "pumps", ClosedRange::ALL), all);
}

#[test]
fn who_needs_what_only_the_stalled_medium_holds_is_in_nobodys_way() {
    look_up_while_it_stalls(&StallSetup::new(3), None);
}

#[test]
fn nor_is_he_in_a_tier_that_was_taken_into_use_while_the_database_was_open() {
    let mut life = StallSetup::new(4);
    let folder = life.options.fast_dir.take().unwrap();
    let parts = life.options.fast_parts;
    look_up_while_it_stalls(&life, Some(FastTier { folder, parts }));
}

/// `tier` is taken into use by the open database.
fn look_up_while_it_stalls(life: &StallSetup, tier: Option<FastTier>) {
    let tables = ["fans", "motors"];
    let db = life.open();
    for table in ["pumps", tables[0], tables[1]] {
        write(&db, table, "pressure", 0..100).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = life.open();
    if tier.is_some() {
        db.move_tier(tier.as_ref()).unwrap();
    }
    // What is known of this stream is known by now, and of the others it is not.
    write(&db, "pumps", "pressure", FAR..FAR + 25).unwrap();
    life.medium.begin();
    std::thread::scope(|scope| {
        let _answers = AnswersInTheEnd(&life.medium);
        // The first to need the medium finds out that it stalls.
        let first = scope.spawn(|| write(&db, "fans", "pressure", FAR..FAR + 25));
        life.medium.wait_until_stuck(1);
        life.clock.advance(Duration::from_secs(10));
        let mut written = 25;
        without(&life.medium, || {
            for _ in 0..20 {
                write(&db, "pumps", "pressure", FAR + written..FAR + written + 25).unwrap();
                written += 25;
            }
            write(&db, "pumps", "heat", FAR + written..FAR + written + 1).unwrap();
            written += 1;
            let found = times(&db, "pumps", ClosedRange::nanos(FAR, i64::MAX));
            assert_eq!(found, far(written));
        });
        // The others are told, and may try again.
        let refused = while_time_passes(&life.clock, || {
            without(&life.medium, || {
                write(&db, "motors", "pressure", FAR..FAR + 25)
            })
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        assert!(
            refused.to_string().contains("does not respond"),
            "{refused}"
        );
        life.medium.end();
        first.join().unwrap().unwrap();
        write(&db, "motors", "pressure", FAR..FAR + 25).unwrap();
    });
    for table in tables {
        let all: Vec<i64> = (0..100).chain(far(25)).collect();
        assert_eq!(times(&db, table, ClosedRange::ALL), all, "{table}");
    }
    assert!(life.clock.monotonic() > Duration::from_secs(10));
}
