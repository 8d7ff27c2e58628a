//! What stands in intervals without a row, and beside a value that was chosen.

use super::{World, f, i, t};
use serde_json::json;

fn disks() -> World {
    let world = World::new();
    world.write(
        "disk,path=/a",
        &[
            (0, &[("r", f(1.0)), ("w", i(10))]),
            (20, &[("r", f(3.0)), ("w", i(30)), ("note", t("x"))]),
        ],
    );
    world.write("disk,path=/b", &[(5, &[("r", f(2.0)), ("w", i(20))])]);
    world
}

#[test]
fn an_interval_without_rows_has_one_beside_a_chosen_value() {
    let world = disks();
    let ask = |fill: &str| {
        format!(
            "SELECT max(r), path, w FROM disk WHERE time >= 0 AND time < 40s GROUP BY time(10s) {fill}"
        )
    };
    world.check(&[
        (
            &ask(""),
            json!([
                [0, 2, "/b", 20],
                [10, null, null, null],
                [20, 3, "/a", 30],
                [30, null, null, null]
            ]),
        ),
        (
            &ask("fill(none)"),
            json!([[0, 2, "/b", 20], [20, 3, "/a", 30]]),
        ),
        (
            &ask("fill(previous)"),
            json!([
                [0, 2, "/b", 20],
                [10, 2, "/b", 20],
                [20, 3, "/a", 30],
                [30, 3, "/a", 30]
            ]),
        ),
        (
            &ask("fill(0)"),
            json!([
                [0, 2, "/b", 20],
                [10, 0, 0, 0],
                [20, 3, "/a", 30],
                [30, 0, 0, 0]
            ]),
        ),
        (
            &ask("fill(linear)"),
            json!([
                [0, 2, "/b", 20],
                [10, 2.5, null, null],
                [20, 3, "/a", 30],
                [30, null, null, null]
            ]),
        ),
        (
            &ask("ORDER BY time DESC LIMIT 2"),
            json!([[30, null, null, null], [20, 3, "/a", 30]]),
        ),
    ]);
}

#[test]
fn one_value_has_no_deviation_but_a_row() {
    let world = disks();
    world.check(&[
        (
            "SELECT stddev(r) FROM disk WHERE path = '/b'",
            json!([[0, null]]),
        ),
        (
            "SELECT stddev(r), count(r) FROM disk WHERE path = '/b'",
            json!([[0, null, 1]]),
        ),
        (
            "SELECT stddev(r) FROM disk WHERE path = '/b' AND time >= 0 AND time < 20s GROUP BY time(10s) fill(none)",
            json!([[0, null]]),
        ),
    ]);
}

#[test]
fn a_number_among_whole_ones_is_whole() {
    let world = disks();
    world.check(&[(
        "SELECT sum(w) FROM disk WHERE path = '/a' AND time >= 0 AND time < 30s GROUP BY time(10s) fill(1.5)",
        json!([[0, 10], [10, 1], [20, 30]]),
    )]);
}

#[test]
fn rows_of_the_greatest_and_smallest_values() {
    let world = disks();
    world.check(&[
        ("SELECT top(r, 2) FROM disk", json!([[5, 2], [20, 3]])),
        ("SELECT bottom(r, 2) FROM disk", json!([[0, 1], [5, 2]])),
        (
            "SELECT top(r, path, 2) FROM disk",
            json!([[5, 2, "/b"], [20, 3, "/a"]]),
        ),
        (
            "SELECT bottom(r, path, 5), w FROM disk",
            json!([[0, 1, "/a", 10], [5, 2, "/b", 20]]),
        ),
        // Of an interval, at their own times.
        (
            "SELECT top(r, 1) FROM disk WHERE time >= 0 AND time < 40s GROUP BY time(20s)",
            json!([[5, 2], [20, 3]]),
        ),
        (
            "SELECT top(w, 1), path FROM disk WHERE time < 10s",
            json!([[5, 20, "/b"]]),
        ),
        (
            "SELECT percentile(r, 50), path FROM disk",
            json!([[5, 2, "/b"]]),
        ),
    ]);
    let columns = world.series("SELECT top(r, path, 2), w FROM disk")[0]["columns"].clone();
    assert_eq!(columns, json!(["time", "top", "path", "w"]));
    for (statement, part) in [
        ("SELECT top(r) FROM disk", "from 1 to"),
        ("SELECT top(r, 0) FROM disk", "from 1 to"),
        ("SELECT top(r, path) FROM disk", "from 1 to"),
        ("SELECT top(2) FROM disk", "expected a field, tags"),
        (
            "SELECT top(r, 1), max(r) FROM disk",
            "top() cannot be combined",
        ),
    ] {
        let found = world.error(statement);
        assert!(found.contains(part), "{statement}: {found}");
    }
}

#[test]
fn only_intervals_with_values_count_where_nothing_is_filled() {
    let world = World::new();
    let rows: Vec<(i64, [(&str, headwater::Value); 1])> =
        (0..50).map(|n| (n * 100, [("v", f(n as f64))])).collect();
    let rows: Vec<(i64, &[(&str, headwater::Value)])> = rows
        .iter()
        .map(|(time, values)| (*time, values.as_slice()))
        .collect();
    world.write("m", &rows);
    for function in ["count", "sum", "median", "last", "distinct"] {
        for condition in ["", "AND v >= 0"] {
            let found = world.rows(&format!(
                "SELECT {function}(v) FROM m WHERE time >= 0 AND time < 5000s {condition} GROUP BY time(1ms) fill(none)"
            ));
            assert_eq!(
                found.as_array().unwrap().len(),
                50,
                "{function} {condition}"
            );
        }
    }
    let filled =
        world.error("SELECT count(v) FROM m WHERE time >= 0 AND time < 5000s GROUP BY time(1ms)");
    assert!(filled.contains("intervals"), "{filled}");
}

#[test]
fn intervals_are_as_many_as_memory_holds() {
    let world = World::new();
    let mut batch = headwater::Batch::new();
    let rows = batch.stream(&headwater::StreamName::new("m", [("a", "b")]));
    for second in 0..200_001_i64 {
        rows.row(second * 1_000_000_000, [("v", f(1.0))]).unwrap();
    }
    world.db.commit(batch).unwrap();
    let ask = |function: &str, every: &str, rest: &str| {
        format!("SELECT {function}(v) FROM m WHERE time < 300000s GROUP BY time({every}) {rest}")
    };
    // More than a stretch has; an interval lies in two of them.
    for (function, every, rest, count) in [
        ("count", "1s", "fill(none)", 200_001),
        ("count", "2s", "fill(none)", 100_001),
        ("last", "1s", "fill(none)", 200_001),
        ("sum", "1s", "", 300_000),
    ] {
        let found = world.rows(&ask(function, every, rest));
        let rows = found.as_array().unwrap();
        assert_eq!(rows.len(), count, "{function} {every} {rest}");
        let values = rows.iter().filter_map(|row| row[1].as_f64());
        let sum: f64 = values.sum();
        assert!((sum - 200_001.0).abs() < 0.5, "{function} {every}: {sum}");
    }
    let refused = world.error(&ask("sum", "1us", ""));
    assert!(refused.contains("wider intervals"), "{refused}");
}
