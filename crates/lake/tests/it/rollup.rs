//! What aging has left of a table is in the lake too: each value counts in one bucket, once.

use crate::support::{Bench, DAY, Row, files_below, options, rows_of_files};
use headwater::{Aggregate, ClosedRange, DeleteSpec, Level, StreamName, TableChange, Timestamp};
use headwater_lake::{Catalog, LakeError, OWN_NAMESPACE, Steps, data_files, status, verify};
use headwater_testing::Dice;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const AGED: &str = "pumps_rollup";

fn stream(id: u64) -> StreamName {
    StreamName::new("pumps", [("id", id.to_string())])
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.unwrap().as_nanos()).unwrap()
}

/// Rows by stream and time.
type ExpectedRows = BTreeMap<(u64, i64), (f64, i64)>;

/// Thirty days of rows up to now: some streams have many, one has few.
fn filled(seed: u64) -> (Bench, ExpectedRows) {
    filled_for(30, seed)
}

fn filled_for(days: i64, seed: u64) -> (Bench, ExpectedRows) {
    let (bench, mut known, mut dice) = (Bench::new(), ExpectedRows::new(), Dice(seed));
    let begin = now() - days * DAY;
    for id in 0..3u64 {
        let rows = [1_200, 400, 20][id as usize];
        let mut batch = headwater::Batch::new();
        let entry = batch.stream(&stream(id));
        for row in 0..rows {
            let time = begin + row * (days * DAY / rows) + dice.below(1_000_000) as i64;
            let values = (dice.below(1_000) as f64 / 8.0, dice.below(50) as i64);
            known.insert((id, time), values);
            let fields = [("rpm", values.0.into()), ("turns", values.1.into())];
            entry.row(time, fields).unwrap();
        }
        bench.db().commit(batch).unwrap();
    }
    bench.db().flush().unwrap();
    (bench, known)
}

fn keep_rows_for(bench: &Bench, days: Option<u64>) {
    let change = TableChange {
        raw_for: Some(days.map(|days| Duration::from_secs(days * 86_400))),
        ..TableChange::default()
    };
    bench.db().alter_table("pumps", &change).unwrap();
    bench.db().compact().unwrap();
}

fn rollup(bench: &Bench) -> Vec<Row> {
    let lake = bench.lake();
    match crate::support::metadata(&lake, AGED) {
        None => Vec::new(),
        Some(metadata) => rows_of_files(&metadata, &files_of(&lake)),
    }
}

/// The files of rows of the rollup that are current.
fn files_of(lake: &Path) -> Vec<std::path::PathBuf> {
    let all = files_below(&lake.canonicalize().unwrap().join(AGED).join("data"));
    let current = data_files(lake, AGED).unwrap();
    all.into_iter()
        .filter(|file| current.contains(file))
        .collect()
}

fn number(row: &Row, name: &str) -> i64 {
    let text = &row[name];
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '-')
        .collect();
    // `I64(7)` as support writes it.
    digits
        .strip_prefix("64")
        .unwrap_or(&digits)
        .parse()
        .unwrap()
}

fn float(row: &Row, name: &str) -> f64 {
    f64::from_bits(u64::from_str_radix(&row[name], 16).unwrap())
}

/// Every row of the rollup is what the rows of its bucket were; and every value from before the
/// last bucket of its stream is in one of them.
fn assert_is_of(rows: &[Row], known: &ExpectedRows, why: &str) {
    let mut left: BTreeMap<(u64, i64, bool), f64> = BTreeMap::new();
    for ((id, time), (rpm, turns)) in known {
        left.insert((*id, *time, false), *rpm);
        left.insert((*id, *time, true), *turns as f64);
    }
    let mut ends: BTreeMap<u64, i64> = BTreeMap::new();
    for row in rows {
        let id: u64 = row["tag id"]
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .unwrap();
        let level = Level::new(i32::try_from(number(row, "field level")).unwrap()).unwrap();
        let begins: i64 = row["time"].parse().unwrap();
        let span = level.bucket_span(level.bucket_of(Timestamp::from_nanos(begins)));
        assert_eq!(span.first.as_nanos(), begins, "{why}: {row:?}");
        let is_turns = row["field field"].contains("turns");
        let of: Vec<(u64, i64, bool)> = left
            .range((id, begins, false)..=(id, span.last.as_nanos(), true))
            .map(|(key, _)| *key)
            .filter(|key| key.2 == is_turns)
            .collect();
        // Taken out: a second bucket would find them gone.
        let values: Vec<f64> = of.iter().map(|key| left.remove(key).unwrap()).collect();
        let column = headwater::Column::from_values(headwater::Values::F64(values.clone()));
        let times: Vec<i64> = of.iter().map(|key| key.1).collect();
        let expected = Aggregate::of(&times, &column, 0..values.len());
        assert_eq!(
            number(row, "field count"),
            values.len() as i64,
            "{why}: {row:?}"
        );
        let (least, greatest) = expected.extremes.as_f64().unwrap();
        assert_eq!(
            (float(row, "field min"), float(row, "field max")),
            (least, greatest)
        );
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
        assert!(
            near(float(row, "field mean"), expected.mean().unwrap()),
            "{why}: {row:?}"
        );
        assert!(
            near(float(row, "field deviation"), expected.stddev().unwrap()),
            "{why}: {row:?}"
        );
        let end = ends.entry(id).or_insert(i64::MIN);
        *end = (*end).max(span.last.as_nanos());
    }
    for (id, time, _) in left.keys() {
        let end = ends.get(id).copied().unwrap_or(i64::MIN);
        assert!(
            *time > end,
            "{why}: a value of {id} at {time} is in no bucket"
        );
    }
}

/// Writes until nothing new is found: aging goes on by itself while the clock does.
fn settled(bench: &Bench, why: &str) {
    for _ in 0..20 {
        let again = bench.write();
        let aged = again.tables.iter().find(|t| t.table == AGED).unwrap();
        if (aged.days_written, aged.days_removed, aged.commits) == (0, 0, 0) {
            return;
        }
    }
    panic!("{why}: each write finds something new");
}

/// Every check says so, unless aging went on meanwhile: then of what is written anew.
fn assert_sound(bench: &Bench, why: &str) {
    for _ in 0..20 {
        if is_sound(bench, why) {
            return;
        }
        bench.write();
    }
    panic!("{why}: the rollup is behind after each write");
}

/// Whether the rollup is where the database is; wrong it never is.
fn is_sound(bench: &Bench, why: &str) -> bool {
    let snapshot = bench.db().snapshot().unwrap();
    for deep in [false, true] {
        let verified = verify(&snapshot, &bench.lake(), deep).unwrap();
        assert!(verified.is_sound(), "{why}: {verified:?}");
        let aged = verified.tables.iter().find(|t| t.table == AGED).unwrap();
        assert!(aged.days > 0, "{why}: {aged:?}");
        if aged.days_behind > 0 {
            return false;
        }
    }
    let told = status(&snapshot, &bench.lake()).unwrap();
    let aged = told.tables.iter().find(|t| t.table == AGED).unwrap();
    aged.missing.is_empty()
}

#[test]
fn what_aging_has_left_is_there_once_and_grows_with_it() {
    for seed in 0..3 {
        let (bench, known) = filled(seed);
        bench.write();
        assert_eq!(rollup(&bench), Vec::<Row>::new());
        let mut before = 0;
        for days in [25, 12, 4] {
            keep_rows_for(&bench, Some(days));
            let told = bench.write();
            let aged = told.tables.iter().find(|t| t.table == AGED).unwrap();
            assert!(aged.blocked.is_empty() && aged.days_written > 0, "{told:?}");
            let rows = rollup(&bench);
            assert_is_of(&rows, &known, &format!("seed {seed}, rows for {days} days"));
            let values: i64 = rows.iter().map(|row| number(row, "field count")).sum();
            assert!(values > before, "{values} values after {before}");
            before = values;
            assert_sound(&bench, &format!("seed {seed}, rows for {days} days"));
            settled(&bench, &format!("seed {seed}, rows for {days} days"));
        }
        // Most of thirty days have gone.
        assert!(before > 2 * 1_620 * 2 / 3, "{before}");
        // Who may read all of the table finds its rollup.
        let catalog = Catalog::new(&bench.lake());
        let loaded = catalog.load(OWN_NAMESPACE, AGED).unwrap().unwrap();
        assert_eq!(loaded.table, "pumps");
        let names = catalog.tables(OWN_NAMESPACE).unwrap().unwrap().tables;
        let names: Vec<&str> = names.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["pumps", AGED]);
    }
}

#[test]
fn what_changes_in_an_aged_stretch_changes_in_its_rollup() {
    let (mut bench, mut known) = filled(7);
    keep_rows_for(&bench, Some(4));
    bench.write();
    let rows = rollup(&bench);
    // A delete of one stream, of whole buckets: those of two days in the middle. Each stream has a
    // level of its own, and files are in no order.
    let row = rows.iter().find(|row| row["tag id"].contains('0')).unwrap();
    let level = number(row, "field level");
    let level = Level::new(i32::try_from(level).unwrap()).unwrap();
    let first = level.bucket_of(Timestamp::from_nanos(now() - 20 * DAY));
    let last = level.bucket_of(Timestamp::from_nanos(now() - 18 * DAY));
    let range = level.span(first, last);
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: vec![("id".into(), "0".into())],
        range,
    };
    bench.db().delete(&spec).unwrap();
    known.retain(|(id, time), _| *id != 0 || !range.contains(Timestamp::from_nanos(*time)));
    bench.write();
    assert!(rollup(&bench).len() < rows.len());
    assert_is_of(&rollup(&bench), &known, "after a delete");
    assert_sound(&bench, "after a delete");
    // Nothing more is aged, and rows come to where they still may; then aging goes on.
    keep_rows_for(&bench, Some(40));
    for at in 0..50 {
        let time = now() - 2 * DAY + at * 1_000_000_000;
        known.insert((1, time), (0.5, at));
        bench.row(
            &stream(1),
            time,
            &[("rpm", 0.5.into()), ("turns", at.into())],
        );
    }
    bench.write();
    assert_is_of(&rollup(&bench), &known, "after late rows");
    bench.reopen();
    keep_rows_for(&bench, Some(1));
    bench.write();
    assert_is_of(&rollup(&bench), &known, "after they were aged");
    assert_sound(&bench, "after they were aged");
}

#[test]
fn a_write_of_a_rollup_that_ends_at_any_step_is_taken_up_by_the_next() {
    for number in 0.. {
        let (bench, known) = filled_for(6, 9);
        bench.write();
        keep_rows_for(&bench, Some(2));
        let passed = AtomicUsize::new(0);
        let mut until = options();
        until.steps = Steps::asking(move |_| passed.fetch_add(1, Ordering::Relaxed) < number);
        match bench.write_with(&until) {
            Ok(_) => break,
            Err(LakeError::Stopped(_)) => {}
            Err(error) => panic!("{error}"),
        }
        bench.write();
        assert_is_of(
            &rollup(&bench),
            &known,
            &format!("stopped after {number} steps"),
        );
        assert_sound(&bench, &format!("stopped after {number} steps"));
    }
}

#[test]
fn a_table_of_the_name_of_a_rollup_is_told_of_and_stays_what_it_is() {
    let (bench, _) = filled(3);
    let other = StreamName::new(AGED, [("id", "1")]);
    bench.row(&other, now(), &[("rpm", 1.0.into())]);
    keep_rows_for(&bench, Some(10));
    let told = bench.write();
    let blocked: Vec<_> = told.tables.iter().flat_map(|t| &t.blocked).collect();
    assert_eq!(blocked.len(), 1, "{told:?}");
    assert!(blocked[0].why.contains("`pumps_rollup`"), "{blocked:?}");
    assert_eq!(crate::support::rows_of_lake(&bench.lake(), AGED).len(), 1);
}

#[test]
fn a_rebuilt_table_has_other_files_and_the_same_rows() {
    let (bench, known) = filled(5);
    keep_rows_for(&bench, Some(10));
    bench.write();
    let before = (files_of(&bench.lake()), rollup(&bench));
    let mut rebuild = options();
    rebuild.rebuild = true;
    let told = bench.write_with(&rebuild).unwrap();
    assert!(told.tables.iter().all(|t| t.days_equal == 0), "{told:?}");
    let after = (files_of(&bench.lake()), rollup(&bench));
    assert!(after.0.iter().all(|file| !before.0.contains(file)));
    assert_eq!(after.1, before.1);
    assert_is_of(&after.1, &known, "rebuilt");
    assert_sound(&bench, "rebuilt");
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::ALL,
    };
    bench.db().delete(&spec).unwrap();
    bench.write();
    assert!(rollup(&bench).is_empty());
}
