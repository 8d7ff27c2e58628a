//! The order of rows and series, and which of equal ones is chosen.

use super::{World, f, i, t};
use headwater::Value;
use serde_json::json;

/// Three series with a value at the same instant; the catalog keeps the shorter tag first.
fn hosts() -> World {
    let world = World::new();
    for (host, dc, v) in [("b", "oslo", 2.0), ("c", "bergen", 9.0), ("a", "oslo", 1.0)] {
        world.write(
            &format!("cpu,dc={dc},host={host}"),
            &[
                (1, &[("v", f(v)), ("s", t(host))]),
                (2, &[("v", f(v + 10.0)), ("s", t("z"))]),
            ],
        );
    }
    world
}

#[test]
fn of_one_instant_the_greater_value_is_first_and_last() {
    let world = hosts();
    world.check(&[
        ("SELECT first(v) FROM cpu", json!([[1, 9]])),
        ("SELECT last(v) FROM cpu", json!([[2, 19]])),
        ("SELECT first(v), host FROM cpu", json!([[1, 9, "c"]])),
        ("SELECT last(v), host FROM cpu", json!([[2, 19, "c"]])),
        ("SELECT first(v), last(v) FROM cpu", json!([[0, 9, 19]])),
        ("SELECT last(s) FROM cpu WHERE time < 2s", json!([[1, "c"]])),
        (
            "SELECT first(v), last(v) FROM cpu WHERE time >= 0 AND time < 4s GROUP BY time(2s) fill(none)",
            json!([[0, 9, 9], [2, 19, 19]]),
        ),
        ("SELECT last(v) FROM cpu WHERE v > 0", json!([[2, 19]])),
    ]);
    let world = World::new();
    world.write("m,h=a", &[(1, &[("on", Value::Bool(true))])]);
    world.write("m,h=b", &[(1, &[("on", Value::Bool(false))])]);
    world.check(&[(
        "SELECT first(\"on\"), last(\"on\") FROM m",
        json!([[0, false, true]]),
    )]);
}

#[test]
fn rows_of_one_instant_are_ordered_by_their_texts() {
    let world = hosts();
    world.check(&[
        (
            "SELECT v, host FROM cpu WHERE time = 1s",
            json!([[1, 1, "a"], [1, 2, "b"], [1, 9, "c"]]),
        ),
        (
            "SELECT host, v, dc FROM cpu WHERE time = 1s",
            json!([
                [1, "c", 9, "bergen"],
                [1, "a", 1, "oslo"],
                [1, "b", 2, "oslo"]
            ]),
        ),
        (
            "SELECT v, host FROM cpu ORDER BY time DESC LIMIT 4",
            json!([[2, 19, "c"], [2, 12, "b"], [2, 11, "a"], [1, 9, "c"]]),
        ),
        // Without texts as their series are: by dc, then host.
        (
            "SELECT v FROM cpu WHERE time = 1s",
            json!([[1, 9], [1, 1], [1, 2]]),
        ),
    ]);
}

#[test]
fn series_follow_the_order_of_time() {
    let world = hosts();
    world.write("disk", &[(1, &[("v", f(0.0))])]);
    let tags = |statement: &str| -> Vec<String> {
        let series = world.series(statement);
        let list = series.as_array().unwrap();
        list.iter()
            .map(|s| format!("{}{}", s["name"], s["tags"]["host"]))
            .collect()
    };
    let rising = [
        "\"cpu\"\"a\"",
        "\"cpu\"\"b\"",
        "\"cpu\"\"c\"",
        "\"disk\"\"\"",
    ];
    let falling: Vec<&str> = rising.iter().rev().copied().collect();
    assert_eq!(tags("SELECT v FROM /./ GROUP BY host"), rising);
    assert_eq!(
        tags("SELECT v FROM /./ GROUP BY host ORDER BY time DESC"),
        falling
    );
    assert_eq!(
        tags("SELECT max(v) FROM /./ GROUP BY host ORDER BY time DESC SLIMIT 2"),
        falling[..2]
    );
}

/// Which series are shown does not depend on which of their rows are.
#[test]
fn pages_of_rows_do_not_change_pages_of_series() {
    let world = World::new();
    world.write("cpu,host=a", &[(1, &[("v", f(1.0))])]);
    for host in ["b", "c"] {
        let rows = [(1, [("v", f(2.0))]), (2, [("v", f(3.0))])];
        for (time, values) in rows {
            world.write(&format!("cpu,host={host}"), &[(time, &values)]);
        }
    }
    for what in ["v", "max(v)"] {
        let every = if what == "v" { "" } else { "time(1s), " };
        let hosts = |pages: &str| -> Vec<String> {
            let found = world.series(&format!(
                "SELECT {what} FROM cpu WHERE time >= 1s AND time < 3s GROUP BY {every}host fill(none) {pages}"
            ));
            let list = found.as_array().unwrap().iter();
            list.map(|s| s["tags"]["host"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(hosts("SLIMIT 2"), ["a", "b"], "{what}");
        assert_eq!(hosts("LIMIT 1 OFFSET 1 SLIMIT 2"), ["b"], "{what}");
        assert_eq!(
            hosts("LIMIT 1 OFFSET 1 SLIMIT 2 SOFFSET 1"),
            ["b", "c"],
            "{what}"
        );
        assert!(hosts("LIMIT 1 OFFSET 2 SLIMIT 2").is_empty(), "{what}");
    }
}

#[test]
fn a_name_that_was_given_twice_stays() {
    let world = World::new();
    world.write("m", &[(1, &[("a", i(1)), ("b", i(2))])]);
    for (fields, expected) in [
        ("a AS x, b AS x", json!(["time", "x", "x"])),
        ("a, a, b AS a_1", json!(["time", "a", "a_2", "a_1"])),
        ("a AS b, b", json!(["time", "b", "b_1"])),
    ] {
        let series = world.series(&format!("SELECT {fields} FROM m"));
        assert_eq!(series[0]["columns"], expected, "{fields}");
    }
}
