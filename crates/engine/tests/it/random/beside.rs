//! Lives with real threads: writers, readers that hold snapshots, deletes, drops and care beside
//! each other, on files in memory.
//!
//! Which thread comes first is left to the machine, so what is checked holds for every order:
//! what was acknowledged before a snapshot is in it, what was handed in after it is not, a batch is
//! there whole or not at all, a writer's batches are there up to one of them, and a snapshot shows
//! the same whenever it is asked.

use crate::cuts::variable;
use crate::model::{Random, policies};
use crate::support::{START, collect};
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Duplicates, Error, ErrorKind, Options, ScanSpec,
    Snapshot, TableSpec,
};
use headwater_io::{Env, ManualClock, SystemThreads};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const WRITERS: usize = 3;
/// Batches of a writer, and rows that each brings to each of its two streams.
const BATCHES: u64 = 160;
const ROWS: u64 = 6;
/// Between so many batches somebody has looked at a snapshot, and the caring thread has done
/// something.
const LOOKS: u64 = 8;
/// Rows of the stream that is deleted from, times that this happens, and times that a table is
/// dropped.
const RISING: u64 = 400;
const DELETES: u64 = 20;
const DROPS: u64 = 20;

/// How far something is: handed in, and acknowledged.
#[derive(Default)]
struct Progress {
    handed: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Does the next thing, which is the one of this number, from 1 on.
    fn step(&self, number: u64, act: impl FnOnce()) {
        self.handed.store(number, SeqCst);
        act();
        self.done.store(number, SeqCst);
    }
}

struct Beside {
    db: Database,
    writers: [Progress; WRITERS],
    rising: Progress,
    /// Rows of the rising stream that are deleted.
    deleted: Progress,
    /// Generations of the table that is dropped.
    generation: Progress,
    looks: AtomicU64,
    cares: AtomicU64,
    /// A thread has ended: nobody waits for what it does any more.
    over: AtomicBool,
}

/// Tells the others when a thread ends, however it does.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// A table and its streams by number.
fn stream(table: &str, id: u64) -> StreamName {
    StreamName::new(table, [("id", id.to_string())])
}

/// The streams of a writer.
fn pair(writer: usize) -> [StreamName; 2] {
    let first = 2 * writer as u64;
    [stream("w", first), stream("w", first + 1)]
}

/// The time of a writer's row: batches come in order but for neighbours, of which some are late.
fn time_of(batch: u64, row: u64) -> i64 {
    START + ((batch ^ 3) * ROWS + row) as i64 * SECOND
}

impl Beside {
    /// Does something until it is taken: a change may meet another one of the same table.
    fn insist<T>(act: impl Fn() -> Result<T, Error>) -> T {
        loop {
            match act() {
                Ok(done) => return done,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// Waits for something to happen, or for a thread that has failed.
    fn wait(&self, happened: impl Fn() -> bool) {
        while !happened() && !self.over.load(SeqCst) {
            std::thread::yield_now();
        }
    }

    fn write(&self, writer: usize) {
        let _ends = Ends(&self.over);
        for number in 0..BATCHES {
            let commit = || {
                let written = Beside::insist(|| {
                    let mut batch = Batch::new();
                    for name in pair(writer) {
                        let rows = batch.stream(&name);
                        for row in 0..ROWS {
                            let values = [("v", Value::U64(number)), ("f", Value::F64(0.5))];
                            rows.row(time_of(number, row), values).unwrap();
                        }
                    }
                    self.db.commit(batch)
                });
                assert_eq!(written.accepted, 2 * ROWS, "{:?}", written.refused);
            };
            self.writers[writer].step(number + 1, commit);
            if number % LOOKS == LOOKS - 1 {
                let (looks, cares) = (self.looks.load(SeqCst), self.cares.load(SeqCst));
                // Two more: the first may have begun before.
                self.wait(|| self.looks.load(SeqCst) > looks + 1);
                self.wait(|| self.cares.load(SeqCst) > cares);
            }
        }
    }

    /// Rows whose times only rise, one after the other.
    fn rise(&self) {
        let _ends = Ends(&self.over);
        for number in 0..RISING {
            self.rising.step(number + 1, || {
                Beside::insist(|| {
                    let mut batch = Batch::new();
                    let row = [("v", Value::U64(number))];
                    let rows = batch.stream(&stream("d", 0));
                    rows.row(START + number as i64 * SECOND, row).unwrap();
                    self.db.commit(batch)
                });
            });
            // Those who delete and look keep up.
            self.wait(|| {
                let deleted = self.deleted.done.load(SeqCst);
                deleted + RISING / DELETES * 2 > number || deleted >= RISING - RISING / DELETES
            });
        }
    }

    /// Deletes the first rows of those that rise, a few more each time.
    fn delete(&self) {
        let _ends = Ends(&self.over);
        for round in 1..DELETES {
            let count = round * (RISING / DELETES);
            self.wait(|| self.rising.done.load(SeqCst) >= count);
            let spec = DeleteSpec {
                table: "d".into(),
                tags: Vec::new(),
                range: ClosedRange::nanos(START, START + (count as i64 - 1) * SECOND),
            };
            self.deleted.step(count, || {
                Beside::insist(|| self.db.delete(&spec));
            });
        }
    }

    /// Makes a table, fills it and drops it, again and again; the last one stays.
    fn drop_tables(&self) {
        let _ends = Ends(&self.over);
        for generation in 1..=DROPS {
            self.generation.step(generation, || {
                if generation > 1 {
                    Beside::insist(|| self.db.drop_table("g"));
                }
                for row in 0..ROWS {
                    Beside::insist(|| {
                        let mut batch = Batch::new();
                        let values = [("v", Value::U64(generation))];
                        let time = START + row as i64 * SECOND;
                        batch.stream(&stream("g", 0)).row(time, values).unwrap();
                        self.db.commit(batch)
                    });
                }
            });
            let looks = self.looks.load(SeqCst);
            self.wait(|| self.looks.load(SeqCst) > looks + 1);
        }
    }

    fn care(&self, mut random: Random, done: &AtomicBool) {
        let _ends = Ends(&self.over);
        let all = policies();
        while !done.load(SeqCst) && !self.over.load(SeqCst) {
            match random.below(4) {
                0 => self.db.flush().unwrap(),
                1 => self.db.compact().unwrap(),
                2 => self.db.maintain().unwrap(),
                _ => self.db.set_late_policy(random.pick(&all).into()).unwrap(),
            }
            self.cares.fetch_add(1, SeqCst);
        }
    }

    fn look(&self, mut random: Random, done: &AtomicBool) {
        let _ends = Ends(&self.over);
        let mut held: Vec<(Snapshot, String)> = Vec::new();
        while !done.load(SeqCst) && !self.over.load(SeqCst) {
            let (snapshot, shown) = self.compare();
            if held.len() < 3 {
                held.push((snapshot, shown));
            } else {
                let index = random.below(held.len() as u64) as usize;
                let (held, before) = held.swap_remove(index);
                assert!(before == digest(&held), "a snapshot shows something else");
            }
            self.looks.fetch_add(1, SeqCst);
        }
        for (snapshot, before) in held {
            assert!(
                before == digest(&snapshot),
                "a snapshot shows something else"
            );
        }
    }

    /// Takes a snapshot and holds it against what is known before and after.
    fn compare(&self) -> (Snapshot, String) {
        let least = self.writers.each_ref().map(|w| w.done.load(SeqCst));
        let risen = self.rising.done.load(SeqCst);
        let deleted = self.deleted.done.load(SeqCst);
        let generation = self.generation.done.load(SeqCst);
        let snapshot = self.db.snapshot().unwrap();
        for (writer, least) in least.into_iter().enumerate() {
            let most = self.writers[writer].handed.load(SeqCst);
            let seen = pair(writer).map(|name| batches(&snapshot, &name));
            assert_eq!(seen[0], seen[1], "a batch is there in part");
            let found = seen[0].len() as u64;
            assert!(least <= found && found <= most, "{least}..={most}: {found}");
            let whole = (0..found).map(|number| (number, ROWS)).collect();
            assert_eq!(seen[0], whole, "writer {writer}");
        }
        let rows = values(&snapshot, &stream("d", 0));
        let first = rows.first().copied();
        let expected: Vec<u64> = (first.unwrap_or(0)..).take(rows.len()).collect();
        assert_eq!(rows, expected, "rows are missing between others");
        let end = first.map_or(0, |first| first + rows.len() as u64);
        let handed = self.deleted.handed.load(SeqCst);
        match first {
            Some(first) => assert!(deleted <= first && first <= handed, "{deleted} {first}"),
            None => assert!(risen <= handed, "{risen} rows, {handed} deleted"),
        }
        assert!(end >= risen || end == 0, "{risen} rows, {end} found");
        assert!(end <= self.rising.handed.load(SeqCst));
        let rows = values(&snapshot, &stream("g", 0));
        if let Some(one) = rows.first() {
            assert!(rows.iter().all(|row| row == one), "{rows:?} of two tables");
            let most = self.generation.handed.load(SeqCst);
            assert!(generation <= *one && *one <= most, "{generation} {one}");
        }
        let shown = digest(&snapshot);
        (snapshot, shown)
    }
}

/// The values of `v` of a stream, by time; counts and sums say the same.
fn values(snapshot: &Snapshot, name: &StreamName) -> Vec<u64> {
    let scan = match snapshot.scan(name, &ScanSpec::default()) {
        Ok(scan) => scan,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}");
            return Vec::new();
        }
    };
    let (rows, errors) = collect(scan);
    assert!(errors.is_empty(), "{name}: {errors:?}");
    assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "{name}");
    let values: Vec<u64> = rows
        .iter()
        .map(|(_, fields)| match fields.get("v") {
            Some(Value::U64(value)) => *value,
            other => panic!("{name}: {other:?}"),
        })
        .collect();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = match snapshot.aggregate(name, "v", &spec) {
        Ok(bins) => bins,
        Err(error) => {
            // The stream is defined before its first row, and its fields after it.
            let is_new = error.kind() == ErrorKind::NotFound && values.is_empty();
            assert!(is_new, "{name}: {error}");
            return values;
        }
    };
    let count: u64 = bins.iter().map(|b| b.aggregate.count).sum();
    let sum: i128 = bins.iter().map(|b| b.aggregate.sum).sum();
    assert_eq!(count, values.len() as u64, "{name}");
    assert_eq!(sum, i128::from(values.iter().sum::<u64>()), "{name}");
    values
}

/// How many rows of each batch are there.
fn batches(snapshot: &Snapshot, name: &StreamName) -> BTreeMap<u64, u64> {
    let mut out = BTreeMap::new();
    for number in values(snapshot, name) {
        *out.entry(number).or_default() += 1;
    }
    out
}

/// All that a snapshot shows.
fn digest(snapshot: &Snapshot) -> String {
    let writers = (0..WRITERS).flat_map(pair);
    let names = writers.chain([stream("d", 0), stream("g", 0)]);
    let shown = names.map(|name| format!("{:?}", values(snapshot, &name)));
    shown.collect::<Vec<_>>().join("\n")
}

fn live(seed: u64) {
    let mut random = Random::new(seed);
    let env = Env {
        clock: Arc::new(ManualClock::new(Timestamp::from_nanos(START))),
        threads: Arc::new(SystemThreads),
        ..Env::memory()
    };
    let target = random.pick(&[4 << 10, 32 << 10]);
    let options = Options {
        memory_budget_bytes: 1 << 20,
        shards: random.pick(&[1, 2, 4]),
        late_runs_max: random.pick(&[0, 2, 16]),
        partition_target_bytes: target,
        partition_bytes_max: target * 2,
        leaf_events: 16,
        index_page_entries: 4,
        log_file_bytes: random.pick(&[4096, 64 << 10]),
        open_files_max: random.pick(&[4, 256]),
        reserve_bytes: 0,
        busy_timeout: Duration::from_secs(86_400),
        ..Options::new("/db")
    };
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    let spec = TableSpec {
        duplicates: random.pick(&[Duplicates::Last, Duplicates::Keep]),
        ..TableSpec::new("w")
    };
    db.create_table(&spec).unwrap();
    let beside = Beside {
        db,
        writers: Default::default(),
        rising: Progress::default(),
        deleted: Progress::default(),
        generation: Progress::default(),
        looks: AtomicU64::new(0),
        cares: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let done = AtomicBool::new(false);
    let seeds = [random.next(), random.next(), random.next()];
    std::thread::scope(|scope| {
        let (beside, done) = (&beside, &done);
        let mut writing: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || beside.write(writer)))
            .collect();
        writing.push(scope.spawn(|| beside.rise()));
        writing.push(scope.spawn(|| beside.delete()));
        writing.push(scope.spawn(|| beside.drop_tables()));
        scope.spawn(|| beside.care(Random::new(seeds[0]), done));
        for seed in &seeds[1..] {
            scope.spawn(|| beside.look(Random::new(*seed), done));
        }
        let ended: Vec<_> = writing.into_iter().map(|thread| thread.join()).collect();
        done.store(true, SeqCst);
        for thread in ended {
            thread.unwrap();
        }
    });
    assert!(!beside.over.load(SeqCst), "seed {seed}: a thread failed");
    let (_, shown) = beside.compare();
    assert!(beside.looks.load(SeqCst) > BATCHES / LOOKS, "seed {seed}");
    assert!(beside.cares.load(SeqCst) >= BATCHES / LOOKS, "seed {seed}");
    let stats = beside.db.stats().unwrap();
    assert!(stats.bytes_leaf > 0, "seed {seed}: nothing was stored");
    let Beside { db, .. } = beside;
    db.close().unwrap();
    drop(db);
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    assert_eq!(shown, digest(&db.snapshot().unwrap()), "seed {seed}");
    let rising = values(&db.snapshot().unwrap(), &stream("d", 0));
    let left: Vec<u64> = (RISING - RISING / DELETES..RISING).collect();
    assert_eq!(rising, left, "seed {seed}");
    db.close().unwrap();
    drop(db);
    let report = headwater_engine::check(env, options).unwrap();
    assert!(report.is_sound(), "seed {seed}: {:#?}", report.damages);
}

#[test]
fn threads_beside_each_other_keep_the_laws_in_every_order() {
    let first = variable("HEADWATER_MODEL_FIRST_SEED").unwrap_or(1);
    let lives = variable("HEADWATER_MODEL_SEEDS").map_or(4, |seeds| seeds.div_ceil(25));
    for seed in first..first + lives {
        live(seed);
    }
}
