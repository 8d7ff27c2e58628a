//! Scans by some fields beside scans of all, in tables whose values expire, where the values of one
//! instant were written by several batches, some of them stored and some in memory.

use super::{SECOND, World, stream};
use crate::model::Random;
use crate::support::{Fields, START, collect, small_options};
use headwater_engine::{Database, Duplicates, RowBlock, ScanSpec, TableSpec};
use headwater_types::{Batch, Timestamp, Value};
use std::collections::BTreeMap;
use std::time::Duration;

const FIELDS: [&str; 4] = ["a", "b", "c", "n"];
/// Instants of rows, seconds.
const INSTANTS: u64 = 30;

/// Values with what they expire at, seconds after the start.
type Cells = BTreeMap<String, (f64, Option<i64>)>;

/// The rows of a stream by time, then arrival.
struct Plain {
    duplicates: Duplicates,
    rows: BTreeMap<i64, Vec<Cells>>,
}

impl Plain {
    fn put(&mut self, at: i64, cells: Cells) {
        let rows = self.rows.entry(at).or_default();
        match rows.last_mut() {
            Some(row) if self.duplicates == Duplicates::Last => row.extend(cells),
            _ => rows.push(cells),
        }
    }

    /// The rows of which something lives, with their living values of some fields.
    fn visible(&self, now: i64, fields: &[String]) -> Vec<(i64, Fields)> {
        let lives = |(_, expires): &(f64, Option<i64>)| expires.is_none_or(|at| at > now);
        let mut out = Vec::new();
        for (at, rows) in &self.rows {
            for row in rows.iter().filter(|row| row.values().any(lives)) {
                let asked = row
                    .iter()
                    .filter(|(f, cell)| fields.contains(f) && lives(cell));
                let values = asked.map(|(f, (value, _))| (f.clone(), Value::F64(*value)));
                out.push((START + at * SECOND, values.collect()));
            }
        }
        out
    }
}

/// Some fields at some instants, all with one expiry or none.
fn write(db: &Database, random: &mut Random, plain: &mut [Plain]) {
    let expires = random.pick(&[None, Some(100), Some(200), Some(300)]);
    let mut batch = Batch::new();
    if let Some(after) = expires {
        batch.expire_at(Timestamp::from_nanos(START + after * SECOND));
    }
    for (id, plain) in (1..).zip(plain) {
        for _ in 0..1 + random.below(12) {
            let at = random.below(INSTANTS) as i64;
            let mut cells = Cells::new();
            for field in FIELDS {
                if random.chance(35) {
                    let value = random.below(1000) as f64;
                    cells.insert(field.to_owned(), (value, expires));
                }
            }
            if cells.is_empty() {
                continue;
            }
            let fields = cells
                .iter()
                .map(|(f, (value, _))| (f.as_str(), Value::F64(*value)));
            let rows = batch.stream(&stream(id));
            rows.row(START + at * SECOND, fields).unwrap();
            plain.put(at, cells);
        }
    }
    db.commit(batch).unwrap();
}

/// Every choice of fields, forwards and backwards, by scans and by visits. Gives how many rows were
/// shown without a value.
fn compare(db: &Database, plain: &[Plain], now: i64, what: &str) -> usize {
    let snapshot = db.snapshot().unwrap();
    let mut bare = 0;
    for (id, plain) in (1..).zip(plain) {
        for choice in 1..1u32 << FIELDS.len() {
            let chosen = (0..FIELDS.len()).filter(|at| choice >> at & 1 == 1);
            let mut fields: Vec<String> = chosen.map(|at| FIELDS[at].to_owned()).collect();
            let expected = plain.visible(now, &fields);
            bare += expected
                .iter()
                .filter(|(_, values)| values.is_empty())
                .count();
            for _ in 0..2 {
                let spec = ScanSpec {
                    fields: Some(fields.clone()),
                    ..ScanSpec::default()
                };
                let (rows, errors) = collect(snapshot.scan(&stream(id), &spec).unwrap());
                assert!(errors.is_empty(), "{what}: {errors:?}");
                assert_eq!(rows, expected, "{what}, {fields:?} of stream {id}");
                let mut visited: Vec<(i64, Fields)> = Vec::new();
                let each = |block: RowBlock<'_>| {
                    for (row, time) in block.times().iter().enumerate() {
                        let values = fields.iter().enumerate().filter_map(|(place, field)| {
                            Some((field.clone(), block.column(place)?.get(row)?.to_owned()))
                        });
                        visited.push((*time, values.collect()));
                    }
                };
                snapshot.visit(&stream(id), &spec, each).unwrap();
                assert_eq!(
                    visited, expected,
                    "{what}, visited {fields:?} of stream {id}"
                );
                fields.reverse();
            }
        }
    }
    bare
}

#[test]
fn a_scan_of_some_fields_shows_the_rows_that_a_scan_of_all_shows() {
    let (mut bare, mut gone) = (0, 0);
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut world = World::new(small_options());
        let duplicates = random.pick(&[Duplicates::Last, Duplicates::Keep]);
        let spec = TableSpec {
            duplicates,
            ..TableSpec::new("m")
        };
        world.db().create_table(&spec).unwrap();
        let new = || Plain {
            duplicates,
            rows: BTreeMap::new(),
        };
        let mut plain = [new(), new()];
        // Every stream and field is there from the beginning on.
        for (id, plain) in (1..).zip(&mut plain) {
            let mut batch = Batch::new();
            let all = FIELDS.map(|field| (field, Value::F64(0.5)));
            batch.stream(&stream(id)).row(START, all).unwrap();
            world.db().commit(batch).unwrap();
            let cells = FIELDS.map(|field| (field.to_owned(), (0.5, None)));
            plain.put(0, cells.into_iter().collect());
        }
        let mut now = 0;
        for step in 0..24 {
            for _ in 0..1 + random.below(3) {
                write(world.db(), &mut random, &mut plain);
            }
            let what = format!("seed {seed}, step {step}, {duplicates:?}");
            bare += compare(world.db(), &plain, now, &what);
            match random.below(5) {
                0 | 1 => world.db().flush().unwrap(),
                2 => world.db().compact().unwrap(),
                3 => world.reopen(),
                _ => {
                    let before = plain[0].visible(now, &[]).len();
                    world.clock.advance(Duration::from_secs(30));
                    now += 30;
                    gone += before - plain[0].visible(now, &[]).len();
                }
            }
            bare += compare(world.db(), &plain, now, &what);
        }
        world.assert_sound();
    }
    assert!(
        bare > 1000 && gone > 10,
        "{bare} rows without a value, {gone} gone"
    );
}
