//! Random lives of a database and its lake: late rows, rows written again, deletes, new fields,
//! tags and tables, types that widen, flushes, compactions and openings in between. After each
//! write the files have exactly what the database has.

use crate::support::{Bench, DAY, START};
use headwater::{Batch, TableChange, Value};
use headwater::{ClosedRange, DeleteSpec, Duplicates, FieldSpec, FieldType, StreamName, TableSpec};
use headwater_testing::Dice;

struct Simulated {
    bench: Bench,
    dice: Dice,
    newest: i64,
    widened: bool,
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        let life = Simulated {
            bench: Bench::new(),
            dice: Dice(seed),
            newest: START,
            widened: false,
        };
        let spec = TableSpec {
            duplicates: Duplicates::Keep,
            ..TableSpec::new("events")
        };
        life.bench.db().create_table(&spec).unwrap();
        life
    }

    fn stream(&mut self, table: &str) -> StreamName {
        let tags = [
            ("id", ["1", "2", "zwölf"][self.dice.below(3) as usize]),
            ("site", ["a b", "c"][self.dice.below(2) as usize]),
        ];
        // Some have fewer tags.
        let count = 1 + self.dice.below(2) as usize;
        StreamName::new(table, tags[..count].iter().copied())
    }

    fn value(&mut self, field: &str) -> Value {
        match field {
            "f" if self.dice.below(5) == 0 => {
                [f64::NAN, -0.0, 0.0, f64::INFINITY][self.dice.below(4) as usize].into()
            }
            "f" => (self.dice.below(1_000) as f64 / 8.0).into(),
            "i" => (self.dice.below(100) as i64 - 50).into(),
            "u" => Value::U64(u64::MAX - self.dice.below(9)),
            "b" => (self.dice.below(2) == 0).into(),
            "s" => format!("text {}", self.dice.below(40)).as_str().into(),
            _ => Value::Bytes(self.dice.next().to_le_bytes().to_vec()),
        }
    }

    fn rows(&mut self, step: u64) {
        let table = ["load", "events", "a/b"][self.dice.below(3) as usize];
        // Fields come one after the other.
        let fields = ["f", "i", "s", "b", "u", "y"];
        let known = 1 + (step as usize / 6).min(fields.len() - 1);
        let mut batch = Batch::new();
        for _ in 0..1 + self.dice.below(40) {
            self.newest += self.dice.below(DAY as u64 / 40) as i64 / 1_000 * 1_000;
            let late = match self.dice.below(8) {
                0 => self.dice.below(3 * DAY as u64) as i64,
                _ => 0,
            };
            let mut time = self.newest - late;
            if step > 20 && self.dice.below(20) == 0 {
                // A rest that microseconds do not hold.
                time += 1 + self.dice.below(998) as i64;
            }
            let field = fields[self.dice.below(known as u64) as usize];
            let value = self.value(field);
            let stream = self.stream(table);
            let _ = batch.stream(&stream).row(time, [(field, value)]);
        }
        self.bench.db().commit(batch).unwrap();
    }

    fn delete(&mut self) {
        let from = self.newest - self.dice.below(4 * DAY as u64) as i64;
        let spec = DeleteSpec {
            table: "load".into(),
            tags: match self.dice.below(3) {
                0 => vec![("id".into(), "1".into())],
                _ => Vec::new(),
            },
            range: ClosedRange::nanos(from, from + self.dice.below(DAY as u64 * 2) as i64),
        };
        // The table may not be there yet.
        let _ = self.bench.db().delete(&spec);
    }

    fn widen(&mut self) {
        let change = TableChange {
            add_fields: vec![FieldSpec {
                name: "i".into(),
                field_type: FieldType::F64,
            }],
            ..TableChange::default()
        };
        if self.bench.db().alter_table("load", &change).is_ok() {
            self.widened = true;
        }
    }

    fn step(&mut self, step: u64) {
        match self.dice.below(16) {
            0 => self.bench.db().flush().unwrap(),
            1 => self.bench.db().compact().unwrap(),
            2 | 3 => self.delete(),
            4 => self.bench.reopen(),
            5 if step > 30 && !self.widened => self.widen(),
            _ => self.rows(step),
        }
    }
}

#[test]
fn after_each_write_the_files_have_what_the_database_has() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    };
    let first = number("HEADWATER_MODEL_FIRST_SEED", 1);
    for seed in first..first + number("HEADWATER_MODEL_SEEDS", 3) {
        let mut life = Simulated::new(seed);
        let mut written = 0;
        for step in 0..40 {
            life.step(step);
            if life.dice.below(3) == 0 {
                let told = life.bench.write();
                written += told.tables.iter().map(|t| t.days_written).sum::<u64>();
                life.bench
                    .assert_equal(&format!("seed {seed}, step {step}"));
                // Nothing has changed: nothing is written, and no file is made.
                let again = life.bench.write();
                for table in &again.tables {
                    let what = format!("seed {seed}, step {step}: {table:?}");
                    assert_eq!((table.days_written, table.days_removed), (0, 0), "{what}");
                }
            }
        }
        life.bench.write();
        life.bench.assert_equal(&format!("seed {seed}, at the end"));
        assert!(written > 12, "seed {seed}: {written} days");
    }
}
