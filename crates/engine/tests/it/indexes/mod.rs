//! Heavy indexes: whatever happens to rows, to files and to the indexes themselves, a filter gives
//! what it gives without them.

mod alternatives;
mod mishaps;

use crate::support::{Fields, Run, assert_sound, check, collect, small_options};
use headwater_engine::{
    Comparison, Database, DeleteSpec, Duplicates, Error, ErrorKind, FieldSpec, Filter, IndexInfo,
    IndexSpec, IndexUse, Options, ReadStats, ScanSpec, Snapshot, TableChange, TableSpec,
};
use headwater_io::{FaultyFiles, MemoryFiles};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

fn run<'a>(disk: &FaultyFiles, options: &'a Options) -> Run<'a> {
    Run::new(Arc::new(disk.clone()), options)
}

fn stream(id: &str) -> StreamName {
    StreamName::new("t", [("id", id)])
}

fn spec(name: &str, fields: &[&str]) -> IndexSpec {
    IndexSpec {
        name: name.into(),
        table: "t".into(),
        fields: fields.iter().map(|f| (*f).to_owned()).collect(),
    }
}

fn filter(field: &str, comparison: Comparison, value: impl Into<Value>) -> Filter {
    Filter {
        field: field.into(),
        comparison,
        value: value.into(),
    }
}

fn equal(field: &str, value: impl Into<Value>) -> Vec<Filter> {
    vec![filter(field, Comparison::Equal, value)]
}

fn build(db: &Database, name: &str) {
    let built = db.build_index(name, &mut |_| ControlFlow::Continue(()));
    assert!(built.unwrap());
}

fn index(db: &Database, name: &str) -> IndexInfo {
    let all = db.indexes().into_iter();
    let mut found: Vec<IndexInfo> = all.filter(|index| index.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

fn write(
    db: &Database,
    stream: &StreamName,
    rows: impl Iterator<Item = (i64, Vec<(&'static str, Value)>)>,
) {
    let rows: Vec<_> = rows.collect();
    for part in rows.chunks(4000) {
        let mut batch = Batch::new();
        for (time, fields) in part {
            let fields = fields.iter().map(|(name, value)| (*name, value.clone()));
            batch.stream(stream).row(*time, fields).unwrap();
        }
        let written = db.commit(batch).unwrap();
        assert!(written.refused.is_empty(), "{:?}", written.refused);
    }
}

fn scan(snapshot: &Snapshot, stream: &StreamName, filters: &[Filter]) -> Vec<(i64, Fields)> {
    scan_any(snapshot, stream, filters, &[])
}

fn scan_any(
    snapshot: &Snapshot,
    stream: &StreamName,
    filters: &[Filter],
    any_of: &[Vec<Filter>],
) -> Vec<(i64, Fields)> {
    let spec = ScanSpec {
        filters: filters.to_vec(),
        any_of: any_of.to_vec(),
        ..ScanSpec::default()
    };
    let (rows, errors) = collect(snapshot.scan(stream, &spec).unwrap());
    assert!(errors.is_empty(), "{errors:?}");
    rows
}

/// Rows that a filter finds, which are the same with indexes and without.
#[track_caller]
fn found(db: &Database, snapshot: &Snapshot, stream: &StreamName, filters: &[Filter]) -> usize {
    found_any(db, snapshot, stream, filters, &[])
}

/// As [`found`], also with lists of alternatives.
#[track_caller]
fn found_any(
    db: &Database,
    snapshot: &Snapshot,
    stream: &StreamName,
    filters: &[Filter],
    any_of: &[Vec<Filter>],
) -> usize {
    let with = |usage| {
        db.use_indexes(usage);
        scan_any(snapshot, stream, filters, any_of)
    };
    let without = with(IndexUse::Never);
    for usage in [IndexUse::Always, IndexUse::ByCost] {
        let rows = with(usage);
        // Rows that hold NaN are not equal to themselves.
        let same = format!("{rows:?}") == format!("{without:?}");
        assert!(
            same,
            "{stream} {filters:?} {any_of:?} {usage:?}: {rows:?}, without {without:?}"
        );
    }
    without.len()
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::TotalGreater,
    Comparison::TotalGreaterOrEqual,
    Comparison::NotEqual,
];

/// Asks for values that are there in all indexed fields, with every index and without.
pub(crate) fn assert_agree(db: &Database) {
    let snapshot = db.snapshot().unwrap();
    for index in db.indexes() {
        for name in snapshot.streams(&index.table, &[]).unwrap() {
            db.use_indexes(IndexUse::Never);
            let rows = scan(&snapshot, &name, &[]);
            for (at, (_, fields)) in rows.iter().enumerate().step_by(1 + rows.len() / 5) {
                let comparison = COMPARISONS[at % COMPARISONS.len()];
                let asked = index.fields.iter().filter_map(|field| {
                    let value = fields.get(field)?.clone();
                    Some(filter(field, comparison, value))
                });
                let asked: Vec<Filter> = asked.collect();
                found(db, &snapshot, &name, &asked);
                found(db, &snapshot, &name, &asked[..asked.len().min(1)]);
                // What the index holds, or another field of the row.
                let other = rows.get(rows.len() - 1 - at).into_iter();
                let other = other.flat_map(|(_, fields)| fields.iter());
                let other = other.map(|(field, value)| filter(field, comparison, value.clone()));
                let any: Vec<Filter> = asked.iter().cloned().chain(other).collect();
                found_any(db, &snapshot, &name, &[], std::slice::from_ref(&any));
                found_any(db, &snapshot, &name, &asked[..asked.len().min(1)], &[any]);
            }
        }
    }
    db.use_indexes(IndexUse::ByCost);
}

/// A number that no neighbour is near to.
fn scattered(number: i64, of: i64) -> i64 {
    (number * 7919).rem_euclid(of)
}

#[test]
fn one_row_among_many_is_found_by_few_leaves() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::new("/db")
    };
    let db = run(&disk, &options).open().unwrap();
    let till = stream("1");
    let rows = (0..50_000).map(|n| (n * SECOND, vec![("order", scattered(n, 50_000).into())]));
    write(&db, &till, rows);
    db.compact().unwrap();
    db.create_index(&spec("orders", &["order"])).unwrap();
    build(&db, "orders");
    let info = index(&db, "orders");
    assert_eq!(info.entries, 50_000);
    assert_eq!(info.progress.partitions, info.progress.partitions_complete);
    let snapshot = db.snapshot().unwrap();
    let mut touched = BTreeMap::new();
    for usage in [IndexUse::Never, IndexUse::ByCost] {
        db.use_indexes(usage);
        // What is loaded of an index pays for itself: rows this small do that when asked again.
        for value in 0..4i64 {
            let rows = scan(&snapshot, &till, &equal("order", value));
            assert_eq!(rows.len(), 1);
        }
        let before = ReadStats::by_this_thread();
        let rows = scan(&snapshot, &till, &equal("order", 4711i64));
        assert_eq!(rows.len(), 1);
        let leaves = (ReadStats::by_this_thread() - before).leaves;
        touched.insert(format!("{usage:?}"), leaves);
    }
    assert!(
        touched["ByCost"] <= 6 && touched["Never"] > 20,
        "{touched:?}"
    );
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
    let report = check(Arc::new(disk), &options);
    assert!(report.index_runs > 0, "{report:?}");
}

#[test]
fn one_of_several_values_is_looked_up_value_by_value() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::new("/db")
    };
    let db = run(&disk, &options).open().unwrap();
    let till = stream("1");
    let rows = (0..50_000).map(|n| {
        let values = vec![("order", scattered(n, 50_000).into()), ("n", n.into())];
        (n * SECOND, values)
    });
    write(&db, &till, rows);
    db.compact().unwrap();
    db.create_index(&spec("orders", &["order"])).unwrap();
    db.create_index(&spec("both", &["order", "n"])).unwrap();
    build(&db, "orders");
    build(&db, "both");
    let snapshot = db.snapshot().unwrap();
    let orders = |of: &[i64]| -> Vec<Filter> {
        of.iter().flat_map(|order| equal("order", *order)).collect()
    };
    let ask = |usage: IndexUse, filters: &[Filter], any_of: &[Vec<Filter>]| {
        db.use_indexes(usage);
        let spec = ScanSpec {
            filters: filters.to_vec(),
            any_of: any_of.to_vec(),
            ..ScanSpec::default()
        };
        let before = ReadStats::by_this_thread();
        let (rows, errors) = collect(snapshot.scan(&till, &spec).unwrap());
        assert!(errors.is_empty(), "{errors:?}");
        (rows, (ReadStats::by_this_thread() - before).leaves)
    };
    let late = filter("n", Comparison::Greater, 40_000i64);
    let small = filter("order", Comparison::Less, 3i64);
    for (filters, any_of, count) in [
        (vec![], vec![orders(&[1, 2, 3, 49_999])], Some(4)),
        (vec![], vec![orders(&[7, 7, 60_000])], Some(1)),
        (
            vec![],
            vec![[orders(&[9]), vec![small.clone()]].concat()],
            Some(4),
        ),
        (vec![late.clone()], vec![orders(&[1, 2, 3, 4, 5, 6])], None),
        // Of each list one, and of one list an alternative that no index answers.
        (vec![], vec![orders(&[1, 2]), orders(&[2, 3])], Some(1)),
        (vec![], vec![orders(&[1, 2]), vec![late, small]], None),
        // No row meets a list without conditions.
        (vec![], vec![vec![]], Some(0)),
        (equal("order", 5i64), vec![vec![]], Some(0)),
    ] {
        let (without, all) = ask(IndexUse::Never, &filters, &any_of);
        let (with, few) = ask(IndexUse::Always, &filters, &any_of);
        assert_eq!(with, without, "{filters:?} {any_of:?}");
        assert!(count.is_none_or(|count| with.len() == count), "{any_of:?}");
        assert!(few <= 8, "{few} leaves of {all}: {any_of:?}");
        let (with, _) = ask(IndexUse::ByCost, &filters, &any_of);
        assert_eq!(with, without, "{filters:?} {any_of:?}");
    }
    let named = snapshot.usable_indexes("t", &[], &[orders(&[1, 2])]);
    assert_eq!(named.unwrap(), ["both", "orders"]);
    let other = vec![
        filter("n", Comparison::Equal, 1i64),
        filter("order", Comparison::Equal, 1i64),
    ];
    let named = snapshot.usable_indexes("t", &[], &[other]);
    assert!(named.unwrap().is_empty());
    let wrong = vec![vec![filter("order", Comparison::Equal, "text")]];
    let refused = snapshot.usable_indexes("t", &[], &wrong).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

/// Versions of rows in the main run, in late runs and in memory, of which each holds some fields.
fn with_versions(duplicates: Duplicates) {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    db.create_table(&TableSpec {
        duplicates,
        ..TableSpec::new("t")
    })
    .unwrap();
    let name = stream("1");
    let row =
        |n: i64, a: i64, b: i64| vec![("a", a.into()), ("b", (b as f64).into()), ("c", n.into())];
    write(
        &db,
        &name,
        (0..400).map(|n| (n * SECOND, row(n, n % 7, n % 5))),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    db.create_index(&spec("b", &["b"])).unwrap();
    db.create_index(&spec("ab", &["a", "b"])).unwrap();
    for name in ["a", "b", "ab"] {
        build(&db, name);
    }
    let old = db.snapshot().unwrap();
    // One field each, so that a row's fields lie in several places.
    write(
        &db,
        &name,
        (0..400)
            .step_by(9)
            .map(|n| (n * SECOND, vec![("a", 100i64.into())])),
    );
    db.flush().unwrap();
    write(
        &db,
        &name,
        (0..400)
            .step_by(6)
            .map(|n| (n * SECOND, vec![("b", 200.0.into())])),
    );
    let asked = [
        equal("a", 100i64),
        equal("b", 200.0),
        vec![
            filter("a", Comparison::Equal, 100i64),
            filter("b", Comparison::Equal, 200.0),
        ],
        vec![
            filter("a", Comparison::Equal, 3i64),
            filter("b", Comparison::Greater, 100.0),
        ],
        vec![
            filter("a", Comparison::Equal, 3i64),
            filter("b", Comparison::LessOrEqual, 2.0),
        ],
        vec![
            filter("a", Comparison::GreaterOrEqual, 5i64),
            filter("a", Comparison::Less, 6i64),
        ],
        vec![
            filter("b", Comparison::NotEqual, 200.0),
            filter("a", Comparison::Greater, 99i64),
        ],
    ];
    let mut counts = Vec::new();
    let round = |counts: &mut Vec<(Vec<usize>, Vec<usize>)>| {
        let now = db.snapshot().unwrap();
        let all = |snapshot: &Snapshot| -> Vec<usize> {
            asked
                .iter()
                .map(|filters| found(&db, snapshot, &name, filters))
                .collect()
        };
        counts.push((all(&old), all(&now)));
    };
    round(&mut counts);
    db.flush().unwrap();
    round(&mut counts);
    for name in ["a", "b", "ab"] {
        build(&db, name);
    }
    round(&mut counts);
    db.compact().unwrap();
    round(&mut counts);
    for name in ["a", "b", "ab"] {
        build(&db, name);
    }
    round(&mut counts);
    for (old_counts, counts_now) in &counts {
        assert_eq!(old_counts, &counts[0].0);
        assert_eq!(counts_now, &counts[0].1);
    }
    if duplicates == Duplicates::Last {
        assert_eq!(counts[0].1[2], 400usize.div_ceil(18));
    }
    // What is deleted is gone, also where entries name it.
    db.delete(&DeleteSpec {
        table: "t".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(0, 200 * SECOND),
    })
    .unwrap();
    round(&mut counts);
    db.flush().unwrap();
    round(&mut counts);
    build(&db, "ab");
    round(&mut counts);
    assert_eq!(counts[5].1, counts[7].1);
    assert!(counts[5].1[2] < counts[0].1[2].max(1));
    drop(old);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn fields_of_a_row_that_lie_in_several_places_are_found_together() {
    with_versions(Duplicates::Last);
}

#[test]
fn of_equal_times_that_are_kept_each_row_counts_for_itself() {
    with_versions(Duplicates::Keep);
}

#[test]
fn a_field_that_becomes_one_of_floats_is_indexed_anew() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..300).map(|n| (n * SECOND, vec![("a", scattered(n, 300).into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    let before = db.snapshot().unwrap();
    db.alter_table(
        "t",
        &TableChange {
            add_fields: vec![FieldSpec {
                name: "a".into(),
                field_type: FieldType::F64,
            }],
            ..TableChange::default()
        },
    )
    .unwrap();
    write(
        &db,
        &name,
        (300..330).map(|n| (n * SECOND, vec![("a", (n as f64 + 0.5).into())])),
    );
    for _ in 0..2 {
        let after = db.snapshot().unwrap();
        assert_eq!(found(&db, &before, &name, &equal("a", 7i64)), 1);
        assert_eq!(found(&db, &after, &name, &equal("a", 7.0)), 1);
        assert_eq!(found(&db, &after, &name, &equal("a", 310.5)), 1);
        let above = vec![filter("a", Comparison::Greater, 298.5)];
        assert_eq!(found(&db, &after, &name, &above), 31);
        db.flush().unwrap();
        build(&db, "a");
    }
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn text_of_a_mebibyte_is_found_by_its_beginning_and_compared_whole() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 64 << 20,
        ..Options::new("/db")
    };
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    let text = |end: &str| Value::String("x".repeat((1 << 20) - 1) + end);
    for (time, end) in (0..).zip(["a", "b", "b", "", "c"]) {
        write(&db, &name, [(time, vec![("s", text(end))])].into_iter());
    }
    write(
        &db,
        &name,
        (10..40).map(|n| (n, vec![("s", format!("short {n}").as_str().into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("s", &["s"])).unwrap();
    build(&db, "s");
    let snapshot = db.snapshot().unwrap();
    assert_eq!(found(&db, &snapshot, &name, &equal("s", text("b"))), 2);
    assert_eq!(found(&db, &snapshot, &name, &equal("s", text("d"))), 0);
    assert_eq!(found(&db, &snapshot, &name, &equal("s", "short 12")), 1);
    let above = vec![filter("s", Comparison::Greater, text("a"))];
    assert_eq!(found(&db, &snapshot, &name, &above), 3);
    let prefix = vec![
        filter("s", Comparison::GreaterOrEqual, "short 2"),
        filter("s", Comparison::Less, "short 3"),
    ];
    assert_eq!(found(&db, &snapshot, &name, &prefix), 10);
    assert!(index(&db, "s").bytes < 16 << 10, "{:?}", index(&db, "s"));
}

#[test]
fn filters_over_many_streams_lose_little_where_an_index_cannot_be_kept() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 1 << 20,
        partition_target_bytes: 64 << 20,
        partition_bytes_max: 64 << 20,
        shards: 1,
        ..Options::new("/db")
    };
    let db = run(&disk, &options).open().unwrap();
    db.create_table(&TableSpec::new("t")).unwrap();
    let names: Vec<StreamName> = (0..2000).map(|n| stream(&n.to_string())).collect();
    for (number, name) in (0..).zip(&names) {
        let value = |n: i64| scattered(n * 2000 + number, 80_000);
        let rows = (0..40).map(|n| (n * SECOND, vec![("a", value(n).into())]));
        write(&db, name, rows);
    }
    db.compact().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    let snapshot = db.snapshot().unwrap();
    let mut read = BTreeMap::new();
    for usage in [IndexUse::Never, IndexUse::ByCost, IndexUse::Always] {
        db.use_indexes(usage);
        let before = ReadStats::by_this_thread();
        let rows = names
            .iter()
            .map(|name| scan(&snapshot, name, &equal("a", 4711i64)).len());
        assert_eq!(rows.sum::<usize>(), 1);
        let bytes = (ReadStats::by_this_thread() - before).bytes;
        read.insert(format!("{usage:?}"), bytes);
    }
    // It is far too large to be loaded for each of them.
    assert!(read["Always"] > 4 * read["Never"], "{read:?}");
    assert!(
        read["ByCost"] <= read["Never"] + read["Never"] / 8,
        "{read:?}"
    );
}

/// So many rows with values that a function gives.
fn many(rows: i64, value: impl Fn(i64) -> i64) -> (Database, StreamName) {
    let options = Options {
        memory_budget_bytes: 32 << 20,
        ..Options::new("/db")
    };
    let db = Run::new(Arc::new(MemoryFiles::new()), &options)
        .open()
        .unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..rows).map(|n| (n * SECOND, vec![("a", value(n).into())])),
    );
    db.compact().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    (db, name)
}

#[test]
fn a_million_distinct_values_are_indexed_in_pieces_and_merged() {
    let rows = 1_000_000;
    let (db, name) = many(rows, |n| scattered(n, 1_000_003));
    let info = index(&db, "a");
    assert_eq!(info.entries, 1_000_000, "{info:?}");
    assert!(info.runs <= 8 * info.progress.partitions, "{info:?}");
    let snapshot = db.snapshot().unwrap();
    assert_eq!(
        found(
            &db,
            &snapshot,
            &name,
            &equal("a", scattered(777_777, 1_000_003))
        ),
        1
    );
    let some = vec![
        filter("a", Comparison::GreaterOrEqual, 500_000i64),
        filter("a", Comparison::Less, 500_100i64),
    ];
    assert_eq!(found(&db, &snapshot, &name, &some), 100);
}

#[test]
fn values_that_are_all_equal_take_next_to_nothing_and_are_no_reason_to_use_an_index() {
    let rows = 100_000;
    let (db, name) = many(rows, |_| 7);
    let info = index(&db, "a");
    assert!(info.bytes < 100_000 / 4, "{info:?}");
    let snapshot = db.snapshot().unwrap();
    db.use_indexes(IndexUse::ByCost);
    assert_eq!(scan(&snapshot, &name, &equal("a", 7i64)).len(), 100_000);
    assert_eq!(scan(&snapshot, &name, &equal("a", 8i64)).len(), 0);
}

#[test]
fn small_runs_are_merged_and_stay_few() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let options = Options {
        partition_target_bytes: 1 << 20,
        partition_bytes_max: 2 << 20,
        groups_max: 1000,
        shards: 1,
        ..options
    };
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    db.create_table(&TableSpec::new("t")).unwrap();
    for round in 0..60i64 {
        let rows = (0..40).map(|n| {
            (
                (round * 40 + n) * SECOND,
                vec![("a", scattered(n, 31).into())],
            )
        });
        write(&db, &name, rows);
        db.flush().unwrap();
        if round == 0 {
            db.create_index(&spec("a", &["a"])).unwrap();
        }
        build(&db, "a");
        let info = index(&db, "a");
        assert!(info.runs <= 8 * info.progress.partitions, "{info:?}");
    }
    assert_eq!(index(&db, "a").entries, 2400);
    assert_agree(&db);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn mistakes_are_told() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    write(
        &db,
        &stream("1"),
        [(1, vec![("a", 1i64.into()), ("b", 2i64.into())])].into_iter(),
    );
    let kind = |result: Result<(), Error>| result.unwrap_err().kind();
    assert_eq!(kind(db.create_index(&spec("", &["a"]))), ErrorKind::Invalid);
    assert_eq!(kind(db.create_index(&spec("x", &[]))), ErrorKind::Invalid);
    assert_eq!(
        kind(db.create_index(&spec("x", &["a", "a"]))),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(db.create_index(&spec("x", &["a", "b", "c", "d", "e"]))),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(db.create_index(&spec("x", &["no"]))),
        ErrorKind::NotFound
    );
    let elsewhere = IndexSpec {
        table: "no".into(),
        ..spec("x", &["a"])
    };
    assert_eq!(kind(db.create_index(&elsewhere)), ErrorKind::NotFound);
    db.create_index(&spec("x", &["a"])).unwrap();
    assert_eq!(
        kind(db.create_index(&spec("x", &["b"]))),
        ErrorKind::Invalid
    );
    assert_eq!(kind(db.drop_index("y")), ErrorKind::NotFound);
    assert_eq!(index(&db, "x").fields, ["a"]);
}
