//! What open snapshots keep of memory, and what that costs: files, but no room of writers; and when
//! writers are busy.

use crate::model::Random;
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Durability, ErrorKind, FastTier, Options, ScanSpec,
    Snapshot,
};
use headwater_io::{
    Env, File, Files, MemoryFiles, NoThreads, OpenMode, SystemClock, SystemThreads,
};
use headwater_types::{Batch, ClosedRange, StreamName, StreamRows, Value, Values};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BUDGET: usize = 1 << 20;

fn options() -> Options {
    Options {
        memory_budget_bytes: BUDGET,
        durability: Durability::Written,
        shards: 2,
        leaf_events: 256,
        bucket_events: 16,
        ..Options::new("/db")
    }
}

fn without_threads(files: &Arc<MemoryFiles>) -> Env {
    Env {
        threads: Arc::new(NoThreads),
        files: Arc::clone(files) as Arc<dyn Files>,
        ..Env::memory()
    }
}

fn sensor(id: u64) -> StreamName {
    StreamName::new("sensors", [("id", id.to_string())])
}

fn batch(id: u64, rows: &BTreeMap<i64, f64>) -> Batch {
    let mut entry = StreamRows::new(sensor(id));
    entry.times = rows.keys().copied().collect();
    let mut batch = Batch::new();
    batch.push(entry.with_column("v", Values::F64(rows.values().copied().collect())));
    batch
}

const STREAMS: u64 = 5;

/// Everything that is there: rows by stream and time.
type Content = BTreeMap<(u64, i64), f64>;

/// Compares what a snapshot tells with what it should.
fn compare(snapshot: &Snapshot, content: &Content, what: &str) {
    for id in 0..STREAMS {
        let rows = content.range((id, i64::MIN)..=(id, i64::MAX));
        let expected: Vec<(i64, f64)> = rows.map(|((_, t), v)| (*t, *v)).collect();
        let mut found: Vec<(i64, f64)> = Vec::new();
        let scan = match snapshot.scan(&sensor(id), &ScanSpec::default()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                assert!(expected.is_empty(), "{what}: {error}");
                continue;
            }
            scan => scan.unwrap(),
        };
        for chunk in scan {
            let chunk = chunk.unwrap();
            let values = chunk.columns[0].to_values().into_iter().map(|v| match v {
                Some(Value::F64(v)) => v,
                other => panic!("{other:?}"),
            });
            found.extend(chunk.times.iter().copied().zip(values));
        }
        assert_eq!(found, expected, "{what}, stream {id}");
        let mut visited: Vec<i64> = Vec::new();
        snapshot
            .visit(&sensor(id), &ScanSpec::default(), |rows| {
                visited.extend_from_slice(rows.times());
            })
            .unwrap();
        assert_eq!(visited.len(), expected.len(), "{what}, stream {id}");
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            first_last: false,
        };
        let bins = snapshot.aggregate(&sensor(id), "v", &spec).unwrap();
        let count = bins.first().map_or(0, |b| b.aggregate.count);
        assert_eq!(count, expected.len() as u64, "{what}, stream {id}");
        let last = snapshot.last(&sensor(id)).unwrap();
        let last = last.first().map(|l| l.time.as_nanos());
        assert_eq!(last, expected.last().map(|(t, _)| *t), "{what}");
    }
}

/// Has the buffers lie elsewhere from now on.
fn change_layout(db: &Database, number: u64) {
    let tier = |folder: &str, parts: &str| FastTier {
        folder: folder.into(),
        parts: parts.parse().unwrap(),
    };
    let wanted = match number {
        0 => None,
        1 => Some(tier("/fast", "buffers")),
        2 => Some(tier("/fast", "log,newest")),
        _ => Some(tier("/other", "log,pins,index")),
    };
    match db.move_tier(wanted.as_ref()) {
        // A tier that was left, in which an open snapshot still has rows, is nobody's.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
        Ok(()) => assert_eq!(db.fast_tier(), wanted),
    }
}

/// Random writes and deletes, with snapshots that are taken, held and let go of at random. Gives
/// the most that was in files.
fn random_snapshots(seed: u64, steps: usize) -> u64 {
    let files = Arc::new(MemoryFiles::new());
    let db = Database::open_in(without_threads(&files), options()).unwrap();
    let (mut random, mut layout) = (Random::new(seed), Random::new(seed + 1));
    let mut content = Content::new();
    let mut held: Vec<(Snapshot, Content)> = Vec::new();
    let mut most = 0;
    for step in 0..steps {
        match random.below(100) {
            0..=69 => {
                let id = random.below(STREAMS);
                // Mostly in order, some late, some over what is there.
                let first = match random.below(4) {
                    0 => random.below(1 + step as u64 * 500) as i64,
                    _ => step as i64 * 500,
                };
                let rows = 1 + random.below(3000) as i64;
                let rows: BTreeMap<i64, f64> = (first..first + rows)
                    .map(|t| (t, f64::from_bits(random.next() >> 4)))
                    .collect();
                db.commit(batch(id, &rows)).unwrap();
                content.extend(rows.into_iter().map(|(t, v)| ((id, t), v)));
            }
            70..=74 if !content.is_empty() => {
                let first = random.below(1 + step as u64 * 500) as i64;
                let range = ClosedRange::nanos(first, first + random.below(4000) as i64);
                let spec = DeleteSpec {
                    table: "sensors".into(),
                    tags: Vec::new(),
                    range,
                };
                db.delete(&spec).unwrap();
                let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
                content.retain(|(_, t), _| *t < first || *t > last);
            }
            75..=89 if !content.is_empty() => {
                held.push((db.snapshot().unwrap(), content.clone()));
            }
            90..=95 if held.len() > 12 => {
                let at = random.below(held.len() as u64) as usize;
                let (snapshot, content) = held.swap_remove(at);
                compare(&snapshot, &content, &format!("seed {seed}, step {step}"));
            }
            96 => db.flush().unwrap(),
            97 => db.compact().unwrap(),
            98 => change_layout(&db, layout.below(4)),
            _ => {}
        }
        let stats = db.stats().unwrap();
        assert!(stats.memory_bytes <= BUDGET as u64, "{stats:?}");
        assert!(stats.pinned_bytes <= BUDGET as u64 / 2, "{stats:?}");
        most = most.max(stats.pinned_file_bytes);
    }
    for (snapshot, content) in &held {
        compare(snapshot, content, &format!("seed {seed}, at the end"));
    }
    compare(&db.snapshot().unwrap(), &content, "now");
    drop(held);
    let stats = db.stats().unwrap();
    assert_eq!((stats.pinned_bytes, stats.pinned_file_bytes), (0, 0));
    for folder in ["/fast/pins", "/other/pins"] {
        let left = files.list(Path::new(folder)).unwrap_or_default();
        assert_eq!(left, Vec::<String>::new());
    }
    let left = files.list(Path::new("/db/pins")).unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
    most
}

#[test]
fn many_held_snapshots_cost_files_and_no_room_of_writers_and_each_reads_what_it_saw() {
    let most = (0..6).map(|seed| random_snapshots(seed, 250)).max();
    assert!(most > Some(BUDGET as u64 / 2), "{most:?} bytes in files");
}

#[test]
fn files_of_snapshots_that_a_crash_left_are_removed_by_the_next_opening() {
    let files = Arc::new(MemoryFiles::new());
    let pins = Path::new("/db/pins");
    files.create_dir_all(pins).unwrap();
    let left = files.open(&pins.join("3"), OpenMode::CreateNew).unwrap();
    left.write_all_at(0, b"left over").unwrap();
    drop(Database::open_in(without_threads(&files), options()).unwrap());
    assert!(files.list(pins).unwrap().is_empty());
}

/// Files on which segments cannot be written while the gate is shut; whoever tries waits.
#[derive(Clone, Debug)]
struct Slow {
    files: MemoryFiles,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    gate: Option<Arc<Gate>>,
}

impl File for SlowFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(gate) = &self.gate {
            let shut = gate.shut.lock().unwrap();
            drop(gate.opened.wait_while(shut, |shut| *shut).unwrap());
        }
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

impl Files for Slow {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let gate = path
            .starts_with("/db/segment")
            .then(|| Arc::clone(&self.gate));
        let file = self.files.open(path, mode)?;
        Ok(Arc::new(SlowFile { file, gate }))
    }

    headwater_io::pass_on_files!(files; remove list create_dir_all sync_dir exists lock lock_file);
}

/// A disk that takes no segments: writers must be told, not memory exceeded.
#[test]
fn used_up_memory_makes_writers_busy_and_is_never_exceeded() {
    let gate = Arc::new(Gate::default());
    let env = Env {
        files: Arc::new(Slow {
            files: MemoryFiles::new(),
            gate: Arc::clone(&gate),
        }),
        threads: Arc::new(SystemThreads),
        clock: Arc::new(SystemClock::new()),
        ..Env::memory()
    };
    let options = Options {
        busy_timeout: Duration::from_millis(50),
        ..options()
    };
    let db = Database::open_in(env, options).unwrap();
    let rows = |round: i64| -> BTreeMap<i64, f64> {
        (round * 1000..(round + 1) * 1000)
            .map(|t| (t, 1.5))
            .collect()
    };
    *gate.shut.lock().unwrap() = true;
    let (mut accepted, mut snapshots) = (0, Vec::new());
    let error = (0..500i64)
        .find_map(|round| {
            snapshots.push(db.snapshot().unwrap());
            let result = db.commit(batch(1, &rows(round)));
            assert!(db.stats().unwrap().memory_bytes <= BUDGET as u64);
            accepted += u64::from(result.is_ok());
            result.err()
        })
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("memory_budget"), "{error}");
    *gate.shut.lock().unwrap() = false;
    gate.opened.notify_all();
    // The snapshots are still held, and nobody waits for them.
    db.flush().unwrap();
    db.commit(batch(1, &rows(9999))).unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let now = db.snapshot().unwrap();
    let bins = now.aggregate(&sensor(1), "v", &spec).unwrap();
    assert_eq!(bins[0].aggregate.count, (accepted + 1) * 1000);
}
