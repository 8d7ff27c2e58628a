//! What a database should hold, as plain lists, and the operations that change it.
//!
//! Invariants: rows of a stream stand by time, then by arrival. An operation is there whole or not
//! at all, so a list of them and a number say what is there.

use crate::support::Event;
use headwater_engine::{DeleteSpec, Duplicates, TableChange, TableInfo, TableSpec};
use headwater_types::{FieldType, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// A value, and what time may have done to it.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) value: Value,
    /// From when on it has expired.
    pub(super) expires_at: Option<i64>,
    /// It lay before the cut, or in an aged stretch, at some time, and may have been removed or
    /// have left its aggregates only: for ever, also where the clock or a setting has put the
    /// cutoff back since.
    pub(super) was_cut: bool,
    pub(super) was_aged: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) time: i64,
    pub(super) fields: BTreeMap<String, Cell>,
    /// What it was before it was written again: where retention has ended it and goes back, the
    /// newer version may have been removed before the older one.
    pub(super) earlier: Vec<BTreeMap<String, Cell>>,
    /// It was deleted in a stretch of which only aggregates are kept, where a bucket at the edge of
    /// a delete stays.
    pub(super) deleted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) duplicates: Duplicates,
    pub(super) fields: BTreeMap<String, FieldType>,
    pub(super) retention: Option<i64>,
    pub(super) raw_for: Option<i64>,
    /// The shortest lives that the table ever had: what they have ended stays so.
    pub(super) retention_least: Option<i64>,
    pub(super) raw_least: Option<i64>,
    /// Cutoffs as they were when last seen.
    pub(super) cut: i64,
    pub(super) aged_to: i64,
    /// The furthest that they ever were.
    pub(super) cut_most: i64,
    pub(super) aged_most: i64,
    pub(super) streams: BTreeMap<StreamName, Vec<Row>>,
}

impl Table {
    fn new(duplicates: Duplicates) -> Table {
        Table {
            duplicates,
            fields: BTreeMap::new(),
            retention: None,
            raw_for: None,
            retention_least: None,
            raw_least: None,
            cut: i64::MIN,
            aged_to: i64::MIN,
            cut_most: i64::MIN,
            aged_most: i64::MIN,
            streams: BTreeMap::new(),
        }
    }

    /// Adds a field, or widens one from i64 to f64, as the table does.
    pub(super) fn field(&mut self, name: &str, field_type: FieldType) {
        let known = self.fields.entry(name.to_owned()).or_insert(field_type);
        if *known == FieldType::I64 && field_type == FieldType::F64 {
            *known = FieldType::F64;
            for row in self.streams.values_mut().flatten() {
                for fields in row.earlier.iter_mut().chain([&mut row.fields]) {
                    if let Some(cell) = fields.get_mut(name) {
                        cell.value = as_type(&cell.value, FieldType::F64);
                    }
                }
            }
        }
    }

    fn set_lifetimes(&mut self, retention: Option<i64>, raw_for: Option<i64>) {
        let shorter = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        (self.retention, self.raw_for) = (retention, raw_for);
        self.retention_least = shorter(self.retention_least, retention);
        self.raw_least = shorter(self.raw_least, raw_for);
    }

    fn move_cutoffs(&mut self, cut: i64, aged_to: i64) {
        (self.cut, self.aged_to) = (cut, aged_to);
        self.cut_most = self.cut_most.max(cut);
        self.aged_most = self.aged_most.max(aged_to);
        for row in self.streams.values_mut().flatten() {
            for cell in row.fields.values_mut() {
                cell.was_cut |= row.time < cut;
                cell.was_aged |= row.time < aged_to;
            }
        }
    }

    fn put(&mut self, event: &Event, expires_at: Option<i64>) {
        for (name, value) in &event.fields {
            self.field(name, value.as_ref().field_type());
        }
        let types = &self.fields;
        let fields = event.fields.iter().map(|(name, value)| {
            let value = types
                .get(name)
                .map_or_else(|| value.clone(), |t| as_type(value, *t));
            let cell = Cell {
                value,
                expires_at,
                was_cut: false,
                was_aged: false,
            };
            (name.clone(), cell)
        });
        let rows = self.streams.entry(event.stream.clone()).or_default();
        let at = rows.partition_point(|r| r.time <= event.time);
        if self.duplicates == Duplicates::Last
            && let Some(old) = at.checked_sub(1).and_then(|i| rows.get_mut(i))
            && old.time == event.time
            && !old.deleted
        {
            old.earlier.push(old.fields.clone());
            old.fields.extend(fields);
            return;
        }
        let row = Row {
            time: event.time,
            fields: fields.collect(),
            earlier: Vec::new(),
            deleted: false,
        };
        rows.insert(at, row);
    }
}

/// The value as a field of this type holds it.
pub(super) fn as_type(value: &Value, field_type: FieldType) -> Value {
    match (value, field_type) {
        (Value::I64(n), FieldType::F64) => Value::F64(*n as f64),
        (other, _) => other.clone(),
    }
}

/// What changes what a reader sees.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Write {
        rows: Vec<Event>,
        expires_at: Option<i64>,
        producer: Option<(String, u64)>,
    },
    Create(TableSpec),
    Alter(String, TableChange),
    Delete(DeleteSpec),
    DropStreams(String, Vec<(String, String)>),
    DropTable(String),
    /// Definitions that a failed operation has left behind: these may outlive what brought them.
    Found(Vec<TableInfo>),
}

pub(super) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    pub(super) tables: BTreeMap<String, Table>,
    /// The newest number of each producer.
    pub(super) producers: BTreeMap<String, u64>,
}

impl Plain {
    fn table(&mut self, name: &str) -> &mut Table {
        let new = || Table::new(Duplicates::Last);
        self.tables.entry(name.to_owned()).or_insert_with(new)
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write {
                rows,
                expires_at,
                producer,
            } => {
                for event in rows {
                    self.table(event.stream.table()).put(event, *expires_at);
                }
                if let Some((name, number)) = producer {
                    self.producers.insert(name.clone(), *number);
                }
            }
            Op::Create(spec) => {
                let mut table = Table::new(spec.duplicates);
                for field in &spec.fields {
                    table.field(&field.name, field.field_type);
                }
                table.set_lifetimes(spec.retention.map(nanos), spec.raw_for.map(nanos));
                self.tables.insert(spec.name.clone(), table);
            }
            Op::Alter(name, change) => {
                let table = self.table(name);
                for field in &change.add_fields {
                    table.field(&field.name, field.field_type);
                }
                let retention = change.retention.map_or(table.retention, |r| r.map(nanos));
                let raw_for = change.raw_for.map_or(table.raw_for, |r| r.map(nanos));
                table.set_lifetimes(retention, raw_for);
            }
            Op::Delete(spec) => self.delete(spec),
            Op::DropStreams(name, tags) => {
                let named = |s: &StreamName| tags.iter().all(|(k, v)| s.tag(k) == Some(v));
                self.table(name).streams.retain(|s, _| !named(s));
            }
            Op::DropTable(name) => {
                self.tables.remove(name);
            }
            Op::Found(infos) => {
                for info in infos {
                    let table = self.table(&info.name);
                    for field in &info.fields {
                        table.field(&field.name, field.field_type);
                    }
                }
            }
        }
    }

    fn delete(&mut self, spec: &DeleteSpec) {
        let Some(table) = self.tables.get_mut(&spec.table) else {
            return;
        };
        let aged_most = table.aged_most;
        for (name, rows) in &mut table.streams {
            if !spec.tags.iter().all(|(k, v)| name.tag(k) == Some(v)) {
                continue;
            }
            let named = |row: &Row| spec.range.contains(Timestamp::from_nanos(row.time));
            rows.retain(|row| !named(row) || row.time < aged_most);
            for row in rows.iter_mut().filter(|row| named(row)) {
                row.deleted = true;
            }
        }
    }

    /// Takes the cutoffs over that the database tells of.
    pub(super) fn see(&mut self, infos: &[TableInfo]) {
        for info in infos {
            if let Some(table) = self.tables.get_mut(&info.name) {
                let cut = info.cut.map_or(i64::MIN, Timestamp::as_nanos);
                let aged_to = info.aged_to.map_or(i64::MIN, Timestamp::as_nanos);
                if (cut, aged_to) != (table.cut, table.aged_to) {
                    table.move_cutoffs(cut, aged_to);
                }
            }
        }
    }

    /// What a database that believes this instant may have ended, though nobody saw it: its
    /// cutoffs may go back before it is looked at again.
    pub(super) fn may_have_ended(&mut self, newest: i64) {
        for table in self.tables.values_mut() {
            let at = |least: Option<i64>| least.map_or(i64::MIN, |l| newest.saturating_sub(l));
            table.cut_most = table.cut_most.max(at(table.retention_least));
            table.aged_most = table.aged_most.max(at(table.raw_least));
        }
    }

    /// Takes over how far the cutoffs ever were: what a power cut takes back may have ended
    /// something before.
    pub(super) fn remember(&mut self, other: &Plain) {
        for (name, table) in &mut self.tables {
            if let Some(other) = other.tables.get(name) {
                let (cut, aged_to) = (table.cut, table.aged_to);
                table.move_cutoffs(other.cut_most, other.aged_most);
                table.move_cutoffs(cut, aged_to);
            }
        }
    }

    /// Cut and "aged to" of each table.
    pub(super) fn clone_cutoffs(&self) -> BTreeMap<String, (i64, i64)> {
        let tables = self.tables.iter();
        tables
            .map(|(name, t)| (name.clone(), (t.cut, t.aged_to)))
            .collect()
    }

    /// All streams that have rows, or had some.
    pub(super) fn names(&self) -> Vec<StreamName> {
        let tables = self.tables.values();
        tables.flat_map(|t| t.streams.keys().cloned()).collect()
    }
}
