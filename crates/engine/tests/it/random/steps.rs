//! What a world does while its database is open: writes of all kinds, statements, care, time.

use super::plain::Op;
use super::time::{DAY, HOUR, SECOND, YEAR};
use super::world::{Trouble, World};
use crate::model::{FIELDS, policies, random_value};
use crate::support::{Event, Fields};
use headwater_engine::{
    DeleteSpec, Duplicates, FieldSpec, FlushRule, IndexProgress, IndexSpec, PolicyChoice,
    TableChange, TableSpec,
};
use headwater_types::{ClosedRange, FieldType, StreamName, Value};
use std::ops::ControlFlow;
use std::time::Duration;

const TABLES: [&str; 3] = ["k", "l", "m"];

impl World {
    fn stream(&mut self) -> StreamName {
        let table = self.random.pick(&TABLES);
        let id = self.random.below(3);
        StreamName::new(
            table,
            [("id", id.to_string()), ("site", (id % 2).to_string())],
        )
    }

    /// A time as devices send it: mostly newer than the last, some late, some twice, some far away.
    fn event_time(&mut self, stream: &StreamName) -> i64 {
        let truly = self.time.truly;
        let last = self.newest.get(stream).copied().unwrap_or(truly - HOUR);
        let random = &mut self.random;
        let some = |random: &mut crate::model::Random, most: i64| random.below(most as u64) as i64;
        let time = match random.below(100) {
            0..=69 => (last + 1 + some(random, SECOND)).max(truly - some(random, 10 * SECOND)),
            70..=84 => last - some(random, 60 * SECOND),
            85..=89 => last,
            90..=93 => last - some(random, 3 * HOUR),
            94..=97 => truly - some(random, 40 * DAY),
            98 => random.next() as i64,
            _ => random.pick(&[i64::MIN, i64::MAX, 0, -1, 1]),
        };
        if time <= truly + HOUR {
            self.newest.insert(stream.clone(), time.max(last));
        }
        time
    }

    fn fields(&mut self, stream: &StreamName) -> Fields {
        let mut fields = Fields::new();
        let random = &mut self.random;
        for (field, field_type) in FIELDS {
            if random.chance(if field == "a" { 90 } else { 25 }) {
                fields.insert(field.to_owned(), random_value(random, field_type));
            }
        }
        // What tells this row from all others.
        self.written += 1;
        if fields.is_empty() || random.chance(70) {
            fields.insert("n".into(), Value::U64(self.written));
        }
        if random.chance(15) {
            // Becomes f64 some day.
            let number = random.below(1000) as i64 - 500;
            let table = self.now.tables.get(stream.table());
            let is_float = table.and_then(|t| t.fields.get("w")) == Some(&FieldType::F64);
            let value = if is_float || random.chance(3) {
                Value::F64(number as f64 / 4.0)
            } else {
                Value::I64(number)
            };
            fields.insert("w".into(), value);
        }
        if random.chance(2) {
            let field = format!("x{}", random.below(12));
            fields.insert(field, Value::F64(number_of(random.below(100))));
        }
        fields
    }

    fn event(&mut self, stream: &StreamName) -> Event {
        Event {
            time: self.event_time(stream),
            fields: self.fields(stream),
            stream: stream.clone(),
        }
    }

    /// One kind of integer or float in a field of a batch: columns have one type.
    fn uniform(rows: &mut [Event]) {
        let float = |e: &Event| matches!(e.fields.get("w"), Some(Value::F64(_)));
        let tables: Vec<String> = rows
            .iter()
            .filter(|e| float(e))
            .map(|e| e.stream.table().to_owned())
            .collect();
        for event in rows
            .iter_mut()
            .filter(|e| tables.iter().any(|t| t == e.stream.table()))
        {
            if let Some(value) = event.fields.get_mut("w")
                && let Value::I64(n) = value
            {
                *value = Value::F64(*n as f64);
            }
        }
    }

    fn rows(&mut self) -> Vec<Event> {
        let most = self.random.pick(&[12, 12, 12, 12, 120]);
        let count = 1 + self.random.below(most);
        let one = self.random.chance(40).then(|| self.stream());
        let mut rows = Vec::new();
        for _ in 0..count {
            let stream = one.clone().unwrap_or_else(|| self.stream());
            rows.push(self.event(&stream));
        }
        World::uniform(&mut rows);
        rows
    }

    fn write(&mut self) {
        let rows = self.rows();
        let now = self.time.wall();
        let expires_at = (self.expires && self.random.chance(15)).then(|| {
            let most = self.random.pick(&[60 * SECOND, 3 * HOUR, 3 * DAY]);
            now.saturating_add(self.random.below(most as u64) as i64)
        });
        let producer = self.random.chance(15).then(|| {
            let name = self.random.pick(&["p", "q"]).to_owned();
            let newest = self.now.producers.get(&name).copied().unwrap_or(0);
            let number = if self.random.chance(20) {
                newest
            } else {
                newest + 1 + self.random.below(3)
            };
            (name, number)
        });
        let (count, first) = (rows.len(), rows[0].clone());
        self.log(format!(
            "write {count} rows from {} at {}, expire {expires_at:?}, number {producer:?}",
            first.stream, first.time
        ));
        self.transcript.count("writes");
        self.transcript
            .add("expiring writes", u64::from(expires_at.is_some()));
        self.transcript
            .add("numbered writes", u64::from(producer.is_some()));
        let flying = self.submit(rows, expires_at, producer);
        self.land(flying.into_iter().collect());
    }

    /// The same times again and again, with questions in between.
    fn write_again(&mut self) {
        let stream = self.stream();
        let rounds = 3 + self.random.below(4);
        let first = self.event_time(&stream).min(i64::MAX - HOUR);
        let count = 20 + self.random.below(60) as i64;
        self.log(format!(
            "write {count} rows of {stream} from {first} on, {rounds} times"
        ));
        self.transcript.count("rows written again");
        for _ in 0..rounds {
            let mut rows: Vec<Event> = (0..count)
                .map(|number| Event {
                    time: first + number * SECOND / 8,
                    fields: self.fields(&stream),
                    stream: stream.clone(),
                })
                .collect();
            World::uniform(&mut rows);
            let flying = self.submit(rows, None, None);
            self.land(flying.into_iter().collect());
            if self.must_reopen {
                return;
            }
            // Who asks leaves what it merged to those who ask after it.
            if self.random.chance(60) {
                let last = self.db().snapshot().and_then(|s| s.last(&stream));
                self.transcript.count("questions between");
                assert!(
                    last.is_ok() || self.trouble != Trouble::None,
                    "{stream}: {last:?}"
                );
            }
        }
    }

    /// Several batches in flight at once.
    fn burst(&mut self) {
        self.log("burst".into());
        self.transcript.count("bursts");
        let mut flying = Vec::new();
        for _ in 0..2 + self.random.below(4) {
            let rows = self.rows();
            // Widening in flight would make the plain rows of earlier batches guess.
            flying.extend(self.submit(rows, None, None));
            if self.must_reopen {
                break;
            }
        }
        self.land(flying);
    }

    /// Rows of the past in order of time, as an import brings them.
    fn import(&mut self) {
        let stream = self.stream();
        let days = self.random.pick(&[2, 20, 60]);
        let count = 40 + self.random.below(160) as i64;
        let (from, width) = (self.time.truly - days * DAY, days * DAY / count);
        self.log(format!("import {count} rows of {days} days into {stream}"));
        self.transcript.count("imports");
        let mut rows = Vec::new();
        for i in 0..count {
            let fields = self.fields(&stream);
            rows.push(Event {
                stream: stream.clone(),
                time: from + i * width + self.random.below(SECOND as u64) as i64,
                fields,
            });
        }
        World::uniform(&mut rows);
        let newest = self.newest.entry(stream).or_insert(i64::MIN);
        *newest = rows.iter().map(|r| r.time).fold(*newest, i64::max);
        for part in rows.chunks(50) {
            if self.must_reopen {
                return;
            }
            let flying = self.submit(part.to_vec(), None, None);
            self.land(flying.into_iter().collect());
        }
    }

    /// Long text, so that memory is used up and the writer stores what is due.
    fn heavy(&mut self) {
        let stream = self.stream();
        let count = 2 + self.random.below(6);
        self.log(format!("{count} heavy writes to {stream}"));
        self.transcript.count("heavy writes");
        for _ in 0..count {
            let mut rows: Vec<Event> = (0..4).map(|_| self.event(&stream)).collect();
            for row in &mut rows {
                let text = (0..3000)
                    .map(|_| format!("{:08x}", self.random.next() >> 32))
                    .collect();
                row.fields.insert("e".into(), Value::String(text));
            }
            World::uniform(&mut rows);
            if self.must_reopen {
                return;
            }
            let flying = self.submit(rows, None, None);
            self.land(flying.into_iter().collect());
        }
    }

    fn random_lifetimes(&mut self) -> (Option<Duration>, Option<Duration>) {
        let spans = [HOUR, 2 * DAY, 10 * DAY, 40 * DAY];
        let random = &mut self.random;
        let mut span = |percent| {
            let at = random.below(4) as usize;
            random
                .chance(percent)
                .then(|| Duration::from_nanos(spans[at].unsigned_abs()))
        };
        (span(35), span(40))
    }

    pub(super) fn create(&mut self) {
        let Some(name) = TABLES.iter().find(|t| !self.now.tables.contains_key(**t)) else {
            return;
        };
        let field = |(name, field_type): (&str, FieldType)| FieldSpec {
            name: name.to_owned(),
            field_type,
        };
        let (retention, raw_for) = self.random_lifetimes();
        let duplicates = self.random.pick(&[Duplicates::Last, Duplicates::Keep]);
        let fields = if self.random.chance(50) {
            FIELDS.to_vec()
        } else {
            Vec::new()
        };
        let spec = TableSpec {
            duplicates,
            retention,
            raw_for,
            leaf_events: Some(16),
            fields: fields.into_iter().map(field).collect(),
            ..TableSpec::new(*name)
        };
        self.log(format!(
            "create {name} {duplicates:?}, retention {retention:?}, raw for {raw_for:?}"
        ));
        self.transcript.count("tables made");
        self.operate(Op::Create(spec.clone()), |db| {
            db.create_table(&spec).map(drop)
        });
    }

    fn alter(&mut self) {
        let name = self.random.pick(&TABLES);
        let Some(table) = self.now.tables.get(name) else {
            return;
        };
        let mut change = TableChange::default();
        let widens = table.fields.get("w") == Some(&FieldType::I64);
        match self.random.below(4) {
            0 => change.retention = Some(self.random_lifetimes().0),
            1 => change.raw_for = Some(self.random_lifetimes().1),
            2 if widens => change.add_fields.push(FieldSpec {
                name: "w".into(),
                field_type: FieldType::F64,
            }),
            _ => change.add_fields.push(FieldSpec {
                name: format!("x{}", self.random.below(12)),
                field_type: FieldType::F64,
            }),
        }
        self.log(format!("alter {name} {change:?}"));
        self.transcript.count("tables altered");
        self.operate(Op::Alter(name.into(), change.clone()), |db| {
            db.alter_table(name, &change).map(drop)
        });
    }

    fn delete(&mut self) {
        let names = self.now.names();
        if names.is_empty() {
            return;
        }
        let name = names[self.random.below(names.len() as u64) as usize].clone();
        let (table, tags) = (name.table().to_owned(), name.tags().to_vec());
        match self.random.below(12) {
            0 => {
                self.log(format!("drop table {table}"));
                self.transcript.count("tables dropped");
                self.newest.retain(|n, _| n.table() != table);
                self.operate(Op::DropTable(table.clone()), |db| db.drop_table(&table));
                if !self.must_reopen && self.random.chance(50) {
                    self.create();
                }
            }
            1 | 2 => {
                let tags = if self.random.chance(30) {
                    tags[1..].to_vec()
                } else {
                    tags
                };
                self.log(format!("drop streams of {table} {tags:?}"));
                self.transcript.count("streams dropped");
                let op = Op::DropStreams(table.clone(), tags.clone());
                self.operate(op, |db| db.drop_streams(&table, &tags).map(drop));
            }
            _ => {
                let rows = &self.now.tables[&table].streams[&name];
                let range = if rows.is_empty() || self.random.chance(5) {
                    ClosedRange::ALL
                } else {
                    let from = self.random.below(rows.len() as u64) as usize;
                    let most = if self.random.chance(30) {
                        rows.len() as u64
                    } else {
                        20
                    };
                    let to = (from + self.random.below(most) as usize).min(rows.len() - 1);
                    ClosedRange::nanos(rows[from].time, rows[to].time)
                };
                let all = self.random.chance(20);
                let spec = DeleteSpec {
                    table,
                    tags: if all { Vec::new() } else { tags },
                    range,
                };
                self.log(format!("delete {spec:?}"));
                self.transcript.count("deletes");
                self.operate(Op::Delete(spec.clone()), |db| db.delete(&spec).map(drop));
            }
        }
    }

    /// Calls something that stores what is in memory.
    pub(super) fn store(&mut self, compacts: bool) {
        let done = if compacts {
            self.log("compact".into());
            self.transcript.count("compactions");
            self.db().compact()
        } else {
            self.log("flush".into());
            self.transcript.count("flushes");
            self.db().flush()
        };
        match done {
            Ok(()) => {
                self.time.keep();
                self.all_is_durable();
            }
            Err(error) => {
                self.failed("storing", &error);
                self.must_reopen = error.kind() != headwater_engine::ErrorKind::Full;
            }
        }
    }

    fn let_time_pass(&mut self) {
        // Where nobody stores anything for days, a crash takes back what time it was.
        let long = if self.wild { 5 * DAY } else { 8 * HOUR };
        let most = self.random.pick(&[10 * SECOND, HOUR, 8 * HOUR, long]);
        let span = self.random.below(most as u64) as i64;
        self.log(format!("{} s pass", span / SECOND));
        self.transcript.count("times that passed");
        self.pass(span);
    }

    /// Time goes by. What was ended until now is taken over first: where the clock is wrong, the
    /// cutoffs may lie elsewhere when somebody looks next.
    fn pass(&mut self, span: i64) {
        if !self.must_reopen {
            self.see();
        }
        self.time.pass(span);
    }

    /// By how much a clock that was not set rightly is wrong.
    pub(super) fn wrong_by(&mut self) -> i64 {
        match self.random.below(6) {
            0 | 1 => 0,
            2 => YEAR + self.random.below(9 * YEAR as u64) as i64,
            3 => -(self.random.below(20 * YEAR as u64) as i64),
            4 => self.random.below(3 * DAY as u64) as i64,
            _ => self.time.offset(),
        }
    }

    fn set_clock(&mut self) {
        let offset = self.wrong_by();
        self.log(format!("the clock is set wrong by {} s", offset / SECOND));
        self.transcript.count("clocks set");
        self.see();
        self.time.set(offset);
        if self.random.chance(40) {
            // Somebody looks at it, and it stays so.
            self.store(true);
            let hours = 1 + self.random.below(3) as i64;
            self.pass(hours * HOUR + SECOND);
        }
    }

    fn policy(&mut self) {
        let all = policies();
        let policy: PolicyChoice = if self.random.chance(30) {
            PolicyChoice::default()
        } else {
            self.random.pick(&all).into()
        };
        self.log(format!("policy {policy}"));
        self.transcript.count("policies set");
        if let Err(error) = self.db().set_late_policy(policy) {
            self.failed("setting a policy", &error);
        }
    }

    /// Makes an index, or drops one, or makes what is missing of one, or a part of it.
    fn index(&mut self) {
        let names: Vec<String> = self.db().indexes().into_iter().map(|i| i.name).collect();
        let name = names.get(self.random.below(names.len().max(1) as u64) as usize);
        match (self.random.below(10), name) {
            (0, Some(name)) => {
                self.log(format!("drop index {name}"));
                self.transcript.count("indexes dropped");
                if let Err(error) = self.db().drop_index(name) {
                    self.failed("dropping an index", &error);
                }
            }
            (1..=5, Some(name)) => self.build_index(name),
            _ if names.len() <= 12 => self.create_index(),
            _ => {}
        }
    }

    fn create_index(&mut self) {
        let tables = self.db().tables();
        if tables.is_empty() {
            return;
        }
        let table = &tables[self.random.below(tables.len() as u64) as usize];
        let mut fields: Vec<String> = table.fields.iter().map(|f| f.name.clone()).collect();
        let count = self.random.pick(&[1, 1, 2, 3]).min(fields.len());
        while fields.len() > count {
            fields.remove(self.random.below(fields.len() as u64) as usize);
        }
        let name = format!("index {}", self.written);
        let known = self.db().indexes().iter().any(|index| index.name == name);
        if fields.is_empty() || known {
            return;
        }
        let spec = IndexSpec {
            name,
            table: table.name.clone(),
            fields,
        };
        self.log(format!("create {spec:?}"));
        self.transcript.count("indexes created");
        match self.db().create_index(&spec) {
            Ok(()) if self.random.chance(60) => self.build_index(&spec.name),
            Ok(()) => {}
            Err(error) => self.failed("making an index", &error),
        }
    }

    /// Makes some pieces of an index, or all.
    fn build_index(&mut self, name: &str) {
        // It is asked once more than there are pieces.
        let mut pieces = self.random.pick(&[1, 2, 1000, 1000]);
        self.log(format!("{pieces} pieces of index {name}"));
        self.transcript.count("indexes made");
        let mut go_on = |_: &IndexProgress| match pieces {
            0 => ControlFlow::Break(()),
            _ => {
                pieces -= 1;
                ControlFlow::Continue(())
            }
        };
        if let Err(error) = self.db().build_index(name, &mut go_on) {
            self.failed("making what is missing of an index", &error);
        }
    }

    /// Does what is due, and ends.
    fn maintain(&mut self) {
        self.log("maintain".into());
        self.transcript.count("maintenances");
        if let Err(error) = self.db().maintain() {
            self.failed("maintaining", &error);
            self.must_reopen = error.kind() != headwater_engine::ErrorKind::Full;
        }
    }

    /// An idle database comes to rest: after it has settled nothing is written to segments any
    /// more.
    fn settle(&mut self) {
        self.log("settle".into());
        self.transcript.count("databases left to settle");
        let mut before = None;
        for round in 0..6 {
            self.store(true);
            if self.must_reopen || self.trouble != Trouble::None {
                return;
            }
            let stats = self.db().stats().unwrap();
            let now = (stats.bytes_leaf, stats.bytes_index, self.db().partitions());
            if before.as_ref() == Some(&now) {
                return;
            }
            assert!(round < 5, "never settles: {before:?}, then {now:?}");
            before = Some(now);
        }
    }

    /// What is due has been done, when the clock says the truth.
    fn check_lifetimes(&mut self) {
        if self.trouble != Trouble::None || !self.time.always_right {
            return;
        }
        self.store(true);
        // Partitions that get old rows just now wait for an hour.
        self.pass(HOUR + SECOND);
        if !self.must_reopen {
            self.store(true);
        }
        if self.must_reopen {
            return;
        }
        self.see();
        self.transcript.count("lives checked");
        let now = self.time.wall();
        for (name, table) in &self.now.tables {
            if let Some(retention) = table.retention {
                let least = now - retention - retention / 16;
                assert!(
                    table.cut >= least,
                    "table {name} is cut {}, at least {least} is due",
                    table.cut
                );
            }
            for partition in self.db().partitions().iter().filter(|p| p.table == *name) {
                let last = partition.range.last.as_nanos();
                let due = table.raw_for.is_some_and(|raw| last < now - raw);
                assert!(
                    !due || partition.is_aged,
                    "{partition:?} is not aged at {now}"
                );
                self.transcript
                    .add("aged partitions seen", u64::from(partition.is_aged));
                assert!(
                    last >= table.cut,
                    "{partition:?} lies before the cut {}",
                    table.cut
                );
            }
        }
    }

    fn hold_or_release(&mut self) {
        if !matches!(self.trouble, Trouble::None | Trouble::Full) {
            return;
        }
        if self.open_snapshots.len() < 3 && self.random.chance(50) {
            self.hold();
        } else if !self.open_snapshots.is_empty() {
            let index = self.random.below(self.open_snapshots.len() as u64) as usize;
            self.compare_open_snapshot(index);
            if self.random.chance(50) {
                self.log(format!("release snapshot {index}"));
                drop(self.open_snapshots.remove(index));
            }
        }
    }

    /// Held snapshots keep at most what was in memory when they were taken.
    fn check_memory(&mut self) {
        if self.open_snapshots.is_empty() {
            return;
        }
        let memory = self.db().stats().unwrap().memory_bytes;
        let pinned: u64 = self.open_snapshots.iter().map(|h| h.memory).sum();
        let most = pinned + self.options.memory_budget_bytes as u64;
        assert!(
            memory <= most,
            "{memory} bytes in memory, {pinned} when {} snapshots were taken",
            self.open_snapshots.len()
        );
    }

    /// One step of a life.
    pub(super) fn live(&mut self) {
        self.watch();
        match self.random.below(103) {
            0..=39 => self.write(),
            40..=44 => self.burst(),
            45..=47 => self.import(),
            // The papers' rule counts events, not memory.
            48..=49 if self.options.flush_rule == FlushRule::Production => self.heavy(),
            50..=54 => self.delete(),
            55..=57 => self.create(),
            58..=59 => self.alter(),
            60..=65 => self.store(false),
            66..=68 => self.store(true),
            69 => self.policy(),
            70 => self.maintain(),
            71..=80 => self.let_time_pass(),
            81..=83 if self.wild => self.set_clock(),
            84 => self.settle(),
            85 => self.check_lifetimes(),
            86..=93 => self.hold_or_release(),
            94..=95 => self.copy(),
            96..=97 => self.write_again(),
            98..=100 => self.index(),
            101..=102 => self.move_tier(),
            _ => self.write(),
        }
        // What fails in the background of a write is told to the next one.
        self.must_reopen |= self.process.is_dead();
        if self.disk.crashed() {
            assert!(self.trouble == Trouble::Cut, "a step does not end");
            self.must_reopen = true;
        }
        if !self.must_reopen && self.trouble == Trouble::None {
            self.check_memory();
        }
    }
}

fn number_of(number: u64) -> f64 {
    number as f64 / 8.0
}
