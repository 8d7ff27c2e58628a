//! `SELECT`.

use super::{error, results, rows, series};
use crate::read_routes::{START, cars, serve};
use headwater::{Batch, Database, StreamName};
use serde_json::json;

const S: i64 = START / 1_000_000_000;

/// A few rows whose results can be seen by eye: of two hosts, five seconds apart, with a gap; and
/// numbers written as text.
fn few(db: &Database) {
    let mut batch = Batch::new();
    for (host, start) in [("a", 0.0), ("b", 100.0)] {
        let tags = [
            ("host", host),
            ("dc", if host == "a" { "oslo" } else { "bonn" }),
        ];
        let rows = batch.stream(&StreamName::new("cpu", tags));
        for (second, step) in [(0, 1.0), (5, 2.0), (10, 4.0), (30, 8.0)] {
            let values = [
                ("load", (start + step).into()),
                ("procs", (step as i64).into()),
            ];
            rows.row(START + second * 1_000_000_000, values).unwrap();
        }
    }
    let rows = batch.stream(&StreamName::new("meter", [("room", "1")]));
    for (second, text) in [(0, "1.5"), (1, "x"), (2, "2.5")] {
        let time = START + second * 1_000_000_000;
        rows.row(time, [("value", text.to_owned().into())]).unwrap();
    }
    // No tag at all, and a field only here.
    let rows = batch.stream(&StreamName::new("cpu", [("host", "c")]));
    rows.row(START + 60_000_000_000, [("temp", 5.5.into())])
        .unwrap();
    db.commit(batch).unwrap();
}

#[test]
fn rows_come_as_they_are() {
    let server = serve(few);
    for (statement, expected) in [
        (
            "SELECT load FROM cpu WHERE host = 'a'",
            json!([[S, 1], [S + 5, 2], [S + 10, 4], [S + 30, 8]]),
        ),
        (
            "SELECT load, host FROM cpu WHERE load > 3 AND load < 102.5 ORDER BY time DESC LIMIT 3",
            json!([[S + 30, 8, "a"], [S + 10, 4, "a"], [S + 5, 102, "b"]]),
        ),
        (
            "SELECT load FROM cpu LIMIT 3 OFFSET 2",
            json!([[S + 5, 102], [S + 5, 2], [S + 10, 104]]),
        ),
        (
            "SELECT * FROM cpu WHERE time = 1700000005s",
            json!([
                [S + 5, "bonn", "b", 102, 2, null],
                [S + 5, "oslo", "a", 2, 2, null]
            ]),
        ),
        (
            "SELECT *::field FROM cpu WHERE host = 'c'",
            json!([[S + 60, null, null, 5.5]]),
        ),
        (
            "SELECT /o/ FROM cpu WHERE time = 1700000005000000u AND host =~ /^[ax]$/",
            json!([[S + 5, "a", 2, 2]]),
        ),
        (
            "SELECT load * 2 + procs AS x, round(load / 3) FROM cpu WHERE host = 'b' LIMIT 1",
            json!([[S, 203, 34]]),
        ),
        (
            "SELECT load FROM cpu WHERE (host = 'a' OR dc = 'bonn') AND procs = 8 AND load <> 8",
            json!([[S + 30, 108]]),
        ),
        // A tag that is not there is an empty text.
        ("SELECT temp FROM cpu WHERE dc = ''", json!([[S + 60, 5.5]])),
        (
            "SELECT temp FROM cpu WHERE nothing !~ /./ AND dc !~ /o/",
            json!([[S + 60, 5.5]]),
        ),
        (
            "SELECT load FROM cpu WHERE time >= '2023-11-14T22:13:20Z' AND time < '2023-11-14 22:13:20' + 6s AND host = 'a'",
            json!([[S, 1], [S + 5, 2]]),
        ),
        (
            "SELECT load FROM cpu WHERE 1700000011 * 0 < load AND time > 1700000010000000000 - 1s AND time <= 1700000010000000000 AND host='b'",
            json!([[S + 10, 104]]),
        ),
        (
            "SELECT value FROM meter WHERE value = 'x'",
            json!([[S + 1, "x"]]),
        ),
        (
            "SELECT difference(load) FROM cpu WHERE host = 'a'",
            json!([[S + 5, 1], [S + 10, 2], [S + 30, 4]]),
        ),
        (
            "SELECT derivative(load, 10s) FROM cpu WHERE host = 'a'",
            json!([[S + 5, 2], [S + 10, 4], [S + 30, 2]]),
        ),
        (
            "SELECT cumulative_sum(procs) FROM cpu WHERE host = 'a'",
            json!([[S, 1], [S + 5, 3], [S + 10, 7], [S + 30, 15]]),
        ),
        (
            "SELECT moving_average(load, 2) FROM cpu WHERE host = 'a'",
            json!([[S + 5, 1.5], [S + 10, 3], [S + 30, 6]]),
        ),
        (
            "SELECT elapsed(load, 1s) FROM cpu WHERE host = 'a'",
            json!([[S + 5, 5], [S + 10, 5], [S + 30, 20]]),
        ),
    ] {
        assert_eq!(rows(&server, statement), expected, "{statement}");
    }
    let columns = &series(
        &server,
        "SELECT time AS at, load, load, load + procs FROM cpu",
    )[0]["columns"];
    assert_eq!(*columns, json!(["at", "load", "load_1", "load_procs"]));
    // Tags alone make no rows; what is not there neither.
    for statement in [
        "SELECT host FROM cpu",
        "SELECT nothing FROM cpu",
        "SELECT load FROM nothing",
        "SELECT mean(nothing) FROM cpu GROUP BY time(1s)",
        "SELECT load FROM cpu WHERE host = 'z'",
        "SELECT load FROM cpu WHERE time > 5 AND time < 3",
        "SELECT count(load) FROM cpu WHERE time < 0",
    ] {
        assert_eq!(series(&server, statement), json!([]), "{statement}");
    }
}

#[test]
fn series_are_grouped_by_tags() {
    let server = serve(few);
    let found = series(&server, "SELECT sum(procs) FROM cpu GROUP BY host");
    assert_eq!(
        found,
        json!([
            {"name": "cpu", "tags": {"host": "a"}, "columns": ["time", "sum"], "values": [[0, 15]]},
            {"name": "cpu", "tags": {"host": "b"}, "columns": ["time", "sum"], "values": [[0, 15]]},
        ])
    );
    let found = series(&server, "SELECT temp FROM cpu GROUP BY *");
    assert_eq!(
        found,
        json!([{"name": "cpu", "tags": {"dc": "", "host": "c"}, "columns": ["time", "temp"], "values": [[S + 60, 5.5]]}])
    );
    let found = series(
        &server,
        "SELECT last(load) FROM /cp|met/ GROUP BY /^d/ SLIMIT 1 SOFFSET 1",
    );
    assert_eq!(found[0]["tags"], json!({"dc": "oslo"}));
    let found = series(
        &server,
        "SELECT * FROM cpu WHERE host = 'a' GROUP BY dc LIMIT 1",
    );
    assert_eq!(
        found[0]["columns"],
        json!(["time", "host", "load", "procs", "temp"])
    );
    let found = series(&server, "SELECT count(*) FROM cpu, meter");
    assert_eq!(
        found,
        json!([
            {"name": "cpu", "columns": ["time", "count_load", "count_procs", "count_temp", "count_value"], "values": [[0, 8, 8, 1, null]]},
            {"name": "meter", "columns": ["time", "count_load", "count_procs", "count_temp", "count_value"], "values": [[0, null, null, null, 3]]},
        ])
    );
}

#[test]
fn functions_give_what_they_are_called() {
    let server = serve(few);
    for (function, expected) in [
        ("count(load)", json!([[0, 4]])),
        ("mean(load)", json!([[0, 3.75]])),
        ("sum(load)", json!([[0, 15]])),
        ("spread(procs)", json!([[0, 7]])),
        ("median(load)", json!([[0, 3]])),
        ("mode(load)", json!([[0, 1]])),
        ("integral(load)", json!([[0, 142.5]])),
        ("integral(load, 1m)", json!([[0, 2.375]])),
        ("count(distinct(dc))", json!(null)),
        ("count(distinct(procs))", json!([[0, 4]])),
        ("distinct(procs)", json!([[0, 1], [0, 2], [0, 4], [0, 8]])),
        // Those that choose a value have its time.
        ("min(load)", json!([[S, 1]])),
        ("max(load)", json!([[S + 30, 8]])),
        ("first(procs)", json!([[S, 1]])),
        ("last(procs)", json!([[S + 30, 8]])),
        ("percentile(load, 50)", json!([[S + 5, 2]])),
        ("last(load) * 2", json!([[S + 30, 16]])),
        ("max(load), min(load)", json!([[0, 8, 1]])),
        ("max(load), dc, procs", json!([[S + 30, 8, "oslo", 8]])),
        (
            "last(load), *",
            json!([[S + 30, 8, "oslo", "a", 8, 8, null]]),
        ),
    ] {
        let statement = format!("SELECT {function} FROM cpu WHERE host = 'a'");
        let found = series(&server, &statement);
        assert_eq!(found[0]["values"], expected, "{statement}: {found}");
    }
    let deviation = rows(&server, "SELECT stddev(load) FROM cpu WHERE host = 'a'");
    assert!(
        (deviation[0][1].as_f64().unwrap() - 3.095_695_936).abs() < 1e-8,
        "{deviation}"
    );
    // A beginning is the time of what has none.
    let statement = "SELECT mean(load) FROM cpu WHERE host = 'a' AND time >= 1700000001s";
    assert_eq!(rows(&server, statement)[0][0], json!(S + 1));
    // Numbers in quotes count as numbers, other texts not; counting counts all.
    let statement = "SELECT count(value), sum(value), mean(value), max(value) FROM meter";
    assert_eq!(rows(&server, statement), json!([[0, 3, 4, 2, 2.5]]));
    assert_eq!(
        rows(&server, "SELECT max(value) FROM meter"),
        json!([[S + 2, 2.5]])
    );
    assert_eq!(
        rows(&server, "SELECT first(value) FROM meter"),
        json!([[S, "1.5"]])
    );
}

#[test]
fn intervals_are_filled() {
    let server = serve(few);
    let range = "host = 'a' AND time >= 1700000000s AND time < 1700000040s";
    for (fill, expected) in [
        (
            "",
            json!([[S, 1.5], [S + 10, 4], [S + 20, null], [S + 30, 8]]),
        ),
        ("fill(none)", json!([[S, 1.5], [S + 10, 4], [S + 30, 8]])),
        (
            "fill(previous)",
            json!([[S, 1.5], [S + 10, 4], [S + 20, 4], [S + 30, 8]]),
        ),
        (
            "fill(linear)",
            json!([[S, 1.5], [S + 10, 4], [S + 20, 6], [S + 30, 8]]),
        ),
        (
            "fill(-1)",
            json!([[S, 1.5], [S + 10, 4], [S + 20, -1], [S + 30, 8]]),
        ),
        (
            "ORDER BY time DESC LIMIT 2",
            json!([[S + 30, 8], [S + 20, null]]),
        ),
    ] {
        let statement =
            format!("SELECT mean(load) FROM cpu WHERE {range} GROUP BY time(10s) {fill}");
        assert_eq!(rows(&server, &statement), expected, "{statement}");
    }
    for (statement, expected) in [
        (
            "SELECT count(load), sum(procs) FROM cpu WHERE RANGE GROUP BY time(10s)",
            json!([[S, 2, 3], [S + 10, 1, 4], [S + 20, 0, null], [S + 30, 1, 8]]),
        ),
        (
            "SELECT mean(load) FROM cpu WHERE RANGE GROUP BY time(20s, 5s) fill(none)",
            json!([[S - 15, 1], [S + 5, 3], [S + 25, 8]]),
        ),
        (
            "SELECT derivative(mean(load), 10s) FROM cpu WHERE RANGE GROUP BY time(10s)",
            json!([[S + 10, 2.5], [S + 30, 2]]),
        ),
        (
            "SELECT derivative(mean(load), 10s) FROM cpu WHERE RANGE GROUP BY time(10s) fill(0)",
            json!([[S, 1.5], [S + 10, 2.5], [S + 20, -4], [S + 30, 8]]),
        ),
        (
            "SELECT non_negative_difference(max(load)), mean(load) / 2 FROM cpu WHERE RANGE GROUP BY time(10s) fill(0)",
            json!([[S, 2, 0.75], [S + 10, 2, 2], [S + 20, 0, 0], [S + 30, 8, 4]]),
        ),
        (
            "SELECT last(load), procs FROM cpu WHERE RANGE GROUP BY time(20s)",
            json!([[S, 4, 4], [S + 20, 8, 8]]),
        ),
        (
            "SELECT median(load) FROM cpu WHERE RANGE GROUP BY time(10s) fill(none)",
            json!([[S, 1.5], [S + 10, 4], [S + 30, 8]]),
        ),
    ] {
        let statement = statement.replace("RANGE", range);
        assert_eq!(rows(&server, &statement), expected, "{statement}");
    }
    // Without an end it is now, and without a beginning the first value.
    let found = rows(
        &server,
        "SELECT mean(load) FROM cpu GROUP BY time(52w) fill(null)",
    );
    let found = found.as_array().unwrap();
    assert!(found.len() > 1 && found[0][1] == json!(53.75), "{found:?}");
    assert!(found[1..].iter().all(|row| row[1].is_null()), "{found:?}");
}

#[test]
fn days_are_those_of_a_place() {
    let server = serve(|db| {
        let mut batch = Batch::new();
        let rows = batch.stream(&StreamName::new("m", [("a", "b")]));
        // Every hour from 30 March 2024, 00:00 UTC, for three days. On the 31st the clock is set
        // forward in Berlin.
        for hour in 0..72 {
            let time = (1_711_756_800 + hour * 3_600) * 1_000_000_000;
            rows.row(time, [("v", 1.0.into())]).unwrap();
        }
        db.commit(batch).unwrap();
    });
    let statement = "SELECT count(v) FROM m WHERE time >= '2024-03-30' AND time < '2024-04-02' GROUP BY time(1d) tz('Europe/Berlin')";
    let path = format!("/query?q={}", crate::read_routes::encoded(statement));
    let (_, body) = crate::read_routes::get(&server, &path);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["results"][0]["series"][0]["values"],
        json!([
            ["2024-03-30T00:00:00+01:00", 23],
            ["2024-03-31T00:00:00+01:00", 23],
            ["2024-04-01T00:00:00+02:00", 24],
        ])
    );
    assert!(error(&server, "SELECT v FROM m tz('Nowhere/None')").contains("time zone"));
}

/// What the pyramid says is what rows say: a condition on a field that always holds has rows read.
#[test]
fn the_pyramid_and_the_rows_agree() {
    let server = serve(cars);
    let all = "count(speed), mean(speed), sum(odometer), min(speed), max(odometer), first(speed), last(odometer), stddev(speed), spread(speed)";
    for grouping in [
        "",
        "GROUP BY car",
        "GROUP BY time(7s)",
        "GROUP BY time(1m, 13s), car",
        "GROUP BY time(1h) fill(none)",
    ] {
        for range in [
            "time < 1700000900s",
            "time >= 1700000100000000001 AND time <= 1700002000s",
            "time > 1699999990s AND time < 1700000010s",
        ] {
            let ask = |more: &str| {
                let statement = format!("SELECT {all} FROM obd WHERE {range} {more} {grouping}");
                series(&server, &statement)
            };
            let (pyramid, rows) = (ask(""), ask("AND (speed >= 0 OR odometer < 0)"));
            assert_eq!(
                pyramid.as_array().map(Vec::len),
                rows.as_array().map(Vec::len)
            );
            let pairs = pyramid
                .as_array()
                .unwrap()
                .iter()
                .zip(rows.as_array().unwrap());
            for (a, b) in pairs {
                assert_eq!((&a["tags"], &a["columns"]), (&b["tags"], &b["columns"]));
                let cells = |series: &serde_json::Value| -> Vec<serde_json::Value> {
                    let rows = series["values"].as_array().unwrap().clone();
                    rows.into_iter()
                        .flat_map(|r| r.as_array().unwrap().clone())
                        .collect()
                };
                let (a, b) = (cells(a), cells(b));
                assert_eq!(a.len(), b.len(), "{range} {grouping}");
                for (a, b) in a.iter().zip(&b) {
                    let near = match (a.as_f64(), b.as_f64()) {
                        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
                        _ => a == b,
                    };
                    assert!(near, "{range} {grouping}: {a} {b}");
                }
            }
        }
    }
    // Exact integers stay exact, and the ends are found without a division of time.
    let last = rows(&server, "SELECT last(odometer) FROM obd WHERE car = 'a'");
    assert_eq!(last, json!([[S + 2_999, 9_007_199_254_743_992i64]]));
    let newest = rows(
        &server,
        "SELECT speed, car FROM obd ORDER BY time DESC LIMIT 3",
    );
    assert_eq!(
        newest,
        json!([
            [S + 2_999, 2_999, "b"],
            [S + 2_999, 2_999, "a"],
            [S + 2_998, 2_998, "b"]
        ])
    );
    let bounded = rows(
        &server,
        "SELECT gear FROM obd WHERE time < 1700000100s ORDER BY time DESC LIMIT 2",
    );
    assert_eq!(bounded, json!([[S + 90, 6], [S + 90, 6]]));
}

#[test]
fn what_cannot_be_done_is_said() {
    let server = serve(cars);
    for (statement, part) in [
        ("SELECT mean(speed), speed FROM obd", "mixing aggregate"),
        (
            "SELECT speed FROM obd GROUP BY time(1s)",
            "aggregate function around every field",
        ),
        (
            "SELECT derivative(speed) FROM obd GROUP BY time(1s)",
            "aggregate function around every field",
        ),
        (
            "SELECT derivative(mean(speed)) FROM obd",
            "needs GROUP BY time",
        ),
        (
            "SELECT mean(speed), derivative(speed) FROM obd",
            "mixing aggregate",
        ),
        (
            "SELECT nonsense(speed) FROM obd",
            "undefined function nonsense()",
        ),
        (
            "SELECT percentile(speed) FROM obd",
            "invalid arguments for percentile()",
        ),
        (
            "SELECT percentile(speed, 101) FROM obd",
            "from 0 to 100 as the second one, found 101",
        ),
        (
            "SELECT mean(speed, 5) FROM obd",
            "expected one field, found 2",
        ),
        ("SELECT mean(5) FROM obd", "expected a field"),
        (
            "SELECT moving_average(speed, 1) FROM obd",
            "2 or more as the second one, found 1",
        ),
        (
            "SELECT derivative(speed, 0s) FROM obd",
            "such as 1s as the second one, found 0ns",
        ),
        (
            "SELECT distinct(speed), mean(speed) FROM obd",
            "distinct() cannot be combined",
        ),
        (
            "SELECT speed FROM obd WHERE time != 5",
            "time comparison operator: !=",
        ),
        (
            "SELECT speed FROM obd WHERE time + 1s > 5 OR car = 'a'",
            "not used in arithmetic",
        ),
        (
            "SELECT speed FROM obd WHERE time > 'yesterday'",
            "invalid time 'yesterday'",
        ),
        (
            "SELECT speed FROM obd WHERE time > car",
            "time is compared with",
        ),
        (
            "SELECT speed FROM obd WHERE car =~ /(/",
            "regular expression /(/",
        ),
        (
            "SELECT speed FROM obd WHERE car =~ /a{1000}{1000}/",
            "regular expression",
        ),
        (
            "SELECT speed FROM obd WHERE mean(speed) > 5",
            "cannot stand in WHERE",
        ),
        (
            "SELECT count(speed) FROM obd WHERE time > 0 GROUP BY time(1s)",
            "intervals",
        ),
        (
            "SELECT count(speed) FROM obd WHERE time < 1700003000s GROUP BY time(1ms)",
            "intervals",
        ),
        ("DROP DATABASE plant", "cannot be dropped"),
    ] {
        let found = error(&server, statement);
        assert!(found.contains(part), "{statement}: {found}");
    }
    // What comes behind a statement that failed is not carried out.
    let found = results(
        &server,
        "SHOW DATABASES; SELECT x() FROM obd; SHOW DATABASES",
    );
    assert_eq!(found.len(), 2);
    assert_eq!(found[1]["statement_id"], 1);
}
