//! `SELECT … INTO`, and `EXPLAIN` of it.

use super::{World, f, i, t};
use headwater::{Batch, Timestamp};
use headwater_ask::influxql::{Epoch, Evaluator, Form, PointWriter, Stored, json};
use headwater_ask::{Access, Budget, CancelToken, Deadline, Error, QueryErrorKind, Unrestricted};
use serde_json::{Value as Json, json};
use std::cell::Cell;

/// Results of statements that may write, for somebody.
fn ask_as(world: &World, access: &dyn Access, writer: &dyn PointWriter, text: &str) -> Vec<Json> {
    let snapshot = world.db.snapshot().unwrap();
    let budget = Budget::new(Deadline::NEVER, CancelToken::default());
    let asker = Evaluator::new(&snapshot, access, &budget, Timestamp::from_nanos(0))
        .with_changes(&world.db)
        .with_writer(writer);
    let answers = asker.evaluate(text).unwrap();
    let form = Form {
        epoch: Epoch::Unit(1_000_000_000),
        chunk_rows: None,
    };
    let body: Json = serde_json::from_slice(&json(&answers, form)).unwrap();
    body["results"].as_array().unwrap().clone()
}

fn written(world: &World, text: &str) -> Json {
    let result = ask_as(world, &Unrestricted, &world.db, text).remove(0);
    assert!(result["error"].is_null(), "{text}: {result}");
    let series = &result["series"][0];
    assert_eq!(series["name"], "result");
    assert_eq!(series["columns"], json!(["time", "written"]));
    assert_eq!(series["values"][0][0], 0);
    series["values"][0][1].clone()
}

fn two() -> World {
    let world = World::new();
    world.write(
        "m1,host=a",
        &[
            (1, &[("v", f(1.0)), ("w", i(10))]),
            (3, &[("v", f(3.0)), ("w", i(30))]),
        ],
    );
    world.write("m1,host=b", &[(2, &[("v", f(2.0))])]);
    world.write("m2,host=a", &[(1, &[("u", t("x"))])]);
    world
}

#[test]
fn rows_become_points_and_groups_their_tags() {
    let world = two();
    for (text, count, question, rows) in [
        (
            "SELECT * INTO t1 FROM m1",
            3,
            "SELECT * FROM t1",
            json!([[1, "a", 1, 10], [2, "b", 2, null], [3, "a", 3, 30]]),
        ),
        (
            "SELECT v AS x INTO \"a b\" FROM m1 GROUP BY *",
            3,
            "SELECT x, host FROM \"a b\"",
            json!([[1, 1, "a"], [2, 2, "b"], [3, 3, "a"]]),
        ),
        (
            "SELECT mean(v), max(w) INTO t2 FROM m1 GROUP BY host",
            2,
            "SELECT * FROM t2",
            json!([[0, "a", 30, 2], [0, "b", null, 2]]),
        ),
        (
            "SELECT top(v, host, 2) INTO t3 FROM m1",
            2,
            "SELECT top, host::tag FROM t3",
            json!([[2, 2, "b"], [3, 3, "a"]]),
        ),
        (
            "SELECT v INTO t4 FROM nope",
            0,
            "SELECT * FROM t4",
            json!([]),
        ),
        (
            "SELECT sum(x) INTO t5 FROM (SELECT max(v) AS x FROM m1 GROUP BY host)",
            1,
            "SELECT * FROM t5",
            json!([[0, 5]]),
        ),
        (
            "SELECT mean(v) INTO t6 FROM m1 WHERE time >= 0 AND time < 10s GROUP BY time(1s)",
            3,
            "SELECT * FROM t6",
            json!([[1, 1], [2, 2], [3, 3]]),
        ),
        (
            "SELECT v * 2 AS twice INTO m1 FROM m1 GROUP BY host",
            3,
            "SELECT v, twice FROM m1",
            json!([[1, 1, 2], [2, 2, 4], [3, 3, 6]]),
        ),
    ] {
        assert_eq!(written(&world, text), json!(count), "{text}");
        assert_eq!(world.rows(question), rows, "{text}");
    }
    // Into the measurements that the rows come from; what follows sees it.
    let text = "SELECT host AS of, * INTO any..:MEASUREMENT FROM /^m[12]$/ GROUP BY host; SELECT of FROM m2";
    let results = ask_as(&world, &Unrestricted, &world.db, text);
    assert_eq!(results[0]["series"][0]["values"], json!([[0, 4]]));
    assert_eq!(results[1]["series"][0]["values"], json!([[1, "a"]]));
}

/// May read everything, and write one table.
struct Some(&'static str);

impl Access for Some {
    fn reads(&self, _: &str, _: &[(String, String)]) -> bool {
        true
    }

    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool {
        table == self.0 && tags.iter().all(|(_, value)| value != "b")
    }

    fn manages(&self, _: &str) -> bool {
        false
    }

    fn all(&self) -> bool {
        false
    }
}

/// Takes a number of batches, and then refuses.
struct Refusing(Cell<u32>, Error);

impl Refusing {
    fn after(batches: u32) -> Refusing {
        Refusing(
            Cell::new(batches),
            Error::new(QueryErrorKind::Busy, "no memory"),
        )
    }
}

impl PointWriter for Refusing {
    fn write(&self, points: Batch) -> Result<Stored, Error> {
        if self.0.get() == 0 {
            return Err(Error::new(QueryErrorKind::Invalid, self.1.message()));
        }
        self.0.set(self.0.get() - 1);
        Ok(Stored {
            rows: u64::try_from(points.row_count()).unwrap(),
            refused: None,
        })
    }
}

#[test]
fn who_may_not_write_all_of_it_writes_nothing() {
    let world = two();
    let tables = |world: &World| world.db.snapshot().unwrap().table_names();
    let before = tables(&world);
    for (access, text) in [
        (Some("other"), "SELECT v INTO t FROM m1"),
        // The last series of several is the one that may not be written.
        (Some("t"), "SELECT v INTO t FROM m1 GROUP BY host"),
        (Some("t"), "SELECT top(v, host, 2) INTO t FROM m1"),
        (Some("t"), "SELECT v INTO x.y.:MEASUREMENT FROM m1"),
    ] {
        let result = ask_as(&world, &access, &world.db, text).remove(0);
        assert_eq!(result["code"], "E_ACCESS", "{text}: {result}");
        assert!(
            result["error"]
                .as_str()
                .unwrap()
                .contains("nothing was written")
        );
        assert_eq!(tables(&world), before, "{text}");
    }
    let text = "SELECT v INTO t FROM m1 WHERE host = 'a' GROUP BY host";
    let result = ask_as(&world, &Some("t"), &world.db, text).remove(0);
    assert_eq!(result["series"][0]["values"], json!([[0, 2]]), "{result}");
}

#[test]
fn what_goes_wrong_says_how_much_was_written() {
    let world = World::new();
    let rows = Vec::from_iter((0..60_000).map(|n: i32| (n.into(), vec![("v", f(n.into()))])));
    let rows = Vec::from_iter(rows.iter().map(|(second, values)| (*second, &values[..])));
    world.write("m", &rows);
    let refused = |batches, text| {
        let result = ask_as(&world, &Unrestricted, &Refusing::after(batches), text).remove(0);
        result["error"].as_str().unwrap().to_owned()
    };
    let all = "SELECT v INTO t FROM m";
    assert_eq!(refused(0, all), "no memory");
    assert_eq!(
        refused(1, all),
        "no memory; 50000 rows were written before it"
    );
    // What the database refuses of a row is told; a field keeps its type.
    world.write("typed", &[(1, &[("v", t("text"))])]);
    let result = ask_as(
        &world,
        &Unrestricted,
        &world.db,
        "SELECT v INTO typed FROM m LIMIT 3",
    );
    assert!(
        result[0]["error"]
            .as_str()
            .unwrap()
            .contains("partial write"),
        "{result:?}"
    );
    assert_eq!(world.rows("SELECT v FROM typed"), json!([[1, "text"]]));
}

#[test]
fn what_cannot_be_written() {
    let world = two();
    // A door without a writer only reads.
    assert!(world.error("SELECT v INTO t FROM m1").contains("read-only"));
    let refused = |text| ask_as(&world, &Unrestricted, &world.db, text).remove(0);
    for (text, part) in [
        (
            "SELECT v AS x, w AS x INTO t FROM m1",
            "two columns are named \"x\"",
        ),
        ("SELECT v AS time INTO t FROM m1", "use another name"),
        ("SELECT nope(v) INTO t FROM m1", "undefined function"),
    ] {
        let result = refused(text);
        assert!(
            result["error"].as_str().unwrap().contains(part),
            "{text}: {result}"
        );
        assert_eq!(world.rows("SELECT * FROM t"), json!([]), "{text}");
    }
}

fn plan(world: &World, text: &str) -> String {
    let series = world.series(text);
    assert_eq!(series[0]["columns"], json!(["QUERY PLAN"]), "{text}");
    let rows = series[0]["values"].as_array().unwrap().iter();
    Vec::from_iter(rows.map(|row| row[0].as_str().unwrap().to_owned())).join("\n")
}

#[test]
fn a_plan_says_what_is_read_and_why() {
    let world = two();
    for (text, parts) in [
        (
            "EXPLAIN SELECT mean(v), last(w) FROM m1 GROUP BY host",
            &[
                "range: all time",
                "measurement \"m1\": 2 streams with rows in the range, 2 series by host",
                "fields: v (float), w (integer)",
                "mean(v): answered by the pyramid, without rows",
                "last(w): the first or last rows",
            ][..],
        ),
        (
            "EXPLAIN SELECT mean(v), median(v) FROM m1 WHERE w > 3 AND time >= 1s AND time < 9s GROUP BY time(2s)",
            &[
                "range: 1970-01-01T00:00:01Z to 1970-01-01T00:00:08.999999999Z",
                "intervals: of 2s each",
                "mean(v): every row, since the condition",
                "median(v): every row, since it needs each value",
            ],
        ),
        (
            "EXPLAIN SELECT v FROM m1, m2",
            &["the rows, as they are", "\"m2\": none of the fields"],
        ),
        (
            "EXPLAIN SELECT max(x) FROM (SELECT mean(v) AS x FROM m1 GROUP BY host)",
            &[
                "subquery",
                "      measurement \"m1\"",
                "answered by the pyramid",
            ],
        ),
        (
            "EXPLAIN SELECT v FROM nope",
            &["the measurement does not exist"],
        ),
        (
            "EXPLAIN SELECT v FROM m1 WHERE time > 2 AND time < 1",
            &["the range is empty"],
        ),
        (
            "EXPLAIN SELECT v INTO t FROM m1",
            &["writes into \"t\"; EXPLAIN does not"],
        ),
        (
            "EXPLAIN ANALYZE SELECT v, w FROM m1 GROUP BY host",
            &["answered: 3 rows of 2 series, 5 values, in "],
        ),
        (
            "EXPLAIN ANALYZE SELECT v INTO t FROM m1",
            &["answered: 3 rows"],
        ),
    ] {
        let plan = plan(&world, text);
        for part in parts {
            assert!(plan.contains(part), "{text}: {part}\n{plan}");
        }
    }
    assert_eq!(world.rows("SELECT * FROM t"), json!([]));
    assert!(
        world
            .error("EXPLAIN SELECT nope(v) FROM m1")
            .contains("undefined function")
    );
}

#[test]
fn shards_are_the_spans_of_partitions() {
    let world = two();
    let columns = [
        "id",
        "database",
        "retention_policy",
        "shard_group",
        "start_time",
        "end_time",
        "expiry_time",
        "owners",
    ];
    // A snapshot alone knows of none.
    let none = world.series("SHOW SHARDS");
    assert_eq!(none, json!([{ "name": "headwater", "columns": columns }]));
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    let shown = |text: &str| world.change_as(&Unrestricted, text).remove(0)["series"].clone();
    let shards = shown("SHOW SHARDS");
    let row = &shards[0]["values"][0];
    assert_eq!(
        (&row[0], &row[1], &row[2]),
        (&json!(1), &json!("headwater"), &json!("autogen"))
    );
    assert!(
        row[4].as_i64().unwrap() <= 1 && row[5].as_i64().unwrap() >= 3,
        "{row}"
    );
    let groups = shown("SHOW SHARD GROUPS");
    assert_eq!(groups[0]["name"], "shard groups");
    assert_eq!(groups[0]["values"][0][3], row[4]);
    let told = world.change_as(&Some("m1"), "SHOW SHARDS").remove(0);
    assert!(told["series"][0]["values"].is_null(), "{told}");
}
