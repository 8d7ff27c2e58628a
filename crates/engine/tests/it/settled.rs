//! An idle database settles: what is due is done in a bounded number of rounds, and then nothing is
//! written.

use crate::model::Random;
use headwater_engine::{Database, DeleteSpec, Duplicates, Options, TableSpec, check};
use headwater_io::{Clock, Env, FaultyFiles, Files, ManualClock, NoThreads, OpenMode};
use headwater_types::{Batch, ClosedRange, StreamName, StreamRows, Timestamp, Values};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

struct World {
    files: FaultyFiles,
    clock: Arc<ManualClock>,
    options: Options,
}

impl World {
    fn new(seed: u64, options: Options) -> World {
        World {
            files: FaultyFiles::new(seed),
            clock: Arc::new(ManualClock::new(Timestamp::from_nanos(START))),
            options,
        }
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.files.clone()),
            clock: Arc::clone(&self.clock) as Arc<_>,
            threads: Arc::new(NoThreads),
            ..Env::memory()
        }
    }

    fn open(&self) -> Database {
        Database::open_in(self.env(), self.options.clone()).unwrap()
    }

    /// Time goes by, and workers look around. True when anything was written.
    fn round(&self, db: &Database) -> bool {
        let before = self.files.operations();
        self.clock.advance(Duration::from_secs(420));
        db.maintain().unwrap();
        self.files.operations() > before
    }

    /// What is due is done within some rounds, and afterwards nothing is, however much time goes
    /// by.
    fn settles(&self, db: &Database, what: &str) {
        // Late events wait ten minutes for their merge, and what expires or ages here does so
        // within an hour and some minutes.
        let (mut quiet, mut rounds) = (0, 0);
        while quiet < 15 {
            quiet = if self.round(db) { 0 } else { quiet + 1 };
            rounds += 1;
            assert!(rounds < 100, "{what}: {:?}", db.stats().unwrap());
        }
        let before = db.stats().unwrap();
        for round in 0..200 {
            assert!(!self.round(db), "{what}: round {round} wrote something");
        }
        assert_eq!(db.stats().unwrap(), before, "{what}");
    }

    /// As [`World::settles`], and again after the database was opened anew.
    fn settles_for_good(&self, db: Database, what: &str) {
        self.settles(&db, what);
        // What memory holds is stored by closing, and may be a reason to rewrite.
        db.flush().unwrap();
        self.settles(&db, &format!("{what}, flushed"));
        let rewritten = db.stats().unwrap().events_compaction;
        db.close().unwrap();
        drop(db);
        let db = self.open();
        self.settles(&db, &format!("{what}, reopened"));
        let stats = db.stats().unwrap();
        assert_eq!(stats.events_compaction, rewritten, "{what}: {stats:?}");
        db.compact().unwrap();
        self.settles(&db, &format!("{what}, compacted"));
        drop(db);
        let report = check(self.env(), self.options.clone()).unwrap();
        assert!(report.is_sound(), "{what}: {:#?}", report.damages);
    }
}

fn small() -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        partition_target_bytes: 8 << 10,
        partition_bytes_max: 24 << 10,
        leaf_events: 32,
        bucket_events: 4,
        groups_max: 6,
        late_runs_max: 3,
        log_file_bytes: 32 << 10,
        ..Options::new("/db")
    }
}

fn stream(id: u64) -> StreamName {
    StreamName::new("t", [("s", id.to_string())])
}

fn rows(id: u64, times: Vec<i64>, random: &mut Random) -> Batch {
    let mut batch = Batch::new();
    let values = times.iter().map(|_| random.below(1 << 40) as f64).collect();
    let mut entry = StreamRows::new(stream(id));
    entry.times = times;
    batch.push(entry.with_column("v", Values::F64(values)));
    batch
}

fn random_workload(seed: u64) {
    let mut random = Random::new(seed);
    let options = Options {
        late_runs_max: random.below(4) as usize,
        groups_max: 2 + random.below(12) as u32,
        partition_bytes_max: 8 * 1024 + random.below(40 * 1024),
        ..small()
    };
    let world = World::new(seed, options);
    let mut db = world.open();
    db.create_table(&TableSpec {
        duplicates: [Duplicates::Last, Duplicates::Keep][random.below(2) as usize],
        // What ages does so while time is made to go by.
        raw_for: random.chance(25).then(|| Duration::from_secs(3600)),
        ..TableSpec::new("t")
    })
    .unwrap();
    for step in 0..80 {
        match random.below(20) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => {
                let first = START + random.below(7200) as i64 * SECOND;
                let range = ClosedRange::nanos(first, first + random.below(900) as i64 * SECOND);
                let spec = DeleteSpec {
                    table: "t".into(),
                    tags: Vec::new(),
                    range,
                };
                db.delete(&spec).unwrap();
            }
            3 => {
                drop(db);
                db = world.open();
            }
            _ => {
                let id = random.below(4);
                let count = 1 + random.below(400) as i64;
                let first = match random.below(4) {
                    0 => START + random.below(7200) as i64 * SECOND,
                    _ => START + step * 90 * SECOND,
                };
                // Some devices send a single instant again and again.
                let width = [SECOND, SECOND / 50, 1, 0][random.below(4) as usize];
                let times = (0..count).map(|i| first + i * width).collect();
                let mut batch = rows(id, times, &mut random);
                if random.chance(15) {
                    let seconds = random.below(4000) as i64;
                    let at = world.clock.now().as_nanos() + seconds * SECOND;
                    batch.expire_at(Timestamp::from_nanos(at));
                }
                db.commit(batch).unwrap();
            }
        }
        world.clock.advance(Duration::from_secs(random.below(60)));
    }
    world.settles_for_good(db, &format!("seed {seed}"));
}

#[test]
fn law_8_an_idle_database_writes_nothing_and_rewrites_nothing_twice() {
    for seed in 0..40 {
        random_workload(seed);
    }
}

#[test]
fn rows_of_one_instant_that_outgrow_a_partition_are_rewritten_once() {
    for (seed, beside) in [(1, false), (2, true)] {
        let world = World::new(seed, small());
        let db = world.open();
        db.create_table(&TableSpec {
            duplicates: Duplicates::Keep,
            ..TableSpec::new("t")
        })
        .unwrap();
        let mut random = Random::new(seed);
        for _ in 0..20 {
            db.commit(rows(1, vec![START; 500], &mut random)).unwrap();
            if beside {
                let times = (1..11).map(|i| START + i * SECOND).collect();
                db.commit(rows(2, times, &mut random)).unwrap();
            }
            db.flush().unwrap();
        }
        world.settles(&db, "one instant");
        // More of the same finds the partition, and costs what comes, and no splits.
        for _ in 0..3 {
            db.commit(rows(1, vec![START; 500], &mut random)).unwrap();
            db.flush().unwrap();
        }
        world.settles_for_good(db, "one instant, later");
    }
}

#[test]
fn a_partition_of_just_the_largest_size_is_left_alone() {
    let write = |options: Options| {
        let world = World::new(3, options);
        let db = world.open();
        let mut random = Random::new(3);
        let times = (0..3000).map(|i| START + i * SECOND).collect();
        db.commit(rows(1, times, &mut random)).unwrap();
        db.flush().unwrap();
        (world, db)
    };
    let wide = Options {
        partition_target_bytes: 1 << 20,
        partition_bytes_max: 1 << 20,
        shards: 1,
        ..small()
    };
    let (_, db) = write(wide.clone());
    let stats = db.stats().unwrap();
    assert_eq!(stats.partitions, 1, "{stats:?}");
    // Around the length of the file and around what is in use of it.
    for most in stats.segment_bytes - stats.dead_bytes - 2..=stats.segment_bytes + 2 {
        let (world, db) = write(Options {
            partition_target_bytes: 4 << 10,
            partition_bytes_max: most,
            ..wide.clone()
        });
        world.settles(&db, &format!("at most {most} bytes"));
    }
}

#[test]
fn compaction_without_space_waits_before_it_tries_again() {
    let world = World::new(
        5,
        Options {
            reserve_bytes: 0,
            ..small()
        },
    );
    let db = world.open();
    let mut random = Random::new(5);
    // Groups that wait for their compaction, on a disk that is full by then.
    for round in 0..6 {
        let first = START + round * 100 * SECOND;
        let times = (0..100).map(|i| first + i * SECOND).collect();
        db.commit(rows(1, times, &mut random)).unwrap();
        db.flush().unwrap();
    }
    world
        .files
        .capacity(world.files.files().iter().map(|(_, bytes)| bytes).sum());
    db.maintain().unwrap();
    world.files.capacity(u64::MAX);
    let before = world.files.operations();
    for _ in 0..20 {
        world.clock.advance(Duration::from_secs(1));
        db.maintain().unwrap();
    }
    assert_eq!(world.files.operations(), before);
    world.clock.advance(Duration::from_secs(60));
    db.maintain().unwrap();
    assert_eq!(db.stats().unwrap().events_compaction, 600);
}

/// Sizes of the files of the log, in bytes.
fn log_files(files: &FaultyFiles) -> Vec<u64> {
    let dir = Path::new("/db/log");
    let names = files.list(dir).unwrap();
    let size = |name: &String| files.open(&dir.join(name), OpenMode::Read)?.len();
    names.iter().map(|name| size(name).unwrap()).collect()
}

#[test]
fn an_idle_database_stores_what_memory_holds_and_gives_back_what_its_log_does_not_need() {
    const SMALL: u64 = 256 << 10;
    let options = Options {
        reserve_bytes: 0,
        ..Options::new("/db")
    };
    let world = World::new(3, options);
    let db = world.open();
    let mut random = Random::new(3);
    let mut write = |db: &Database, first: i64, count: i64| {
        let times = (first..first + count).map(|n| START + n * SECOND).collect();
        db.commit(rows(1, times, &mut random)).unwrap();
    };
    let tick = |db: &Database, seconds| {
        world.clock.advance(Duration::from_secs(seconds));
        db.maintain().unwrap();
    };
    for n in 0..30 {
        write(&db, n * 10_000, 10_000);
    }
    assert!(log_files(&world.files).iter().any(|size| *size > SMALL));
    assert!(db.stats().unwrap().events_in_memory > 0);
    // Half a minute is not over.
    tick(&db, 0);
    tick(&db, 29);
    assert!(log_files(&world.files).iter().any(|size| *size > SMALL));
    tick(&db, 1);
    assert!(log_files(&world.files).is_empty());
    assert_eq!(db.stats().unwrap().events_in_memory, 0);

    // Who writes now and then is not made to store each row by itself, and stays small.
    let flushes = db.stats().unwrap().flushes;
    for n in 0..20 {
        write(&db, 400_000 + n, 1);
        tick(&db, 40);
    }
    assert_eq!(log_files(&world.files), [SMALL]);
    assert_eq!(db.stats().unwrap().flushes, flushes);
    world.settles(&db, "after a few rows");

    // Who writes much has larger files again, and everything is found.
    for n in 0..60 {
        write(&db, 1_000_000 + n * 10_000, 10_000);
    }
    let largest = log_files(&world.files).into_iter().max();
    assert!(largest > Some(SMALL), "{largest:?}");
    drop(db);
    let db = world.open();
    assert_eq!(db.stats().unwrap().events, 90 * 10_000 + 20);
}
