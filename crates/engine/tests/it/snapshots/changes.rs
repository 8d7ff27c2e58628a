//! Which tables have changed: what is not said to have is the same.

use super::{Rows, World, all_rows, rows};
use headwater_engine::{Database, DeleteSpec, FieldSpec, TableChange, TableSpec};
use headwater_io::{Chance, SeededChance};
use headwater_types::FieldType;
use std::collections::BTreeMap;
use std::time::Duration;

const TABLES: [&str; 3] = ["a", "b", "c"];

/// What was seen of a table, and in which state.
struct TableState {
    sequence: u64,
    rows: Rows,
}

fn rows_of(db: &Database, table: &str) -> TableState {
    let snapshot = db.snapshot().unwrap();
    let mut rows = all_rows(&snapshot);
    rows.retain(|(stream, _), _| stream.table() == table);
    TableState {
        sequence: snapshot.sequence(),
        rows,
    }
}

/// Does something to a table, or to the database; gives its name.
fn act(world: &World, db: &Database, dice: &SeededChance, table: &str) -> &'static str {
    let roll = |sides: u64| dice.next_u64() % sides;
    match roll(11) {
        0 => {
            let spec = DeleteSpec {
                table: table.to_owned(),
                tags: Vec::new(),
                range: super::range(roll(200) as i64, 200),
            };
            // A table that is not there has nothing to delete.
            drop(db.delete(&spec));
            "delete"
        }
        1 => {
            let tags = [("id".to_owned(), roll(3).to_string())];
            drop(db.drop_streams(table, &tags));
            "drop streams"
        }
        2 => {
            drop(db.drop_table(table));
            "drop the table"
        }
        3 => {
            let change = TableChange {
                retention: Some(Some(Duration::from_secs(50 + roll(200)))),
                add_fields: vec![FieldSpec {
                    name: format!("f{}", roll(4)),
                    field_type: FieldType::I64,
                }],
                ..TableChange::default()
            };
            drop(db.alter_table(table, &change));
            "alter"
        }
        4 => {
            world.clock.advance(Duration::from_secs(1 + roll(40)));
            db.maintain().unwrap();
            "time"
        }
        5 => {
            db.flush().unwrap();
            "flush"
        }
        6 => {
            db.compact().unwrap();
            "compact"
        }
        7 => {
            drop(db.create_table(&TableSpec::new(table)));
            "create"
        }
        _ => {
            // Late rows, and rows that were there before.
            let batch = rows(table, roll(3), roll(200) as i64, 1 + roll(20) as i64, 0.5);
            // What lies before the cut is refused.
            drop(db.commit(batch));
            "write"
        }
    }
}

#[test]
fn a_table_that_is_not_said_to_have_changed_is_the_same() {
    let mut told = BTreeMap::new();
    for seed in 0..8 {
        let world = World::new(seed);
        let dice = SeededChance::new(seed);
        let mut db = world.open();
        let mut seen: BTreeMap<&str, TableState> = TABLES.map(|t| (t, rows_of(&db, t))).into();
        for _ in 0..90 {
            let table = TABLES[(dice.next_u64() % 3) as usize];
            let done = if dice.next_u64().is_multiple_of(25) {
                db.close().unwrap();
                drop(db);
                db = world.open();
                "open again"
            } else {
                act(&world, &db, &dice, table)
            };
            for name in TABLES {
                let changed = db.changed_at(name);
                let now = rows_of(&db, name);
                let before = &seen[name];
                match changed {
                    None => assert!(now.rows.is_empty(), "seed {seed}: {name} is not there"),
                    Some(at) if at <= before.sequence => {
                        let is_same = now.rows == before.rows;
                        assert!(is_same, "seed {seed}: {done} changed {name}");
                        continue;
                    }
                    Some(_) => {}
                }
                *told.entry(done).or_insert(0u64) += u64::from(now.rows != before.rows);
                seen.insert(name, now);
            }
        }
        db.close().unwrap();
    }
    for done in [
        "write",
        "delete",
        "drop streams",
        "drop the table",
        "alter",
        "time",
        "create",
    ] {
        assert!(
            told.contains_key(done),
            "{done} never changed a table: {told:?}"
        );
    }
}
