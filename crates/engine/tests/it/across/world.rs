//! Databases that share a name space by streams, and one database that was written the same.
//!
//! Each stream belongs to one part; some move from one part to another at an instant. Of these,
//! parts are also written what is not theirs, which the one database never gets.

use super::part_database::{MINUTE, PartDatabase, SECOND, some_delete, span_until, table_spec};
use crate::support::Dice;
use headwater_engine::{
    Across, AddedTags, Database, Owned, Owners, Snapshot, SnapshotPart, TableSpec,
};
use headwater_io::{Env, ManualClock};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PARTS: [&str; 3] = ["own", "edge-b", "edge-c"];
/// Tables that all parts have, with what of their streams lies where.
pub(super) const TABLES: [&str; 4] = ["plain", "keeps", "ages", "forgets"];
/// Tables whose answers do not depend on where partitions end.
pub(super) const STEADY: [&str; 4] = ["plain", "keeps", "moves", "alone"];
/// What the parts call `c` has these types, and in the one database these names.
const C: [(FieldType, &str); 3] = [
    (FieldType::F64, "c"),
    (FieldType::String, "c@edge-b"),
    (FieldType::I64, "c@edge-c"),
];

pub(super) struct World {
    pub(super) dice: Dice,
    parts: Vec<PartDatabase>,
    one: PartDatabase,
    clock: Arc<ManualClock>,
    newest: i64,
    /// Streams of `moves` belong to the first part before, and to the second from then on.
    moved_at: i64,
    /// What parts were written that is not theirs, by stream and part: first and last time.
    pub(super) strays: BTreeMap<(StreamName, &'static str), (i64, i64)>,
}

/// Tables of which rows age or go after an hour, among the others.
fn spec(table: &str, c: &[(FieldType, &str)], more: &[&str]) -> TableSpec {
    let hour = Some(Duration::from_secs(3600));
    TableSpec {
        raw_for: hour.filter(|_| table == "ages"),
        retention: hour.filter(|_| table == "forgets"),
        ..table_spec(table, c, more)
    }
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        let all = (0..4).map(|n| PartDatabase::new(seed * 10 + n, &clock));
        let mut parts: Vec<PartDatabase> = all.collect();
        let one = parts.pop().unwrap();
        for table in TABLES.into_iter().chain(["moves"]) {
            for (n, part) in parts.iter().enumerate() {
                // Only the second part has this field, and the third has fields in another order.
                let more: &[&str] = if n == 1 { &["only"] } else { &[] };
                let mut spec = spec(table, &[(C[n].0, "c")], more);
                if n == 2 {
                    spec.fields.reverse();
                }
                part.db().create_table(&spec).unwrap();
            }
            one.db().create_table(&spec(table, &C, &["only"])).unwrap();
        }
        let newest = Env::MEMORY_START.as_nanos();
        World {
            dice: Dice::new(seed),
            parts,
            one,
            clock,
            newest,
            moved_at: newest + 20 * MINUTE,
            strays: BTreeMap::new(),
        }
    }

    pub(super) fn part(&self, n: usize) -> &Database {
        self.parts[n].db()
    }

    /// A stream of a part, and the part.
    fn stream(&mut self) -> (StreamName, usize) {
        let part = self.dice.below(3);
        let table = match self.dice.below(20) {
            0 if part == 2 => "alone",
            n => TABLES[n as usize % 4],
        };
        let id = part + 3 * self.dice.below(3);
        let mut tags = vec![("id", id.to_string())];
        if id.is_multiple_of(2) {
            tags.push(("a", (id % 4).to_string()));
        }
        (StreamName::new(table, tags), part as usize)
    }

    fn moving(&mut self) -> StreamName {
        StreamName::new("moves", [("id", self.dice.below(2).to_string())])
    }

    fn owner_of(&self, stream: &StreamName, time: i64) -> usize {
        assert_eq!(stream.table(), "moves");
        usize::from(time >= self.moved_at)
    }

    pub(super) fn owners(&self) -> Owners {
        let at = self.moved_at;
        Owners::new(move |stream, _| {
            match stream.table() {
                // Nothing is said of the time before: it belongs to the first part that has it.
                "moves" => vec![Owned::by(PARTS[1], ClosedRange::nanos(at, i64::MAX))],
                _ => Vec::new(),
            }
        })
    }

    /// A row, as a part has it and as the one database has it.
    #[allow(clippy::type_complexity, reason = "the same row twice")]
    fn fields(&mut self, part: usize) -> (Vec<(&'static str, Value)>, Vec<(&'static str, Value)>) {
        let dice = &mut self.dice;
        let mut own = vec![("v", Value::F64(dice.below(1000) as f64 / 8.0))];
        if dice.chance(60) {
            own.push(("n", Value::I64(dice.below(100) as i64 - 50)));
        }
        if part == 1 && dice.chance(20) {
            own.push(("only", Value::F64(dice.below(9) as f64)));
        }
        let mut one = own.clone();
        if dice.chance(50) {
            let number = dice.below(20) as i64;
            let value = match C[part].0 {
                FieldType::F64 => Value::F64(number as f64 / 4.0),
                FieldType::I64 => Value::I64(number),
                _ => Value::String(number.to_string()),
            };
            own.push(("c", value.clone()));
            one.push((C[part].1, value));
        }
        (own, one)
    }

    fn write(&mut self) {
        let is_moving = self.dice.chance(25);
        let (stream, part) = match is_moving {
            true => (self.moving(), 0),
            false => self.stream(),
        };
        let is_late = self.dice.chance(15);
        let late = self.dice.below(20 * MINUTE as u64) as i64;
        let mut time = self.newest - if is_late { late } else { 0 };
        let mut whole = Batch::new();
        let mut own: BTreeMap<usize, Batch> = BTreeMap::new();
        for _ in 0..1 + self.dice.below(if is_late { 6 } else { 60 }) {
            time += match self.dice.below(20) {
                0 => 0,
                1 => -5 * SECOND,
                _ => SECOND / 2 + self.dice.below(SECOND as u64) as i64,
            };
            let owner = if is_moving {
                self.owner_of(&stream, time)
            } else {
                part
            };
            // Now and then who is not the owner writes.
            let writer = match is_moving && self.dice.chance(10) {
                true => self.dice.below(3) as usize,
                false => owner,
            };
            let (fields, mut all) = self.fields(writer);
            if stream.table() == "alone" {
                // Nobody else has the field there.
                all = fields.clone();
            }
            let batch = own.entry(writer).or_default();
            batch.stream(&stream).row(time, fields).unwrap();
            if writer == owner {
                whole.stream(&stream).row(time, all).unwrap();
            } else {
                let key = (stream.clone(), PARTS[writer]);
                let span = self.strays.entry(key).or_insert((time, time));
                *span = (span.0.min(time), span.1.max(time));
            }
        }
        for (part, batch) in own {
            self.part(part).commit(batch).unwrap();
        }
        self.one.db().commit(whole).unwrap();
        let passed = time - self.newest;
        if passed > 0 {
            self.newest = time;
            self.clock.advance(Duration::from_nanos(passed as u64));
        }
    }

    fn delete(&mut self) {
        let (stream, _) = self.stream();
        let spec = some_delete(&mut self.dice, &stream, self.newest);
        for place in self.parts.iter().chain([&self.one]) {
            // Not every part has the table.
            let known = place.db().tables();
            if known.iter().any(|table| table.name == spec.table) {
                place.db().delete(&spec).unwrap();
            }
        }
    }

    fn drop(&mut self) {
        let (stream, part) = self.stream();
        self.parts[part].drop_stream(&stream);
        self.one.drop_stream(&stream);
    }

    /// Does one thing; true when databases may not be the same open ones as before.
    pub(super) fn step(&mut self, all: &mut Option<Across>) {
        let which = self.dice.below(4) as usize;
        let place = self.parts.get(which).unwrap_or(&self.one);
        match self.dice.below(100) {
            0..=69 => self.write(),
            70..=77 => place.db().flush().unwrap(),
            78..=82 => self.delete(),
            83 => self.drop(),
            84..=91 => place.db().maintain().unwrap(),
            92..=96 => place.db().compact().unwrap(),
            _ => {
                // Snapshots keep a database from being opened again.
                *all = None;
                self.parts.get_mut(which).unwrap_or(&mut self.one).reopen();
            }
        }
    }

    /// Brings the parts up to date.
    pub(super) fn across(&self, all: &mut Option<Across>) -> Snapshot {
        let all = all.get_or_insert_with(|| {
            let all = Across::default();
            all.set_owners(Some(self.owners()));
            all
        });
        for ((rank, name), place) in (0..).zip(PARTS).zip(&self.parts) {
            let snapshot = place.db().snapshot().unwrap();
            let name = name.into();
            let part = SnapshotPart {
                name,
                rank,
                snapshot,
                tags: AddedTags::default(),
            };
            all.replace(part).unwrap();
        }
        all.snapshot().unwrap()
    }

    pub(super) fn one(&self) -> Snapshot {
        self.one.db().snapshot().unwrap()
    }

    /// Instants of everything that was written.
    pub(super) fn span(&self) -> ClosedRange {
        span_until(self.newest)
    }

    pub(super) fn moved_at(&self) -> i64 {
        self.moved_at
    }
}
