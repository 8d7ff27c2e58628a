//! `sample`: rows chosen at random.

use super::{World, f, i, t};
use headwater::Timestamp;
use headwater_ask::{Budget, CancelToken, Deadline, Unrestricted, influxql};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// What a statement answers with a seed.
fn seeded(world: &World, text: &str, seed: u64) -> Json {
    let snapshot = world.db.snapshot().unwrap();
    let budget = Budget::new(Deadline::NEVER, CancelToken::default());
    let now = Timestamp::from_nanos(world.now * 1_000_000_000);
    let asker = influxql::Evaluator::new(&snapshot, &Unrestricted, &budget, now).with_seed(seed);
    let form = influxql::Form {
        epoch: influxql::Epoch::Unit(1_000_000_000),
        chunk_rows: None,
    };
    let answers = asker.evaluate(text).unwrap();
    let body: Json = serde_json::from_slice(&influxql::json(&answers, form)).unwrap();
    body["results"][0]["series"].clone()
}

fn hundred() -> World {
    let world = World::new();
    for host in ["a", "b"] {
        let rows = Vec::from_iter((0..50).map(|n| {
            let second = n * 2 + i32::from(host == "b");
            (second.into(), vec![("v", f(second.into())), ("s", t(host))])
        }));
        let rows = Vec::from_iter(rows.iter().map(|(second, values)| (*second, &values[..])));
        world.write(&format!("m,host={host}"), &rows);
    }
    world
}

#[test]
fn a_sample_is_rows_of_the_measurement_each_at_its_time() {
    let world = hundred();
    let text = "SELECT sample(v, 10), host, s FROM m";
    let rows = seeded(&world, text, 1)[0]["values"].clone();
    assert_eq!(rows, seeded(&world, text, 1)[0]["values"]);
    assert_ne!(rows, seeded(&world, text, 2)[0]["values"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        assert_eq!(row[0], row[1], "{row}");
        let is_odd = row[0].as_u64().unwrap() % 2 == 1;
        let host = if is_odd { "b" } else { "a" };
        assert_eq!((&row[2], &row[3]), (&json!(host), &json!(host)));
    }
    let times = Vec::from_iter(rows.iter().map(|row| row[0].as_i64().unwrap()));
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    // All there are, where there are no more.
    let all = world.rows("SELECT sample(v, 1000) FROM m");
    assert_eq!(all, world.rows("SELECT v FROM m"));
    let newest = world.rows("SELECT sample(v, 1000) FROM m ORDER BY time DESC LIMIT 2");
    assert_eq!(newest, json!([[99, 99], [98, 98]]));
}

#[test]
fn each_row_is_as_likely_as_the_others() {
    let world = hundred();
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for seed in 0..400 {
        let rows = seeded(&world, "SELECT sample(v, 10) FROM m", seed)[0]["values"].clone();
        for row in rows.as_array().unwrap() {
            *counts.entry(row[0].as_i64().unwrap()).or_default() += 1;
        }
    }
    // 40 each, give or take.
    assert_eq!(counts.len(), 100);
    assert!(counts.values().all(|n| (15..=75).contains(n)), "{counts:?}");
}

#[test]
fn samples_of_intervals_groups_and_several_fields() {
    let world = hundred();
    let rows = world.rows("SELECT sample(v, 2) FROM m WHERE time < 100s GROUP BY time(10s)");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for (number, row) in (0..).zip(rows) {
        assert_eq!(row[0].as_u64().unwrap() / 10, number / 2, "{row}");
    }
    let series = world.series("SELECT sample(v, 3) FROM m GROUP BY host");
    for (one, rest) in series.as_array().unwrap().iter().zip(0..) {
        let values = one["values"].as_array().unwrap();
        assert!(
            values
                .iter()
                .all(|row| row[0].as_i64().unwrap() % 2 == rest)
        );
        assert_eq!(values.len(), 3);
    }
    world.write(
        "w",
        &[(1, &[("a", i(1)), ("b", t("x"))]), (2, &[("a", i(2))])],
    );
    let both = world.series("SELECT sample(*, 5) FROM w");
    assert_eq!(both[0]["columns"], json!(["time", "sample_a", "sample_b"]));
    assert_eq!(both[0]["values"], json!([[1, 1, "x"], [2, 2, null]]));
    world.check(&[
        ("SELECT sample(a, 5) + 1 FROM w", json!([[1, 2], [2, 3]])),
        ("SELECT sample(b, 1) FROM w", json!([[1, "x"]])),
        (
            "SELECT sample(x, 1) FROM (SELECT max(a) AS x FROM w)",
            json!([[2, 2]]),
        ),
        ("SELECT sample(nope, 1) FROM w", json!([])),
    ]);
    for (text, part) in [
        ("SELECT sample(a) FROM w", "a field and a number of rows"),
        ("SELECT sample(a, 0) FROM w", "a number of rows from 1 to"),
        ("SELECT sample(a, 1.5) FROM w", "a number of rows from 1 to"),
        (
            "SELECT sample(a, 99999999999) FROM w",
            "a number of rows from 1 to",
        ),
        ("SELECT sample(a, 1), max(a) FROM w", "cannot be combined"),
        (
            "SELECT sample(a, 1), sample(b, 1), a FROM w",
            "cannot be combined",
        ),
    ] {
        let error = world.error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}
