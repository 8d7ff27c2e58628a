//! Alternatives over several fields: each is looked up in an index of its own.

use super::{
    SECOND, build, equal, filter, found_any, run, scan_any, scattered, spec, stream, write,
};
use crate::support::{assert_sound, small_options};
use headwater_engine::{Comparison, DeleteSpec, Duplicates, Filter, IndexUse, Options, TableSpec};
use headwater_engine::{Database, ReadStats};
use headwater_io::FaultyFiles;
use headwater_types::{ClosedRange, Value};
use std::collections::BTreeMap;

const NAMES: [&str; 3] = ["a", "b", "cd"];

fn lists() -> Vec<(Vec<Filter>, Vec<Vec<Filter>>)> {
    let a = |value: i64| equal("a", value);
    let b = |value: f64| equal("b", value);
    let high = vec![filter("c", Comparison::TotalGreaterOrEqual, 390i64)];
    let text = equal("d", "d3");
    vec![
        (vec![], vec![[a(3), b(5.0)].concat()]),
        (vec![], vec![[a(3), a(300), b(5.0), high.clone()].concat()]),
        (a(100), vec![[b(200.0), high.clone()].concat()]),
        (
            vec![],
            vec![[a(100), b(200.0)].concat(), [b(5.0), a(3)].concat()],
        ),
        // Two indexes and a condition on a later field of one of them.
        (text.clone(), vec![[high.clone(), a(7)].concat()]),
        // An alternative that no index begins with, and one that has no bounds.
        (vec![], vec![[a(3), text].concat()]),
        (
            vec![],
            vec![[a(3), vec![filter("b", Comparison::NotEqual, 5.0)]].concat()],
        ),
    ]
}

fn with_versions(duplicates: Duplicates) {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    db.create_table(&TableSpec {
        duplicates,
        ..TableSpec::new("t")
    })
    .unwrap();
    let name = stream("1");
    let row = |n: i64| {
        let mut values: Vec<(&str, Value)> = vec![("a", scattered(n, 400).into()), ("c", n.into())];
        if n % 3 != 0 {
            values.push(("b", (scattered(n, 401) as f64).into()));
        }
        if n % 4 != 0 {
            values.push(("d", Value::String(format!("d{}", n % 9))));
        }
        values
    };
    write(&db, &name, (0..400).map(|n| (n * SECOND, row(n))));
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    db.create_index(&spec("b", &["b"])).unwrap();
    db.create_index(&spec("cd", &["c", "d"])).unwrap();
    for index in NAMES {
        build(&db, index);
    }
    let old = db.snapshot().unwrap();
    let late = |field: &'static str, value: Value, step: usize| {
        let rows = (0..400i64).step_by(step);
        rows.map(move |n| (n * SECOND, vec![(field, value.clone())]))
    };
    write(&db, &name, late("a", 100i64.into(), 9));
    db.flush().unwrap();
    write(&db, &name, late("b", 200.0.into(), 6));
    write(&db, &name, late("d", Value::String("d3".into()), 7));
    let count = |db: &Database| -> Vec<(usize, usize)> {
        let now = db.snapshot().unwrap();
        let counts = lists().into_iter().map(|(filters, any_of)| {
            let before = found_any(db, &old, &name, &filters, &any_of);
            (before, found_any(db, &now, &name, &filters, &any_of))
        });
        counts.collect()
    };
    let first = count(&db);
    let found = first.iter().filter(|(_, now)| *now > 0);
    assert!(found.count() >= 5, "{first:?}");
    db.flush().unwrap();
    assert_eq!(count(&db), first);
    for index in NAMES {
        build(&db, index);
    }
    assert_eq!(count(&db), first);
    db.delete(&DeleteSpec {
        table: "t".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(0, 200 * SECOND),
    })
    .unwrap();
    let deleted = count(&db);
    db.compact().unwrap();
    assert_eq!(count(&db), deleted);
    for index in NAMES {
        build(&db, index);
    }
    assert_eq!(count(&db), deleted);
    drop(old);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn alternatives_over_fields_that_lie_in_several_places_are_found() {
    with_versions(Duplicates::Last);
}

#[test]
fn alternatives_of_equal_times_that_are_kept_are_found() {
    with_versions(Duplicates::Keep);
}

#[test]
fn alternatives_over_several_fields_read_few_leaves() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::new("/db")
    };
    let db = run(&disk, &options).open().unwrap();
    let till = stream("1");
    let rows = (0..50_000).map(|n| {
        let values = vec![
            ("order", scattered(n, 50_000).into()),
            ("code", scattered(n * 3, 49_999).into()),
            ("n", n.into()),
        ];
        (n * SECOND, values)
    });
    write(&db, &till, rows);
    db.compact().unwrap();
    db.create_index(&spec("orders", &["order"])).unwrap();
    db.create_index(&spec("codes", &["code", "n"])).unwrap();
    build(&db, "orders");
    build(&db, "codes");
    let snapshot = db.snapshot().unwrap();
    let any = vec![[equal("order", 4711i64), equal("code", 17i64)].concat()];
    let named = snapshot.usable_indexes("t", &[], &any).unwrap();
    assert_eq!(named, ["codes", "orders"]);
    let mut touched = BTreeMap::new();
    for usage in [IndexUse::Never, IndexUse::ByCost] {
        db.use_indexes(usage);
        // What is loaded of an index pays for itself: rows this small do that when asked again.
        for value in 0..4i64 {
            let any = vec![[equal("order", value), equal("code", value)].concat()];
            assert!(!scan_any(&snapshot, &till, &[], &any).is_empty());
        }
        let before = ReadStats::by_this_thread();
        let rows = scan_any(&snapshot, &till, &[], &any);
        assert!(rows.len() == 2 || rows.len() == 1, "{rows:?}");
        let leaves = (ReadStats::by_this_thread() - before).leaves;
        touched.insert(format!("{usage:?}"), leaves);
    }
    assert!(
        touched["ByCost"] <= 12 && touched["Never"] > 20,
        "{touched:?}"
    );
    // Without an index for one of them none is of use.
    db.drop_index("codes").unwrap();
    let named = snapshot.usable_indexes("t", &[], &any).unwrap();
    assert!(named.is_empty(), "{named:?}");
}
