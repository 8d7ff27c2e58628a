//! Statements that make, change and fill tables.

use crate::support::{Lake, block_on};
use headwater::{Duplicates, StreamName};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::{ObjectKind, Outcome, Parameters, Stored};
use std::time::Duration;

const DAY: u64 = 86_400;

#[test]
fn a_table_is_made_filled_changed_and_dropped() {
    block_on(async {
        let lake = Lake::new();
        let create = "CREATE TABLE weather (time TIMESTAMP NOT NULL, station TAG, temp DOUBLE, rain BIGINT, \
                      dry BOOLEAN, note TEXT, raw BYTEA, n BIGINT UNSIGNED) \
                      WITH (retention = '30000d', raw_for = '7000d', duplicates = 'keep', leaf_events = 512)";
        // What a retention has ended is ended: those of this table end nothing that is inserted
        // below, whenever they are looked at.
        assert_eq!(
            lake.outcome(create).await,
            Outcome::Created(ObjectKind::Table)
        );
        let info = lake.db.tables().remove(0);
        assert_eq!(info.tags, ["station"]);
        assert_eq!(info.retention, Some(Duration::from_secs(30_000 * DAY)));
        assert_eq!(info.raw_for, Some(Duration::from_secs(7_000 * DAY)));
        assert_eq!((info.duplicates, info.leaf_events), (Duplicates::Keep, 512));
        assert_eq!(
            lake.rows("DESCRIBE weather").await,
            [
                "time|TIMESTAMP|time",
                "station|TEXT|tag",
                "temp|DOUBLE|field",
                "rain|BIGINT|field",
                "dry|BOOLEAN|field",
                "note|TEXT|field",
                "raw|BYTEA|field",
                "n|BIGINT UNSIGNED|field",
            ]
        );
        assert_eq!(lake.error(create).await.code, "table_exists");
        assert_eq!(
            lake.outcome(&create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
                .await,
            Outcome::Created(ObjectKind::Table)
        );
        lake.outcome("ALTER TABLE weather SET (retention = 'none', raw_for = 'none'), ADD COLUMN wind DOUBLE, ADD site TAG")
            .await;
        lake.outcome("ALTER TABLE weather ALTER COLUMN rain TYPE DOUBLE")
            .await;
        let info = lake.db.tables().remove(0);
        assert_eq!((info.retention, info.raw_for), (None, None));
        assert_eq!(info.tags, ["site", "station"]);
        assert_eq!(
            lake.outcome(
                "INSERT INTO weather VALUES \
                 ('2024-01-01T00:00:00Z', 'roof', 'EWR', 1.5, 2, true, 'wet', '\\x00ff', 7, NULL), \
                 ('2024-01-01T00:00:01Z', NULL, 'JFK', NULL, NULL, false, '', NULL, NULL, 3)"
            )
            .await,
            Outcome::Inserted(Stored::of(2))
        );
        assert_eq!(
            lake.rows("SELECT * FROM weather ORDER BY time").await,
            [
                "2024-01-01T00:00:00Z|roof|EWR|1.5|2.0|true|wet|00ff|7|-",
                "2024-01-01T00:00:01Z|-|JFK|-|-|false||-|-|3.0",
            ]
        );
        assert_eq!(
            lake.outcome("DROP TABLE weather").await,
            Outcome::Dropped(ObjectKind::Table)
        );
        assert_eq!(
            lake.error("SELECT * FROM weather").await.code,
            "unknown_table"
        );
        assert_eq!(lake.error("DROP TABLE weather").await.code, "unknown_table");
        assert_eq!(
            lake.outcome("DROP TABLE IF EXISTS weather").await,
            Outcome::Dropped(ObjectKind::Table)
        );
    });
}

#[test]
fn rows_of_a_query_are_inserted_and_time_is_now_where_it_is_left_out() {
    block_on(async {
        let lake = Lake::pumps();
        lake.outcome("CREATE TABLE hot (id TAG, temp DOUBLE)").await;
        assert_eq!(
            lake.outcome(
                "INSERT INTO hot (time, id, temp) SELECT time, id, temp FROM pump WHERE temp >= 45"
            )
            .await,
            Outcome::Inserted(Stored::of(30))
        );
        assert_eq!(
            lake.rows("SELECT id, count(*), min(temp) FROM hot GROUP BY id ORDER BY id")
                .await,
            ["a|10|45.0", "b|10|45.0", "c|10|45.0"]
        );
        lake.outcome("INSERT INTO hot (id, temp) VALUES ('now', 1)")
            .await;
        assert_eq!(
            lake.rows(
                "SELECT count(*) FROM hot WHERE time > now() - interval '1 hour' AND time <= now()"
            )
            .await,
            ["1"]
        );
    });
}

#[test]
fn an_insert_gives_back_what_it_wrote() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE pump (time TIMESTAMP, id TAG, temp DOUBLE, note TEXT)")
            .await;
        let insert = "INSERT INTO pump (time, id, temp) VALUES ('2024-01-01T00:00:00Z', 'a', 1), \
                      ('2024-01-01 00:00:01', 'b', '2.5')";
        assert_eq!(
            lake.rows(&format!("{insert} RETURNING *")).await,
            [
                "2024-01-01T00:00:00Z|a|1.0|-",
                "2024-01-01T00:00:01Z|b|2.5|-"
            ]
        );
        assert_eq!(
            lake.rows(&format!(
                "{insert} RETURNING upper(id) AS name, temp * 2, temp * 2"
            ))
            .await,
            ["A|2.0|2.0", "B|5.0|5.0"]
        );
        // A row without a time of its own is told which one it got; what stood there before, and
        // was not written over, does not show.
        assert_eq!(
            lake.rows("INSERT INTO pump (id, temp) VALUES ('c', 3) RETURNING time = (SELECT max(time) FROM pump)")
                .await,
            ["false"]
        );
        assert_eq!(
            lake.rows("INSERT INTO pump (time, id, note) VALUES ('2024-01-01T00:00:00Z', 'a', 'x') RETURNING temp, note")
                .await,
            ["-|x"]
        );
        assert_eq!(
            lake.rows("INSERT INTO pump AS p (time, id, temp) SELECT time, 'd', temp FROM pump WHERE id = 'b' RETURNING p.id, p.temp")
                .await,
            ["d|2.5"]
        );
        let none =
            "INSERT INTO pump (time, id) SELECT time, id FROM pump WHERE id = 'z' RETURNING id";
        assert_eq!(lake.outcome(none).await, Outcome::Returned(Stored::of(0)));
        assert_eq!(
            lake.outcome(&format!("{insert} RETURNING id")).await,
            Outcome::Returned(Stored::of(2))
        );
        assert_eq!(
            lake.rows("SELECT id, count(*) FROM pump GROUP BY id ORDER BY id")
                .await,
            ["a|1", "b|1", "c|1", "d|1"]
        );
    });
}

#[test]
fn an_insert_that_is_refused_stores_nothing() {
    block_on(async {
        let lake = Lake::pumps();
        for (sql, code) in [
            (
                "INSERT INTO pump (time, id) VALUES (NULL, 'a')",
                "invalid_value",
            ),
            (
                "INSERT INTO pump (time, id, nothing) VALUES (now(), 'a', 1)",
                "unknown_column",
            ),
            ("INSERT INTO nothing (time) VALUES (now())", "unknown_table"),
            (
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'a', 'warm')",
                "invalid_value",
            ),
            (
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'new', 1) ON CONFLICT DO NOTHING",
                "unsupported_statement",
            ),
            (
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'new', 1) RETURNING nothing",
                "unknown_column",
            ),
            (
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'new', 1) RETURNING 1 / (temp::bigint - 1)",
                "division_by_zero",
            ),
            (
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'new', 'warm') RETURNING id",
                "invalid_value",
            ),
            (
                "INSERT INTO pump (time, id, note) VALUES (now(), 'new', repeat('x', 5000000)) RETURNING id",
                "too_large",
            ),
            (
                "INSERT INTO pump (time, id, note) VALUES (now(), 'new', 'x') RETURNING repeat(note, 20000000)",
                "too_large",
            ),
        ] {
            assert_eq!(lake.error(sql).await.code, code, "{sql}");
        }
        let error = lake
            .error("INSERT INTO pump (time, id, note) VALUES (now(), 'new', 'x'), (now(), 'new', repeat('x', 1100000))")
            .await;
        assert_eq!(error.code, "refused", "{error}");
        assert!(error.message.contains("E_LIMIT_STRING"), "{error}");
        assert_eq!(
            lake.rows("SELECT count(*) FROM pump WHERE id = 'new'")
                .await,
            ["0"]
        );
    });
}

#[test]
fn values_of_parameters_become_what_their_columns_are() {
    use ScalarValue::{
        Binary, Boolean, Date32, Decimal128, Float64, Int16, Int32, Int64, TimestampMicrosecond,
        UInt64, Utf8,
    };
    block_on(async {
        let lake = Lake::new();
        lake.outcome(
            "CREATE TABLE t (time TIMESTAMP, id TAG, f DOUBLE, i BIGINT, u BIGINT UNSIGNED, b BOOLEAN, s TEXT, x BYTEA)",
        )
        .await;
        // What drivers say that a value is: a small integer is an int2, money a numeric, a day a
        // date.
        let day = Date32(Some(19_844));
        let micros = TimestampMicrosecond(Some(1_700_000_000_000_001), Some("UTC".into()));
        for (column, given, stored) in [
            ("f", Int16(Some(7)), Ok("7.0")),
            ("f", Int32(Some(-40_000)), Ok("-40000.0")),
            ("f", Int64(Some(1 << 33)), Ok("8589934592.0")),
            ("f", Int64(Some(i64::MAX)), Err("refused")),
            ("f", Decimal128(Some(125), 5, 2), Ok("1.25")),
            ("f", Utf8(Some("0.5".into())), Ok("0.5")),
            ("f", Boolean(Some(true)), Err("type_mismatch")),
            ("i", Int16(Some(-3)), Ok("-3")),
            ("i", Decimal128(Some(500), 5, 2), Ok("5")),
            ("i", Float64(Some(2.0)), Ok("2")),
            ("i", Float64(Some(2.5)), Err("invalid_value")),
            ("i", Float64(Some(f64::NAN)), Err("invalid_value")),
            ("i", Decimal128(Some(501), 5, 2), Err("invalid_value")),
            ("i", UInt64(Some(u64::MAX)), Err("invalid_value")),
            ("u", Int16(Some(3)), Ok("3")),
            ("u", Int64(Some(-1)), Err("invalid_value")),
            ("b", Int16(Some(1)), Err("type_mismatch")),
            ("s", Int32(Some(12)), Ok("12")),
            ("x", Binary(Some(vec![255])), Ok("ff")),
            ("x", Int16(Some(1)), Err("type_mismatch")),
            ("time", day.clone(), Ok("2024-05-01T00:00:00Z")),
            ("time", micros, Ok("2023-11-14T22:13:20.000001Z")),
            ("time", Int64(Some(5)), Err("type_mismatch")),
            ("time", Boolean(Some(true)), Err("type_mismatch")),
        ] {
            lake.outcome("DELETE FROM t").await;
            let sql = match column {
                "time" => "INSERT INTO t (time, f) VALUES ($1, 1)".to_owned(),
                _ => format!("INSERT INTO t (time, {column}) VALUES (to_timestamp(1), $1)"),
            };
            let types = [Some(given.data_type())];
            let prepared = lake.session.prepare(&sql, &types).await.unwrap();
            let values = || Parameters::positional(vec![given.clone()]);
            for ran in [
                prepared.run(values()).await,
                lake.session.run(&sql, values()).await,
            ] {
                match stored {
                    Ok(text) => {
                        assert_eq!(
                            ran.unwrap().outcome,
                            Outcome::Inserted(Stored::of(1)),
                            "{column} {given}"
                        );
                        let rows = lake.rows(&format!("SELECT {column} FROM t")).await;
                        assert_eq!(rows, [text], "{column} {given}");
                    }
                    Err(code) => {
                        let error = ran.err().unwrap_or_else(|| panic!("{column} {given}"));
                        assert_eq!(error.code, code, "{column} {given}: {error}");
                    }
                }
            }
        }
        // No value of an integer's column has made it one of floats.
        let columns = lake.rows("DESCRIBE t").await;
        assert!(
            columns.contains(&"i|BIGINT|field".to_owned()),
            "{columns:?}"
        );
    });
}

#[test]
fn bytes_are_written_as_postgresql_writes_them() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (time TIMESTAMP, id TAG, x BYTEA, s TEXT)")
            .await;
        for (id, bytes) in [
            ("a", "'\\x00Ff'"),
            ("b", "'\\x00 ff'::bytea"),
            ("c", "x'00ff'"),
            ("d", "'plain'"),
            ("e", "'\\x'"),
        ] {
            lake.outcome(&format!(
                "INSERT INTO t (time, id, x) VALUES (to_timestamp(1), '{id}', {bytes})"
            ))
            .await;
        }
        assert_eq!(
            lake.rows("SELECT id, x FROM t ORDER BY id").await,
            ["a|00ff", "b|00ff", "c|00ff", "d|706c61696e", "e|"]
        );
        let named = "SELECT id FROM t WHERE x = '\\x00ff' ORDER BY id";
        assert_eq!(lake.rows(named).await, ["a", "b", "c"]);
        for bytes in ["'\\x0'", "'\\x0g'", "'\\xä'"] {
            let sql = format!("INSERT INTO t (time, id, x) VALUES (to_timestamp(2), 'a', {bytes})");
            assert_eq!(lake.error(&sql).await.code, "invalid_value", "{sql}");
        }
        // A text stays one.
        lake.outcome("INSERT INTO t (time, id, s) VALUES (to_timestamp(1), 'a', '\\x00ff')")
            .await;
        let named = "SELECT s FROM t WHERE s = '\\x00ff'";
        assert_eq!(lake.rows(named).await, ["\\x00ff"]);
    });
}

#[test]
fn a_delete_takes_exactly_what_its_condition_says() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.outcome("DELETE FROM pump WHERE id = 'a' AND time < '1970-01-01T00:00:10Z'")
                .await,
            Outcome::Deleted(10)
        );
        assert_eq!(
            lake.rows("SELECT id, count(*) FROM pump GROUP BY id ORDER BY id")
                .await,
            ["a|90", "b|100", "c|100"]
        );
        // A stream with more tags than the one meant stays.
        lake.outcome(
            "INSERT INTO pump (time, id, site, temp) VALUES (to_timestamp(1), 'c', 'west', 1)",
        )
        .await;
        assert_eq!(
            lake.outcome("DELETE FROM pump WHERE id = 'c' AND site IS NULL")
                .await,
            Outcome::Deleted(100)
        );
        assert_eq!(
            lake.rows("SELECT site FROM pump WHERE id = 'c'").await,
            ["west"]
        );
        for sql in [
            "DELETE FROM pump WHERE temp > 3",
            "DELETE FROM pump WHERE id = 'a' OR time < now()",
            "DELETE FROM pump WHERE id IN (SELECT id FROM pump)",
        ] {
            assert_eq!(lake.error(sql).await.code, "unsupported", "{sql}");
        }
        // A year, or seconds, is no instant where something is removed.
        for condition in [
            "time >= 2020",
            "2020 <= pump.time",
            "id = 'a' AND (time < 1700000000)",
            "time BETWEEN 0 AND 1700000000000000",
            "time > -2020",
            "time >= '2020'",
        ] {
            let sql = format!("DELETE FROM pump WHERE {condition}");
            let error = lake.error(&sql).await;
            assert_eq!(error.code, "invalid_value", "{sql}: {}", error.message);
        }
        assert_eq!(
            lake.outcome("DELETE FROM pump WHERE time < now() - interval '100 years'")
                .await,
            Outcome::Deleted(0)
        );
        assert_eq!(
            lake.outcome("DELETE FROM pump WHERE 1 = 2").await,
            Outcome::Deleted(0)
        );
        assert_eq!(lake.rows("SELECT count(*) FROM pump").await, ["191"]);
        assert_eq!(
            lake.outcome("DELETE FROM pump").await,
            Outcome::Deleted(191)
        );
        assert_eq!(lake.rows("SELECT count(*) FROM pump").await, ["0"]);
    });
}

#[test]
fn columns_with_one_name_are_told_apart() {
    block_on(async {
        let lake = Lake::new();
        let mut batch = headwater::Batch::new();
        let name = StreamName::new("Odd Table", [("time", "t"), ("a", "x")]);
        batch
            .stream(&name)
            .row(5, [("a", 1.5.into()), ("B", 2i64.into())])
            .unwrap();
        lake.db.commit(batch).unwrap();
        assert_eq!(
            lake.rows("SELECT \"time_1\", a, a_1, \"B\" FROM \"Odd Table\"")
                .await,
            ["t|x|1.5|2"]
        );
        lake.outcome("INSERT INTO \"Odd Table\" (time, time_1, a, a_1, \"B\") VALUES (to_timestamp(6), 't', 'x', 2.5, 3)")
            .await;
        assert_eq!(lake.db.snapshot().unwrap().last(&name).unwrap().len(), 2);
        assert_eq!(
            lake.rows("SELECT sum(a_1), sum(\"B\") FROM \"Odd Table\"")
                .await,
            ["4.0|5"]
        );
    });
}

#[test]
fn tables_and_columns_are_shown() {
    block_on(async {
        let lake = Lake::pumps();
        lake.outcome("CREATE TABLE empty (device TAG)").await;
        assert_eq!(
            lake.rows("SHOW TABLES").await,
            ["empty|0|device|0", "pump|3|id, site|4"]
        );
        assert_eq!(
            lake.rows("SHOW TABLES LIKE 'p%'").await,
            ["pump|3|id, site|4"]
        );
        assert_eq!(lake.rows("SHOW COLUMNS FROM pump").await.len(), 7);
        assert_eq!(
            lake.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name").await,
            ["empty", "pump"]
        );
        assert_eq!(
            lake.rows("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'empty' ORDER BY ordinal_position").await.len(),
            2
        );
        assert_eq!(
            lake.rows("SELECT count(*) FROM headwater.public.pump")
                .await,
            ["300"]
        );
        let tables = lake
            .query
            .tables(&(std::sync::Arc::new(headwater_query::Unrestricted) as _))
            .unwrap();
        assert_eq!(tables.len(), 2);
    });
}

#[test]
fn settings_last_as_long_as_their_session() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(lake.rows("SHOW headwater.use_pyramid").await, ["on"]);
        assert_eq!(
            lake.outcome("SET headwater.use_pyramid = off").await,
            Outcome::Set
        );
        assert_eq!(lake.rows("SHOW headwater.use_pyramid").await, ["off"]);
        lake.outcome("RESET headwater.use_pyramid").await;
        assert_eq!(lake.rows("SHOW headwater.use_pyramid").await, ["on"]);
        lake.outcome("SET TIME ZONE 'UTC'").await;
        lake.outcome("SET timezone = '+00:00'").await;
        assert_eq!(lake.rows("SHOW timezone").await, ["UTC"]);
        assert_eq!(lake.rows("SHOW ALL").await.len(), 2);
        assert_eq!(
            lake.error("SET datafusion.execution.batch_size = 1")
                .await
                .code,
            "unknown_setting"
        );
        assert_eq!(
            lake.error("SET headwater.use_pyramid = perhaps").await.code,
            "invalid_value"
        );
        // An offset alone is read in two ways: east by some, west by POSIX.
        for zone in ["Mars", "+02:00"] {
            let error = lake.error(&format!("SET TIME ZONE '{zone}'")).await;
            assert_eq!(error.code, "invalid_value", "{zone}");
            assert!(error.message.contains("timezone"), "{error}");
            assert!(error.hint.is_some());
        }
    });
}
