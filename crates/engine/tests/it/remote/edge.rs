//! A database as devices write it, from a seed: streams at about one row a second, some late, some
//! deleted, tables that forget, age, and keep duplicates.

use crate::support::{Dice, small_options};
use headwater_engine::{Database, DeleteSpec, Duplicates, Options, Snapshot, TableSpec};
use headwater_io::{Env, Files, ManualClock, MemoryFiles, NoThreads, SeededChance};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Value};
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
/// What is compared: every field of every table.
pub(super) const FIELDS: [&str; 2] = ["v", "n"];
const TABLES: [&str; 4] = ["plain", "keeps", "ages", "forgets"];

pub(super) struct Edge {
    pub(super) env: Env,
    pub(super) options: Options,
    /// Always there but for a moment.
    db: Option<Database>,
    pub(super) dice: Dice,
    clock: Arc<ManualClock>,
    /// The newest time of all streams.
    newest: i64,
}

pub(super) fn options() -> Options {
    Options {
        bucket_events: 4,
        late_runs_max: 4,
        partition_target_bytes: 12 << 10,
        partition_bytes_max: 24 << 10,
        groups_max: 12,
        ..small_options()
    }
}

impl Edge {
    pub(super) fn new(seed: u64) -> Edge {
        Edge::on(seed, Arc::new(MemoryFiles::new()))
    }

    pub(super) fn on(seed: u64, files: Arc<dyn Files>) -> Edge {
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        let env = Env {
            files,
            clock: Arc::clone(&clock) as _,
            chance: Arc::new(SeededChance::new(seed)),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        };
        let options = options();
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        let spec = |table| TableSpec::new(table);
        let hour = Some(Duration::from_secs(3600));
        for table in [
            spec("plain"),
            TableSpec {
                duplicates: Duplicates::Keep,
                ..spec("keeps")
            },
            TableSpec {
                raw_for: hour,
                ..spec("ages")
            },
            TableSpec {
                retention: hour,
                ..spec("forgets")
            },
        ] {
            db.create_table(&table).unwrap();
        }
        Edge {
            env,
            options,
            db: Some(db),
            dice: Dice::new(seed),
            clock,
            newest: Env::MEMORY_START.as_nanos(),
        }
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// Closes the database, of which nobody holds anything any more.
    pub(super) fn close(&mut self) {
        self.db.take().unwrap().close().unwrap();
    }

    pub(super) fn open(&mut self) {
        let opened = Database::open_in(self.env.clone(), self.options.clone());
        self.db = Some(opened.unwrap());
    }

    fn stream(&mut self) -> StreamName {
        let table = TABLES[self.dice.below(4) as usize];
        StreamName::new(table, [("id", self.dice.below(2).to_string())])
    }

    fn write(&mut self) {
        let stream = self.stream();
        let mut batch = Batch::new();
        let rows = batch.stream(&stream);
        let dice = &mut self.dice;
        let is_late = dice.chance(12);
        let late = dice.below(20 * MINUTE as u64) as i64;
        let mut time = self.newest - if is_late { late } else { 0 };
        for _ in 0..1 + dice.below(if is_late { 6 } else { 90 }) {
            time += SECOND / 2 + dice.below(SECOND as u64) as i64;
            let mut fields = vec![("v", Value::F64(dice.below(1000) as f64 / 8.0))];
            if dice.chance(60) {
                fields.push(("n", Value::I64(dice.below(100) as i64 - 50)));
            }
            rows.row(time, fields).unwrap();
        }
        self.db().commit(batch).unwrap();
        let passed = time - self.newest;
        if passed > 0 {
            self.newest = time;
            self.clock.advance(Duration::from_nanos(passed as u64));
        }
    }

    fn delete(&mut self) {
        let stream = self.stream();
        let last = self.newest - self.dice.below(30 * MINUTE as u64) as i64;
        let first = last - self.dice.below(5 * MINUTE as u64) as i64;
        let spec = DeleteSpec {
            table: stream.table().to_owned(),
            tags: stream.tags().to_vec(),
            range: ClosedRange::nanos(first, last),
        };
        self.db().delete(&spec).unwrap();
    }

    /// Does one thing.
    pub(super) fn step(&mut self) {
        match self.dice.below(100) {
            0..=79 => self.write(),
            80..=87 => self.db().flush().unwrap(),
            88..=91 => self.delete(),
            92..=97 => self.db().maintain().unwrap(),
            _ => self.db().compact().unwrap(),
        }
    }

    /// Instants of everything that was written.
    pub(super) fn span(&self) -> ClosedRange {
        let first = Env::MEMORY_START.as_nanos() - 30 * MINUTE;
        ClosedRange::nanos(first, self.newest + MINUTE)
    }
}

/// The tiles of a level that meet a range.
pub(super) fn tiles(level: Level, range: &ClosedRange) -> std::ops::RangeInclusive<i64> {
    let tile = |at| {
        level
            .bucket_of(at)
            .div_euclid(headwater_types::TILE_BUCKETS)
    };
    tile(range.first)..=tile(range.last)
}

/// All streams that a snapshot finds.
pub(super) fn streams(snapshot: &Snapshot) -> Vec<StreamName> {
    let tables = snapshot.table_names();
    let streams = tables.iter().map(|t| snapshot.streams(t, &[]).unwrap());
    streams.flatten().collect()
}
