//! Definitions are bounded: in the log, in memory, in number.

use headwater_engine::{
    Database, Durability, ErrorKind, FieldSpec, Options, REFUSED_FIELDS, REFUSED_TABLES, TableSpec,
};
use headwater_io::{Env, Files, MemoryFiles, NoThreads};
use headwater_types::{Batch, StreamName, Value};
use std::sync::Arc;

fn environment(files: &Arc<MemoryFiles>) -> Env {
    Env {
        threads: Arc::new(NoThreads),
        files: Arc::clone(files) as Arc<dyn Files>,
        ..Env::memory()
    }
}

fn options() -> Options {
    Options {
        memory_budget_bytes: 4 << 20,
        durability: Durability::Written,
        shards: 1,
        fields_max: 5_000,
        ..Options::new("/db")
    }
}

fn row(batch: &mut Batch, table: &str, time: i64, field: &str, value: impl Into<Value>) {
    let name = StreamName::new(table, [("id", "1")]);
    let row = [(field, value.into())];
    batch.stream(&name).row(time, row).unwrap();
}

fn write(db: &Database, table: &str, time: i64, field: &str, value: f64) -> Vec<&'static str> {
    let mut batch = Batch::new();
    row(&mut batch, table, time, field, value);
    let written = db.commit(batch).unwrap();
    written.refused.iter().map(|r| r.code).collect()
}

fn names(db: &Database, table: &str) -> Vec<String> {
    let fields = db.snapshot().unwrap().fields(table).unwrap();
    fields.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn fields_added_one_by_one_take_log_and_memory_for_themselves_only() {
    let files = Arc::new(MemoryFiles::new());
    let db = Database::open_in(environment(&files), options()).unwrap();
    for at in 0..2_000 {
        assert!(write(&db, "t", at, &format!("field_{at:04}"), 0.5).is_empty());
    }
    let stats = db.stats().unwrap();
    // A record for the field and one for the row, and not the fields before.
    assert!(stats.bytes_log < 2_000 * 400, "{stats:?}");
    assert!(stats.memory_bytes < 3 << 20, "{stats:?}");
    let expected: Vec<String> = (0..2_000).map(|at| format!("field_{at:04}")).collect();
    assert_eq!(names(&db, "t"), expected);
    // Some of them are in the log alone, whatever was stored before.
    drop(db);
    let db = Database::open_in(environment(&files), options()).unwrap();
    assert_eq!(names(&db, "t"), expected);
    let last = db
        .snapshot()
        .unwrap()
        .last(&StreamName::new("t", [("id", "1")]));
    assert_eq!(last.unwrap().len(), 2_000);
}

/// Fields that are widened, added and declared between flushes, and openings with and without a
/// close.
#[test]
fn added_fields_are_found_after_every_opening() {
    for close in [false, true] {
        let files = Arc::new(MemoryFiles::new());
        let mut db = Database::open_in(environment(&files), options()).unwrap();
        let mut expected: Vec<(String, &str)> = Vec::new();
        for at in 0..60i64 {
            let mut batch = Batch::new();
            let name = format!("f{at}");
            row(&mut batch, "t", at, &name, at);
            expected.push((name, "i64"));
            if at % 7 == 3 {
                let of = format!("f{}", at / 2);
                let widened = expected.iter_mut().find(|(n, _)| *n == of).unwrap();
                row(&mut batch, "t", 100 + at, &widened.0, 0.5);
                widened.1 = "f64";
            }
            assert!(db.commit(batch).unwrap().refused.is_empty());
            if at % 11 == 5 {
                let declared = format!("declared{at}");
                let change = headwater_engine::TableChange {
                    add_fields: vec![FieldSpec {
                        name: declared.clone(),
                        field_type: headwater_types::FieldType::Bool,
                    }],
                    ..headwater_engine::TableChange::default()
                };
                db.alter_table("t", &change).unwrap();
                expected.push((declared, "bool"));
            }
            if at % 9 == 4 {
                db.flush().unwrap();
            }
            if at % 5 == 2 {
                if close {
                    db.close().unwrap();
                }
                drop(db);
                db = Database::open_in(environment(&files), options()).unwrap();
            }
            let fields = db.snapshot().unwrap().fields("t").unwrap();
            let found: Vec<(String, String)> = fields
                .into_iter()
                .map(|(name, t)| (name, t.to_string()))
                .collect();
            let wanted: Vec<(String, String)> = expected
                .iter()
                .map(|(name, t)| (name.clone(), (*t).to_owned()))
                .collect();
            assert_eq!(found, wanted, "{at}");
        }
    }
}

#[test]
fn tables_beyond_the_limit_are_refused_row_by_row_and_the_others_are_stored() {
    let files = Arc::new(MemoryFiles::new());
    let options = Options {
        tables_max: 3,
        ..options()
    };
    let db = Database::open_in(environment(&files), options.clone()).unwrap();
    let mut batch = Batch::new();
    for at in 0..6 {
        row(&mut batch, &format!("t{at}"), 1, "v", 0.5);
        row(&mut batch, &format!("t{at}"), 2, "v", 0.5);
    }
    row(&mut batch, "t0", 3, "v", 0.5);
    let written = db.commit(batch).unwrap();
    assert_eq!(written.accepted, 7);
    let refused: Vec<(usize, usize)> = written.refused.iter().map(|r| (r.entry, r.row)).collect();
    assert_eq!(refused, [(3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1)]);
    for one in &written.refused {
        assert_eq!(one.code, REFUSED_TABLES);
        assert!(one.message.contains("tables_max"), "{}", one.message);
    }
    let error = db.create_table(&TableSpec::new("t9")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("tables_max"), "{error}");
    // What was dropped makes room, and what is there stays writable under a smaller limit.
    db.drop_table("t1").unwrap();
    assert!(write(&db, "t9", 1, "v", 0.5).is_empty());
    drop(db);
    let smaller = Options {
        tables_max: 1,
        ..options
    };
    let db = Database::open_in(environment(&files), smaller).unwrap();
    assert!(write(&db, "t9", 2, "w", 0.5).is_empty());
    assert_eq!(write(&db, "t10", 1, "v", 0.5), [REFUSED_TABLES]);
}

#[test]
fn definitions_take_a_quarter_of_the_budget_at_most() {
    let files = Arc::new(MemoryFiles::new());
    let options = Options {
        memory_budget_bytes: 1 << 20,
        ..options()
    };
    let db = Database::open_in(environment(&files), options).unwrap();
    assert!(write(&db, "first", 1, "i", 0.5).is_empty());
    let mut integers = Batch::new();
    row(&mut integers, "first", 5, "n", 7i64);
    db.commit(integers).unwrap();
    let mut codes = Vec::new();
    for at in 0..200_000i64 {
        let table = format!("t{}", at / 100);
        codes = write(&db, &table, at, &format!("field_{at}"), 0.5);
        if !codes.is_empty() {
            break;
        }
    }
    assert!(codes == [REFUSED_FIELDS] || codes == [REFUSED_TABLES]);
    // Rows of what is there are taken, beside others in their batch, and fields can be widened.
    let mut batch = Batch::new();
    row(&mut batch, "first", 9, "i", 0.5);
    row(&mut batch, "first", 9, "n", 0.5);
    row(&mut batch, "first", 10, "new", 0.5);
    row(&mut batch, "another", 9, &"long".repeat(50), 0.5);
    let written = db.commit(batch).unwrap();
    let codes: Vec<&str> = written.refused.iter().map(|r| r.code).collect();
    assert!(written.accepted >= 2, "{written:?}");
    assert!(
        codes.contains(&REFUSED_FIELDS) && codes.contains(&REFUSED_TABLES),
        "{written:?}"
    );
    for one in &written.refused {
        assert!(one.message.contains("memory_budget"), "{}", one.message);
    }
}

#[test]
fn definitions_alone_are_stored_when_they_take_the_memory() {
    let files = Arc::new(MemoryFiles::new());
    let options = Options {
        memory_budget_bytes: 1 << 20,
        ..options()
    };
    let db = Database::open_in(environment(&files), options).unwrap();
    db.create_table(&TableSpec::new("t")).unwrap();
    for at in 0..600 {
        let change = headwater_engine::TableChange {
            add_fields: vec![FieldSpec {
                name: format!("{at}"),
                field_type: headwater_types::FieldType::I64,
            }],
            // A change of more than fields is logged whole.
            leaf_events: Some(16 + at),
            ..headwater_engine::TableChange::default()
        };
        db.alter_table("t", &change).unwrap();
        db.maintain().unwrap();
        let stats = db.stats().unwrap();
        assert!(stats.memory_bytes <= 600 << 10, "{at}: {stats:?}");
    }
}
