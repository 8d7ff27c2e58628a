//! `SHOW`, and what is said to statements that set something up.

use super::{World, f};
use serde_json::json;

fn hosts() -> World {
    let world = World::new();
    for stream in ["cpu,dc=oslo", "cpu,dc=bergen", "cpu,dc=oslo,host=a", "disk"] {
        world.write(stream, &[(1, &[("v", f(1.0)), ("w", f(2.0))])]);
    }
    world
}

#[test]
fn series_are_listed_by_their_names() {
    let world = hosts();
    let keys = json!([
        ["cpu,dc=bergen"],
        ["cpu,dc=oslo"],
        ["cpu,dc=oslo,host=a"],
        ["disk"]
    ]);
    world.check(&[
        ("SHOW SERIES", keys),
        ("SHOW SERIES LIMIT 1 OFFSET 1", json!([["cpu,dc=oslo"]])),
        (
            "SHOW SERIES FROM cpu WHERE host = 'a'",
            json!([["cpu,dc=oslo,host=a"]]),
        ),
    ]);
    for what in ["SERIES", "TAG KEYS", "MEASUREMENTS", "FIELD KEYS"] {
        let found = world.error(&format!("SHOW {what} WHERE v > 1"));
        assert_eq!(found, "invalid tag comparison operator");
    }
}

#[test]
fn names_are_counted_for_each_measurement() {
    let world = hosts();
    let counts = |of: &[(&str, i64)]| {
        let of = of
            .iter()
            .map(|(name, count)| json!({"name": name, "columns": ["count"], "values": [[count]]}));
        json!(of.collect::<Vec<_>>())
    };
    let estimate =
        |count: i64| json!([{"columns": ["cardinality estimation"], "values": [[count]]}]);
    for (statement, expected) in [
        ("SHOW SERIES CARDINALITY", estimate(4)),
        (
            "SHOW SERIES EXACT CARDINALITY",
            counts(&[("cpu", 3), ("disk", 1)]),
        ),
        ("SHOW SERIES CARDINALITY FROM cpu", counts(&[("cpu", 3)])),
        (
            "SHOW SERIES EXACT CARDINALITY WHERE host = 'a'",
            counts(&[("cpu", 1)]),
        ),
        ("SHOW MEASUREMENT CARDINALITY", estimate(2)),
        (
            "SHOW MEASUREMENT EXACT CARDINALITY",
            json!([{"columns": ["count"], "values": [[2]]}]),
        ),
        ("SHOW TAG KEY CARDINALITY", counts(&[("cpu", 2)])),
        ("SHOW TAG KEY EXACT CARDINALITY FROM disk", json!([])),
        (
            "SHOW FIELD KEY CARDINALITY",
            counts(&[("cpu", 2), ("disk", 2)]),
        ),
        (
            "SHOW TAG VALUES CARDINALITY WITH KEY = dc",
            counts(&[("cpu", 2)]),
        ),
        (
            "SHOW TAG VALUES EXACT CARDINALITY WITH KEY IN (dc, host)",
            counts(&[("cpu", 3)]),
        ),
    ] {
        assert_eq!(world.series(statement), expected, "{statement}");
    }
}

#[test]
fn what_tools_ask_of_a_server_is_answered_in_form() {
    let world = hosts();
    let columns = |statement: &str| world.series(statement)[0]["columns"].clone();
    assert_eq!(columns("SHOW USERS"), json!(["user", "admin"]));
    assert_eq!(
        columns("SHOW QUERIES"),
        json!(["qid", "query", "database", "duration", "status"])
    );
    assert_eq!(world.rows("SHOW STATS"), json!([[2, 4]]));
    let diagnostics = world.series("SHOW DIAGNOSTICS FOR 'build'");
    assert_eq!(diagnostics[0]["name"], "build");
    assert_eq!(diagnostics[1]["values"], json!([[1_000_000]]));
}

#[test]
fn policies_are_taken_with_a_warning() {
    let world = hosts();
    let results = world.results(
        "CREATE RETENTION POLICY a ON b DURATION 1d REPLICATION 1 DEFAULT; ALTER RETENTION POLICY a ON b DURATION 2d; DROP RETENTION POLICY a ON b; SHOW RETENTION POLICIES ON b",
    );
    assert_eq!(results.len(), 4);
    for result in &results[..2] {
        let warning = result["messages"][0]["text"].as_str().unwrap();
        assert!(
            warning.contains("retention of each table is set with"),
            "{warning}"
        );
        assert!(result["error"].is_null() && result["series"].is_null());
    }
    assert_eq!(results[2], json!({"statement_id": 2}));
    assert_eq!(results[3]["series"][0]["values"][0][0], "autogen");
}
