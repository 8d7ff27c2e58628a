//! Questions within questions.

use super::{World, f, i, t};
use serde_json::json;

/// Two hosts in two places, four values each, ten seconds apart.
fn hosts() -> World {
    let world = World::new();
    for (host, dc, plus) in [("a", "x", 0.0), ("b", "x", 100.0), ("c", "y", 1000.0)] {
        for step in 0..4_i64 {
            let v = step as f64 + plus;
            world.write(
                &format!("cpu,dc={dc},host={host}"),
                &[(step * 10, &[("v", f(v)), ("n", i(step)), ("s", t(host))])],
            );
        }
    }
    world
}

#[test]
fn rows_come_from_another_question() {
    let world = hosts();
    world.check(&[
        (
            "SELECT max(x) FROM (SELECT mean(v) AS x FROM cpu GROUP BY host)",
            json!([[0, 1001.5]]),
        ),
        (
            "SELECT sum(max) FROM (SELECT max(v) FROM cpu GROUP BY host)",
            json!([[0, 1109]]),
        ),
        (
            "SELECT max, host FROM (SELECT max(v) FROM cpu GROUP BY host)",
            json!([[30, 3, "a"], [30, 103, "b"], [30, 1003, "c"]]),
        ),
        (
            "SELECT count(v) FROM (SELECT v FROM cpu WHERE host = 'a') WHERE v > 1",
            json!([[0, 2]]),
        ),
        (
            "SELECT x FROM (SELECT v * 2 AS x FROM cpu WHERE host = 'a') WHERE x > 2",
            json!([[20, 4], [30, 6]]),
        ),
        // What it was grouped by can be asked about.
        (
            "SELECT mean(m) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) WHERE host =~ /a|b/",
            json!([[0, 51.5]]),
        ),
        (
            "SELECT * FROM (SELECT max(v) AS m FROM cpu GROUP BY host) LIMIT 1",
            json!([[30, "a", 3]]),
        ),
        // Three of them within each other.
        (
            "SELECT sum(a) FROM (SELECT max(m) AS a FROM (SELECT mean(v) AS m FROM cpu GROUP BY host, dc) GROUP BY dc)",
            json!([[0, 1103]]),
        ),
        (
            "SELECT difference(max) FROM (SELECT max(v) FROM cpu WHERE host = 'a' AND time >= 0 AND time < 40s GROUP BY time(10s))",
            json!([[10, 1], [20, 1], [30, 1]]),
        ),
        (
            "SELECT count(x) FROM (SELECT top(v, host, 2) AS x FROM cpu)",
            json!([[0, 2]]),
        ),
        (
            "SELECT mean FROM (SELECT mean(v) FROM nothing)",
            json!([]),
        ),
    ]);
}

#[test]
fn the_range_and_the_groups_are_handed_on() {
    let world = hosts();
    world.check(&[
        // The range of the outer one is that of the inner one, and narrows its own.
        (
            "SELECT max(m) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) WHERE time < 20s",
            json!([[0, 1000.5]]),
        ),
        (
            "SELECT max(m) FROM (SELECT mean(v) AS m FROM cpu WHERE time >= 10s GROUP BY host) WHERE time < 30s",
            json!([[10, 1001.5]]),
        ),
        // So are its intervals, where the inner one has none of its own.
        (
            "SELECT sum(m) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) WHERE time >= 0 AND time < 40s GROUP BY time(20s)",
            json!([[0, 1101.5], [20, 1107.5]]),
        ),
        (
            "SELECT mean(m) FROM (SELECT max(v) AS m FROM cpu WHERE host = 'a' GROUP BY time(10s)) WHERE time >= 0 AND time < 40s GROUP BY time(20s)",
            json!([[0, 0.5], [20, 2.5]]),
        ),
        // Intervals that begin before the range belong to it.
        (
            "SELECT count(m) FROM (SELECT max(v) AS m FROM cpu WHERE host = 'a' GROUP BY time(20s)) WHERE time >= 10s AND time < 40s",
            json!([[10, 2]]),
        ),
        // Empty intervals of the inner one are not there.
        (
            "SELECT count(m) FROM (SELECT max(v) AS m FROM cpu WHERE host = 'a' AND time >= 0 AND time < 100s GROUP BY time(5s))",
            json!([[0, 4]]),
        ),
        (
            "SELECT count(m) FROM (SELECT max(v) AS m FROM cpu WHERE host = 'a' AND time >= 0 AND time < 40s GROUP BY time(5s) fill(0))",
            json!([[0, 8]]),
        ),
        // What looks back looks back into the inner one too.
        (
            "SELECT difference(max(m)) FROM (SELECT mean(v) AS m FROM cpu WHERE host = 'a') WHERE time >= 10s AND time < 40s GROUP BY time(10s)",
            json!([[10, 1], [20, 1], [30, 1]]),
        ),
        (
            "SELECT m FROM (SELECT max(v) AS m FROM cpu WHERE host = 'a' GROUP BY time(10s)) WHERE time >= 0 AND time < 40s ORDER BY time DESC LIMIT 2",
            json!([[30, 3], [20, 2]]),
        ),
    ]);
    // A tag that only the outer one groups by divides the inner one as well.
    let series = world.series("SELECT max(m) FROM (SELECT mean(v) AS m FROM cpu) GROUP BY dc");
    assert_eq!(
        series,
        json!([
            {"name": "cpu", "tags": {"dc": "x"}, "columns": ["time", "max"], "values": [[0, 51.5]]},
            {"name": "cpu", "tags": {"dc": "y"}, "columns": ["time", "max"], "values": [[0, 1001.5]]},
        ])
    );
    let series = world.series("SELECT * FROM (SELECT v, dc FROM cpu LIMIT 1) GROUP BY host");
    assert_eq!(series[0]["columns"], json!(["time", "dc", "v"]));
    assert_eq!(series.as_array().unwrap().len(), 3);
    assert!(
        world
            .error("SELECT m FROM (SELECT v AS m FROM cpu ORDER BY time DESC)")
            .contains("same direction")
    );
}

#[test]
fn several_sources_are_one_measurement_where_they_have_one_name() {
    let world = hosts();
    world.write("disk,host=a", &[(5, &[("v", f(7.0))])]);
    world.check(&[(
        "SELECT sum(x) FROM (SELECT max(v) AS x FROM cpu WHERE host = 'a'), (SELECT max(v) AS x FROM cpu WHERE host = 'b')",
        json!([[0, 106]]),
    )]);
    let series = world.series("SELECT max(v) FROM (SELECT v FROM /c|d/ WHERE host = 'a')");
    assert_eq!(series[0]["values"], json!([[30, 3]]));
    assert_eq!(series[1]["values"], json!([[5, 7]]));
    let series = world.series("SELECT count(v) FROM disk, (SELECT v FROM cpu)");
    assert_eq!(series[0]["values"], json!([[0, 12]]));
    assert_eq!(series[1]["values"], json!([[0, 1]]));
}
