//! The ways to the medium of segments: what is asked for ahead of readers, queue sets before files,
//! a queue of the kernel. Whichever is taken, a database does and says what it does without.

use crate::support::{assert_sound, collect, small_options};
use headwater_engine::{
    AggregateSpec, Bins, Comparison, Database, DeleteSpec, ErrorKind, Filter, IoBackend, Options,
    QueuePlacement, Reader, ScanSpec, Snapshot,
};
use headwater_io::{
    Completer, Completion, Env, FaultKind, FaultyFiles, File, Files, Joiner, OpenMode,
    SystemThreads, Threads, pass_on_files,
};
use headwater_types::{Batch, ClosedRange, StreamName};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What was asked for and is not answered.
struct PendingRead {
    file: Arc<dyn File>,
    path: PathBuf,
    offset: u64,
    buf: Vec<u8>,
    answer: Completer<Vec<u8>>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<PendingRead>,
    is_shut: bool,
    is_over: bool,
    dice: u64,
    /// Requests and bytes on their way at once, at the most, and requests in all.
    most: (usize, usize),
    requests: usize,
    /// Reads that touch these bytes of a file fail, however they are asked for.
    damaged: Option<(PathBuf, u64)>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("pending", &self.pending.len())
            .finish()
    }
}

/// A disk with a queue, that answers requests in an order of its own.
#[derive(Clone, Debug)]
struct Lagging {
    disk: FaultyFiles,
    queue: Arc<(Mutex<Queue>, Condvar)>,
}

#[derive(Debug)]
struct LaggingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    medium: Lagging,
}

impl Lagging {
    fn new(disk: &FaultyFiles) -> Lagging {
        let medium = Lagging {
            disk: disk.clone(),
            queue: Arc::default(),
        };
        let server = medium.clone();
        std::thread::spawn(move || server.answer_all());
        medium
    }

    fn answer_all(&self) {
        let (queue, changed) = &*self.queue;
        loop {
            let mut state = queue.lock().unwrap();
            while state.is_shut || (state.pending.is_empty() && !state.is_over) {
                state = changed.wait(state).unwrap();
            }
            if state.pending.is_empty() {
                return;
            }
            state.dice = state
                .dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            let at = (state.dice >> 33) as usize % state.pending.len();
            let mut one = state.pending.swap_remove(at);
            let fails = is_damaged(&state, &one.path, one.offset, one.buf.len());
            drop(state);
            let read = one.file.read_exact_at(one.offset, &mut one.buf);
            one.answer.complete(match fails {
                true => Err(io::Error::other("a page that cannot be read")),
                false => read.map(|()| one.buf),
            });
        }
    }

    fn shut(&self, is_shut: bool) {
        self.queue.0.lock().unwrap().is_shut = is_shut;
        self.queue.1.notify_all();
    }

    fn wait_for_requests(&self, count: usize) {
        while self.queue.0.lock().unwrap().pending.len() < count {
            std::thread::yield_now();
        }
    }

    fn end(&self) {
        self.queue.0.lock().unwrap().is_over = true;
        self.shut(false);
    }

    fn requests(&self) -> usize {
        self.queue.0.lock().unwrap().requests
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.clone()),
            ..Env::memory()
        }
    }
}

fn is_damaged(queue: &Queue, path: &Path, offset: u64, len: usize) -> bool {
    let damaged = queue.damaged.as_ref();
    damaged.is_some_and(|(file, at)| file == path && (offset..offset + len as u64).contains(at))
}

impl Files for Lagging {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LaggingFile {
            file: self.disk.open(path, mode)?,
            path: path.to_owned(),
            medium: self.clone(),
        }))
    }

    fn has_queue(&self) -> bool {
        true
    }

    pass_on_files!(disk; remove list create_dir_all sync_dir exists lock lock_file);
}

impl File for LaggingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let queue = self.medium.queue.0.lock().unwrap();
        if is_damaged(&queue, &self.path, offset, buf.len()) {
            return Err(io::Error::other("a page that cannot be read"));
        }
        drop(queue);
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn submit_read(&self, offset: u64, buf: Vec<u8>) -> Completion<Vec<u8>> {
        let (completion, answer) = Completion::pending();
        let mut queue = self.medium.queue.0.lock().unwrap();
        queue.pending.push(PendingRead {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
            offset,
            buf,
            answer,
        });
        let bytes = queue.pending.iter().map(|one| one.buf.len()).sum();
        queue.most.0 = queue.most.0.max(queue.pending.len());
        queue.most.1 = queue.most.1.max(bytes);
        queue.requests += 1;
        drop(queue);
        self.medium.queue.1.notify_all();
        completion
    }
}

const STREAMS: i64 = 3;
const ROWS: i64 = 1_200;
/// Rows are so far apart, in nanoseconds.
const STEP: i64 = 1_000_000_000;

fn stream(number: i64) -> StreamName {
    StreamName::new("pumps", [("id", number.to_string().as_str())])
}

fn value(time: i64) -> f64 {
    // Nothing that would fit into a few bits.
    (time.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 10) as f64
}

fn write(db: &Database, number: i64, times: impl Iterator<Item = i64>) {
    let mut batch = Batch::new();
    for time in times {
        let row = [("pressure", value(time).into()), ("n", time.into())];
        batch.stream(&stream(number)).row(time * STEP, row).unwrap();
    }
    db.commit(batch).unwrap();
}

fn whole_leaves() -> Options {
    Options {
        // Many leaves in each partition.
        partition_target_bytes: 32 << 10,
        partition_bytes_max: 64 << 10,
        late_runs_max: 16,
        ..small_options()
    }
}

/// Streams with main runs and late runs in many partitions, rows in memory, and a hole.
fn fill(db: &Database) {
    for part in 0..12 {
        for number in 0..STREAMS {
            let first = part * ROWS / 12;
            // Each tenth comes late, after the next part.
            let in_order = (first..first + ROWS / 12).filter(|time| time % 10 != number);
            write(db, number, in_order);
            let late = (first - ROWS / 12..first).filter(|time| time % 10 == number);
            write(db, number, late.filter(|time| *time >= 0));
        }
        db.flush().unwrap();
    }
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(300 * STEP, 340 * STEP),
    };
    db.delete(&spec).unwrap();
    write(db, 0, ROWS..ROWS + 5);
}

fn spec(from: i64, to: i64) -> ScanSpec {
    ScanSpec {
        range: ClosedRange::nanos(from * STEP, to * STEP),
        ..ScanSpec::default()
    }
}

/// What all kinds of reads say, in order.
fn answers(snapshot: &Snapshot) -> Vec<String> {
    let mut out = Vec::new();
    for number in 0..STREAMS {
        let name = stream(number);
        let filtered = ScanSpec {
            filters: vec![Filter {
                field: "pressure".into(),
                comparison: Comparison::Greater,
                value: 0.0.into(),
            }],
            ..spec(100, 900)
        };
        for spec in [
            ScanSpec::default(),
            spec(17, 1_003),
            spec(299, 342),
            filtered,
        ] {
            let (rows, errors) = collect(snapshot.scan(&name, &spec).unwrap());
            assert!(errors.is_empty(), "{errors:?}");
            out.push(format!("{rows:?}"));
            let mut times = Vec::new();
            snapshot
                .visit(&name, &spec, |block| times.extend_from_slice(block.times()))
                .unwrap();
            assert!(times.iter().eq(rows.iter().map(|(time, _)| time)));
        }
        let aggregate = AggregateSpec {
            range: ClosedRange::nanos(33 * STEP, 1_111 * STEP),
            bins: Bins::Every {
                width_ns: 7 * STEP,
                origin_ns: 0,
            },
            first_last: true,
        };
        let bins = snapshot.aggregate(&name, "pressure", &aggregate).unwrap();
        out.push(format!("{bins:?}"));
    }
    out
}

/// Options with everything on, as far as it goes.
fn tune(options: Options, read_ahead: usize, queue_sets: usize) -> Options {
    Options {
        read_ahead,
        queue_sets,
        queue_placement: match read_ahead % 2 {
            0 => QueuePlacement::Load,
            _ => QueuePlacement::Interval,
        },
        ..options
    }
}

/// Readers at once, of which some end in the middle.
fn sixteen_at_once(snapshot: &Snapshot, expected: &[String]) {
    std::thread::scope(|scope| {
        for thread in 0..16_i64 {
            scope.spawn(move || {
                if thread % 4 > 0 {
                    let name = stream(thread % STREAMS);
                    let mut scan = snapshot.scan(&name, &ScanSpec::default()).unwrap();
                    assert!(scan.next().unwrap().is_ok());
                } else {
                    assert_eq!(answers(snapshot), expected);
                }
            });
        }
    });
}

#[test]
fn answers_are_the_same_with_whatever_is_asked_ahead_and_queued() {
    let disk = FaultyFiles::new(1);
    let plain = Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    };
    let db = Database::open_in(plain.clone(), whole_leaves()).unwrap();
    fill(&db);
    db.close().unwrap();
    drop(db);
    let db = Database::open_in(plain, whole_leaves()).unwrap();
    let expected = answers(&db.snapshot().unwrap());
    assert!(expected.iter().any(|text| text.len() > 10_000));
    db.close().unwrap();
    drop(db);
    let medium = Lagging::new(&disk);
    let threads: [Arc<dyn Threads>; 2] = [Arc::new(SystemThreads), Env::memory().threads];
    let mut asked = 0;
    for (read_ahead, queue_sets) in [(1, 0), (2, 0), (8, 3), (64, 0), (7, 1)] {
        let options = tune(whole_leaves(), read_ahead, queue_sets);
        for threads in &threads {
            for files in [Arc::new(disk.clone()) as Arc<dyn Files>, medium.env().files] {
                let env = Env {
                    files,
                    threads: Arc::clone(threads),
                    ..Env::memory()
                };
                let db = Database::open_in(env.clone(), options.clone()).unwrap();
                assert_eq!(answers(&db.snapshot().unwrap()), expected);
                if queue_sets > 1 {
                    sixteen_at_once(&db.snapshot().unwrap(), &expected);
                }
                db.close().unwrap();
                let reader = Reader::open_in(env, options.clone()).unwrap();
                assert_eq!(answers(&reader.snapshot()), expected);
            }
        }
        let now = medium.requests();
        assert_eq!(now > asked, read_ahead > 1, "{read_ahead}");
        asked = now;
    }
    let most = medium.queue.0.lock().unwrap().most;
    assert!(most.0 > 1, "{most:?}");
    // The 32nd of the budget, of each of the open databases: one at a time.
    assert!(most.1 <= (1 << 20) / 32, "{most:?}");
    medium.end();
    assert_sound(&disk, &whole_leaves());
}

/// A database that was filled, on a medium with a queue.
fn filled(seed: u64, options: &Options) -> (Lagging, Database) {
    let disk = FaultyFiles::new(seed);
    let medium = Lagging::new(&disk);
    let db = Database::open_in(medium.env(), options.clone()).unwrap();
    fill(&db);
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    let db = Database::open_in(medium.env(), options.clone()).unwrap();
    (medium, db)
}

#[test]
fn of_the_first_leaf_of_a_read_nothing_is_asked_ahead() {
    let (medium, db) = filled(2, &tune(whole_leaves(), 8, 0));
    let snapshot = db.snapshot().unwrap();
    let before = medium.requests();
    let last = snapshot.last(&stream(1)).unwrap();
    assert!(!last.is_empty());
    let (rows, errors) = collect(snapshot.scan(&stream(1), &spec(400, 402)).unwrap());
    assert_eq!((rows.len(), errors.len()), (3, 0));
    assert_eq!(medium.requests(), before);
    let rows = snapshot.scan(&stream(1), &ScanSpec::default()).unwrap();
    assert!(rows.count() > 0);
    assert!(medium.requests() > before);
    medium.end();
}

#[test]
fn who_wants_a_leaf_that_cannot_be_read_is_told_and_nobody_else() {
    for queue_sets in [0, 2] {
        let (medium, db) = filled(3, &tune(whole_leaves(), 8, queue_sets));
        let snapshot = db.snapshot().unwrap();
        // The middle of the largest segment, which holds leaves.
        let dir = Path::new("/db/segment");
        let names = medium.disk.list(dir).unwrap().into_iter();
        let segments = names
            .filter(|name| name.ends_with(".seg"))
            .map(|name| dir.join(name));
        let length = |path: &PathBuf| {
            let file = medium.disk.open(path, OpenMode::Read).unwrap();
            file.len().unwrap()
        };
        let largest = segments.max_by_key(length).unwrap();
        let middle = length(&largest) / 4;
        let all: Vec<_> = (0..STREAMS)
            .map(|number| {
                collect(
                    snapshot
                        .scan(&stream(number), &ScanSpec::default())
                        .unwrap(),
                )
                .0
            })
            .collect();
        db.close().unwrap();
        drop((snapshot, db));
        let options = tune(whole_leaves(), 8, queue_sets);
        let db = Database::open_in(medium.env(), options).unwrap();
        medium.queue.0.lock().unwrap().damaged = Some((largest, middle));
        let snapshot = db.snapshot().unwrap();
        let mut told = 0;
        for (number, whole) in (0..STREAMS).zip(&all) {
            let mut seen = Vec::new();
            let mut failed = None;
            for chunk in snapshot
                .scan(&stream(number), &ScanSpec::default())
                .unwrap()
            {
                match chunk {
                    Ok(chunk) => seen.extend(chunk.times),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            let times: Vec<i64> = whole.iter().map(|(time, _)| *time).collect();
            let Some(error) = failed else {
                assert_eq!(seen, times);
                continue;
            };
            told += 1;
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("cannot be read"), "{error}");
            assert!(times.starts_with(&seen));
            // A reader of what lies before is not told, although more was asked for ahead.
            let Some(last) = seen.last() else { continue };
            let before = ScanSpec {
                range: ClosedRange::nanos(i64::MIN, *last),
                ..ScanSpec::default()
            };
            let (again, errors) = collect(snapshot.scan(&stream(number), &before).unwrap());
            assert_eq!((again.len(), errors.len()), (seen.len(), 0));
        }
        assert!((1..STREAMS).contains(&told), "{told} of {STREAMS} met it");
        medium.end();
    }
}

#[test]
fn a_medium_that_does_not_answer_keeps_only_who_waits_for_it_and_no_close() {
    let (medium, db) = filled(4, &tune(whole_leaves(), 8, 0));
    medium.shut(true);
    std::thread::scope(|scope| {
        let snapshot = db.snapshot().unwrap();
        let kept = scope.spawn(move || {
            let scan = snapshot.scan(&stream(0), &ScanSpec::default()).unwrap();
            scan.map(|chunk| chunk.unwrap().times.len()).sum::<usize>()
        });
        medium.wait_for_requests(1);
        // Writes, reads of what is in memory, of what is not asked for ahead, and snapshots go on.
        write(&db, 1, 5_000..5_010);
        let snapshot = db.snapshot().unwrap();
        let (rows, errors) = collect(snapshot.scan(&stream(1), &spec(5_000, 5_010)).unwrap());
        assert_eq!((rows.len(), errors.len()), (10, 0));
        assert!(!snapshot.last(&stream(2)).unwrap().is_empty());
        db.close().unwrap();
        assert!(!kept.is_finished());
        medium.shut(false);
        assert!(kept.join().unwrap() > 0);
    });
    medium.end();
}

/// Threads that are counted.
#[derive(Debug, Default)]
struct Counted {
    running: Arc<AtomicUsize>,
    names: Mutex<Vec<String>>,
}

impl Threads for Counted {
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Option<Box<dyn Joiner>>> {
        self.names.lock().unwrap().push(name.to_owned());
        let running = Arc::clone(&self.running);
        running.fetch_add(1, Ordering::SeqCst);
        SystemThreads.spawn(
            name,
            Box::new(move || {
                body();
                running.fetch_sub(1, Ordering::SeqCst);
            }),
        )
    }
}

#[test]
fn writers_readers_and_compaction_go_on_at_once_behind_queue_sets_and_every_thread_ends() {
    for placement in [QueuePlacement::Load, QueuePlacement::Interval] {
        let disk = FaultyFiles::new(5);
        let threads = Arc::new(Counted::default());
        let env = Env {
            files: Arc::new(disk.clone()),
            threads: Arc::<Counted>::clone(&threads),
            ..Env::memory()
        };
        let options = Options {
            queue_sets: 3,
            queue_placement: placement,
            ..small_options()
        };
        let db = Database::open_in(env, options.clone()).unwrap();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let db = &db;
                scope.spawn(move || {
                    for part in 0..30 {
                        // Every other part comes late.
                        let part = part ^ 1;
                        write(db, number, part * 20..part * 20 + 20);
                        if part % 10 == 0 {
                            db.flush().unwrap();
                        }
                    }
                });
            }
            for number in 0..8 {
                let db = &db;
                scope.spawn(move || {
                    for _ in 0..30 {
                        let snapshot = db.snapshot().unwrap();
                        let Ok(scan) = snapshot.scan(&stream(number % 6), &ScanSpec::default())
                        else {
                            continue;
                        };
                        let (rows, errors) = collect(scan);
                        assert!(errors.is_empty(), "{errors:?}");
                        assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
                    }
                });
            }
            for _ in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    for _ in 0..5 {
                        db.compact().unwrap();
                    }
                });
            }
        });
        let snapshot = db.snapshot().unwrap();
        for number in 0..6 {
            let scan = snapshot
                .scan(&stream(number), &ScanSpec::default())
                .unwrap();
            let times: Vec<i64> = collect(scan).0.into_iter().map(|(time, _)| time).collect();
            assert!(times.iter().copied().eq((0..600).map(|time| time * STEP)));
        }
        db.close().unwrap();
        // Also those of the sets, although a snapshot is held; and what it shows can be read.
        while threads.running.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        let names = threads.names.lock().unwrap().clone();
        for number in 0..3 {
            assert!(names.contains(&format!("queue-set-{number}")), "{names:?}");
        }
        let scan = snapshot.scan(&stream(0), &ScanSpec::default()).unwrap();
        assert_eq!(collect(scan).0.len(), 600);
        drop((snapshot, db));
        assert_sound(&disk, &options);
    }
}

#[test]
fn all_partitions_of_a_step_are_synced_and_a_sync_that_fails_is_told_whichever_it_is() {
    // Rows of one step in many partitions: each sync of a segment fails once.
    let mut failed = 0;
    for nth in 0..12 {
        let disk = FaultyFiles::new(6);
        let env = Env {
            files: Arc::new(disk.clone()),
            ..Env::memory()
        };
        let options = tune(small_options(), 8, 2);
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        for far in 0..8_i64 {
            write(&db, 0, (0..150).map(|row| far * 1_000_000 + row));
        }
        disk.fail_next(FaultKind::SyncError, nth);
        let flushed = db.flush();
        if flushed.is_err() {
            failed += 1;
            let mut batch = Batch::new();
            batch
                .stream(&stream(0))
                .row(1, [("n", 1_i64.into())])
                .unwrap();
            assert!(db.commit(batch).is_err(), "it takes no more writes");
        }
        drop(db);
        disk.heal();
        let db = Database::open_in(env, options.clone()).unwrap();
        let snapshot = db.snapshot().unwrap();
        let scan = snapshot.scan(&stream(0), &ScanSpec::default()).unwrap();
        assert_eq!(collect(scan).0.len(), 1_200, "sync {nth}");
        drop((snapshot, db));
        assert_sound(&disk, &options);
    }
    assert!(failed >= 8, "{failed}");
}

#[test]
fn files_of_the_system_are_read_through_a_queue_where_the_kernel_has_one_and_others_by_calls() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        io_backend: IoBackend::Uring,
        dir: folder.path().join("db"),
        ..whole_leaves()
    };
    let plain = Options {
        io_backend: IoBackend::File,
        ..options.clone()
    };
    // Whether the kernel refuses or not, it opens, and says the same.
    let db = Database::open(options.clone()).unwrap();
    fill(&db);
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    let db = Database::open(plain).unwrap();
    let expected = answers(&db.snapshot().unwrap());
    db.close().unwrap();
    drop(db);
    for queue_sets in [0, 2] {
        let options = Options {
            queue_sets,
            ..options.clone()
        };
        let db = Database::open(options.clone()).unwrap();
        assert_eq!(answers(&db.snapshot().unwrap()), expected);
        let reader = Reader::open(options).unwrap();
        assert_eq!(answers(&reader.snapshot()), expected);
        drop((reader, db));
    }
    let in_memory = Database::open_in(Env::memory(), options).unwrap();
    write(&in_memory, 0, 0..10);
    in_memory.flush().unwrap();
    let scan = in_memory.snapshot().unwrap();
    let scan = scan.scan(&stream(0), &ScanSpec::default()).unwrap();
    assert_eq!(collect(scan).0.len(), 10);
}

#[test]
fn settings_out_of_range_are_refused_with_their_range_and_value() {
    for (options, text) in [
        (tune(small_options(), 0, 0), "must be 1 to 64, found 0"),
        (tune(small_options(), 65, 0), "must be 1 to 64, found 65"),
        (tune(small_options(), 8, 65), "must be 0 to 64, found 65"),
    ] {
        let error = Database::open_in(Env::memory(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(text), "{error}");
    }
}
