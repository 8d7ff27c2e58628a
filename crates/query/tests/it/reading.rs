//! Statements that read.

use crate::support::{Lake, SECOND, batches, block_on, text};
use headwater::{Batch, StreamName, Value};
use headwater_query::arrow::datatypes::DataType;
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::{Outcome, Parameters, Stored, tag_type, time_type};

#[test]
fn rows_come_with_time_tags_and_fields() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.rows(
                "SELECT * FROM pump WHERE id = 'b' AND time <= '1970-01-01T00:00:01Z' ORDER BY time"
            )
            .await,
            [
                "1970-01-01T00:00:00Z|b|south|0.0|0|true|at 0",
                "1970-01-01T00:00:01Z|b|south|0.5|10|false|-",
            ]
        );
        assert_eq!(
            lake.rows("SELECT count(*), count(note) FROM pump").await,
            ["300|30"]
        );
        assert_eq!(
            lake.rows("SELECT id, site, sum(rpm) FROM pump GROUP BY id, site ORDER BY id")
                .await,
            ["a|north|49500", "b|south|49500", "c|-|49500"]
        );
    });
}

#[test]
fn conditions_on_tags_time_and_fields_agree_with_plain_ones() {
    block_on(async {
        let lake = Lake::pumps();
        for (condition, count) in [
            ("id IN ('a', 'c')", 200),
            ("id LIKE 'a%' OR site = 'south'", 200),
            ("site IS NULL", 100),
            ("site <> 'north'", 100),
            ("id ~ '^[ab]$'", 200),
            ("time >= '1970-01-01T00:01:00Z'", 120),
            (
                "time > TIMESTAMP '1970-01-01 00:01:00' AND time < TIMESTAMP '1970-01-01 00:01:02'",
                3,
            ),
            ("time BETWEEN to_timestamp(3) AND to_timestamp(5)", 9),
            ("temp > 40", 57),
            ("rpm = 30", 3),
            ("rpm <> 30", 297),
            ("\"on\"", 150),
            ("note = 'at 50'", 3),
            ("temp >= 10 AND temp < 11 AND id = 'a'", 2),
            ("temp > rpm", 0),
            ("temp > 10 OR id = 'a'", 100 + 2 * 79),
        ] {
            let pushed = lake
                .rows(&format!("SELECT count(*) FROM pump WHERE {condition}"))
                .await;
            assert_eq!(pushed, [count.to_string()], "{condition}");
            // A condition that nothing can be made of by the engine.
            let plain = format!(
                "SELECT count(*) FROM (SELECT * FROM pump LIMIT 100000) AS p WHERE {condition}"
            );
            assert_eq!(lake.rows(&plain).await, pushed, "{condition}");
        }
    });
}

#[test]
fn an_instant_on_the_edge_belongs_where_the_comparison_says() {
    block_on(async {
        let lake = Lake::pumps();
        for (operator, count) in [("<", 10), ("<=", 11), ("=", 1), (">=", 90), (">", 89)] {
            let sql = format!(
                "SELECT count(*) FROM pump WHERE id = 'a' AND time {operator} '1970-01-01T00:00:10Z'"
            );
            assert_eq!(lake.rows(&sql).await, [count.to_string()], "{operator}");
            let turned = format!(
                "SELECT count(*) FROM pump WHERE id = 'a' AND '1970-01-01T00:00:10Z' {operator} time"
            );
            let count = match operator {
                "<" => 89,
                "<=" => 90,
                "=" => 1,
                ">=" => 11,
                _ => 10,
            };
            assert_eq!(
                lake.rows(&turned).await,
                [count.to_string()],
                "{operator} turned"
            );
        }
    });
}

#[test]
fn what_is_pushed_down_is_told() {
    block_on(async {
        let lake = Lake::pumps();
        let plan = lake
            .rows("EXPLAIN SELECT temp FROM pump WHERE id = 'a' AND time < '1970-01-01T00:00:10Z' AND rpm > 20 LIMIT 5")
            .await
            .join("\n");
        assert!(
            plan.contains("ScanExec: table=pump, streams=1 of 3, columns=[temp]"),
            "{plan}"
        );
        assert!(
            plan.contains("time=..1970-01-01T00:00:09.999999999Z"),
            "{plan}"
        );
        assert!(plan.contains("rpm > 20, limit=5"), "{plan}");
        assert!(!plan.contains("FilterExec"), "{plan}");
        let ordered = lake
            .rows("EXPLAIN SELECT * FROM pump WHERE id = 'a' ORDER BY time")
            .await
            .join("\n");
        assert!(!ordered.contains("SortExec"), "{ordered}");
        let measured = lake
            .rows("EXPLAIN ANALYZE SELECT temp FROM pump WHERE id = 'a'")
            .await
            .join("\n");
        assert!(measured.contains("leaves=1, pages=1"), "{measured}");
    });
}

#[test]
fn few_rows_of_many_streams_come_in_few_batches() {
    block_on(async {
        let lake = Lake::new();
        let mut batch = Batch::new();
        let mut wanted = Vec::new();
        for stream in 0..300i64 {
            let id = format!("{stream:03}");
            let rows = batch.stream(&StreamName::new("small", [("id", &*id)]));
            for i in 0..10 {
                let mut values = vec![("x", (stream * 10 + i).into())];
                if i % 3 == 0 {
                    values.push(("note", Value::String(format!("note {i}"))));
                    wanted.push(format!("{id}|{}|note {i}", stream * 10 + i));
                }
                rows.row(i * SECOND, values).unwrap();
            }
        }
        lake.db.commit(batch).unwrap();
        lake.db.flush().unwrap();
        let sql = "SELECT id, x, note FROM small WHERE note >= ''";
        let found = batches(&lake.session, sql).await.unwrap();
        // Statements are computed by two threads unless asked otherwise: of each comes a batch
        // soon, and one with the others.
        assert!(found.len() <= 4, "{} batches", found.len());
        let mut rows = text(&found);
        rows.sort();
        assert_eq!(rows, wanted);
        for limit in [0, 1, 9, 11, 2_999, 5_000] {
            let rows = lake
                .rows(&format!("SELECT x FROM small LIMIT {limit}"))
                .await;
            assert_eq!(rows.len(), limit.min(3_000));
        }
    });
}

#[test]
fn rows_of_streams_come_in_the_order_of_their_tags() {
    block_on(async {
        let lake = Lake::pumps();
        let all = lake
            .rows("SELECT id, time FROM pump ORDER BY id, site, time")
            .await;
        let sorted = {
            let mut sorted = all.clone();
            sorted.sort();
            sorted
        };
        assert_eq!((all.len(), &all), (300, &sorted));
        assert_eq!(
            lake.rows("SELECT site, id FROM pump WHERE time = '1970-01-01T00:00:07Z' ORDER BY site DESC NULLS LAST, id").await,
            ["south|b", "north|a", "-|c"]
        );
        assert_eq!(
            lake.rows("SELECT id, time FROM pump ORDER BY time DESC, id LIMIT 2")
                .await,
            ["a|1970-01-01T00:01:39Z", "b|1970-01-01T00:01:39Z"]
        );
    });
}

#[test]
fn the_newest_rows_are_read_from_the_end() {
    block_on(async {
        let lake = Lake::new();
        let mut expected = Vec::new();
        for id in 0..3i64 {
            let mut batch = Batch::new();
            let rows = batch.stream(&StreamName::new("t", [("id", id.to_string())]));
            for i in 0..20_000i64 {
                // A gap in the middle, and dense and sparse stretches.
                let time = if i < 10_000 {
                    i * 7
                } else {
                    500_000_000 + i * 1_000
                } + id;
                rows.row(time, [("x", i.into())]).unwrap();
                expected.push(time);
            }
            lake.db.commit(batch).unwrap();
        }
        lake.db.flush().unwrap();
        expected.sort_unstable();
        for (condition, streams) in [("", 3), (" WHERE id = '1'", 1)] {
            let plan = lake
                .rows(&format!(
                    "EXPLAIN ANALYZE SELECT x FROM t{condition} ORDER BY time DESC LIMIT 10"
                ))
                .await
                .join("\n");
            assert!(plan.contains("newest first, limit=10"), "{plan}");
            assert!(!plan.contains("SortExec"), "{plan}");
            let newest = lake
                .rows(&format!(
                    "SELECT id, x FROM t{condition} ORDER BY time DESC LIMIT 5"
                ))
                .await;
            let wanted = match streams {
                1 => vec!["1|19999", "1|19998", "1|19997", "1|19996", "1|19995"],
                _ => vec!["2|19999", "1|19999", "0|19999", "2|19998", "1|19998"],
            };
            assert_eq!(newest, wanted);
        }
        for direction in ["ASC", "DESC"] {
            let sql = format!("SELECT CAST(time AS BIGINT) AS n FROM t ORDER BY time {direction}");
            let all = batches(&lake.session, &sql).await.unwrap();
            let mut all: Vec<i64> = text(&all).iter().map(|t| t.parse().unwrap()).collect();
            if direction == "DESC" {
                all.reverse();
            }
            assert_eq!(all, expected, "{direction}");
        }
        assert_eq!(
            lake.rows("SELECT x FROM t WHERE id = '0' AND x < 9 AND time > to_timestamp_nanos(7) ORDER BY time DESC LIMIT 2").await,
            ["8", "7"]
        );
    });
}

#[test]
fn joins_windows_and_subqueries_work() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.rows("SELECT count(*) FROM pump a JOIN pump b ON a.time = b.time AND a.id = 'a' AND b.id = 'b' WHERE a.temp = b.temp").await,
            ["100"]
        );
        assert_eq!(
            lake.rows("WITH d AS (SELECT time, rpm - lag(rpm) OVER (ORDER BY time) AS step FROM pump WHERE id = 'a') SELECT min(step), max(step) FROM d").await,
            ["10|10"]
        );
        assert_eq!(
            lake.rows("SELECT count(*) FROM pump WHERE rpm > (SELECT avg(rpm) FROM pump)")
                .await,
            ["150"]
        );
        assert_eq!(
            lake.rows("SELECT id, max(temp) AS m FROM pump GROUP BY id HAVING max(temp) > 1 ORDER BY m DESC, id LIMIT 1").await,
            ["a|49.5"]
        );
    });
}

#[test]
fn parameters_take_the_types_of_what_they_stand_for() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT count(*) AS n, max(temp) AS top FROM pump WHERE id = $1 AND time < $2 AND rpm >= $3";
        let prepared = lake.session.prepare(sql, &[]).await.unwrap();
        assert_eq!(
            prepared.parameters().len(),
            3,
            "{:?}",
            prepared.parameters()
        );
        assert_eq!(prepared.parameters()[1], time_type());
        assert_eq!(prepared.outcome(), Outcome::Select);
        let schema = prepared.schema();
        assert_eq!(schema.field(0).data_type(), &DataType::Int64);
        assert_eq!(schema.field(1).data_type(), &DataType::Float64);
        for (id, n) in [("a", "7|4.5"), ("x", "0|-")] {
            let values = [id, "1970-01-01T00:00:10Z", "30"];
            let values = values.map(|v| ScalarValue::Utf8(Some(v.to_owned())));
            let answer = prepared
                .run(Parameters::positional(values.to_vec()))
                .await
                .unwrap();
            assert_eq!(answer.schema, schema);
            assert_eq!(text(&answer.collect().await.unwrap()), [n]);
        }
        let few = Parameters::positional(vec![ScalarValue::Utf8(Some("a".into()))]);
        assert_eq!(
            prepared.run(few.clone()).await.unwrap_err().code,
            "invalid_parameters"
        );
        assert_eq!(
            lake.session.run(sql, few).await.unwrap_err().code,
            "invalid_parameters"
        );
        let typed = lake
            .session
            .prepare("SELECT $1", &[Some(DataType::Int64)])
            .await
            .unwrap();
        assert_eq!(typed.schema().field(0).data_type(), &DataType::Int64);
        let plain = lake.session.prepare("SELECT $1", &[]).await.unwrap();
        assert_eq!(plain.parameters(), [DataType::Utf8]);
        let tags = lake
            .session
            .prepare("SELECT id FROM pump", &[])
            .await
            .unwrap();
        assert_eq!(tags.schema().field(0).data_type(), &tag_type());
    });
}

#[test]
fn a_later_write_is_seen_by_the_next_statement() {
    block_on(async {
        let lake = Lake::pumps();
        let prepared = lake
            .session
            .prepare("SELECT count(*) FROM pump", &[])
            .await
            .unwrap();
        for n in 301..305 {
            let sql =
                format!("INSERT INTO pump (time, id, temp) VALUES (to_timestamp({n}), 'd{n}', 1)");
            assert_eq!(lake.outcome(&sql).await, Outcome::Inserted(Stored::of(1)));
            let answer = prepared.run(Parameters::none()).await.unwrap();
            assert_eq!(text(&answer.collect().await.unwrap()), [n.to_string()]);
            assert_eq!(
                lake.rows("SELECT count(*) FROM pump").await,
                [n.to_string()]
            );
        }
    });
}
