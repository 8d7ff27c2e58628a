//! Sessions in time zones: what of a statement is by their clocks, and what stays as it is in UTC.

use crate::support::{Lake, block_on, rows};
use headwater::{Batch, StreamName};
use headwater_query::arrow::array::{ArrayRef, RecordBatch, StringArray};
use headwater_query::arrow::datatypes::{DataType, TimeUnit};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::{Parameters, Unrestricted};
use std::sync::Arc;

/// Seconds since 1970 of instants beside the changes of 2024 in Berlin, and of two that begin days
/// there.
const SPRING: i64 = 1_711_846_800; // 2024-03-31T01:00:00Z: two o'clock becomes three
const AUTUMN: i64 = 1_729_990_800; // 2024-10-27T01:00:00Z: three o'clock becomes two
const SECOND: i64 = 1_000_000_000;

/// A row an hour, from four hours before each change to four hours after it; `n` counts hours from
/// the change.
fn clocks() -> Lake {
    let lake = Lake::new();
    let mut batch = Batch::new();
    let rows = batch.stream(&StreamName::new("clock", [("id", "a")]));
    for change in [SPRING, AUTUMN] {
        for n in -4..4i64 {
            let at = (change + n * 3_600) * SECOND;
            rows.row(at, [("n", n.into())]).unwrap();
        }
    }
    lake.db.commit(batch).unwrap();
    lake.db.flush().unwrap();
    lake
}

#[test]
fn text_without_an_offset_is_read_by_the_clocks_of_the_session() {
    block_on(async {
        let lake = clocks();
        let count = async |of: &str| {
            lake.rows(&format!("SELECT count(*) FROM clock WHERE {of}"))
                .await
        };
        assert_eq!(count("time < '2024-03-31 03:00:00'").await, ["6"]);
        lake.outcome("SET TIME ZONE 'europe/berlin'").await;
        assert_eq!(lake.rows("SHOW timezone").await, ["Europe/Berlin"]);
        for (of, wanted) in [
            ("time < '2024-03-31 03:00:00'", "4"),
            // With an offset it is what it is.
            ("time < '2024-03-31 03:00:00Z'", "6"),
            ("time < '2024-03-31 03:00:00+02:00'", "4"),
            ("time < '2024-03-31T03:00:00 Europe/London'", "5"),
            // An hour that is skipped, and one that comes twice.
            ("time < '2024-03-31 02:30:00'", "5"),
            ("time > '2024-10-27' AND time <= '2024-10-27 02:00:00'", "3"),
            (
                "time BETWEEN '2024-10-27 00:00:00' AND '2024-10-27 03:00:00'",
                "5",
            ),
            (
                "time IN ('2024-10-27 03:00:00', '2024-03-31 03:00:00')",
                "2",
            ),
            ("time < TIMESTAMP '2024-03-31 03:00:00'", "4"),
            ("time < TIMESTAMPTZ '2024-03-31 03:00:00'", "4"),
            ("time < CAST('2024-03-31 03:00:00' AS TIMESTAMP)", "4"),
            ("time < TIMESTAMP '2024-03-31 01:00:00Z'", "4"),
            (
                "TIMESTAMP '2024-03-31 02:30:00' = '2024-03-31 02:30:00' AND time < '2024-10-01'",
                "8",
            ),
            ("time < to_date('2024-03-31')", "2"),
            ("time < DATE '2024-03-31'", "2"),
            (
                "time >= DATE '2024-10-27' AND time < DATE '2024-10-28'",
                "7",
            ),
            (
                "time = COALESCE(NULL, TIMESTAMPTZ '2024-10-27 03:00:00')",
                "1",
            ),
            (
                "TRY_CAST('never' AS TIMESTAMPTZ) IS NULL AND time < '2024-10-01'",
                "8",
            ),
        ] {
            assert_eq!(count(of).await, [wanted], "{of}");
        }
        let error = lake.error("SELECT * FROM clock WHERE time < 'never'").await;
        assert_eq!(error.sqlstate, "22023", "{error}");
        // What the engine takes over, it takes over in any zone.
        let plan = lake
            .rows("EXPLAIN SELECT n FROM clock WHERE time >= '2024-10-27 02:00:00' AND time < DATE '2024-10-28'")
            .await
            .join("\n");
        assert!(
            plan.contains("2024-10-27T01:00:00Z..2024-10-27T22:59:59.999999999Z"),
            "{plan}"
        );
        assert!(!plan.contains("FilterExec"), "{plan}");
        // Another session of the same database is in UTC, though the statement is the same.
        let other = lake.as_(Unrestricted);
        let sql = "SELECT count(*) FROM clock WHERE time < '2024-03-31 03:00:00'";
        assert_eq!(rows(&other, sql).await, ["6"]);
        assert_eq!(lake.rows(sql).await, ["4"]);
        lake.outcome("RESET timezone").await;
        assert_eq!(lake.rows(sql).await, ["6"]);
    });
}

#[test]
fn rows_are_written_and_deleted_by_the_clocks_of_the_session() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (time TIMESTAMP, id TAG, v DOUBLE)")
            .await;
        lake.outcome("SET TIME ZONE 'America/New_York'").await;
        lake.outcome("INSERT INTO t VALUES ('2024-07-01 12:00:00', 'a', 1), ('2024-07-01T12:00:00Z', 'a', 2), (TIMESTAMP '2024-01-01', 'a', 3)")
            .await;
        let all = [
            "2024-01-01T05:00:00Z|3.0",
            "2024-07-01T12:00:00Z|2.0",
            "2024-07-01T16:00:00Z|1.0",
        ];
        assert_eq!(lake.rows("SELECT time, v FROM t ORDER BY time").await, all);
        let prepared = lake
            .session
            .prepare("SELECT v FROM t WHERE time = $1", &[])
            .await
            .unwrap();
        let text = Parameters::positional(vec![ScalarValue::from("2024-07-01 12:00:00")]);
        let found = prepared.run(text).await.unwrap().collect().await.unwrap();
        assert_eq!(crate::support::text(&found), ["1.0"]);
        // A parameter that is said to have no zone.
        let wall = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let sql = "SELECT $1::timestamptz, count(*) FROM t WHERE time = $2";
        let prepared = lake
            .session
            .prepare(sql, &[None, Some(wall)])
            .await
            .unwrap();
        // With an offset it is what the clocks show then.
        for second in ["2024-07-01 12:00:00", "2024-07-01 18:00:00+02"] {
            let texts = ["2024-11-03 01:30:00", second].map(ScalarValue::from);
            let found = prepared.run(Parameters::positional(texts.to_vec())).await;
            let found = found.unwrap().collect().await.unwrap();
            let found = crate::support::text(&found);
            assert_eq!(found, ["2024-11-03T06:30:00Z|1"], "{second}");
        }
        let insert = "INSERT INTO t (time, id, v) VALUES ($1, 'p', $2)";
        let prepared = lake.session.prepare(insert, &[]).await.unwrap();
        for time in [
            ScalarValue::from("2025-01-01"),
            ScalarValue::TimestampNanosecond(Some(1_735_689_600_000_000_000), None),
        ] {
            let values = vec![time, ScalarValue::from(5.0)];
            prepared.run(Parameters::positional(values)).await.unwrap();
            assert_eq!(
                lake.rows("SELECT time, v FROM t WHERE id = 'p'").await,
                ["2025-01-01T05:00:00Z|5.0"]
            );
            lake.outcome("DELETE FROM t WHERE id = 'p'").await;
        }
        let mut copy = lake.session.copy_in("t", &[]).unwrap();
        let schema = copy.schema();
        assert_eq!(
            schema.field(0).data_type(),
            &DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
        );
        let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
        let columns = [
            ("time", text("2024-07-02")),
            ("id", text("a")),
            ("v", text("4")),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        copy.add(&batch).await.unwrap();
        copy.finish().await.unwrap();
        assert_eq!(
            lake.rows("SELECT time FROM t WHERE v = 4").await,
            ["2024-07-02T04:00:00Z"]
        );
        lake.outcome("DELETE FROM t WHERE time >= '2024-07-01 12:00:00'")
            .await;
        assert_eq!(
            lake.rows("SELECT v FROM t ORDER BY time").await,
            ["3.0", "2.0"]
        );
    });
}

#[test]
fn days_parts_and_text_are_those_of_the_clocks() {
    block_on(async {
        let lake = clocks();
        lake.outcome("SET TIME ZONE 'Europe/Berlin'").await;
        assert_eq!(
            lake.rows(
                "SELECT date_trunc('day', time) AS d, count(*) FROM clock GROUP BY d ORDER BY d"
            )
            .await,
            [
                "2024-03-29T23:00:00Z|2",
                "2024-03-30T23:00:00Z|6",
                "2024-10-25T22:00:00Z|1",
                "2024-10-26T22:00:00Z|7"
            ]
        );
        assert_eq!(
            lake.rows("SELECT extract(hour FROM time), n FROM clock WHERE time > '2024-10-01' ORDER BY time").await,
            ["23|-4", "0|-3", "1|-2", "2|-1", "2|0", "3|1", "4|2", "5|3"]
        );
        let one = async |of: &str| {
            lake.rows(&format!(
                "SELECT {of} FROM clock WHERE n = -3 AND time < '2024-10-01'"
            ))
            .await
        };
        // 2024-03-30T22:00:00Z, an hour before midnight in Berlin.
        for (of, wanted) in [
            ("time", "2024-03-30T22:00:00Z"),
            ("time::text", "2024-03-30 23:00:00+01"),
            ("'at ' || time", "at 2024-03-30 23:00:00+01"),
            ("time::date", "2024-03-30"),
            ("(time + interval '1 hour')::date", "2024-03-31"),
            ("time::timestamp", "2024-03-30T23:00:00"),
            ("to_char(time, '%H')", "23"),
            ("extract(epoch FROM time)", "1711836000.0"),
            ("date_trunc('hour', time)", "2024-03-30T22:00:00Z"),
            ("date_trunc('month', time)", "2024-02-29T23:00:00Z"),
            ("date_bin(interval '1 day', time)", "2024-03-30T00:00:00Z"),
            (
                "date_bin(interval '1 day', time, '2024-01-01')",
                "2024-03-29T23:00:00Z",
            ),
            (
                "time_bucket('1d', time, TIMESTAMP '2024-01-01')",
                "2024-03-29T23:00:00Z",
            ),
            ("time AT TIME ZONE 'Asia/Kolkata'", "2024-03-31T03:30:00"),
            (
                "time::timestamp AT TIME ZONE 'Asia/Kolkata'",
                "2024-03-30T17:30:00Z",
            ),
            ("current_date = (now())::date", "true"),
        ] {
            assert_eq!(one(of).await, [wanted], "{of}");
        }
        assert_eq!(
            lake.rows("SELECT date_trunc('month', time) AS m, time::date AS d, count(*) FROM clock WHERE time < '2024-10-01' GROUP BY ROLLUP (m, d) ORDER BY m, d")
                .await,
            [
                "2024-02-29T23:00:00Z|2024-03-30|2",
                "2024-02-29T23:00:00Z|2024-03-31|6",
                "2024-02-29T23:00:00Z|-|8",
                "-|-|8"
            ]
        );
        // Hours that do not begin with those of UTC.
        lake.outcome("SET TIME ZONE 'Asia/Kolkata'").await;
        assert_eq!(
            one("date_trunc('hour', time)").await,
            ["2024-03-30T21:30:00Z"]
        );
        assert_eq!(
            one("date_trunc('minute', time)").await,
            ["2024-03-30T22:00:00Z"]
        );
    });
}

#[test]
fn at_time_zone_is_the_same_in_every_session() {
    block_on(async {
        let lake = clocks();
        for zone in ["UTC", "America/New_York"] {
            lake.outcome(&format!("SET TIME ZONE '{zone}'")).await;
            for (of, wanted) in [
                // An hour that comes twice.
                (
                    "time AT TIME ZONE 'Europe/Berlin'",
                    ["2024-10-27T02:00:00"; 2],
                ),
                (
                    "timezone('Europe/Berlin', time AT TIME ZONE 'Europe/Berlin')",
                    ["2024-10-27T01:00:00Z"; 2],
                ),
                (
                    "time AT TIME ZONE CASE n WHEN 0 THEN 'GMT-3' ELSE '-1' END",
                    ["2024-10-26T23:00:00", "2024-10-27T04:00:00"],
                ),
            ] {
                let sql = format!(
                    "SELECT {of} FROM clock WHERE n IN (-1, 0) AND time > '2024-10-01' ORDER BY time"
                );
                assert_eq!(lake.rows(&sql).await, wanted, "{zone}: {of}");
            }
        }
        for (of, code) in [
            ("time AT TIME ZONE 'Mars'", "invalid_value"),
            ("time AT TIME ZONE '+02:00'", "invalid_value"),
            ("n AT TIME ZONE 'UTC'", "type_mismatch"),
        ] {
            let error = lake.error(&format!("SELECT {of} FROM clock")).await;
            assert_eq!(error.code, code, "{of}: {error}");
        }
    });
}

/// What the pyramid answers in a zone is what the rows say there.
#[test]
fn the_pyramid_answers_what_begins_as_in_utc() {
    block_on(async {
        let lake = Lake::pumps();
        for (zone, unit, pyramid) in [
            ("Europe/Berlin", "minute", true),
            ("Europe/Berlin", "hour", true),
            ("Asia/Kolkata", "hour", false),
            ("Europe/Berlin", "day", false),
        ] {
            lake.outcome(&format!("SET TIME ZONE '{zone}'")).await;
            let sql = format!(
                "SELECT date_trunc('{unit}', time) AS t, count(*), sum(rpm) FROM pump GROUP BY t ORDER BY t"
            );
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert_eq!(
                plan.contains("PyramidExec"),
                pyramid,
                "{zone} {unit}: {plan}"
            );
            let found = lake.rows(&sql).await;
            lake.outcome("SET headwater.use_pyramid = off").await;
            assert_eq!(lake.rows(&sql).await, found, "{zone} {unit}");
            lake.outcome("RESET headwater.use_pyramid").await;
        }
    });
}

/// A row each five minutes around changes of clocks; buckets, gaps and units of the calendar.
#[test]
fn buckets_on_clocks_lose_and_double_nothing_where_these_are_set() {
    block_on(async {
        for (zone, first, width) in [
            ("Europe/Paris", "2025-10-25T22:00:00Z", "15m"),
            ("Europe/Paris", "2025-10-25T22:00:00Z", "1h"),
            ("Europe/Paris", "2025-03-29T23:00:00Z", "15m"),
            ("Australia/Lord_Howe", "2024-04-06T13:00:00Z", "1h"),
            ("Australia/Lord_Howe", "2024-10-05T13:00:00Z", "15m"),
            ("America/Havana", "2024-11-03T02:00:00Z", "1 day"),
            ("America/Sao_Paulo", "2018-11-04T00:00:00Z", "1 day"),
            ("Europe/Paris", "2025-10-25T22:00:00Z", "2h"),
        ] {
            let lake = Lake::new();
            lake.outcome("CREATE TABLE m (id TAG, v DOUBLE)").await;
            let rows: Vec<String> = (0..72)
                .map(|k| {
                    format!(
                        "('{first}'::timestamptz + interval '{} minutes', 'a', 1)",
                        k * 5
                    )
                })
                .collect();
            lake.outcome(&format!(
                "INSERT INTO m (time, id, v) VALUES {}",
                rows.join(", ")
            ))
            .await;
            let bucket = format!("time_bucket('{width}', time, '{zone}')");
            let all = format!(
                "SELECT sum(n), bool_and(late), count(*) FROM (SELECT {bucket} AS b, count(*) AS n, min(time) >= {bucket} AS late FROM m GROUP BY b)"
            );
            let found = lake.rows(&all).await;
            assert!(
                found[0].starts_with("72.0|true|") || found[0].starts_with("72|true|"),
                "{zone} {width}: {found:?}"
            );
            // The gaps that are filled are the same buckets.
            let groups = format!("SELECT {bucket} AS b, count(*) FROM m GROUP BY b ORDER BY b");
            let plain = lake.rows(&groups).await;
            let filled = format!(
                "SELECT time_bucket_gapfill('{width}', time, '{zone}') AS b, count(*) FROM m WHERE time >= '{first}' AND time < '{first}'::timestamptz + interval '6 hours' GROUP BY b ORDER BY b"
            );
            assert_eq!(lake.rows(&filled).await, plain, "{zone} {width}");
            // And so are the units of the calendar in a session of the zone.
            let unit = match width {
                "1h" => "hour",
                "1 day" => "day",
                _ => continue,
            };
            lake.outcome(&format!("SET TIME ZONE '{zone}'")).await;
            let units = format!(
                "SELECT date_trunc('{unit}', time) AS b, count(*) FROM m GROUP BY b ORDER BY b"
            );
            assert_eq!(lake.rows(&units).await, plain, "{zone} {unit}");
        }
        let lake = Lake::new();
        lake.outcome("CREATE TABLE m (v DOUBLE)").await;
        lake.outcome("INSERT INTO m (time, v) VALUES ('2025-10-26T00:05:00Z', 1), ('2025-10-26T01:05:00Z', 2)")
            .await;
        assert_eq!(
            lake.rows("SELECT time_bucket('15m', time, 'Europe/Paris') AS b, sum(v) FROM m GROUP BY b ORDER BY b")
                .await,
            ["2025-10-26T00:00:00Z|1.0", "2025-10-26T01:00:00Z|2.0"]
        );
    });
}

#[test]
fn instants_are_read_back_as_any_zone_writes_them() {
    block_on(async {
        let lake = Lake::new();
        // With a tag, so that rows of one instant replace each other: two of the three do.
        lake.outcome("CREATE TABLE m (d TAG, v DOUBLE)").await;
        lake.outcome("INSERT INTO m (time, v) VALUES ('1883-11-18T12:00:00Z', 1), ('1883-11-18 07:03:58-04:56:02', 2), ('2024-05-01T00:00:00Z', 3)")
            .await;
        for zone in ["America/New_York", "Africa/Monrovia", "Asia/Kolkata", "UTC"] {
            lake.outcome(&format!("SET TIME ZONE '{zone}'")).await;
            for text in lake.rows("SELECT time::text FROM m").await {
                for value in [
                    format!("'{text}'"),
                    format!("'{text}'::timestamptz"),
                    format!("TIMESTAMPTZ '{text}'"),
                ] {
                    let sql = format!("SELECT count(*) FROM m WHERE time = {value}");
                    assert_eq!(lake.rows(&sql).await, ["1"], "{zone} {text}");
                }
            }
        }
        assert_eq!(lake.rows("SELECT count(*) FROM m").await, ["2"]);
    });
}
