//! Answers in parts: as many rows as there are.

use super::World;
use headwater::{Batch, StreamName};
use headwater_ask::influxql::{Epoch, Evaluator, Form, PIECE_BYTES};
use headwater_ask::{Budget, CancelToken, Deadline, Memory, QueryErrorKind, Unrestricted};
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
    let asker = Evaluator::new(&snapshot, &Unrestricted, &budget, now);
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
fn assemble(parts: &[String]) -> Vec<(String, Vec<Json>)> {
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
            assert!(assemble(&found) == whole, "{text} by {rows}");
        }
    }
}

/// What is answered with so much memory, as one document of JSON or as CSV, piece by piece.
fn within(world: &World, text: &str, bytes: usize, as_csv: bool) -> Vec<String> {
    let snapshot = world.db.snapshot().unwrap();
    let memory = Memory::new(bytes, bytes);
    let budget = Budget::new(Deadline::NEVER, CancelToken::default()).within(&memory);
    let now = headwater::Timestamp::from_nanos(0);
    let asker = Evaluator::new(&snapshot, &Unrestricted, &budget, now);
    let form = Form {
        epoch: Epoch::Unit(1_000_000_000),
        chunk_rows: None,
    };
    let statements = parse(text, &Parameters::default()).unwrap();
    let mut out = Vec::new();
    let mut take = |bytes: Vec<u8>| {
        out.push(String::from_utf8(bytes).unwrap());
        Ok(())
    };
    let done = asker.in_parts(&statements, None, form, as_csv, &mut take);
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
    out
}

const SMALL: usize = 4 << 20;

#[test]
fn answers_have_as_many_rows_as_there_are() {
    let world = many(30, 12_000);
    let text = "SELECT v, w FROM m";
    let rows: usize = assemble(&parts(&world, text, 10_000, false))
        .iter()
        .map(|(_, rows)| rows.len())
        .sum();
    assert_eq!(rows, 30 * 12_000);
    let csv: String = parts(&world, text, 10_000, true).concat();
    assert_eq!(csv.lines().count(), 30 * 12_000 + 1);
    // As one document, with less memory than the rows would take.
    let whole = within(&world, text, SMALL, false);
    assert!(whole.len() > 10 && whole.iter().all(|p| p.len() < 2 * PIECE_BYTES));
    let document: Json = serde_json::from_str(&whole.concat()).unwrap();
    let series = document["results"][0]["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!(series[0]["values"].as_array().unwrap().len(), 30 * 12_000);
    assert_eq!(within(&world, text, SMALL, true).concat(), csv);
    // What has to be held is bounded by memory, and the error says by which setting.
    for text in [
        "SELECT median(v) FROM m",
        "SELECT v FROM (SELECT difference(v) AS v FROM m)",
    ] {
        let told: Json =
            serde_json::from_str(&within(&world, text, SMALL, false).concat()).unwrap();
        let result = &told["results"][0];
        assert_eq!(result["code"], "E_LIMIT", "{text}: {result}");
        assert!(
            result["error"]
                .as_str()
                .unwrap()
                .contains("(setting query.memory)"),
            "{result}"
        );
    }
    // A question whose rows pass through is not held at all.
    let told = within(
        &world,
        "SELECT mean(y), count(x) FROM (SELECT v AS x, w / 2 AS y FROM m WHERE v >= 0) WHERE x < 12000",
        SMALL,
        false,
    );
    let told: Json = serde_json::from_str(&told.concat()).unwrap();
    assert_eq!(
        told["results"][0]["series"][0]["values"],
        serde_json::json!([[0, 7.25, 360_000]])
    );
}

#[test]
fn one_document_is_the_answers_at_once() {
    let world = many(3, 700);
    world.write("n", &[(1, &[("s", super::t("a\"b"))])]);
    for text in [
        "SELECT v, host FROM m; SELECT s FROM n",
        "SELECT v FROM m GROUP BY host LIMIT 3; SHOW MEASUREMENTS; SELECT v FROM nope",
        "SELECT mean(v) FROM m WHERE time < 9s GROUP BY time(1s), host; SHOW SHARDS",
        "SELECT v FROM m LIMIT 2; SELECT nope(v) FROM m; SELECT s FROM n",
        "CREATE RETENTION POLICY p ON any DURATION 1h REPLICATION 1; SELECT s FROM n tz('Europe/Oslo')",
        "SELECT v FROM m WHERE time < 0",
        "EXPLAIN SELECT v FROM m",
    ] {
        let at_once = world.results(text);
        let document = within(&world, text, 64 << 20, false).concat();
        let document: Json = serde_json::from_str(&document).unwrap();
        assert_eq!(document["results"].as_array().unwrap(), &at_once, "{text}");
    }
}

#[test]
fn what_fails_behind_rows_is_told_behind_them() {
    let world = many(10, 12_000);
    // Of the first measurement rows are handed out, of the second they do not fit.
    world.write("a", &[(1, &[("v", 1.0.into())])]);
    let text = "SELECT cumulative_sum(v) FROM m GROUP BY host; SELECT v FROM a";
    let whole = within(&world, text, 64 << 20, false).concat();
    assert!(!whole.contains("error"), "{}", whole.get(..200).unwrap());
    let mut batch = Batch::new();
    let rows = batch.stream(&StreamName::new("m", [("host", "z")]));
    for second in 0..90_000 {
        rows.row(second * 1_000_000_000, [("v", 1.0.into())])
            .unwrap();
    }
    world.db.commit(batch).unwrap();
    let told = within(&world, text, SMALL, false);
    assert!(told.len() > 1);
    let told: Json = serde_json::from_str(&told.concat()).unwrap();
    let results = told["results"].as_array().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["code"], "E_LIMIT");
    assert_eq!(results[0]["series"].as_array().unwrap().len(), 10);
    let csv = within(&world, text, SMALL, true).concat();
    assert!(csv.contains("\n\nerror\n"), "{}", csv.len());
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
    let asker = Evaluator::new(
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
        Err(headwater_ask::Error::new(QueryErrorKind::Cancelled, "gone"))
    };
    let ended = asker.in_parts(&statements, None, form, false, &mut take);
    assert!(ended.is_err());
    assert!(taken <= 2, "{taken}");
}
