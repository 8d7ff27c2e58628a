//! What is refused leaves no trace, and what is acknowledged is changed by nothing that comes
//! later.

use headwater_engine::{
    Database, Durability, ErrorKind, FieldSpec, Options, ScanSpec, TableChange, Written,
};
use headwater_io::{Env, Files, MemoryFiles, NoThreads};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, StreamRows, Timestamp, Value};
use std::sync::Arc;
use std::time::Duration;

/// 2^53 + 1: the least integer that no float holds.
const BEYOND: i64 = 9_007_199_254_740_993;

fn environment(files: &Arc<MemoryFiles>) -> Env {
    Env {
        threads: Arc::new(NoThreads),
        files: Arc::clone(files) as Arc<dyn Files>,
        ..Env::memory()
    }
}

fn options() -> Options {
    Options {
        durability: Durability::Written,
        shards: 2,
        fields_max: 4,
        streams_max: 3,
        tables_max: 2,
        string_bytes_max: 8,
        max_future: Some(Duration::from_secs(3_600)),
        ..Options::new("/db")
    }
}

fn open() -> Database {
    Database::open_in(environment(&Arc::new(MemoryFiles::new())), options()).unwrap()
}

type Row<'a> = (&'a str, &'a str, i64, &'a [(&'a str, Value)]);

/// One entry a row, as the doors make them of lines that do not go together.
fn batch(rows: &[Row<'_>]) -> Batch {
    let mut batch = Batch::new();
    for (table, id, time, values) in rows {
        let mut entry = StreamRows::new(StreamName::new(*table, [("id", *id)]));
        entry.row(*time, values.iter().cloned()).unwrap();
        batch.push(entry);
    }
    batch
}

fn text(value: &str) -> Value {
    Value::String(value.into())
}

/// Everything that definitions tell.
fn dump_definitions(db: &Database) -> String {
    let snapshot = db.snapshot().unwrap();
    let mut out = String::new();
    for table in db.tables() {
        let streams = snapshot.streams(&table.name, &[]).unwrap();
        out += &format!("{table:?} {streams:?}\n");
    }
    out
}

fn value(db: &Database, table: &str, id: &str, field: &str, time: i64) -> Option<Value> {
    let spec = ScanSpec {
        range: ClosedRange::nanos(time, time),
        fields: Some(vec![field.to_owned()]),
        ..ScanSpec::default()
    };
    let snapshot = db.snapshot().unwrap();
    let mut found = None;
    for chunk in snapshot
        .scan(&StreamName::new(table, [("id", id)]), &spec)
        .unwrap()
    {
        let chunk = chunk.unwrap();
        found = chunk
            .columns
            .first()
            .and_then(|c| c.get(0))
            .map(|v| v.to_owned());
    }
    found
}

/// Rows that are refused, each for another reason, and would bring something up by the way.
fn refused_rows() -> Vec<(&'static str, Row<'static>)> {
    const LATER: i64 = 4_000_000_000_000_000_000;
    static BAD_TYPE: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("n", text("x")), ("v", text("bad"))]);
    static LONG: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("n", text("x")), ("t", text("longer than eight"))]);
    static FIELDS: std::sync::LazyLock<[(&str, Value); 3]> =
        std::sync::LazyLock::new(|| [("n1", text("x")), ("n2", text("x")), ("n3", text("x"))]);
    static NAME: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("n", text("x")), ("", text("x"))]);
    static NEW: std::sync::LazyLock<[(&str, Value); 1]> =
        std::sync::LazyLock::new(|| [("n", text("x"))]);
    static WIDENS: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("i", 0.5.into()), ("v", text("bad"))]);
    static INEXACT: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("n", text("x")), ("v", BEYOND.into())]);
    static LOSES: std::sync::LazyLock<[(&str, Value); 2]> =
        std::sync::LazyLock::new(|| [("n", text("x")), ("big", 0.5.into())]);
    vec![
        ("a value of another type", ("g", "1", 2, &*BAD_TYPE)),
        ("a wider type beside it", ("g", "1", 2, &*WIDENS)),
        ("an integer no float holds", ("g", "1", 2, &*INEXACT)),
        ("a fraction among large integers", ("g", "1", 2, &*LOSES)),
        ("a long string", ("g", "new", 2, &*LONG)),
        ("too many fields", ("g", "1", 2, &*FIELDS)),
        ("a bad name", ("g", "new", 2, &*NAME)),
        ("a bad name of a table", ("", "1", 2, &*NEW)),
        ("the future", ("g", "new", LATER, &*NEW)),
        ("the future, in a new table", ("h", "1", LATER, &*NEW)),
        ("what retention ended", ("short", "1", 5, &*NEW)),
        ("one stream too many", ("full", "4", 2, &*NEW)),
        ("one table too many", ("t4", "1", 2, &*NEW)),
    ]
}

/// A database in which each of [`refused_rows`] is refused.
fn prepared(flushed: bool) -> Database {
    let db = Database::open_in(
        environment(&Arc::new(MemoryFiles::new())),
        Options {
            tables_max: 4,
            ..options()
        },
    )
    .unwrap();
    let first = [
        ("v", 1.0.into()),
        ("i", 7_i64.into()),
        ("big", BEYOND.into()),
    ];
    assert!(
        db.commit(batch(&[("g", "1", 1, &first)]))
            .unwrap()
            .refused
            .is_empty()
    );
    let one = [("v", 1.0.into())];
    for id in ["1", "2", "3"] {
        db.commit(batch(&[("full", id, 1, &one)])).unwrap();
    }
    let now = Env::MEMORY_START.as_nanos();
    db.commit(batch(&[("short", "1", now, &one)])).unwrap();
    let short = TableChange {
        retention: Some(Some(Duration::from_secs(60))),
        ..TableChange::default()
    };
    db.alter_table("short", &short).unwrap();
    if flushed {
        db.flush().unwrap();
    }
    db
}

#[test]
fn a_refused_row_brings_nothing_up() {
    for flushed in [false, true] {
        for (why, row) in refused_rows() {
            // The tables of the last case are all there are to be.
            let db = prepared(flushed);
            if why == "one table too many" {
                let fourth = [("v", 1.0.into())];
                db.commit(batch(&[("fourth", "1", 1, &fourth)])).unwrap();
            }
            let before = dump_definitions(&db);
            let good = [("v", 2.0.into())];
            for all in [false, true] {
                let mut alone = batch(&[row]);
                let mut beside = batch(&[row, ("g", "1", 3, &good)]);
                if all {
                    alone.require_all();
                    beside.require_all();
                }
                let refused = db.commit(alone).unwrap().refused;
                assert_eq!(refused.len(), 1, "{why}");
                let written = db.commit(beside).unwrap();
                assert_eq!(written.refused.len(), 1, "{why}");
                assert_eq!(written.accepted, u64::from(!all), "{why}");
                assert_eq!(
                    dump_definitions(&db),
                    before,
                    "{why}, flushed: {flushed}, all: {all}"
                );
            }
        }
    }
}

#[test]
fn a_batch_that_is_refused_as_a_whole_brings_nothing_up() {
    for (why, row) in refused_rows() {
        if why == "one table too many" {
            continue;
        }
        let db = prepared(false);
        let before = dump_definitions(&db);
        let new = [("fresh", true.into()), ("i", 0.5.into())];
        for at in 0..3 {
            let mut rows = vec![("g", "another", 5, &new[..]), ("g", "1", 5, &new[..])];
            rows.insert(at, row);
            let mut all = batch(&rows);
            all.require_all();
            let expiring = at == 1;
            if expiring {
                all.expire_at(Timestamp::from_nanos(i64::MAX - 1));
            }
            let written = db.commit(all).unwrap();
            assert!(!written.refused.is_empty(), "{why}");
            assert_eq!(written.accepted, 0, "{why}");
            assert_eq!(dump_definitions(&db), before, "{why} as number {at}");
        }
        // The same without the bad one.
        let mut good = batch(&[("g", "another", 5, &new)]);
        good.require_all();
        assert!(db.commit(good).unwrap().refused.is_empty(), "{why}");
    }
}

#[test]
fn a_batch_that_is_too_large_brings_nothing_up() {
    let db = Database::open_in(
        environment(&Arc::new(MemoryFiles::new())),
        Options {
            batch_bytes_max: 1024,
            ..options()
        },
    )
    .unwrap();
    let one = [("v", 1.0.into())];
    let rows: Vec<Row<'_>> = (0..200).map(|at| ("g", "1", at, &one[..])).collect();
    let error = db.commit(batch(&rows)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(dump_definitions(&db), "");
}

#[test]
fn what_a_refused_row_named_takes_any_type_afterwards() {
    let db = open();
    db.commit(batch(&[("g", "1", 1, &[("v", 1.0.into())])]))
        .unwrap();
    let bad = [("n", text("x")), ("v", text("bad"))];
    assert_eq!(
        db.commit(batch(&[("g", "1", 2, &bad)]))
            .unwrap()
            .refused
            .len(),
        1
    );
    let good = [("n", 5_i64.into())];
    let written = db.commit(batch(&[("g", "1", 3, &good)])).unwrap();
    assert!(written.refused.is_empty(), "{:?}", written.refused);
}

/// In memory, in segments, after another opening, in the same batch, in another stream.
#[test]
fn no_fraction_rounds_an_integer_that_was_acknowledged() {
    for stored in ["memory", "segments", "reopened", "same batch"] {
        let files = Arc::new(MemoryFiles::new());
        let mut db = Database::open_in(environment(&files), options()).unwrap();
        let id = [("id", BEYOND.into()), ("small", 3_i64.into())];
        let mut rows: Vec<Row<'_>> = vec![("g", "1", 1, &id)];
        let fraction = [("id", 0.5.into())];
        let half: Row<'_> = ("g", "2", 2, &fraction);
        if stored == "same batch" {
            rows.push(half);
        }
        let written = db.commit(batch(&rows)).unwrap();
        match stored {
            "segments" => db.flush().unwrap(),
            "reopened" => {
                db.close().unwrap();
                drop(db);
                db = Database::open_in(environment(&files), options()).unwrap();
            }
            _ => {}
        }
        let refused = match stored {
            "same batch" => written.refused,
            _ => db.commit(batch(&[half])).unwrap().refused,
        };
        assert_eq!(refused.len(), 1, "{stored}");
        assert_eq!(refused[0].code, "E_TYPE", "{stored}");
        assert!(
            refused[0].message.contains("TYPE DOUBLE"),
            "{}",
            refused[0].message
        );
        // Also the second time, when it is known.
        assert_eq!(db.commit(batch(&[half])).unwrap().refused[0].code, "E_TYPE");
        let widen = TableChange {
            add_fields: vec![FieldSpec {
                name: "id".into(),
                field_type: FieldType::F64,
            }],
            ..TableChange::default()
        };
        let error = db.alter_table("g", &widen).unwrap_err();
        assert!(error.to_string().contains(&BEYOND.to_string()), "{error}");
        assert_eq!(
            value(&db, "g", "1", "id", 1),
            Some(BEYOND.into()),
            "{stored}"
        );
        // One whose integers are small takes it.
        let small = [("small", 0.25.into())];
        assert!(
            db.commit(batch(&[("g", "1", 2, &small)]))
                .unwrap()
                .refused
                .is_empty()
        );
        assert_eq!(value(&db, "g", "1", "small", 1), Some(3.0.into()));
    }
}

/// Commits rows, again for as long as the engine sends them back while it looks at a field: what a
/// client does.
fn commit_again(db: &Database, rows: &[Row<'_>]) -> Written {
    for _ in 0..10_000 {
        match db.commit(batch(rows)) {
            Ok(written) => return written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        std::thread::yield_now();
    }
    panic!("sent back 10,000 times: {rows:?}");
}

/// Writers bring large integers while another widens: whatever was acknowledged stays what it was.
#[test]
fn no_integer_slips_by_a_field_that_is_being_widened() {
    for round in 0..30_i64 {
        let db = open();
        db.commit(batch(&[("g", "1", 0, &[("v", 1_i64.into())])]))
            .unwrap();
        let acknowledged = std::thread::scope(|scope| {
            let writers: Vec<_> = ["2", "3"]
                .into_iter()
                .map(|id| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for time in 1..40 {
                            let value = BEYOND + 2 * time;
                            let row = [("v", value.into())];
                            let written = commit_again(db, &[("g", id, time, &row)]);
                            match written.refused.first() {
                                None => kept.push((id, time, value)),
                                Some(refused) => assert_eq!(refused.code, "E_TYPE"),
                            }
                        }
                        kept
                    })
                })
                .collect();
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            let half = [("v", 0.5.into())];
            let widened = db.commit(batch(&[("g", "1", 1, &half)])).unwrap();
            let kept: Vec<_> = writers
                .into_iter()
                .flat_map(|w| w.join().unwrap())
                .collect();
            if !widened.refused.is_empty() {
                assert_eq!(kept.len(), 78);
            }
            kept
        });
        for (id, time, expected) in acknowledged {
            assert_eq!(value(&db, "g", id, "v", time), Some(expected.into()));
        }
    }
}

#[test]
fn writers_that_bring_fields_up_together_are_all_taken() {
    let files = Arc::new(MemoryFiles::new());
    let db = Database::open_in(
        environment(&files),
        Options {
            fields_max: 500,
            streams_max: 500,
            tables_max: 500,
            ..options()
        },
    )
    .unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for at in 0..50_i64 {
                    let (field, id) = (format!("f{writer}_{at}"), format!("{}", at % 7));
                    let row = [(field.as_str(), at.into()), ("all", 1.0.into())];
                    let table = format!("t{}", at % 11);
                    let written = db.commit(batch(&[(&table, &id, at, &row)])).unwrap();
                    assert!(written.refused.is_empty(), "{:?}", written.refused);
                }
            });
        }
    });
    let before = dump_definitions(&db);
    assert_eq!(
        db.tables().iter().map(|t| t.fields.len()).sum::<usize>(),
        200 + 11
    );
    drop(db);
    let db = Database::open_in(
        environment(&files),
        Options {
            fields_max: 500,
            streams_max: 500,
            tables_max: 500,
            ..options()
        },
    )
    .unwrap();
    assert_eq!(dump_definitions(&db), before);
}
