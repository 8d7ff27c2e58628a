//! Shared by the tests of crashes, faults and damage: a small workload, a plain model of what it
//! should leave, and reading a database back.
//!
//! A workload is a list of [`Action`]s. Those that change what a reader sees are numbered as
//! *steps*, in the order in which the log gets them, so "what is there" is a number: the model
//! after that many steps.

use headwater_engine::{
    AggregateSpec, Bins, CheckReport, Database, DeleteSpec, Duplicates, Error, ErrorKind,
    FieldSpec, IndexSpec, Options, PolicyChoice, Scan, ScanSpec, Snapshot, TableChange, TableInfo,
    TableSpec,
};
use headwater_io::{
    Env, FaultyFiles, File, Files, Lock, LockError, ManualClock, NoThreads, OpenMode, SeededChance,
};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use headwater_testing::Dice;

/// The values of a row, by field.
pub(crate) type Fields = BTreeMap<String, Value>;

/// One event of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) stream: StreamName,
    pub(crate) time: i64,
    pub(crate) fields: Fields,
}

/// What a test does to a database.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A step: declares a table.
    Create(TableSpec),
    /// A step: changes a table.
    Alter(String, TableChange),
    /// A step: one batch, waited for.
    Write(Vec<Event>),
    /// As many steps as batches: all in flight, then waited for.
    Burst(Vec<Vec<Event>>),
    /// A step: deletes events.
    Delete(DeleteSpec),
    /// A step: drops the streams of a table that have these tags.
    DropStreams(String, Vec<(String, String)>),
    /// A step: drops a table.
    DropTable(String),
    Flush,
    Compact,
    Reopen,
    CreateIndex(IndexSpec),
    /// Makes what is missing of an index.
    BuildIndex(&'static str),
    DropIndex(&'static str),
    /// Another policy for late data.
    Policy(PolicyChoice),
}

pub(crate) fn batch_of(events: &[Event]) -> Batch {
    let mut batch = Batch::new();
    for event in events {
        let row = event.fields.iter().map(|(f, v)| (f.as_str(), v.clone()));
        batch.stream(&event.stream).row(event.time, row).unwrap();
    }
    batch
}

/// How far a run came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Steps begun.
    pub(crate) submitted: usize,
    /// Steps acknowledged: the first so many.
    pub(crate) acknowledged: usize,
    /// Steps that were acknowledged before a flush or a reopening that succeeded.
    pub(crate) flushed: usize,
    /// The database was opened at least once.
    pub(crate) opened: bool,
}

/// A database under test with the world around it.
pub(crate) struct Run<'a> {
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: &'a Options,
    pub(crate) progress: Progress,
}

impl<'a> Run<'a> {
    pub(crate) fn new(files: Arc<dyn Files>, options: &'a Options) -> Run<'a> {
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        let env = Env {
            files,
            media: headwater_io::Media::default(),
            clock: Arc::clone(&clock) as _,
            chance: Arc::new(SeededChance::new(7)),
            threads: Arc::new(NoThreads),
        };
        Run {
            env,
            clock,
            options,
            progress: Progress::default(),
        }
    }

    pub(crate) fn open(&self) -> Result<Database, Error> {
        Database::open_in(self.env.clone(), self.options.clone())
    }

    /// Opens, plays the actions and closes; stops at the first error.
    pub(crate) fn play(&mut self, actions: &[Action]) -> Result<(), Error> {
        let db = self.open()?;
        self.progress.opened = true;
        let db = self.play_on(db, actions)?;
        db.close()?;
        self.progress.flushed = self.progress.acknowledged;
        Ok(())
    }

    pub(crate) fn play_on(
        &mut self,
        mut db: Database,
        actions: &[Action],
    ) -> Result<Database, Error> {
        for action in actions {
            self.clock.advance(Duration::from_millis(3));
            match action {
                Action::Create(spec) => {
                    self.progress.submitted += 1;
                    db.create_table(spec)?;
                    self.progress.acknowledged += 1;
                }
                Action::Alter(table, change) => {
                    self.progress.submitted += 1;
                    db.alter_table(table, change)?;
                    self.progress.acknowledged += 1;
                }
                Action::Write(events) => {
                    self.progress.submitted += 1;
                    let written = db.commit(batch_of(events))?;
                    assert_eq!(
                        (written.accepted, written.refused.len()),
                        (events.len() as u64, 0)
                    );
                    self.progress.acknowledged += 1;
                }
                Action::Burst(batches) => {
                    let mut tickets = Vec::new();
                    for events in batches {
                        self.progress.submitted += 1;
                        tickets.push(db.write(batch_of(events))?);
                    }
                    for ticket in tickets {
                        ticket.wait()?;
                        self.progress.acknowledged += 1;
                    }
                }
                Action::Delete(spec) => {
                    self.progress.submitted += 1;
                    ignore_dropped(db.delete(spec))?;
                    self.progress.acknowledged += 1;
                }
                Action::DropStreams(table, tags) => {
                    self.progress.submitted += 1;
                    ignore_dropped(db.drop_streams(table, tags))?;
                    self.progress.acknowledged += 1;
                }
                Action::DropTable(table) => {
                    self.progress.submitted += 1;
                    ignore_dropped(db.drop_table(table))?;
                    self.progress.acknowledged += 1;
                }
                Action::CreateIndex(spec) => ignore_dropped(db.create_index(spec))?,
                Action::BuildIndex(name) => {
                    ignore_dropped(db.build_index(name, &mut |_| ControlFlow::Continue(())))?;
                }
                Action::DropIndex(name) => ignore_dropped(db.drop_index(name))?,
                Action::Policy(choice) => db.set_late_policy(*choice)?,
                Action::Flush => {
                    db.flush()?;
                    self.progress.flushed = self.progress.acknowledged;
                }
                Action::Compact => {
                    db.compact()?;
                    self.progress.flushed = self.progress.acknowledged;
                }
                Action::Reopen => {
                    db.close()?;
                    self.progress.flushed = self.progress.acknowledged;
                    drop(db);
                    db = self.open()?;
                }
            }
        }
        Ok(db)
    }
}

/// What was dropped before cannot be dropped or deleted again, and nothing changes.
fn ignore_dropped<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// A table as it should be.
#[derive(Clone, Debug)]
struct ModelTable {
    duplicates: Duplicates,
    fields: BTreeMap<String, FieldType>,
}

/// What a database should hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    tables: BTreeMap<String, ModelTable>,
    streams: BTreeMap<StreamName, Vec<(i64, Fields)>>,
}

impl Model {
    fn table(&mut self, name: &str) -> &mut ModelTable {
        let new = || ModelTable {
            duplicates: Duplicates::Last,
            fields: BTreeMap::new(),
        };
        self.tables.entry(name.to_owned()).or_insert_with(new)
    }

    fn field(&mut self, table: &str, name: &str, field_type: FieldType) {
        let slot = self
            .table(table)
            .fields
            .entry(name.to_owned())
            .or_insert(field_type);
        if *slot == FieldType::I64 && field_type == FieldType::F64 {
            *slot = field_type;
        }
    }

    pub(crate) fn write(&mut self, events: &[Event]) {
        for event in events {
            for (name, value) in &event.fields {
                self.field(event.stream.table(), name, value.as_ref().field_type());
            }
            let duplicates = self.table(event.stream.table()).duplicates;
            let rows = self.streams.entry(event.stream.clone()).or_default();
            let at = rows.partition_point(|(t, _)| *t <= event.time);
            match at.checked_sub(1).and_then(|i| rows.get_mut(i)) {
                Some((t, old)) if *t == event.time && duplicates == Duplicates::Last => {
                    old.extend(event.fields.clone())
                }
                _ => rows.insert(at, (event.time, event.fields.clone())),
            }
        }
    }

    fn add_fields(&mut self, table: &str, fields: &[FieldSpec]) {
        for field in fields {
            self.field(table, &field.name, field.field_type);
        }
    }

    pub(crate) fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Create(spec) => {
                self.table(&spec.name).duplicates = spec.duplicates;
                self.add_fields(&spec.name, &spec.fields);
            }
            Step::Alter(table, change) => self.add_fields(table, &change.add_fields),
            Step::Write(events) => self.write(events),
            Step::Delete(spec) => {
                for (name, rows) in &mut self.streams {
                    let named = spec.tags.iter().all(|(k, v)| name.tag(k) == Some(v));
                    if name.table() == spec.table && named {
                        rows.retain(|(t, _)| !spec.range.contains(Timestamp::from_nanos(*t)));
                    }
                }
            }
            Step::DropStreams(table, tags) => {
                self.streams.retain(|name, _| {
                    name.table() != *table || !tags.iter().all(|(k, v)| name.tag(k) == Some(v))
                });
            }
            Step::DropTable(table) => {
                self.streams.retain(|name, _| name.table() != *table);
                self.tables.remove(*table);
            }
        }
    }

    pub(crate) fn after(steps: &[Step<'_>], count: usize) -> Model {
        let mut model = Model::default();
        for step in steps.iter().take(count) {
            model.step(step);
        }
        model
    }

    pub(crate) fn streams(&self) -> &BTreeMap<StreamName, Vec<(i64, Fields)>> {
        &self.streams
    }
}

/// One change that is there whole or not at all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Create(&'a TableSpec),
    Alter(&'a str, &'a TableChange),
    Write(&'a [Event]),
    Delete(&'a DeleteSpec),
    DropStreams(&'a str, &'a [(String, String)]),
    DropTable(&'a str),
}

/// The steps of a workload, in order.
pub(crate) fn steps(actions: &[Action]) -> Vec<Step<'_>> {
    let mut out = Vec::new();
    for action in actions {
        match action {
            Action::Create(spec) => out.push(Step::Create(spec)),
            Action::Alter(table, change) => out.push(Step::Alter(table, change)),
            Action::Write(events) => out.push(Step::Write(events)),
            Action::Burst(batches) => out.extend(batches.iter().map(|b| Step::Write(b))),
            Action::Delete(spec) => out.push(Step::Delete(spec)),
            Action::DropStreams(table, tags) => out.push(Step::DropStreams(table, tags)),
            Action::DropTable(table) => out.push(Step::DropTable(table)),
            Action::CreateIndex(_) | Action::BuildIndex(_) | Action::DropIndex(_) => {}
            Action::Flush | Action::Compact | Action::Reopen | Action::Policy(_) => {}
        }
    }
    out
}

/// What a database holds, read back over its scans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    tables: BTreeMap<String, ModelTable>,
    pub(crate) streams: BTreeMap<StreamName, Vec<(i64, Fields)>>,
}

/// The rows of a scan, and the errors met on the way.
pub(crate) fn collect(scan: Scan) -> (Vec<(i64, Fields)>, Vec<Error>) {
    let names: Vec<String> = scan.fields().iter().map(|(n, _)| n.clone()).collect();
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for item in scan {
        match item {
            Err(error) => errors.push(error),
            Ok(chunk) => {
                for (row, time) in chunk.times.iter().enumerate() {
                    let present = |(n, c): (&String, &headwater_types::Column)| {
                        Some((n.clone(), c.get(row)?.to_owned()))
                    };
                    rows.push((
                        *time,
                        names
                            .iter()
                            .zip(&chunk.columns)
                            .filter_map(present)
                            .collect(),
                    ));
                }
            }
        }
        assert!(
            errors.len() < 10_000,
            "a scan that does not end: {:?}",
            errors.last()
        );
    }
    (rows, errors)
}

/// Reads everything, and compares the aggregates and the newest values of every stream with its
/// rows.
pub(crate) fn read_back(db: &Database) -> Content {
    read_snapshot(&db.snapshot().unwrap(), &db.tables())
}

/// As [`read_back`], of a snapshot.
pub(crate) fn read_snapshot(snapshot: &Snapshot, tables: &[TableInfo]) -> Content {
    let mut content = Content::default();
    for table in tables {
        let fields = table
            .fields
            .iter()
            .map(|f| (f.name.clone(), f.field_type))
            .collect();
        for name in snapshot.streams(&table.name, &[]).unwrap() {
            let (rows, errors) = collect(snapshot.scan(&name, &ScanSpec::default()).unwrap());
            assert!(errors.is_empty(), "{name}: {errors:?}");
            let last = snapshot.last(&name).unwrap();
            for field in &table.fields {
                let count = rows
                    .iter()
                    .filter(|(_, f)| f.contains_key(&field.name))
                    .count() as u64;
                let spec = AggregateSpec {
                    range: ClosedRange::ALL,
                    bins: Bins::Whole,
                    first_last: false,
                };
                let bins = snapshot.aggregate(&name, &field.name, &spec).unwrap();
                assert_eq!(
                    bins.iter().map(|b| b.aggregate.count).sum::<u64>(),
                    count,
                    "{name}.{}",
                    field.name
                );
                let newest = rows
                    .iter()
                    .rev()
                    .find_map(|(t, f)| Some((*t, f.get(&field.name)?.clone())));
                let found = last.iter().find(|l| l.field == field.name);
                assert_eq!(
                    found.map(|l| (l.time.as_nanos(), l.value.clone())),
                    newest,
                    "last of {name}.{}",
                    field.name
                );
            }
            content.streams.insert(name, rows);
        }
        content.tables.insert(
            table.name.clone(),
            ModelTable {
                duplicates: table.duplicates,
                fields,
            },
        );
    }
    content
}

impl Content {
    /// What differs from the model, if anything. Streams without rows and fields without values may
    /// be there in addition: their definitions may have outlived the batch that brought them.
    pub(crate) fn difference(&self, model: &Model) -> Option<String> {
        for (name, table) in &model.tables {
            let Some(found) = self.tables.get(name) else {
                return Some(format!("no table {name}"));
            };
            if found.duplicates != table.duplicates {
                return Some(format!("table {name}: duplicates {:?}", found.duplicates));
            }
            for (field, field_type) in &table.fields {
                let widened = found.fields.get(field) == Some(&FieldType::F64)
                    && *field_type == FieldType::I64;
                if found.fields.get(field) != Some(field_type) && !widened {
                    return Some(format!(
                        "field {name}.{field} {field_type}: found {:?}",
                        found.fields.get(field)
                    ));
                }
            }
        }
        for (name, rows) in &self.streams {
            if !rows.is_empty() && !model.streams.contains_key(name) {
                return Some(format!(
                    "stream {name} has {} rows, none expected",
                    rows.len()
                ));
            }
        }
        for (name, expected) in &model.streams {
            let Some(found) = self.streams.get(name) else {
                return Some(format!("no stream {name}"));
            };
            if found.len() != expected.len() {
                return Some(format!(
                    "stream {name}: {} rows, {} expected",
                    found.len(),
                    expected.len()
                ));
            }
            let types = self.tables.get(name.table()).map(|t| &t.fields);
            for ((t, f), (u, g)) in found.iter().zip(expected) {
                let same = f.len() == g.len()
                    && f.iter()
                        .all(|(k, v)| g.get(k).is_some_and(|w| same_value(v, w, types, k)));
                if t != u || !same {
                    return Some(format!("stream {name}: row {t} {f:?}, expected {u} {g:?}"));
                }
            }
        }
        None
    }

    /// The number of steps, from `least` to `most`, after which the model is what the database
    /// holds; the largest one, since some steps change no rows.
    pub(crate) fn steps_found(
        &self,
        steps: &[Step<'_>],
        least: usize,
        most: usize,
    ) -> Result<usize, String> {
        let mut model = Model::after(steps, least);
        let mut differences = Vec::new();
        let mut found = None;
        for count in least..=most.min(steps.len()) {
            match self.difference(&model) {
                None => found = Some(count),
                Some(difference) => differences.push(format!("after {count} steps: {difference}")),
            }
            if let Some(step) = steps.get(count) {
                model.step(step);
            }
        }
        if let Some(count) = found {
            return Ok(count);
        }
        differences.truncate(6);
        Err(format!(
            "the database is in none of the states {least} to {most}\n{}",
            differences.join("\n")
        ))
    }
}

fn same_value(
    found: &Value,
    expected: &Value,
    types: Option<&BTreeMap<String, FieldType>>,
    field: &str,
) -> bool {
    let widened = types.and_then(|t| t.get(field)) == Some(&FieldType::F64);
    match (found, expected) {
        (Value::F64(f), Value::I64(e)) if widened => f.to_bits() == (*e as f64).to_bits(),
        (f, e) => f.as_ref().same_bits(&e.as_ref()),
    }
}

/// Checks the files of a database that is not open.
pub(crate) fn check(files: Arc<dyn Files>, options: &Options) -> CheckReport {
    headwater_engine::check(Run::new(files, options).env, options.clone()).unwrap()
}

pub(crate) fn assert_sound(files: &FaultyFiles, options: &Options) {
    let report = check(Arc::new(files.clone()), options);
    assert!(report.is_sound(), "{:#?}", report.damages);
}

/// Small sizes, so that a few hundred batches do all there is to do.
pub(crate) fn small_options() -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        late_runs_max: 2,
        partition_target_bytes: 2 << 10,
        partition_bytes_max: 4 << 10,
        leaf_events: 16,
        groups_max: 6,
        log_file_bytes: 4096,
        reserve_bytes: 0,
        index_page_entries: 4,
        ..Options::new("/db")
    }
}

/// Makes workloads like those of sensors: mostly rising times, some late, some far away, some
/// twice; a table whose later writes win and one that keeps everything; fields that come later and
/// one that is widened from i64 to f64.
pub(crate) struct Maker {
    pub(crate) dice: Dice,
    clocks: BTreeMap<StreamName, i64>,
    events: u64,
}

pub(crate) const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

impl Maker {
    pub(crate) fn new(seed: u64) -> Maker {
        Maker {
            dice: Dice::new(seed),
            clocks: BTreeMap::new(),
            events: 0,
        }
    }

    fn time(&mut self, stream: &StreamName) -> i64 {
        let clock = self.clocks.entry(stream.clone()).or_insert(START);
        match self.dice.below(100) {
            0..=74 => {
                *clock += SECOND / 4 + self.dice.below(SECOND as u64) as i64;
                *clock
            }
            75..=89 => *clock - self.dice.below(60 * SECOND as u64) as i64,
            90..=94 => *clock,
            95..=97 => *clock - self.dice.below(86_400 * SECOND as u64) as i64,
            98 => -(self.dice.below(1 << 60) as i64),
            _ => [i64::MIN, i64::MAX, 0, -1][self.dice.below(4) as usize],
        }
    }

    /// One event. `age` says how far the workload has come, in percent: fields are added and
    /// widened on the way.
    pub(crate) fn event(&mut self, age: u64) -> Event {
        self.events += 1;
        let mut fields = Fields::new();
        let stream = if self.dice.chance(70) {
            let stream = StreamName::new("m", [("device", self.dice.below(4).to_string())]);
            if self.dice.chance(95) {
                fields.insert("v".into(), Value::F64(self.dice.below(1000) as f64 / 10.0));
            }
            if self.dice.chance(50) {
                let number = self.dice.below(100) as i64 - 50;
                let value = if age < 60 {
                    Value::I64(number)
                } else {
                    Value::F64(number as f64 / 2.0)
                };
                fields.insert("n".into(), value);
            }
            if age >= 30 && self.dice.chance(30) {
                fields.insert(
                    "state".into(),
                    Value::String(["on", "off", ""][self.dice.below(3) as usize].into()),
                );
            }
            if fields.is_empty() {
                fields.insert("v".into(), Value::F64(-0.0));
            }
            stream
        } else {
            fields.insert("id".into(), Value::U64(self.events));
            if age >= 50 && self.dice.chance(50) {
                fields.insert("good".into(), Value::Bool(self.dice.chance(50)));
            }
            StreamName::new(
                "k",
                [
                    ("device", self.dice.below(3).to_string()),
                    ("site", "north".into()),
                ],
            )
        };
        let time = self.time(&stream);
        Event {
            stream,
            time,
            fields,
        }
    }

    /// A delete, now and then of a whole stream or table.
    pub(crate) fn delete(&mut self) -> Action {
        let names: Vec<StreamName> = self.clocks.keys().cloned().collect();
        let Some(name) = names.get(self.dice.below(names.len().max(1) as u64) as usize) else {
            return Action::Flush;
        };
        let (table, tags) = (name.table().to_owned(), name.tags().to_vec());
        match self.dice.below(10) {
            0 => Action::DropTable(table),
            1 | 2 => Action::DropStreams(table, tags),
            _ => {
                let to = START + self.dice.below(100 * SECOND as u64) as i64;
                let from = to - self.dice.below(60 * SECOND as u64) as i64;
                let everything = self.dice.chance(10);
                let spec = DeleteSpec {
                    table,
                    tags: if self.dice.chance(20) {
                        Vec::new()
                    } else {
                        tags
                    },
                    range: if everything {
                        ClosedRange::ALL
                    } else {
                        ClosedRange::nanos(from, to)
                    },
                };
                Action::Delete(spec)
            }
        }
    }

    pub(crate) fn events(&mut self, count: u64, age: u64) -> Vec<Event> {
        (0..count).map(|_| self.event(age)).collect()
    }
}

/// The table of every workload that is declared, not made by its first write.
pub(crate) fn keeping_table() -> Action {
    Action::Create(TableSpec {
        duplicates: Duplicates::Keep,
        leaf_events: Some(16),
        fields: vec![FieldSpec {
            name: "id".into(),
            field_type: FieldType::U64,
        }],
        ..TableSpec::new("k")
    })
}

/// A workload of about `length` actions. Explicit flushes and compactions come every so many
/// actions; 0 = never.
pub(crate) fn workload(
    seed: u64,
    length: u64,
    flush_every: u64,
    compact_every: u64,
    reopen_every: u64,
) -> Vec<Action> {
    let mut maker = Maker::new(seed);
    let mut actions = vec![keeping_table()];
    let every = |at: u64, every: u64| every > 0 && at % every == every - 1;
    for at in 0..length {
        let age = at * 100 / length;
        if every(at, compact_every) {
            actions.push(Action::Compact);
        } else if every(at, reopen_every) {
            actions.push(Action::Reopen);
        } else if every(at, flush_every) {
            actions.push(Action::Flush);
        } else if at == length / 3 {
            let field = FieldSpec {
                name: "declared".into(),
                field_type: FieldType::Bytes,
            };
            actions.push(Action::Alter(
                "k".into(),
                TableChange {
                    add_fields: vec![field],
                    ..TableChange::default()
                },
            ));
        } else if at > length / 3 && maker.dice.chance(6) {
            actions.push(maker.delete());
        } else if maker.dice.chance(10) {
            let batches = (0..2 + maker.dice.below(3))
                .map(|_| maker.events(4, age))
                .collect();
            actions.push(Action::Burst(batches));
        } else {
            let count = if maker.dice.chance(10) {
                40
            } else {
                1 + maker.dice.below(9)
            };
            actions.push(Action::Write(maker.events(count, age)));
        }
    }
    actions
}

/// The files of a process that can be killed: from then on every call fails, and nothing is lost
/// but what the process had not yet handed to the operating system. The disk below goes on.
#[derive(Clone, Debug)]
pub(crate) struct Mortal {
    disk: FaultyFiles,
    state: Arc<ProcessState>,
}

#[derive(Debug)]
struct ProcessState {
    /// Changing calls left; the one that finds 0 is cut short, and all after it fail.
    calls_left: AtomicU64,
    locks: Mutex<BTreeMap<u64, Box<dyn Lock>>>,
}

const DEAD: u64 = u64::MAX;

impl Mortal {
    /// A process that lives for so many changing calls.
    pub(crate) fn new(disk: &FaultyFiles, calls: u64) -> Mortal {
        let life = ProcessState {
            calls_left: AtomicU64::new(calls),
            locks: Mutex::new(BTreeMap::new()),
        };
        Mortal {
            disk: disk.clone(),
            state: Arc::new(life),
        }
    }

    /// The same process on another disk.
    pub(crate) fn beside(&self, disk: &FaultyFiles) -> Mortal {
        Mortal {
            disk: disk.clone(),
            state: Arc::clone(&self.state),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.calls_left.load(Ordering::Acquire) == DEAD
    }

    fn hold(&self, lock: Box<dyn Lock>) -> Box<dyn Lock> {
        let mut locks = self.state.locks.lock().unwrap();
        let number = locks.last_key_value().map_or(0, |(last, _)| last + 1);
        locks.insert(number, lock);
        Box::new(MortalLock {
            number,
            life: Arc::clone(&self.state),
        })
    }

    /// Kills the process now.
    pub(crate) fn kill(&self) {
        self.state.die();
    }

    /// Kills the process at the changing call after so many others.
    pub(crate) fn kill_after(&self, calls: u64) {
        if !self.is_dead() {
            self.state.calls_left.store(calls, Ordering::Release);
        }
    }
}

impl ProcessState {
    fn killed() -> io::Error {
        io::Error::other("the process was killed")
    }

    fn die(&self) {
        self.calls_left.store(DEAD, Ordering::Release);
        self.locks.lock().unwrap().clear();
    }

    fn alive(&self) -> io::Result<()> {
        if self.calls_left.load(Ordering::Acquire) == DEAD {
            Err(ProcessState::killed())
        } else {
            Ok(())
        }
    }

    /// Whether a changing call goes through, or is the last one.
    fn change(&self) -> io::Result<bool> {
        self.alive()?;
        if self.calls_left.load(Ordering::Acquire) == 0 {
            self.die();
            return Ok(false);
        }
        self.calls_left.fetch_sub(1, Ordering::AcqRel);
        Ok(true)
    }

    fn unless_killed<T>(&self, body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.change()? {
            body()
        } else {
            Err(ProcessState::killed())
        }
    }
}

#[derive(Debug)]
struct MortalFile {
    file: Arc<dyn File>,
    state: Arc<ProcessState>,
}

impl File for MortalFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.state.alive()?;
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.state.change()? {
            return self.file.write_all_at(offset, data);
        }
        // The system call was under way: a part arrived.
        self.file.write_all_at(offset, &data[..data.len() / 2])?;
        Err(ProcessState::killed())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state.unless_killed(|| self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.state.alive()?;
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state.unless_killed(|| self.file.set_len(len))
    }
}

#[derive(Debug)]
struct MortalLock {
    number: u64,
    life: Arc<ProcessState>,
}

impl Lock for MortalLock {
    fn is_current(&self) -> io::Result<bool> {
        self.life.alive()?;
        let locks = self.life.locks.lock().unwrap();
        locks[&self.number].is_current()
    }
}

impl Drop for MortalLock {
    fn drop(&mut self) {
        self.life.locks.lock().unwrap().remove(&self.number);
    }
}

impl Files for Mortal {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let open = || self.disk.open(path, mode);
        let file = if mode == OpenMode::CreateNew {
            self.state.unless_killed(open)?
        } else {
            self.state.alive().and_then(|()| open())?
        };
        Ok(Arc::new(MortalFile {
            file,
            state: Arc::clone(&self.state),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state.unless_killed(|| self.disk.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.state.alive()?;
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state.unless_killed(|| self.disk.create_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.unless_killed(|| self.disk.sync_dir(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.state.alive()?;
        self.disk.exists(path)
    }

    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        self.state.alive()?;
        Ok(self.hold(self.disk.lock(path, owner_text)?))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.state.alive()?;
        Ok(self.hold(self.disk.lock_file(path)?))
    }
}
