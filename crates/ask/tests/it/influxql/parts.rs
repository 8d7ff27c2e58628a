//! Answers in parts: as many rows as there are.

use super::World;
use headwater::{Batch, StreamName};
use headwater_ask::influxql::{Asker, Epoch, Form};
use headwater_ask::{Budget, CancelToken, Deadline, Kind, Unrestricted};
use headwater_wire::influxql::{Parameters, parse};
use serde_json::Value as Json;

/// Hosts with a row each second, of which every third has a burst of rows.
fn many(hosts: i64, seconds: i64) -> World {
    let world = World::new();
    for host in 0..hosts {
        let mut batch = Batch::new();
        let stream = StreamName::new("m", [("host", format!("h{host:02}"))]);
        let rows = batch.stream(&stream);
        for second in 0..seconds {
            let values = [("v", (second as f64).into()), ("w", (host as f64).into())];
            rows.row(second * 1_000_000_000, values).unwrap();
        }
        world.db.commit(batch).unwrap();
    }
    world
}

/// The parts of an answer.
fn parts(world: &World, text: &str, rows: usize, as_csv: bool) -> Vec<String> {
    let snapshot = world.db.snapshot().unwrap();
    let budget = Budget::new(Deadline::NEVER, CancelToken::default());
    let now = headwater::Timestamp::from_nanos(0);
    let asker = Asker::new(&snapshot, &Unrestricted, &budget, now);
    let form = Form {
        epoch: Epoch::Unit(1_000_000_000),
        chunk_rows: Some(rows),
    };
    let statements = parse(text, &Parameters::default()).unwrap();
    let mut out = Vec::new();
    let mut take = |bytes: Vec<u8>| {
        out.push(String::from_utf8(bytes).unwrap());
        Ok(())
    };
    asker
        .in_parts(&statements, None, form, as_csv, &mut take)
        .unwrap();
    out
}

/// Rows by series, and whether each part says rightly what follows.
fn put_together(parts: &[String]) -> Vec<(String, Vec<Json>)> {
    let mut out: Vec<(String, Vec<Json>)> = Vec::new();
    let mut goes_on = false;
    for (number, part) in parts.iter().enumerate() {
        let part: Json = serde_json::from_str(part).unwrap();
        let result = &part["results"][0];
        let series = &result["series"][0];
        let rows = series["values"].as_array().unwrap().clone();
        match out.last_mut().filter(|_| goes_on) {
            Some((_, all)) => all.extend(rows),
            None => out.push((series["tags"].to_string(), rows)),
        }
        goes_on = series["partial"] == true;
        assert_eq!(
            result["partial"] == true,
            number + 1 < parts.len(),
            "{number}"
        );
    }
    out
}

#[test]
fn rows_in_parts_are_the_rows_at_once() {
    let world = many(7, 5_000);
    for text in [
        "SELECT v, host FROM m",
        "SELECT v, w FROM m GROUP BY host",
        "SELECT v FROM m WHERE v > 17 AND host != 'h03' ORDER BY time DESC",
        "SELECT * FROM m LIMIT 20000 OFFSET 7001",
        "SELECT v FROM m GROUP BY host ORDER BY time DESC LIMIT 12000 OFFSET 10 SLIMIT 2 SOFFSET 1",
        "SELECT mean(v) FROM m GROUP BY host",
        "SELECT v FROM m LIMIT 3",
        "SELECT v FROM nothing",
    ] {
        for rows in [1_000, 999, 100_000] {
            let found = parts(&world, text, rows, false);
            let whole = world.series(text);
            let whole: Vec<(String, Vec<Json>)> = whole
                .as_array()
                .unwrap()
                .iter()
                .map(|s| {
                    (
                        s["tags"].to_string(),
                        s["values"].as_array().unwrap().clone(),
                    )
                })
                .collect();
            if whole.is_empty() {
                assert_eq!(
                    found,
                    ["{\"results\":[{\"statement_id\":0,\"series\":[]}]}\n"]
                );
                continue;
            }
            assert!(put_together(&found) == whole, "{text} by {rows}");
        }
    }
}

#[test]
fn more_rows_than_an_answer_may_hold_come_in_parts() {
    let world = many(30, 12_000);
    let text = "SELECT v, w FROM m";
    assert!(world.error(text).contains("more than 1000000 values"));
    let rows: usize = put_together(&parts(&world, text, 10_000, false))
        .iter()
        .map(|(_, rows)| rows.len())
        .sum();
    assert_eq!(rows, 30 * 12_000);
    let text: String = parts(&world, text, 10_000, true).concat();
    assert_eq!(text.lines().count(), 30 * 12_000 + 1);
}

#[test]
fn what_fails_later_is_told_at_the_end() {
    let world = many(2, 10);
    let found = parts(
        &world,
        "SELECT v FROM m; SELECT x(v) FROM m; SELECT v FROM m",
        7,
        false,
    );
    let last: Json = serde_json::from_str(found.last().unwrap()).unwrap();
    assert_eq!(last["results"][0]["statement_id"], 1);
    assert_eq!(last["results"][0]["code"], "E_QUERY");
    let text = parts(&world, "SELECT v FROM m; SELECT x(v) FROM m", 7, true).concat();
    assert!(text.contains("\n\nerror\n\"undefined function"), "{text}");
    // Who takes nothing more ends the work.
    let snapshot = world.db.snapshot().unwrap();
    let budget = Budget::new(Deadline::NEVER, CancelToken::default());
    let asker = Asker::new(
        &snapshot,
        &Unrestricted,
        &budget,
        headwater::Timestamp::from_nanos(0),
    );
    let statements = parse("SELECT v FROM m", &Parameters::default()).unwrap();
    let form = Form {
        chunk_rows: Some(1),
        ..Form::default()
    };
    let mut taken = 0;
    let mut take = |_| {
        taken += 1;
        Err(headwater_ask::Error::new(Kind::Cancelled, "gone"))
    };
    let ended = asker.in_parts(&statements, None, form, false, &mut take);
    assert!(ended.is_err());
    assert!(taken <= 2, "{taken}");
}
