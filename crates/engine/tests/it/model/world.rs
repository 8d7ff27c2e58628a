//! Random operations on a database, each of which is done to the plain streams as well.

use super::compare::check;
use super::plain::{
    FIELDS, Fields, ModelStream, Random, Times, WrittenStream, random_range, random_value,
};
use super::policies;
use headwater_engine::{
    Database, DeleteSpec, Duplicates, FieldSpec, FlushRule, LatePolicy, Options, TableSpec,
};
use headwater_io::{Clock, Env, ManualClock, NoThreads};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Setup {
    pub(crate) duplicates: Duplicates,
    pub(crate) policy: LatePolicy,
    pub(crate) rule: FlushRule,
    pub(crate) late_runs_max: usize,
    /// Few streams and large partitions, so that pyramids grow tall.
    pub(crate) tall: bool,
    /// The policy changes at random moments.
    pub(crate) switches: bool,
}

pub(crate) fn options(setup: &Setup) -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        late_policy: setup.policy.into(),
        flush_rule: setup.rule,
        late_runs_max: setup.late_runs_max,
        partition_target_bytes: if setup.tall { 1 << 20 } else { 8 << 10 },
        partition_bytes_max: if setup.tall { 2 << 20 } else { 24 << 10 },
        leaf_events: 32,
        bucket_events: 4,
        groups_max: 12,
        log_file_bytes: 32 << 10,
        ..Options::new("/db")
    }
}

fn environment(clock: &Arc<ManualClock>) -> Env {
    Env {
        threads: Arc::new(NoThreads),
        clock: Arc::clone(clock) as Arc<_>,
        ..Env::memory()
    }
}

pub(super) struct World {
    pub(super) env: Env,
    pub(super) db: Option<Database>,
    pub(super) setup: Setup,
    clock: Arc<ManualClock>,
    /// Some values expire. (Then no rows are without values: nothing could tell those from rows
    /// that have lost theirs.)
    expires: bool,
    model: BTreeMap<StreamName, WrittenStream>,
    times: Vec<Times>,
    pub(super) random: Random,
}

impl World {
    pub(super) fn new(seed: u64, setup: Setup) -> World {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(
            1_700_000_000_000_000_000,
        )));
        let env = environment(&clock);
        let db = Database::open_in(env.clone(), options(&setup)).unwrap();
        let fields = FIELDS
            .iter()
            .map(|(n, t)| FieldSpec {
                name: (*n).to_owned(),
                field_type: *t,
            })
            .collect();
        db.create_table(&TableSpec {
            duplicates: setup.duplicates,
            leaf_events: Some(32),
            fields,
            ..TableSpec::new("t")
        })
        .unwrap();
        let times = (0..if setup.tall { 2 } else { 5 })
            .map(|i| Times {
                next: 1_700_000_000_000_000_000 + i * 1_000_000,
                step: [1_000_000_000, 50_000_000, 7, 60_000_000_000, 1_000][i as usize],
            })
            .collect();
        World {
            env,
            db: Some(db),
            setup,
            clock,
            expires: seed % 2 == 1,
            model: BTreeMap::new(),
            times,
            random: Random::new(seed),
        }
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// What a snapshot opened now should show.
    pub(super) fn visible(&self) -> BTreeMap<StreamName, ModelStream> {
        let now = self.clock.now().as_nanos();
        let streams = self.model.iter();
        streams
            .map(|(name, stream)| (name.clone(), stream.at(now)))
            .collect()
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let expires_at = (self.expires && self.random.chance(12)).then(|| {
            let seconds = self.random.below(60) as i64;
            self.clock.now().as_nanos() + seconds * 1_000_000_000
        });
        if let Some(at) = expires_at {
            batch.expire_at(Timestamp::from_nanos(at));
        }
        let count = 1 + self.random.below(if self.random.0.is_multiple_of(5) {
            200
        } else {
            12
        });
        for _ in 0..count {
            let stream = self.random.below(self.times.len() as u64) as usize;
            let name = StreamName::new("t", [("s", stream.to_string())]);
            let time = self.times[stream].next(&mut self.random);
            let mut fields = Fields::new();
            for (field, field_type) in FIELDS {
                if self.random.chance(if field == "a" { 95 } else { 40 }) {
                    fields.insert(field.to_owned(), random_value(&mut self.random, field_type));
                }
            }
            if fields.is_empty() && self.expires {
                fields.insert("d".to_owned(), Value::Bool(true));
            }
            let row: Vec<(&str, Value)> = fields
                .iter()
                .map(|(k, v)| (k.as_str(), v.clone()))
                .collect();
            batch.stream(&name).row(time, row).unwrap();
            self.model.entry(name).or_default().put(
                self.setup.duplicates,
                time,
                &fields,
                expires_at,
            );
        }
        let written = self.db().commit(batch).unwrap();
        assert!(written.refused.is_empty(), "{:?}", written.refused);
    }

    /// Deletes a range, of one stream or of all, or drops a stream.
    fn delete(&mut self) {
        let names: Vec<StreamName> = self.model.keys().cloned().collect();
        let Some(name) = names.get(self.random.below(names.len().max(1) as u64) as usize) else {
            return;
        };
        let tags = name.tags().to_vec();
        if self.random.chance(6) {
            assert_eq!(self.db().drop_streams("t", &tags).unwrap(), 1);
            self.model.remove(name);
            return;
        }
        let visible = self.visible();
        let range = match visible.get(name) {
            Some(stream) if !stream.rows.is_empty() && self.random.chance(98) => {
                // Mostly a few rows.
                let random = &mut self.random;
                if random.chance(20) {
                    random_range(random, stream)
                } else {
                    let from = random.below(stream.rows.len() as u64) as usize;
                    let to = (from + random.below(25) as usize).min(stream.rows.len() - 1);
                    let late = random.below(2) as i64;
                    ClosedRange::nanos(stream.rows[from].0.saturating_add(late), stream.rows[to].0)
                }
            }
            _ => ClosedRange::ALL,
        };
        let all = self.random.chance(20);
        let spec = DeleteSpec {
            table: "t".into(),
            tags: if all { Vec::new() } else { tags },
            range,
        };
        if range.is_empty() {
            self.db().delete(&spec).unwrap_err();
            return;
        }
        self.db().delete(&spec).unwrap();
        for (other, stream) in &mut self.model {
            if all || other == name {
                let inside = |t: i64| range.contains(Timestamp::from_nanos(t));
                stream.rows.retain(|(t, _)| !inside(*t));
            }
        }
    }

    pub(super) fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.db = Some(Database::open_in(self.env.clone(), options(&self.setup)).unwrap());
    }

    pub(super) fn step(&mut self) {
        if self.random.chance(30) {
            self.clock
                .advance(Duration::from_secs(self.random.below(10)));
        }
        if self.setup.switches && self.random.chance(15) {
            let policies = policies();
            let policy = policies[self.random.below(policies.len() as u64) as usize];
            self.db().set_late_policy(policy.into()).unwrap();
        }
        match self.random.below(100) {
            0..=75 => self.write(),
            76..=79 => self.delete(),
            80..=89 => self.db().flush().unwrap(),
            90..=92 => self.reopen(),
            93 => self.db().compact().unwrap(),
            _ => {
                let snapshot = self.db().snapshot().unwrap();
                let model = self.visible();
                // What is written, flushed and compacted while a snapshot is open does not change
                // it.
                for _ in 0..self.random.below(4) {
                    self.write();
                }
                if self.random.chance(30) {
                    self.delete();
                }
                self.db().flush().unwrap();
                if self.random.chance(30) {
                    self.db().compact().unwrap();
                }
                check(&snapshot, &model, &mut self.random);
            }
        }
    }
}
