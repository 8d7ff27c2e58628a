//! Lakes in buckets: faults of the store, writes that end at any step, writes at once.

use crate::support::{
    Bench, DAY, Row, START, hinted, metadata, options, rows_of_database, rows_of_files,
};
use headwater::io::SystemClock;
use headwater::{ClosedRange, DeleteSpec, StreamName};
use headwater_bucket::{
    Counted, Etag, Faults, Faulty, Memory, Object, ObjectStore, Page, Put, StoreFailure as Failure,
};
use headwater_lake::{
    Catalog, LakeError, LakeLocation, OWN_NAMESPACE, Steps, WriteOptions, data_files, folder_of,
    status, verify, write,
};
use headwater_testing::Dice;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BASE: &str = "s3://plants/north/lake";

fn stream(id: u64) -> StreamName {
    StreamName::new("pumps", [("id", id.to_string())])
}

/// All objects of a store as files below a folder.
fn mirror(store: &Memory) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for key in keys(store) {
        let path = dir.path().join(&key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, store.get(&key).unwrap().unwrap().bytes).unwrap();
    }
    dir
}

fn keys(store: &Memory) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let after = keys.last().cloned().unwrap_or_else(String::new);
        let page = store.list("", &after).unwrap();
        keys.extend(page.objects.into_iter().map(|object| object.key));
        if !page.more {
            return keys;
        }
    }
}

/// A location as its file of a mirror.
fn mirrored(dir: &Path, location: &Path) -> PathBuf {
    let key = location.to_str().unwrap().strip_prefix(BASE).unwrap();
    dir.join(key.trim_start_matches('/'))
}

/// A database, and a bucket for its lake that fails as it is told.
struct Stored {
    bench: Bench,
    store: Arc<Faulty<Arc<Memory>>>,
    location: LakeLocation,
    /// The store behind the faults, and the lake there.
    memory: Arc<Memory>,
    quiet: LakeLocation,
}

impl Stored {
    fn new(seed: u64) -> Stored {
        let memory = Arc::new(Memory::timed(Arc::new(SystemClock::new())));
        let store = Faulty::new(Arc::clone(&memory), seed, Faults::default());
        let store = Arc::new(store);
        let place = LakeLocation::in_store(Arc::clone(&store) as Arc<dyn ObjectStore>, BASE);
        Stored {
            quiet: LakeLocation::in_store(Arc::clone(&memory) as Arc<dyn ObjectStore>, BASE),
            memory,
            bench: Bench::new(),
            store,
            location: place.with_pause(Duration::ZERO),
        }
    }

    fn write(&self, options: &WriteOptions) -> headwater_lake::Result<()> {
        write(&|| self.bench.db().snapshot(), &self.location, options).map(|_| ())
    }

    fn rows(&self, table: &str) -> Vec<Row> {
        let dir = mirror(&self.memory);
        let Some(metadata) = metadata(dir.path(), table) else {
            return Vec::new();
        };
        let files = data_files(&self.quiet, table).unwrap();
        let files: Vec<PathBuf> = files.iter().map(|f| mirrored(dir.path(), f)).collect();
        rows_of_files(&metadata, &files)
    }

    /// The bucket has exactly what the database has, and nothing beside it; so says every check.
    fn assert_equal(&self, why: &str) {
        let snapshot = self.bench.db().snapshot().unwrap();
        let dir = mirror(&self.memory);
        let mut named = BTreeSet::new();
        for table in snapshot.table_names() {
            assert_eq!(
                self.rows(&table),
                rows_of_database(&snapshot, &table),
                "{why}: {table}"
            );
            let (newest, told) = (metadata(dir.path(), &table), hinted(dir.path(), &table));
            assert_eq!(newest, told, "{why}: {table}");
            named.extend(data_files(&self.quiet, &table).unwrap());
        }
        let held: BTreeSet<PathBuf> = keys(&self.memory)
            .into_iter()
            .filter(|key| key.ends_with(".parquet"))
            .map(|key| Path::new(BASE).join(key))
            .collect();
        assert_eq!(held, named, "{why}");
        let verified = verify(&snapshot, &self.location, true).unwrap();
        assert!(verified.is_sound(), "{why}: {verified:?}");
        let behind: u64 = verified.tables.iter().map(|t| t.days_behind).sum();
        assert_eq!(behind, 0, "{why}: {verified:?}");
    }
}

/// Three days of rows; what a second write finds differs by a late row, a delete and a new day.
fn begin(bench: &Bench) {
    for at in 0..30 {
        let time = START + at * DAY / 10;
        bench.row(&stream(at as u64 % 3), time, &[("rpm", (at as f64).into())]);
    }
}

fn change(bench: &Bench) {
    let fields = [("rpm", 0.5.into()), ("new", 1i64.into())];
    bench.row(&stream(1), START + 77, &fields);
    bench.row(&stream(4), START + 5 * DAY, &[("rpm", 5.0.into())]);
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(START + DAY, START + 2 * DAY - 1),
    };
    bench.db().delete(&spec).unwrap();
}

#[test]
fn a_lake_in_a_bucket_is_written_told_of_compared_and_found() {
    let stored = Stored::new(1);
    begin(&stored.bench);
    let odd = StreamName::new("a/b é", [("id", "1")]);
    stored.bench.row(&odd, START, &[("rpm", 1.0.into())]);
    let catalog = Catalog::new(&stored.location);
    assert_eq!(catalog.namespaces().unwrap(), [OWN_NAMESPACE]);
    assert_eq!(catalog.load(OWN_NAMESPACE, "pumps").unwrap(), None);
    stored.write(&options()).unwrap();
    stored.assert_equal("written");
    change(&stored.bench);
    let snapshot = stored.bench.db().snapshot().unwrap();
    let told = status(&snapshot, &stored.location).unwrap();
    let missing: usize = told.tables.iter().map(|t| t.missing.len()).sum();
    assert!(missing > 0 && told.others.is_empty(), "{told:?}");
    stored.write(&options()).unwrap();
    stored.assert_equal("written again");
    let edge = stored.location.of_edge("north 1");
    write(&|| stored.bench.db().snapshot(), &edge, &options()).unwrap();
    let namespaces = catalog.namespaces().unwrap();
    assert_eq!(namespaces, [OWN_NAMESPACE, "edge_north~201"]);
    for namespace in &namespaces {
        let found = catalog.tables(namespace).unwrap().unwrap();
        assert!(found.unreadable.is_empty(), "{found:?}");
        let names: Vec<&str> = found.tables.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, [folder_of("a/b é").as_str(), "pumps"]);
    }
    let of_edge = catalog.load("edge_north~201", "pumps").unwrap().unwrap();
    let location = of_edge.metadata["location"].as_str().unwrap();
    assert_eq!(location, format!("{BASE}/_edges/north~201/pumps"));
    for name in ["", "..", "none", "pumps/metadata", "_edges"] {
        assert_eq!(catalog.load(OWN_NAMESPACE, name).unwrap(), None, "{name}");
    }
    assert!(catalog.tables("edge_none").unwrap().is_none());
}

#[test]
fn a_write_to_a_bucket_that_ends_at_any_step_is_taken_up_by_the_next() {
    let mut stopped = BTreeSet::new();
    for number in 0.. {
        let stored = Stored::new(2);
        begin(&stored.bench);
        stored.write(&options()).unwrap();
        let before = stored.rows("pumps");
        change(&stored.bench);
        let passed = AtomicUsize::new(0);
        let mut until = options();
        until.steps = Steps::asking(move |_| passed.fetch_add(1, Ordering::Relaxed) < number);
        let step = match stored.write(&until) {
            Ok(()) => break,
            Err(LakeError::Stopped(step)) => step,
            Err(error) => panic!("{error}"),
        };
        stopped.insert(step);
        let is_done = matches!(step, "committed" | "hint written" | "swept");
        assert_eq!(
            stored.rows("pumps") == before,
            !is_done,
            "stopped at `{step}`"
        );
        // A further change, since who changes nothing does not look for what is left.
        stored
            .bench
            .row(&stream(1), START + 78, &[("rpm", 0.25.into())]);
        stored.write(&options()).unwrap();
        stored.assert_equal(&format!("stopped at `{step}`, then written"));
    }
    assert_eq!(stopped.len(), 7, "{stopped:?}");
}

#[test]
fn of_two_writes_to_a_bucket_at_once_the_second_looks_again() {
    let stored = Stored::new(3);
    begin(&stored.bench);
    stored.write(&options()).unwrap();
    change(&stored.bench);
    let (db, place) = (stored.bench.db().clone(), stored.location.clone());
    let entered = Arc::new(AtomicBool::new(false));
    let in_between = Arc::clone(&entered);
    let mut slow = options();
    slow.orphan_age = Duration::from_secs(3_600);
    let fast = slow.clone();
    slow.steps = Steps::asking(move |step| {
        if step == "metadata written" && !in_between.swap(true, Ordering::SeqCst) {
            let mut batch = headwater::Batch::new();
            let entry = batch.stream(&stream(1));
            entry.row(START + 77, [("rpm", 7.75.into())]).unwrap();
            db.commit(batch).unwrap();
            write(&|| db.snapshot(), &place, &fast).unwrap();
        }
        true
    });
    stored.write(&slow).unwrap();
    assert!(entered.load(Ordering::SeqCst));
    let snapshot = stored.bench.db().snapshot().unwrap();
    assert_eq!(stored.rows("pumps"), rows_of_database(&snapshot, "pumps"));
    // Files of the first attempt go with a write that changes something.
    stored
        .bench
        .row(&stream(1), START + 78, &[("rpm", 0.25.into())]);
    stored.write(&options()).unwrap();
    stored.assert_equal("two at once");
}

#[test]
fn whatever_fails_in_a_bucket_the_lake_ends_as_the_database_is() {
    for seed in 0..12 {
        let stored = Stored::new(seed);
        let mut dice = Dice(seed);
        let mut failed = 0;
        for round in 0..14 {
            stored.store.set_faults(Faults::all(dice.below(60)));
            for _ in 0..dice.below(12) {
                let time = START + dice.below(4) as i64 * DAY + dice.below(50) as i64 * 1_000;
                let value = dice.below(1_000) as f64;
                stored
                    .bench
                    .row(&stream(dice.below(3)), time, &[("rpm", value.into())]);
            }
            if dice.below(4) == 0 {
                let first = START + dice.below(4) as i64 * DAY;
                let spec = DeleteSpec {
                    table: "pumps".into(),
                    tags: Vec::new(),
                    range: ClosedRange::nanos(first, first + 20_000),
                };
                // Before the first row there is nothing to delete from.
                let _ = stored.bench.db().delete(&spec);
            }
            let mut slow = options();
            // What is carried out late must find what it names.
            slow.orphan_age = Duration::from_secs(3_600);
            let left = AtomicUsize::new(dice.below(30) as usize);
            slow.steps = Steps::asking(move |_| left.fetch_sub(1, Ordering::Relaxed) != 0);
            match stored.write(&slow) {
                Ok(()) | Err(LakeError::Stopped(_)) => {}
                Err(error @ LakeError::Bucket { .. }) => {
                    failed += 1;
                    let is_told = error.to_string().contains(BASE);
                    assert!(is_told, "seed {seed}, round {round}: {error}");
                }
                Err(error) => panic!("seed {seed}, round {round}: {error}"),
            }
            // Whenever one looks, the table is as it was at one of the commits.
            stored.rows("pumps");
        }
        println!("seed {seed}: {failed} writes failed");
        stored.store.set_faults(Faults::default());
        stored.store.settle();
        stored
            .bench
            .row(&stream(0), START, &[("rpm", (-1.0).into())]);
        stored.write(&options()).unwrap();
        stored.assert_equal(&format!("seed {seed}"));
    }
}

/// A commit whose answer is lost is found to be one's own, and that of another is not.
#[test]
fn a_commit_without_an_answer_is_told_apart_from_that_of_another() {
    for how in [How::LosesAnswers, How::LosesPuts] {
        let store: Arc<dyn ObjectStore> = Arc::new(Odd::new(how));
        let place = LakeLocation::in_store(store, BASE).with_pause(Duration::ZERO);
        let bench = Bench::new();
        begin(&bench);
        let look = || bench.db().snapshot();
        let told = write(&look, &place, &options()).unwrap();
        // Another one was there first where the put was lost: it looked again, and committed then.
        assert_eq!(told.tables[0].commits, 1, "{how:?}: {told:?}");
        change(&bench);
        write(&look, &place, &options()).unwrap();
        let verified = verify(&look().unwrap(), &place, true).unwrap();
        assert!(verified.is_sound(), "{how:?}: {verified:?}");
        assert_eq!(verified.tables[0].days_behind, 0, "{how:?}: {verified:?}");
    }
}

#[test]
fn a_commit_that_comes_late_is_whole() {
    let stored = Stored::new(5);
    begin(&stored.bench);
    stored.write(&options()).unwrap();
    change(&stored.bench);
    // None of the attempts has an answer, all are carried out later.
    let faulty = Arc::clone(&stored.store);
    let mut late = options();
    late.steps = Steps::asking(move |step| {
        if step == "metadata written" {
            faulty.set_faults(Faults {
                done_late: 1_000,
                ..Faults::default()
            });
        }
        true
    });
    let error = stored.write(&late).unwrap_err();
    assert_eq!(error.code(), "lake.bucket", "{error}");
    stored.store.set_faults(Faults::default());
    stored.store.settle();
    let snapshot = stored.bench.db().snapshot().unwrap();
    assert_eq!(stored.rows("pumps"), rows_of_database(&snapshot, "pumps"));
    stored
        .bench
        .row(&stream(1), START + 78, &[("rpm", 0.25.into())]);
    stored.write(&options()).unwrap();
    stored.assert_equal("the commit came late");
}

/// Writes at once, each of a day of its own database: how many rows are there in the end.
fn raced(store: &Arc<dyn ObjectStore>) -> usize {
    let place = LakeLocation::in_store(Arc::clone(store), BASE).with_pause(Duration::ZERO);
    let bench = Bench::new();
    begin(&bench);
    write(&|| bench.db().snapshot(), &place, &options()).unwrap();
    let mut lost = 0;
    for round in 0..8 {
        let (db, other) = (bench.db().clone(), place.clone());
        let entered = AtomicBool::new(false);
        let day = START + (10 + round) * DAY;
        bench.row(&stream(1), day, &[("rpm", 1.0.into())]);
        let mut fast = options();
        fast.orphan_age = Duration::from_secs(3_600);
        let mut slow = fast.clone();
        slow.steps = Steps::asking(move |step| {
            if step == "metadata written" && !entered.swap(true, Ordering::SeqCst) {
                let mut batch = headwater::Batch::new();
                let entry = batch.stream(&stream(2));
                entry.row(day + DAY / 2, [("rpm", 2.0.into())]).unwrap();
                db.commit(batch).unwrap();
                write(&|| db.snapshot(), &other, &fast).unwrap();
            }
            true
        });
        write(&|| bench.db().snapshot(), &place, &slow).unwrap();
        let snapshot = bench.db().snapshot().unwrap();
        let told = status(&snapshot, &place).unwrap();
        // A commit that was lost leaves the day as it was before the second row.
        let files: u64 = told.tables.iter().map(|t| t.rows).sum();
        let rows = rows_of_database(&snapshot, "pumps").len() as u64;
        lost += usize::from(files != rows);
        write(&|| bench.db().snapshot(), &place, &options()).unwrap();
    }
    lost
}

#[test]
fn commits_are_lost_on_a_store_without_conditions_and_on_no_other() {
    let clock = || Arc::new(SystemClock::new());
    let memory: Arc<dyn ObjectStore> = Arc::new(Memory::timed(clock()));
    assert_eq!(raced(&memory), 0);
    let careless: Arc<dyn ObjectStore> = Arc::new(Odd::new(How::Overwrites));
    assert_eq!(raced(&careless), 8, "the race does not show what it is for");
}

/// What is odd about a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// It takes no notice of whether there is an object.
    Overwrites,
    /// Of the first put of each metadata the answer is lost.
    LosesAnswers,
    /// The first put of metadata is lost, and others are there by the time of the second.
    LosesPuts,
}

/// A store in memory that is odd.
#[derive(Debug)]
struct Odd {
    memory: Memory,
    how: How,
    met: AtomicUsize,
}

impl Odd {
    fn new(how: How) -> Odd {
        Odd {
            memory: Memory::timed(Arc::new(SystemClock::new())),
            how,
            met: AtomicUsize::new(0),
        }
    }
}

impl ObjectStore for Odd {
    fn get(&self, key: &str) -> Result<Option<Object>, Failure> {
        self.memory.get(key)
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, Failure> {
        self.memory.get_range(key, from, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, Failure> {
        let is_metadata = key.ends_with("metadata.json");
        let met = self
            .met
            .fetch_add(usize::from(is_metadata), Ordering::Relaxed);
        let lost = || Err(Failure::passing("the answer is lost"));
        match self.how {
            How::Overwrites => {
                self.memory.delete(key)?;
                self.memory.create(key, bytes)
            }
            How::LosesAnswers if is_metadata && met.is_multiple_of(2) => {
                self.memory.create(key, bytes)?;
                lost()
            }
            How::LosesPuts if is_metadata && met == 0 => {
                // Somebody else commits an empty table of the same database.
                let mut other: serde_json::Value = serde_json::from_slice(bytes).unwrap();
                let fields = other.as_object_mut().unwrap();
                fields.remove("current-snapshot-id");
                fields.insert("snapshots".into(), serde_json::json!([]));
                fields.insert("snapshot-log".into(), serde_json::json!([]));
                fields.insert("refs".into(), serde_json::json!({}));
                let properties = fields["properties"].as_object_mut().unwrap();
                properties.retain(|name, _| {
                    !name.starts_with("headwater.days.") && name != "headwater.snapshot"
                });
                self.memory.create(key, other.to_string().as_bytes())?;
                lost()
            }
            _ => self.memory.create(key, bytes),
        }
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, Failure> {
        match self.how {
            How::Overwrites => self.create(key, bytes),
            _ => self.memory.replace(key, bytes, expected),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, Failure> {
        self.memory.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<(), Failure> {
        self.memory.delete(key)
    }
}

/// What a write asks of a bucket: a turn that finds nothing new puts and lists nothing.
#[test]
fn a_write_that_finds_nothing_new_puts_and_lists_nothing() {
    let memory = Memory::timed(Arc::new(SystemClock::new()));
    let store = Arc::new(Counted::new(memory, Arc::new(SystemClock::new())));
    let place = LakeLocation::in_store(Arc::clone(&store) as Arc<dyn ObjectStore>, BASE);
    let bench = Bench::new();
    begin(&bench);
    bench.db().flush().unwrap();
    write(&|| bench.db().snapshot(), &place, &options()).unwrap();
    let first = store.total();
    // Three files, a manifest, a list, the metadata and the hint.
    assert_eq!(first.put.requests, 7, "{first:?}");
    write(&|| bench.db().snapshot(), &place, &options()).unwrap();
    let second = store.total();
    assert_eq!(second.put, first.put);
    assert_eq!(second.list, first.list);
    // The hint, the metadata that it names, those that might follow; the hint once more; and that
    // of what aging might have left.
    assert_eq!(second.get.requests - first.get.requests, 5, "{second:?}");
    // One day changes: its file, a manifest for it, the one that lacks it now, their list, the
    // metadata, the hint; and a list of each folder for what is old.
    bench.row(&stream(1), START + 77, &[("rpm", 0.5.into())]);
    write(&|| bench.db().snapshot(), &place, &WriteOptions::default()).unwrap();
    let third = store.total();
    assert_eq!(third.put.requests - second.put.requests, 6, "{third:?}");
    assert_eq!(third.list.requests - second.list.requests, 2, "{third:?}");
    assert_eq!(third.delete.requests, second.delete.requests, "{third:?}");
    println!(
        "a day that changes: {} gets",
        third.get.requests - second.get.requests
    );
}
