//! The lake as programs of others read it: DuckDB and pyiceberg (PyPI), against what the database
//! has, exported as lines of JSON.

use crate::gateway::Gateway;
use crate::support::{Bench, DAY, START, options};
use headwater::{ScanSpec, StreamName, Value, ValueRef};
use headwater_lake::{Catalog, OWN_NAMESPACE};
use headwater_testing::{LAKE_READERS, or_skip, python, run};
use std::path::Path;
use std::process::Command;

/// What the database has of a table, a line for each row.
fn lines(bench: &Bench, table: &str) -> String {
    let snapshot = bench.db().snapshot().unwrap();
    let mut out = String::new();
    for stream in snapshot.streams(table, &[]).unwrap() {
        let scan = snapshot.scan(&stream, &ScanSpec::default()).unwrap();
        let fields = scan.fields().to_vec();
        for chunk in scan {
            let chunk = chunk.unwrap();
            for (at, time) in chunk.times.iter().enumerate() {
                let mut row = serde_json::Map::new();
                row.insert("time".into(), time.to_string().into());
                for (tag, value) in stream.tags() {
                    row.insert(tag.clone(), value.clone().into());
                }
                for ((name, _), column) in fields.iter().zip(&chunk.columns) {
                    let text = match column.get(at) {
                        None => continue,
                        Some(ValueRef::F64(v)) => format!("{:016x}", v.to_bits()),
                        Some(ValueRef::Bytes(v)) => v.iter().map(|b| format!("{b:02x}")).collect(),
                        Some(ValueRef::String(v)) => v.to_owned(),
                        Some(ValueRef::Bool(v)) => v.to_string(),
                        Some(ValueRef::I64(v)) => v.to_string(),
                        Some(ValueRef::U64(v)) => v.to_string(),
                    };
                    row.insert(name.clone(), text.into());
                }
                out.push_str(&serde_json::Value::Object(row).to_string());
                out.push('\n');
            }
        }
    }
    out
}

fn compare(python: &Path, bench: &Bench, table: &str, why: &str) {
    let folder = bench.lake().join(headwater_lake::folder_of(table));
    let folder = folder.to_str().unwrap();
    compare_by(Command::new(python), bench, (table, &[folder]), why);
}

/// Compares what the script finds with a folder, and perhaps metadata, with the database.
fn compare_by(mut python: Command, bench: &Bench, (table, of): (&str, &[&str]), why: &str) {
    let expected = bench.lake().parent().unwrap().join("expected.jsonl");
    std::fs::write(&expected, lines(bench, table)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/engines/compare.py");
    let (folder, metadata) = of.split_first().unwrap();
    let said = run(python.arg(script).arg(folder).arg(&expected).args(metadata));
    match said {
        Ok(said) => println!("{why}: {said}"),
        Err(differences) => panic!("{why}: {differences}"),
    }
}

#[test]
fn duckdb_and_pyiceberg_read_a_bucket_by_what_the_catalog_tells() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let Some(python) = or_skip(python(&LAKE_READERS)) else {
        return;
    };
    let (bench, place) = (Bench::new(), gateway.location());
    let catalog = Catalog::new(&place);
    for round in 0..3i64 {
        for at in 0..100 {
            let stream = StreamName::new("load", [("host", format!("h {}", at % 3))]);
            let time = START + at * DAY / 40 + (round % 2) * 7;
            let load = (at * 3 + round) as f64 / 7.0;
            bench.row(&stream, time, &[("load", load.into()), ("n", at.into())]);
        }
        headwater_lake::write(&|| bench.db().snapshot(), &place, &options()).unwrap();
        let loaded = catalog.load(OWN_NAMESPACE, "load").unwrap().unwrap();
        let folder = loaded.metadata["location"].as_str().unwrap();
        let mut command = Command::new(&python);
        command.envs(gateway.environment());
        let of = [folder, loaded.path.to_str().unwrap()];
        compare_by(command, &bench, ("load", &of), "in a bucket");
    }
}

#[test]
fn duckdb_and_pyiceberg_read_what_the_database_has() {
    let Some(python) = or_skip(python(&LAKE_READERS)) else {
        return;
    };
    let bench = Bench::new();
    let stream = |host: &str| StreamName::new("load", [("host", host), ("rack", "r 1")]);
    for (number, host) in ["a", "b", "ü"].into_iter().enumerate() {
        let number = number as i64;
        for at in 0..200 {
            let time = START + at * DAY / 80 + number * 1_000;
            let mut fields: Vec<(&str, Value)> = vec![("load", (at as f64 / 7.0).into())];
            if at % 3 == 0 {
                fields.push(("count", (at - 50).into()));
                fields.push(("total", Value::U64(u64::MAX - at as u64)));
                fields.push(("ok", (at % 2 == 0).into()));
                fields.push(("note", format!("note {at} “{host}”").as_str().into()));
                fields.push(("raw", Value::Bytes(vec![0, 255, at as u8])));
            }
            bench.row(&stream(host), time, &fields);
        }
    }
    for (at, odd) in [f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY]
        .into_iter()
        .enumerate()
    {
        bench.row(
            &stream("odd"),
            START + at as i64 * 1_000,
            &[("load", odd.into())],
        );
    }
    bench.row(
        &StreamName::new("load", [("rack", "r 2")]),
        -5_000,
        &[("load", 1.0.into())],
    );
    bench.row(
        &StreamName::new("nothing", [("id", "1")]),
        START,
        &[("v", 1i64.into())],
    );
    bench
        .db()
        .delete(&headwater::DeleteSpec {
            table: "nothing".into(),
            tags: Vec::new(),
            range: headwater::ClosedRange::ALL,
        })
        .unwrap();
    // A chunk in which all values but NaN are equal: its least and its largest are one.
    for at in 0..100_i64 {
        let value = if at == 40 { f64::NAN } else { 7.0 };
        let name = StreamName::new("calm", [("id", "1")]);
        bench.row(&name, START + at * 1_000, &[("v", value.into())]);
    }
    bench.write();
    compare(&python, &bench, "load", "as written first");
    compare(&python, &bench, "calm", "NaN among equal values");
    compare(&python, &bench, "nothing", "an empty table");
    // A late row, a new field and a new tag, a row that is written again, a delete, nanoseconds.
    bench.row(
        &stream("a"),
        START + 5,
        &[("load", 0.5.into()), ("New", 7i64.into())],
    );
    let other = StreamName::new("load", [("host", "c"), ("zone", "z")]);
    bench.row(&other, START + DAY, &[("load", 3.0.into())]);
    bench.row(&stream("b"), START + 1_000, &[("load", 99.0.into())]);
    bench
        .db()
        .delete(&headwater::DeleteSpec {
            table: "load".into(),
            tags: vec![("host".into(), "b".into())],
            range: headwater::ClosedRange::nanos(START + 2_000, START + DAY / 2),
        })
        .unwrap();
    bench.write();
    compare(&python, &bench, "load", "after changes");
    // A field of another type.
    bench.row(&stream("a"), START + 2 * DAY, &[("count", 0.25.into())]);
    bench.write();
    compare(&python, &bench, "load", "after a field was widened");
}
