//! Grouped queries from the pyramid give what they give from the rows.

use crate::support::{Lake, SECOND, batches, block_on};
use headwater::{Batch, Duplicates, StreamName, TableSpec, Timestamp, Value};
use headwater_query::arrow::array::{Array, AsArray, RecordBatch};
use headwater_query::arrow::datatypes::{DataType, Float64Type};
use headwater_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use headwater_query::{Limits, Parameters, Session};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A value of an answer: floats are compared with a tolerance.
#[derive(Clone, Debug)]
enum Cell {
    Text(String),
    Float(f64),
}

fn cells(batches: &[RecordBatch], keys: usize) -> BTreeMap<Vec<String>, Vec<Cell>> {
    let options = FormatOptions::default().with_null("-");
    let mut out = BTreeMap::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let mut all = Vec::new();
            for column in batch.columns() {
                let text = ArrayFormatter::try_new(column.as_ref() as &dyn Array, &options)
                    .unwrap()
                    .value(row)
                    .to_string();
                all.push(match column.data_type() {
                    DataType::Float64 if column.is_valid(row) => {
                        Cell::Float(column.as_primitive::<Float64Type>().value(row))
                    }
                    _ => Cell::Text(text),
                });
            }
            let values = all.split_off(keys);
            let key = all.into_iter().map(|c| format!("{c:?}")).collect();
            assert!(out.insert(key, values).is_none(), "a group comes twice");
        }
    }
    out
}

fn same(a: &Cell, b: &Cell, scale: f64) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a == b,
        (Cell::Float(a), Cell::Float(b)) => {
            a == b
                || (a.is_nan() && b.is_nan())
                || (a.is_finite() && b.is_finite() && (a - b).abs() <= 1e-9 * scale)
        }
        _ => false,
    }
}

/// Both ways give the same, and the first is indeed by the pyramid.
async fn check(lake: &Lake, session: &Session, sql: &str, keys: usize, scale: f64) {
    let plan = batches(session, &format!("EXPLAIN {sql}")).await.unwrap();
    let plan = crate::support::text(&plan).join("\n");
    assert!(plan.contains("PyramidExec"), "{sql}: {plan}");
    let by_pyramid = batches(session, sql).await;
    let plain = lake.session.clone();
    plain
        .run("SET headwater.use_pyramid = off", Parameters::none())
        .await
        .unwrap();
    let by_rows = batches(&plain, sql).await;
    // A sum of integers may be beyond 64 bits.
    if let (Err(a), Err(b)) = (&by_pyramid, &by_rows) {
        assert_eq!((a.code, b.code), ("out_of_range", "out_of_range"), "{sql}");
        return;
    }
    let (by_pyramid, by_rows) = (by_pyramid.unwrap(), by_rows.unwrap());
    let schema = |b: &[RecordBatch]| b.first().map(|b| b.schema());
    if let (Some(a), Some(b)) = (schema(&by_pyramid), schema(&by_rows)) {
        assert_eq!(a, b, "{sql}");
    }
    let (a, b) = (cells(&by_pyramid, keys), cells(&by_rows, keys));
    assert_eq!(
        a.keys().collect::<Vec<_>>(),
        b.keys().collect::<Vec<_>>(),
        "{sql}"
    );
    for ((key, a), b) in a.iter().zip(b.values()) {
        for (at, (a, b)) in a.iter().zip(b).enumerate() {
            assert!(same(a, b, scale), "{sql}\n{key:?} value {at}: {a:?} {b:?}");
        }
    }
}

/// What is written, in the order it is written.
#[derive(Clone, Debug)]
struct Written {
    stream: u8,
    time: i64,
    seed: u64,
    flush: bool,
    /// 0 never, 1 long ago, 2 in a long time.
    expiry: u8,
}

fn written() -> impl Strategy<Value = Vec<(u8, i64, u64, bool, u8)>> {
    proptest::collection::vec(
        (
            0..4u8,
            prop_oneof![0..400i64, 0..4_000i64],
            any::<u64>(),
            proptest::bool::weighted(0.02),
            0..10u8,
        ),
        1..400,
    )
}

/// Where SQL computes extremes from rows in groups, NaN among them makes them depend on the order
/// of rows, and of infinite values alone they are the largest finite number: those are looked at in
/// a test of their own.
fn float(seed: u64, any: bool) -> f64 {
    match seed % 40 {
        0 if any => f64::NAN,
        1 if any => -f64::NAN,
        2 if any => f64::INFINITY,
        3 if any => f64::NEG_INFINITY,
        4 => -0.0,
        5 => 0.0,
        _ => (seed >> 20) as f64 / 1e10 - 800.0,
    }
}

fn fill(lake: &Lake, duplicates: Duplicates, expires: bool, events: Vec<(u8, i64, u64, bool, u8)>) {
    lake.db
        .create_table(&TableSpec {
            duplicates,
            leaf_events: Some(16),
            ..TableSpec::new("m")
        })
        .unwrap();
    for (stream, time, seed, flush, expiry) in events {
        let event = Written {
            stream,
            time: time * SECOND / 4 - 10 * SECOND,
            seed,
            flush,
            expiry: if expires { expiry.min(2) } else { 0 },
        };
        let tags = match event.stream {
            0 => vec![("id", "a"), ("site", "x")],
            1 => vec![("id", "b"), ("site", "x")],
            2 => vec![("id", "c"), ("site", "y")],
            _ => vec![("id", "d")],
        };
        let mut values: Vec<(&str, Value)> = Vec::new();
        if event.seed & 1 == 0 {
            values.push(("f", float(event.seed >> 3, false).into()));
        }
        if event.seed & 64 == 0 {
            values.push(("n", float(event.seed >> 7, true).into()));
        }
        if event.seed & 6 != 0 {
            values.push(("i", (event.seed as i64).into()));
        }
        if event.seed & 2 == 0 {
            values.push(("u", Value::U64(event.seed)));
        }
        if event.seed & 4 == 0 {
            values.push(("b", (event.seed & 8 == 0).into()));
        }
        if event.seed & 24 == 0 {
            values.push(("s", Value::String(format!("s{}", event.seed % 5))));
        }
        if values.is_empty() {
            values.push(("g", ((event.seed >> 40) as f64).into()));
        }
        let mut batch = Batch::new();
        batch
            .stream(&StreamName::new("m", tags))
            .row(event.time, values)
            .unwrap();
        match event.expiry {
            1 => batch.expire_at(Timestamp::from_nanos(1_000)),
            2 => batch.expire_at(Timestamp::MAX),
            _ => {}
        }
        lake.db.commit(batch).unwrap();
        if event.flush {
            lake.db.flush().unwrap();
        }
    }
    // All fields must be there.
    let mut batch = Batch::new();
    let all: [(&str, Value); 7] = [
        ("f", 1.0.into()),
        ("i", 1i64.into()),
        ("u", Value::U64(1)),
        ("b", true.into()),
        ("s", Value::String("z".into())),
        ("g", 2.0.into()),
        ("n", 3.0.into()),
    ];
    let name = StreamName::new("m", [("id", "a"), ("site", "x")]);
    batch.stream(&name).row(0, all).unwrap();
    lake.db.commit(batch).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_grouped_query_gives_the_same_from_the_pyramid_and_from_the_rows(
        events in written(),
        keep in any::<bool>(),
        expires in any::<bool>(),
        delete in proptest::option::of((0..800i64, 0..200i64)),
        width in prop_oneof![Just(1i64), Just(7), Just(16), Just(60), Just(3_600)],
        from in proptest::option::of(0..800i64),
        until in proptest::option::of(0..1_000i64),
    ) {
        let lake = Lake::with(Limits::default(), |o| o);
        let duplicates = if keep { Duplicates::Keep } else { Duplicates::Last };
        fill(&lake, duplicates, expires, events);
        block_on(async {
            if let Some((at, length)) = delete {
                lake.outcome(&format!(
                    "DELETE FROM m WHERE site = 'x' AND time >= to_timestamp({at}) AND time < to_timestamp({})",
                    at + length
                )).await;
            }
            let session = lake.query.session(std::sync::Arc::new(headwater_query::Unrestricted));
            let range = from.map_or(String::new(), |f| format!(" WHERE time >= to_timestamp({f}) AND id <> 'b'"));
            let bin = format!("date_bin(INTERVAL '{width} seconds', time)");
            let counts = "count(*), count(f), count(s), min(f), max(f), min(i), max(i), sum(i), min(u), max(u), sum(u), min(b), max(b), count(b)";
            let floats = "avg(f), sum(f), avg(i), stddev(f), stddev_pop(f), avg(u), count(n), sum(n), avg(n), var_pop(n)";
            for (group, keys) in [
                (String::new(), 0),
                (format!(" GROUP BY {bin}"), 1),
                (" GROUP BY id, site".to_owned(), 2),
                (format!(" GROUP BY site, {bin}"), 2),
                (" GROUP BY upper(site)".to_owned(), 1),
            ] {
                let names = group.trim_start_matches(" GROUP BY ");
                let columns = if keys == 0 { String::new() } else { format!("{names}, ") };
                check(&lake, &session, &format!("SELECT {columns}{counts} FROM m{range}{group}"), keys, 1.0).await;
                // Of 64-bit integers a mean has sixteen digits.
                check(&lake, &session, &format!("SELECT {columns}{floats} FROM m{range}{group}"), keys, 1e20).await;
                let small = "avg(f), sum(g), avg(g), stddev(f), stddev_pop(f)";
                let small = format!("SELECT {columns}{small} FROM m AS n{range}{group}");
                check(&lake, &session, &small, keys, 1e10).await;
                if group.contains("date_bin") {
                    continue;
                }
                let until = until.map_or(range.clone(), |u| {
                    let before = if range.is_empty() { " WHERE" } else { " AND" };
                    format!("{range}{before} time < to_timestamp({u})")
                });
                for range in [&range, &until] {
                    let ends = format!("SELECT {columns}min(time), max(time) FROM m{range}{group}");
                    check(&lake, &session, &ends, keys, 1.0).await;
                    let both = format!("SELECT {columns}max(time), count(*), max(f) FROM m{range}{group}");
                    check(&lake, &session, &both, keys, 1.0).await;
                    // Of streams with rows of one instant it is not said whose value counts: a
                    // stream at a time.
                    if !names.contains("id") {
                        continue;
                    }
                    let ends = ["f", "n", "i", "u", "b", "s", "g", "time"];
                    let ends: Vec<String> = ends.iter().map(|x| format!("first({x}, time), last({x}, time)")).collect();
                    let ends = format!("SELECT {columns}{} FROM m{range}{group}", ends.join(", "));
                    check(&lake, &session, &ends, keys, 0.0).await;
                    let one = format!("SELECT {columns}last(g, time) FROM m{range}{group}");
                    check(&lake, &session, &one, keys, 0.0).await;
                }
            }
        });
    }
}

#[test]
fn nan_is_above_all_numbers_whatever_its_sign() {
    block_on(async {
        let lake = Lake::new();
        let mut batch = Batch::new();
        for (id, values) in [
            ("a", [1.0, f64::NAN, f64::NEG_INFINITY]),
            ("b", [1.0, -f64::NAN, f64::INFINITY]),
            ("c", [-0.0, 0.0, -0.0]),
        ] {
            let rows = batch.stream(&StreamName::new("t", [("id", id)]));
            for (time, value) in (0..).zip(values) {
                rows.row(time, [("x", value.into())]).unwrap();
            }
        }
        lake.db.commit(batch).unwrap();
        assert_eq!(
            lake.rows("SELECT id, min(x), max(x), sum(x), count(x) FROM t GROUP BY id ORDER BY id")
                .await,
            ["a|-inf|NaN|NaN|3", "b|1.0|NaN|NaN|3", "c|-0.0|0.0|0.0|3"]
        );
        assert_eq!(lake.rows("SELECT count(*) FROM t WHERE x > 5").await, ["3"]);
        assert_eq!(
            lake.rows("SELECT count(*) FROM t WHERE x < -5").await,
            ["1"]
        );
    });
}

#[test]
fn what_the_pyramid_cannot_say_is_read_from_rows() {
    block_on(async {
        let lake = Lake::pumps();
        for sql in [
            "SELECT count(*) FROM pump WHERE temp > 3",
            "SELECT count(DISTINCT rpm) FROM pump",
            "SELECT sum(rpm) FILTER (WHERE \"on\") FROM pump",
            "SELECT max(note) FROM pump",
            "SELECT date_bin(INTERVAL '1 month', time), count(*) FROM pump GROUP BY 1",
            "SELECT rpm, count(*) FROM pump GROUP BY rpm",
            "SELECT median(temp) FROM pump",
            "SELECT id, count(*) FROM pump GROUP BY ROLLUP (id)",
            "SELECT count(*) FROM (SELECT * FROM pump LIMIT 7) AS p",
            "SELECT sum(rpm + 1) FROM pump",
            "SELECT date_bin(INTERVAL '30 seconds', time), max(time) FROM pump GROUP BY 1",
            "SELECT last(temp, time) FROM pump WHERE rpm > 100",
            "SELECT first(id, time) FROM pump",
            "SELECT max(time + INTERVAL '1 day') FROM pump",
        ] {
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert!(!plan.contains("PyramidExec"), "{sql}: {plan}");
            lake.rows(sql).await;
        }
        lake.outcome("SET headwater.use_pyramid = off").await;
        let plan = lake
            .rows("EXPLAIN SELECT count(*) FROM pump")
            .await
            .join("\n");
        assert!(!plan.contains("PyramidExec"), "{plan}");
    });
}

#[test]
fn the_pyramid_is_used_however_the_query_is_written() {
    block_on(async {
        let lake = Lake::pumps();
        for sql in [
            "SELECT count(*) FROM pump",
            "SELECT count(1), count(time) FROM pump AS p WHERE p.id = 'a'",
            "SELECT time_bucket('30s', time) AS t, id, avg(temp) FROM pump WHERE time >= '1970-01-01' GROUP BY t, id ORDER BY t, id",
            "WITH x AS (SELECT time, temp AS warmth, site FROM pump) SELECT site, max(warmth) FROM x GROUP BY site",
            "SELECT date_trunc('minute', time), stddev_pop(temp), var(rpm) FROM pump GROUP BY 1 HAVING count(*) > 3",
            "SELECT sum(n) FROM (SELECT id, count(*) AS n FROM pump GROUP BY id) AS s",
            "SELECT min(time), max(time) FROM pump WHERE site = 'north'",
            "SELECT id, last(temp, time), first(note, time), count(*) FROM pump GROUP BY id ORDER BY id",
        ] {
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert!(plan.contains("PyramidExec"), "{sql}: {plan}");
            lake.rows(sql).await;
        }
        let ordered = lake
            .rows("EXPLAIN SELECT time_bucket('30s', time) AS t, avg(temp) FROM pump GROUP BY t ORDER BY t")
            .await
            .join("\n");
        assert!(!ordered.contains("SortExec"), "{ordered}");
        assert_eq!(
            lake.rows("SELECT count(*), sum(rpm), avg(temp) FROM pump WHERE id = 'nobody'")
                .await,
            ["0|-|-"]
        );
        assert!(
            lake.rows("SELECT id, count(*) FROM pump WHERE id = 'nobody' GROUP BY id")
                .await
                .is_empty()
        );
    });
}

#[test]
fn ends_of_time_are_found_without_reading_what_lies_between() {
    block_on(async {
        let lake = Lake::new();
        let name = StreamName::new("t", [("id", "a")]);
        for half in [0..20_000i64, 20_000..40_000] {
            let mut batch = Batch::new();
            let rows = batch.stream(&name);
            for i in half {
                let mut values: Vec<(&str, Value)> = vec![("x", i.into())];
                if i == 7_000 {
                    values.push(("rare", Value::String("here".into())));
                }
                rows.row(i * SECOND, values).unwrap();
            }
            lake.db.commit(batch).unwrap();
            lake.db.flush().unwrap();
        }
        // Behind all others, deleted again, so that what the files say of the stream's end is too
        // late.
        lake.outcome("INSERT INTO t (time, id, x) VALUES (to_timestamp(900000), 'a', 1)")
            .await;
        lake.db.flush().unwrap();
        lake.outcome("DELETE FROM t WHERE time >= to_timestamp(39990)")
            .await;
        for (sql, wanted) in [
            (
                "SELECT min(time), max(time) FROM t",
                "1970-01-01T00:00:00Z|1970-01-01T11:06:29Z",
            ),
            (
                "SELECT last(x, time) FROM t WHERE time < to_timestamp(30000)",
                "29999",
            ),
            (
                "SELECT first(x, time) FROM t WHERE time > to_timestamp(30000)",
                "30001",
            ),
            (
                "SELECT first(rare, time), last(rare, time) FROM t",
                "here|here",
            ),
            (
                "SELECT last(rare, time) FROM t WHERE time > to_timestamp(30000)",
                "-",
            ),
            (
                "SELECT last(rare, time) FROM t WHERE time < to_timestamp(6000)",
                "-",
            ),
            (
                "SELECT max(time) FROM t WHERE time > to_timestamp(39990)",
                "-",
            ),
        ] {
            assert_eq!(lake.rows(sql).await, [wanted], "{sql}");
            let plan = lake
                .rows(&format!("EXPLAIN ANALYZE {sql}"))
                .await
                .join("\n");
            let pages = plan.split("pages=").nth(1).unwrap();
            let pages: String = pages.chars().take_while(char::is_ascii_digit).collect();
            // Of nearly two hundred; where rows may be is found by buckets, whose edges are read
            // more than once.
            assert!(pages.parse::<u32>().unwrap() <= 50, "{sql}: {plan}");
        }
    });
}

#[test]
fn a_plan_that_was_kept_sees_what_came_since() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT id, count(*), max(temp) FROM pump WHERE temp > 49 OR id = 'd' GROUP BY id ORDER BY id";
        let pyramid = "SELECT count(*), max(temp) FROM pump";
        for n in 0..4 {
            assert_eq!(
                lake.rows(pyramid).await,
                [format!("{}|{}", 300 + n, 49.5 + n as f64)]
            );
            let rows = lake.rows(sql).await;
            assert_eq!(rows.len(), if n == 0 { 3 } else { 4 }, "{rows:?}");
            let insert = format!(
                "INSERT INTO pump (time, id, temp) VALUES (to_timestamp({}), 'd', {})",
                1000 + n,
                50.5 + n as f64
            );
            lake.outcome(&insert).await;
        }
        lake.outcome("ALTER TABLE pump ADD COLUMN more DOUBLE")
            .await;
        assert_eq!(
            lake.rows("SELECT * FROM pump LIMIT 1").await[0]
                .split('|')
                .count(),
            8
        );
        lake.outcome("DROP TABLE pump").await;
        assert_eq!(lake.error(pyramid).await.code, "unknown_table");
    });
}
