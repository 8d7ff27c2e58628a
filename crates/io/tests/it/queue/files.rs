//! Files behind queue sets: they are files as any others, and callers take turns by what they work
//! for.

use headwater_io::queue::{
    Direction, Order, PlacementRule, Purpose, QueuedFiles, Request, SetOptions, Sets, Transfer,
};
use headwater_io::{
    Env, File, Files, MemoryFiles, NoThreads, OpenMode, SystemThreads, Threads, conformance,
    pass_on_files,
};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

const MANY: u64 = 1_000;

fn options(sets: usize) -> SetOptions {
    SetOptions {
        sets,
        order: Order::ReadsFirst,
        rule: PlacementRule::LeastLoad,
        passes_max: MANY,
        capacity: 64,
        small_bytes_max: 0,
    }
}

/// What a medium was asked, in order, and a gate before it.
#[derive(Debug, Default)]
struct Medium {
    state: Mutex<State>,
    changed: Condvar,
    /// Calls that are carried out at this moment, by set, and the most there ever were.
    inside: [AtomicUsize; 2],
    most: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    before_the_gate: usize,
    calls: Vec<(&'static str, u64, ThreadId)>,
    fails_at: Option<u64>,
}

impl Medium {
    fn pass(&self, set: usize, what: &'static str, offset: u64) -> io::Result<()> {
        let inside = self.inside[set].fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.calls.push((what, offset, thread::current().id()));
        state.before_the_gate += 1;
        self.changed.notify_all();
        while state.is_shut {
            self.changed.wait(&mut state);
        }
        state.before_the_gate -= 1;
        let fails = state.fails_at == Some(offset);
        drop(state);
        self.inside[set].fetch_sub(1, Ordering::SeqCst);
        match fails {
            true => Err(io::Error::other("a page that cannot be read")),
            false => Ok(()),
        }
    }

    fn shut(&self) {
        self.state.lock().is_shut = true;
    }

    fn open(&self) {
        self.state.lock().is_shut = false;
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.before_the_gate < count {
            self.changed.wait(&mut state);
        }
    }

    fn offsets(&self, what: &str) -> Vec<u64> {
        let state = self.state.lock();
        let calls = state.calls.iter().filter(|(call, ..)| *call == what);
        calls.map(|(_, offset, _)| *offset).collect()
    }
}

/// Files that have nothing in memory, so that the medium is asked for everything.
#[derive(Debug)]
struct UncachedFiles {
    files: Arc<dyn Files>,
    medium: Arc<Medium>,
}

#[derive(Debug)]
struct UncachedFile {
    file: Arc<dyn File>,
    medium: Arc<Medium>,
    set: usize,
}

fn set_of(path: &Path) -> usize {
    usize::from(path.ends_with("other"))
}

impl Files for UncachedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(UncachedFile {
            file: self.files.open(path, mode)?,
            medium: Arc::clone(&self.medium),
            set: set_of(path),
        }))
    }

    pass_on_files!(files; remove list create_dir_all sync_dir exists lock lock_file);
}

impl File for UncachedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.medium.pass(self.set, "read", offset)?;
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.medium.pass(self.set, "write", offset)?;
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
}

struct World {
    medium: Arc<Medium>,
    sets: Arc<Sets<Transfer>>,
    files: QueuedFiles,
}

impl World {
    fn new(sets: usize, threads: Arc<dyn Threads>) -> World {
        let medium = Arc::new(Medium::default());
        let files: Arc<dyn Files> = Arc::new(UncachedFiles {
            files: Arc::new(MemoryFiles::new()),
            medium: Arc::clone(&medium),
        });
        let sets = Arc::new(Sets::start(&options(sets), &*threads).unwrap());
        let files = QueuedFiles::new(&files, &sets, &threads, Arc::new(set_of));
        World {
            medium,
            sets,
            files,
        }
    }

    /// A file of zeros.
    fn file(&self, name: &str) -> Arc<dyn File> {
        let path = Path::new("/").join(name);
        let file = self.files.open(&path, OpenMode::CreateNew).unwrap();
        file.set_len(1 << 20).unwrap();
        file
    }

    fn wait_for_waiting(&self, set: usize, count: usize) {
        while self.sets.waiting(set) < count {
            thread::yield_now();
        }
    }
}

fn system() -> Arc<dyn Threads> {
    Arc::new(SystemThreads)
}

#[test]
fn files_behind_sets_pass_the_conformance_tests() {
    for threads in [system(), Arc::new(NoThreads)] {
        let (sets, threads_of) = (options(3), Arc::clone(&threads));
        let make = move || -> Arc<dyn Files> {
            let files: Arc<dyn Files> = Arc::new(UncachedFiles {
                files: Arc::new(MemoryFiles::new()),
                medium: Arc::default(),
            });
            let sets = Arc::new(Sets::start(&sets, &*threads_of).unwrap());
            let queued = QueuedFiles::new(&files, &sets, &threads_of, Arc::new(set_of));
            Arc::new(queued)
        };
        // One file system for all handles of a test, as on a machine.
        let one = make();
        conformance::check_files(move || Arc::clone(&one), Path::new("/conformance")).unwrap();
    }
}

#[test]
fn callers_that_wait_take_turns_by_what_they_work_for() {
    let world = World::new(1, system());
    let file = world.file("file");
    world.medium.shut();
    let expected = [0, 10, 20, 30, 31];
    thread::scope(|scope| {
        let call = |purpose: Purpose, offset: u64, writes: bool| {
            let file = &file;
            scope.spawn(move || {
                let _working = purpose.begin();
                match writes {
                    true => file.write_all_at(offset, &[1; 8]).unwrap(),
                    false => file.read_exact_at(offset, &mut [0; 8]).unwrap(),
                }
            });
        };
        call(Purpose::Compaction, 0, true);
        world.medium.wait_for(1);
        // The last in rank comes first.
        for (waiting, (purpose, offset, writes)) in [
            (Purpose::Compaction, 30, true),
            (Purpose::Compaction, 31, false),
            (Purpose::Flush, 20, true),
            (Purpose::Caller, 10, false),
        ]
        .into_iter()
        .enumerate()
        {
            call(purpose, offset, writes);
            world.wait_for_waiting(0, waiting + 1);
        }
        world.medium.open();
    });
    let state = world.medium.state.lock();
    let order: Vec<u64> = state.calls.iter().map(|(_, offset, _)| *offset).collect();
    assert_eq!(order, expected);
    drop(state);
    assert_eq!(world.medium.most.load(Ordering::SeqCst), 1);
}

#[test]
fn sixteen_threads_of_all_purposes_are_all_served_one_at_a_time_in_each_set() {
    let world = World::new(2, system());
    let files = [world.file("file"), world.file("other")];
    thread::scope(|scope| {
        for number in 0..16_u64 {
            let files = &files;
            scope.spawn(move || {
                let purposes = [Purpose::Caller, Purpose::Flush, Purpose::Compaction];
                let _working = purposes[number as usize % 3].begin();
                for round in 0..100 {
                    let file = &files[(number + round) as usize % 2];
                    let at = number * 1_000 + round * 8;
                    file.write_all_at(at, &number.to_le_bytes()).unwrap();
                    let ahead = file.submit_read(at, vec![0; 8]);
                    let mut found = [0; 8];
                    file.read_exact_at(at, &mut found).unwrap();
                    assert_eq!(found, number.to_le_bytes());
                    assert_eq!(ahead.wait().unwrap(), found);
                }
            });
        }
    });
    assert_eq!(world.medium.most.load(Ordering::SeqCst), 1);
    assert_eq!(world.medium.offsets("read").len(), 3_200);
    assert!(world.sets.shut_down());
}

#[test]
fn what_is_asked_ahead_is_read_by_the_owner_and_only_who_asked_is_told_of_an_error() {
    let world = World::new(2, system());
    let file = world.file("file");
    world.medium.state.lock().fails_at = Some(4_096);
    let ahead: Vec<_> = (0..8)
        .map(|part| file.submit_read(part * 4_096, vec![1; 4_096]))
        .collect();
    for (part, read) in ahead.into_iter().enumerate() {
        match read.wait() {
            Ok(bytes) => assert_eq!((part == 1, bytes), (false, vec![0; 4_096])),
            Err(error) => assert_eq!((part, error.to_string()), (1, wrong())),
        }
    }
    let state = world.medium.state.lock();
    let here = thread::current().id();
    assert!(state.calls.iter().all(|(_, _, by)| *by != here));
}

fn wrong() -> String {
    "a page that cannot be read".to_owned()
}

#[test]
fn a_set_whose_medium_does_not_answer_keeps_only_its_own() {
    let world = World::new(2, system());
    let (file, other) = (world.file("file"), world.file("other"));
    world.medium.shut();
    let stalled = file.submit_read(0, vec![0; 8]);
    world.medium.wait_for(1);
    let second = file.submit_read(8, vec![0; 8]);
    // The gate stands before both files; the set of the other one is free to come to it.
    thread::scope(|scope| {
        scope.spawn(|| other.read_exact_at(16, &mut [0; 8]).unwrap());
        world.medium.wait_for(2);
        assert!(!stalled.is_done());
        // Nobody is kept by giving up: what was not begun is refused.
        world.sets.abandon();
        assert!(second.wait().is_err());
        // What comes then is not queued, and not refused.
        scope.spawn(|| file.read_exact_at(24, &mut [0; 8]).unwrap());
        world.medium.wait_for(3);
        world.medium.open();
    });
    assert_eq!(stalled.wait().unwrap(), vec![0; 8]);
    let later = file.submit_read(32, vec![1; 8]);
    assert_eq!(later.wait().unwrap(), vec![0; 8]);
}

#[test]
fn who_has_waited_long_enough_goes_on_without_a_turn_and_takes_nobodys() {
    let medium: Arc<dyn Files> = Arc::new(UncachedFiles {
        files: Arc::new(MemoryFiles::new()),
        medium: Arc::default(),
    });
    let threads = system();
    let sets = Sets::start(&options(1), &*threads).unwrap();
    let sets = Arc::new(sets.with_patience(Duration::from_millis(1)));
    let files = QueuedFiles::new(&medium, &sets, &threads, Arc::new(set_of));
    let file = files.open(Path::new("/a"), OpenMode::CreateNew).unwrap();
    let turn = sets.take_turn(0, &read());
    // It does not end meanwhile; when the set is full, too.
    for round in 0..100 {
        file.write_all_at(round * 8, &[1; 8]).unwrap();
    }
    assert_eq!(sets.waiting(0), 64);
    drop(turn);
    // Those who have gone are passed over, and the set is idle again.
    assert_eq!(sets.waiting(0), 0);
    drop(sets.take_turn(0, &read()));
    assert!(sets.shut_down());
}

#[test]
fn shutting_down_gives_those_who_wait_their_turns_first() {
    let world = World::new(1, system());
    let file = world.file("file");
    world.medium.shut();
    thread::scope(|scope| {
        scope.spawn(|| file.read_exact_at(0, &mut [0; 8]).unwrap());
        world.medium.wait_for(1);
        for caller in 1..4 {
            let file = &file;
            scope.spawn(move || file.read_exact_at(caller * 8, &mut [0; 8]).unwrap());
            world.wait_for_waiting(0, usize::try_from(caller).unwrap());
        }
        let down = scope.spawn(|| world.sets.shut_down());
        world.medium.open();
        assert!(down.join().unwrap());
    });
    assert_eq!(world.medium.offsets("read"), [0, 8, 16, 24]);
}

#[test]
fn without_threads_everything_is_done_by_its_caller_at_once() {
    let world = World::new(2, Arc::new(NoThreads));
    let file = world.file("file");
    let first = world.sets.take_turn(0, &read());
    // A turn keeps nobody, since nobody could end it.
    let second = world.sets.take_turn(0, &read());
    assert!(file.submit_read(0, vec![1; 8]).is_done());
    file.write_all_at(0, b"x").unwrap();
    drop((first, second));
    let state = world.medium.state.lock();
    let here = thread::current().id();
    assert!(state.calls.iter().all(|(_, _, by)| *by == here));
}

fn read() -> Request {
    Request::of_caller(0, 0, 512, Direction::Read)
}

/// Threads of a process whose number changes, as after a fork.
#[derive(Debug)]
struct Forking(AtomicUsize);

impl Threads for Forking {
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Option<Box<dyn headwater_io::Joiner>>> {
        SystemThreads.spawn(name, body)
    }

    fn process(&self) -> u32 {
        u32::try_from(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

#[test]
fn a_forked_process_does_not_wait_for_turns_of_its_parent() {
    let threads = Arc::new(Forking(AtomicUsize::new(1)));
    let world = World::new(1, Arc::<Forking>::clone(&threads));
    let file = world.file("file");
    // A turn that nobody ends in the child.
    let turn = world.sets.take_turn(0, &read());
    threads.0.store(2, Ordering::SeqCst);
    file.read_exact_at(0, &mut [0; 8]).unwrap();
    assert_eq!(file.submit_read(0, vec![1; 4]).wait().unwrap(), vec![0; 4]);
    drop(turn);
}

#[test]
fn what_the_system_has_in_memory_needs_no_turn() {
    let files = Env::memory().files;
    let threads = system();
    let sets = Arc::new(Sets::start(&options(1), &*threads).unwrap());
    let queued = QueuedFiles::new(&files, &sets, &threads, Arc::new(set_of));
    let file = queued.open(Path::new("/a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(0, b"abc").unwrap();
    let turn = sets.take_turn(0, &read());
    let mut found = [0; 3];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(&found, b"abc");
    assert!(file.submit_read(0, vec![0; 3]).is_done());
    drop(turn);
}
