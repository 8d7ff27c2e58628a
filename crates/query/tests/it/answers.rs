//! Answers that PostgreSQL gives, where the SQL library by itself gives other ones, or none.

use crate::support::{Lake, SECOND, batches, block_on};
use headwater::{Batch, StreamName};
use headwater_query::Parameters;

/// A table with floats that are not like others, in two groups.
pub(crate) fn odd() -> Lake {
    let lake = Lake::new();
    let values = [
        ("a", -0.0, 1),
        ("a", 0.0, 1),
        ("a", -60.0, 2),
        ("a", f64::NAN, i64::MAX),
        ("a", 13.0, i64::MAX),
        ("b", -f64::NAN, 5),
        ("b", f64::INFINITY, 6),
        ("c", f64::INFINITY, 7),
        ("c", f64::INFINITY, 8),
    ];
    let mut batch = Batch::new();
    for (at, (k, v, n)) in (0i64..).zip(values) {
        let rows = batch.stream(&StreamName::new("odd", [("k", k)]));
        rows.row(at * SECOND, [("v", v.into()), ("n", n.into())])
            .unwrap();
    }
    lake.db.commit(batch).unwrap();
    lake
}

/// Each statement with its rows, with the pyramid and without.
pub(crate) async fn answers(lake: &Lake, cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for pyramid in ["on", "off"] {
        lake.outcome(&format!("SET headwater.use_pyramid = {pyramid}"))
            .await;
        for (sql, wanted) in cases {
            let found = match batches(&lake.session, sql).await {
                Ok(batches) => crate::support::text(&batches),
                Err(error) => vec![format!("{}: {error}", error.code)],
            };
            if found != *wanted {
                wrong.push(format!(
                    "pyramid {pyramid}: {sql}\n  gave   {found:?}\n  wanted {wanted:?}"
                ));
            }
        }
    }
    lake.outcome("RESET headwater.use_pyramid").await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn is_distinct_from_ends_where_and_begins() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT true IS DISTINCT FROM true OR true", &["true"]),
                ("SELECT NULL IS NOT DISTINCT FROM NULL AND false", &["false"]),
                ("SELECT false IS DISTINCT FROM 2 = 2", &["true"]),
                ("SELECT 1 + 1 IS DISTINCT FROM 1 * 2", &["false"]),
                ("SELECT NOT 1 IS DISTINCT FROM 1", &["true"]),
                (
                    "SELECT count(*) FROM pump WHERE \"on\" IS NOT DISTINCT FROM false AND id = 'a'",
                    &["50"],
                ),
                (
                    "SELECT count(*) FROM pump WHERE note IS DISTINCT FROM 'at 0' AND id = 'a' OR id = 'b'",
                    &["199"],
                ),
            ],
        )
        .await;
    });
}

#[test]
fn similar_to_is_about_the_whole_text() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                (
                    "SELECT 'abc' SIMILAR TO 'a%', 'abc' SIMILAR TO 'b'",
                    &["true|false"],
                ),
                (
                    "SELECT 'abc' SIMILAR TO 'ab_', 'abc' NOT SIMILAR TO '%(b|d)%'",
                    &["true|false"],
                ),
                (
                    "SELECT 'a+c' SIMILAR TO 'a#+c' ESCAPE '#', 'aac' SIMILAR TO 'a+c'",
                    &["true|true"],
                ),
                (
                    "SELECT 'a.c' SIMILAR TO 'a.c', 'abc' SIMILAR TO 'a.c'",
                    &["true|false"],
                ),
                (
                    "SELECT '50%' SIMILAR TO '[0-9]{2}\\%', '5x' SIMILAR TO '[0-9]{2}\\%'",
                    &["true|false"],
                ),
                ("SELECT E'a\\nb' SIMILAR TO 'a_b'", &["true"]),
                ("SELECT NULL SIMILAR TO 'a', 'a' SIMILAR TO NULL", &["-|-"]),
                (
                    "SELECT count(*) FROM pump WHERE note SIMILAR TO 'at (1|2)0'",
                    &["6"],
                ),
                (
                    "SELECT count(DISTINCT id) FROM pump WHERE id SIMILAR TO '[ab]'",
                    &["2"],
                ),
                (
                    "SELECT count(*) FROM pump WHERE note SIMILAR TO 'at ' || '9%'",
                    &["3"],
                ),
                (
                    "SELECT count(*) FROM pump WHERE note SIMILAR TO id || '%'",
                    &["10"],
                ),
            ],
        )
        .await;
        let error = lake.error("SELECT 'a' SIMILAR TO 'a' ESCAPE 'xy'").await;
        assert_eq!(error.code, "invalid_value");
    });
}

#[test]
fn nan_is_the_greatest_and_a_zero_has_no_sign() {
    block_on(async {
        let lake = odd();
        answers(
            &lake,
            &[
                (
                    "SELECT k, min(v), max(v) FROM odd GROUP BY k ORDER BY k",
                    &["a|-60.0|NaN", "b|inf|NaN", "c|inf|inf"],
                ),
                ("SELECT min(v), max(v), count(DISTINCT n) FROM odd", &["-60.0|NaN|7"]),
                (
                    "SELECT k, min(v), max(v) FROM (VALUES (1, -60.0), (1, 'NaN'::double precision), (1, 13.0)) t(k, v) GROUP BY k",
                    &["1|-60.0|NaN"],
                ),
                ("SELECT min(v) OVER (ORDER BY time ROWS 1 PRECEDING) FROM odd WHERE k = 'b'", &["NaN", "inf"]),
                ("SELECT count(*) FROM odd WHERE v = 0", &["2"]),
                ("SELECT count(*) FROM odd WHERE v < 0", &["1"]),
                ("SELECT count(*) FROM odd WHERE v <= 0", &["3"]),
                ("SELECT count(*) FROM odd WHERE v >= 0", &["8"]),
                ("SELECT count(*) FROM odd WHERE v <> 0", &["7"]),
                ("SELECT count(*) FROM odd WHERE v > 13", &["5"]),
                ("SELECT count(*) FROM odd WHERE v = 'NaN'", &["2"]),
                ("SELECT count(*) FROM odd WHERE v < 'NaN'", &["7"]),
                ("SELECT count(*) FROM odd WHERE v = 0 OR k = 'x'", &["2"]),
                ("SELECT count(*) FILTER (WHERE v = 0), count(*) FILTER (WHERE v > 13) FROM odd", &["2|5"]),
                ("SELECT count(*) FROM odd WHERE v IN (0, 1, 2, 3, 4, 5)", &["2"]),
                ("SELECT count(*) FROM odd WHERE CASE v WHEN 0 THEN true WHEN 'NaN' THEN true ELSE false END", &["4"]),
                ("SELECT count(nullif(v, 0)) FROM odd", &["7"]),
                ("SELECT count(DISTINCT v) FROM odd", &["5"]),
                ("SELECT count(DISTINCT v), count(*), avg(DISTINCT v) FROM odd WHERE v <= 0", &["2|3|-30.0"]),
                ("SELECT v, count(*) FROM odd WHERE k < 'c' GROUP BY v HAVING count(*) > 1 ORDER BY 1", &["0.0|2", "NaN|2"]),
                ("SELECT v FROM odd WHERE k <> 'c' ORDER BY v DESC, time LIMIT 3", &["NaN", "NaN", "inf"]),
            ],
        )
        .await;
    });
}

#[test]
fn two_lists_of_one_column_are_not_known_where_it_is_null() {
    block_on(async {
        let lake = Lake::new();
        let mut batch = Batch::new();
        for (at, n, g) in [
            (0, Some(1), 1),
            (1, Some(2), 2),
            (2, None, 3),
            (3, Some(4), 4),
        ] {
            let n = n.map(|n: i64| ("n", n.into()));
            let values = n.into_iter().chain([("g", (g * 10_i64).into())]);
            let rows = batch.stream(&StreamName::new("gaps", [("k", "a")]));
            rows.row(at * SECOND, values).unwrap();
        }
        lake.db.commit(batch).unwrap();
        let values = "(VALUES (1, 1, 1), (2, 2, 2), (NULL, 3, 3), (4, 4, 4)) AS t(n, h, i)";
        let of_values =
            |condition: &str| format!("SELECT count(*) FROM {values} WHERE {condition}");
        let of_rows = |condition: &str| format!("SELECT count(*) FROM gaps WHERE {condition}");
        let mut cases = Vec::new();
        for (condition, wanted) in [
            ("NOT (n NOT IN (1, 2) AND n IN (1, 2))", "3"),
            ("NOT (n IN (1, 2) AND n IN (4, 5))", "3"),
            ("NOT ((n = 1 OR n = 2) AND (n = 4 OR n = 5))", "3"),
            ("n NOT IN (1, 2) OR n NOT IN (4, 5)", "3"),
            ("NOT (n = 1 OR n = 2) OR NOT (n = 4 OR n = 5)", "3"),
            ("(n IN (1, 2) AND n NOT IN (1, 2)) IS NULL", "1"),
            ("(n NOT IN (1, 2) OR n NOT IN (4, 5)) IS NULL", "1"),
            (
                "CASE WHEN n IN (1, 2) AND n IN (4, 5) THEN false ELSE n IS NULL END",
                "1",
            ),
            ("(NOT (n IN (1, 2) OR n NOT IN (1, 2))) IS NULL", "1"),
            ("(NOT (n NOT IN (1, 2) OR n IN (1, 2))) IS NULL", "1"),
            ("(NOT (n = 1 OR n = 2 OR n NOT IN (1, 2))) IS NULL", "1"),
            ("(NOT (n NOT IN (1, 2) OR n = 1 OR n = 2)) IS NULL", "1"),
            ("(NOT (n IN (1, 2) OR n IN (4, 5))) IS NULL", "1"),
            ("n * 0.0 IN (0.0, 5.0) AND n * 0.0 IN (-0.0, 6.0)", "3"),
            ("n NOT IN (1, NULL) AND n IN (1, 2, NULL)", "0"),
            ("n IN (1, 2) AND n IN (2, 4)", "1"),
            ("n IN (1, 2, 4) AND n NOT IN (2, 5)", "2"),
            ("n NOT IN (1) AND n NOT IN (2, 5)", "1"),
            ("n IN (1) OR n IN (2, 5)", "2"),
        ] {
            cases.push((of_values(condition), [wanted]));
            cases.push((of_rows(condition), [wanted]));
        }
        for (condition, wanted) in [
            ("n IN (h, 7) AND n IN (i, 8)", "3"),
            ("n IN (h, 7) AND n NOT IN (i + 1, h + 2)", "3"),
            ("n IN (h, 7) AND n NOT IN (h, i)", "0"),
        ] {
            cases.push((of_values(condition), [wanted]));
            let inner = format!("(SELECT * FROM {values} WHERE n IN (h, 7)) AS w");
            let (_, outer) = condition.split_once(" AND ").unwrap();
            cases.push((
                format!("SELECT count(*) FROM {inner} WHERE {outer}"),
                [wanted],
            ));
        }
        let merged =
            format!("SELECT x AND y FROM (SELECT n IN (1) AS x, n IN (2) AS y FROM {values}) AS w");
        let merged = format!("SELECT count(*) FROM ({merged}) AS v(z) WHERE z IS NULL");
        cases.push((merged, ["1"]));
        let cases: Vec<(&str, &[&str])> = cases
            .iter()
            .map(|(sql, wanted)| (sql.as_str(), wanted.as_slice()))
            .collect();
        answers(&lake, &cases).await;
    });
}

#[test]
fn integers_do_not_wrap_around() {
    block_on(async {
        let lake = odd();
        answers(
            &lake,
            &[
                ("SELECT sum(n) FROM odd WHERE k <> 'a'", &["26"]),
                (
                    "SELECT sum(n) FROM (VALUES (9223372036854775807), (5), (-6)) t(n)",
                    &["9223372036854775806"],
                ),
                (
                    "SELECT sum(CAST(n AS DECIMAL(38, 0))) FROM odd WHERE k = 'a'",
                    &["18446744073709551618"],
                ),
                (
                    "SELECT sum(n) OVER (ORDER BY time ROWS 1 PRECEDING) FROM odd WHERE k = 'b'",
                    &["5", "11"],
                ),
                ("SELECT sum(DISTINCT n) FROM odd WHERE k <> 'a'", &["26"]),
            ],
        )
        .await;
        for pyramid in ["on", "off"] {
            lake.outcome(&format!("SET headwater.use_pyramid = {pyramid}"))
                .await;
            for sql in [
                "SELECT sum(n) FROM odd",
                "SELECT k, sum(n) FROM odd GROUP BY k",
                "SELECT n + 1 FROM odd WHERE v = 13",
                "SELECT n * 2 FROM odd WHERE v = 13",
                "SELECT -n - 2 FROM odd WHERE v = 13",
                "SELECT 9223372036854775807 + 1",
                "SELECT sum(n) OVER () FROM odd",
            ] {
                let error = lake.error(sql).await;
                assert_eq!(error.code, "out_of_range", "{sql}: {error}");
            }
        }
    });
}

#[test]
fn bins_are_found_however_far_they_are_from_their_origin() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                (
                    "SELECT date_bin(INTERVAL '1 day', TIMESTAMP '2250-06-01 12:00:00', TIMESTAMP '1950-01-01')",
                    &["2250-06-01T00:00:00"],
                ),
                (
                    "SELECT time_bucket('1 day', time, '2261-01-01T00:00:00Z'), count(*) FROM pump GROUP BY 1",
                    &["1970-01-01T00:00:00Z|300"],
                ),
                (
                    "SELECT date_bin(INTERVAL '30 seconds', time, TIMESTAMP '1680-01-01 00:00:07') AS b, count(*) FROM pump GROUP BY b ORDER BY b LIMIT 2",
                    &["1969-12-31T23:59:37Z|21", "1970-01-01T00:00:07Z|90"],
                ),
                ("SELECT date_bin('1 hour', '2024-01-01 12:34')", &["2024-01-01T12:00:00"]),
                ("SELECT date_bin(INTERVAL '1 month', TIMESTAMP '2024-03-15')", &["2024-03-01T00:00:00"]),
                ("SELECT date_bin(NULL, time) FROM pump LIMIT 1", &["-"]),
            ],
        )
        .await;
        for sql in [
            "SELECT date_bin(INTERVAL '-1 day', time) FROM pump",
            "SELECT date_bin(INTERVAL '0 s', time), count(*) FROM pump GROUP BY 1",
            "SELECT time_bucket('-1 hours', time), count(*) FROM pump GROUP BY 1",
        ] {
            assert_eq!(lake.error(sql).await.code, "invalid_value", "{sql}");
        }
        let sql =
            "SELECT date_bin(INTERVAL '1000 days', TIMESTAMP '1677-09-22', TIMESTAMP '1677-09-23')";
        assert_eq!(lake.error(sql).await.code, "out_of_range");
    });
}

#[test]
fn parts_of_times_have_their_fractions_and_casts_round() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                (
                    "SELECT extract(second FROM TIMESTAMP '2024-01-01 00:00:05.75')",
                    &["5.75"],
                ),
                (
                    "SELECT extract(milliseconds FROM TIMESTAMP '2024-01-01 00:00:05.7556')",
                    &["5755.6"],
                ),
                (
                    "SELECT date_part('microseconds', TIMESTAMP '2024-01-01 00:00:05.75')",
                    &["5750000.0"],
                ),
                (
                    "SELECT extract(second FROM TIMESTAMP '1969-01-01 00:00:05.75')",
                    &["5.75"],
                ),
                (
                    "SELECT extract(second FROM INTERVAL '1 day 00:01:02.5')",
                    &["2.5"],
                ),
                (
                    "SELECT extract(minute FROM TIMESTAMP '2024-01-01 00:07:05.75')",
                    &["7"],
                ),
                ("SELECT max(extract(second FROM time)) FROM pump", &["59.0"]),
                (
                    "SELECT 2.5::int, 3.5::int, 1.7::int, -2.5::int, CAST(0.4 AS BIGINT)",
                    &["3|4|2|-3|0"],
                ),
                (
                    "SELECT CAST(x AS BIGINT), x::int FROM (VALUES (2.5), (3.5), (-1.7)) v(x)",
                    &["2|2", "4|4", "-2|-2"],
                ),
                (
                    "SELECT '2.5'::decimal(5, 2)::int, '1.49'::decimal(5, 2)::bigint",
                    &["3|1"],
                ),
                (
                    "SELECT temp::bigint FROM pump WHERE id = 'a' ORDER BY time LIMIT 4",
                    &["0", "0", "1", "2"],
                ),
                (
                    "SELECT round(2.5), round(2.5::float8), round(3.5::float8), round(2.345, 2)",
                    &["3.0|2.0|4.0|2.35"],
                ),
            ],
        )
        .await;
    });
}

#[test]
fn columns_may_have_one_name() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT 1, 1", &["1|1"]),
                ("SELECT id, id FROM pump ORDER BY id, time LIMIT 1", &["a|a"]),
                ("SELECT count(*), count(*) FROM pump", &["300|300"]),
                ("SELECT count(*), COUNT( * ), sum(rpm), sum(rpm::bigint) FROM pump", &["300|300|148500|148500"]),
                ("SELECT time, time::date FROM pump ORDER BY time, id LIMIT 1", &["1970-01-01T00:00:00Z|1970-01-01"]),
                ("SELECT time::text FROM pump ORDER BY time LIMIT 1", &["1970-01-01 00:00:00+00"]),
                ("SELECT CAST(rpm AS TEXT), rpm FROM pump ORDER BY rpm DESC LIMIT 1", &["990|990"]),
                ("SELECT temp AS a, rpm AS a FROM pump ORDER BY time DESC LIMIT 1", &["49.5|990"]),
                ("SELECT x.id, x.* FROM pump x ORDER BY x.time, x.id LIMIT 1", &["a|1970-01-01T00:00:00Z|a|north|0.0|0|true|at 0"]),
                ("SELECT id, * FROM pump WHERE id = 'b' ORDER BY time LIMIT 1", &["b|1970-01-01T00:00:00Z|b|south|0.0|0|true|at 0"]),
                ("SELECT DISTINCT id, id FROM pump ORDER BY id", &["a|a", "b|b", "c|c"]),
                ("SELECT id, id::text, count(*) FROM pump GROUP BY id ORDER BY id LIMIT 1", &["a|a|100"]),
                ("SELECT count(*) FROM (SELECT x.id, y.id FROM pump x JOIN pump y USING (time)) s", &["900"]),
                ("SELECT a, b FROM (SELECT 1 AS a, 2 AS b, 3 AS a) s", &["1|2"]),
                ("SELECT id, id FROM pump WHERE time < to_timestamp(1) UNION ALL SELECT 'x', 'y' ORDER BY 1 DESC LIMIT 2", &["x|y", "c|c"]),
                ("WITH w AS (SELECT id, id FROM pump) SELECT count(id) FROM w", &["300"]),
                ("SELECT DISTINCT ON (id) id, temp FROM pump ORDER BY id, time, id", &["a|0.0", "b|0.0", "c|0.0"]),
                ("SELECT DISTINCT ON (id) id, temp FROM pump p ORDER BY id, time, p.id, 1", &["a|0.0", "b|0.0", "c|0.0"]),
                ("SELECT DISTINCT a + 1 FROM (VALUES (1), (2)) t(a) ORDER BY a + 1", &["2", "3"]),
                ("SELECT max(temp) - min(temp), id FROM pump GROUP BY id ORDER BY max(temp) - min(temp), id LIMIT 1", &["49.5|a"]),
            ],
        )
        .await;
        for (sql, wanted) in [
            ("SELECT id, id, id::text FROM pump", vec!["id", "id", "id"]),
            ("SELECT 1, 1, 'x'", vec!["1", "1", "'x'"]),
            (
                "SELECT temp / 2, max(temp) AS m, count(*) FROM pump GROUP BY temp",
                vec!["temp / 2", "m", "count(*)"],
            ),
            (
                "SELECT time::date, rpm::text FROM pump ORDER BY time",
                vec!["time", "rpm"],
            ),
            (
                "SELECT *, rpm + 1 FROM (SELECT rpm, temp FROM pump) s",
                vec!["rpm", "temp", "rpm + 1"],
            ),
        ] {
            let answer = lake.session.run(sql, Parameters::none()).await;
            let answer = answer.unwrap_or_else(|e| panic!("{sql}: {e}"));
            let names: Vec<String> = answer
                .schema
                .fields()
                .iter()
                .map(|f| f.name().clone())
                .collect();
            assert_eq!(names, wanted, "{sql}");
            for batch in answer.collect().await.unwrap() {
                assert_eq!(batch.schema().field(0).name(), wanted[0], "{sql}");
            }
        }
        // Kept plans tell the same names.
        for _ in 0..2 {
            let answer = lake
                .session
                .run("SELECT id, id FROM pump WHERE rpm < 20", Parameters::none())
                .await
                .unwrap();
            assert_eq!(answer.schema.field(1).name(), "id");
        }
    });
}

#[test]
fn times_and_intervals_are_read_in_every_form() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT count(*) FROM pump WHERE time < '1970-01-01 00:01'", &["180"]),
                ("SELECT count(*) FROM pump WHERE time < '1970-01-01T00:01Z' AND time >= '19700101'", &["180"]),
                ("SELECT count(*) FROM pump WHERE time < '1970-01-01 02:01+02'", &["180"]),
                ("SELECT count(*) FROM pump WHERE time BETWEEN '0001-01-01' AND '9999-12-31'", &["300"]),
                ("SELECT count(*) FROM pump WHERE time > '9999-01-01'", &["0"]),
                ("SELECT count(*) FROM pump WHERE time < DATE '9999-01-01' AND time > TIMESTAMP '0001-01-01'", &["300"]),
                ("SELECT count(*) FROM pump WHERE time < 'infinity' AND time > '-infinity'", &["300"]),
                ("SELECT count(*) FROM pump WHERE time < 'today' AND time < 'now' AND time < 'tomorrow'", &["300"]),
                ("SELECT 'today'::date = current_date, 'epoch'::timestamp, 'yesterday'::date = current_date - 1", &["true|1970-01-01T00:00:00|true"]),
                ("SELECT '20160101'::date, '2016-01-01 12:30'::date, '2016-01-01 12:30'::timestamp", &["2016-01-01|2016-01-01|2016-01-01T12:30:00"]),
                ("SELECT t::timestamp FROM (VALUES ('2016-01-01 12:30'), ('20160102')) v(t)", &["2016-01-01T12:30:00", "2016-01-02T00:00:00"]),
                ("SELECT TIMESTAMP '2024-01-01' + interval '01:00:00', TIMESTAMP '2024-01-01' + '1 day 02:03:04'::interval", &["2024-01-01T01:00:00|2024-01-02T02:03:04"]),
                ("SELECT TIMESTAMP '2024-01-01' + interval 'P1DT2H', TIMESTAMP '2024-03-31' - interval '1-1'", &["2024-01-02T02:00:00|2023-02-28T00:00:00"]),
                ("SELECT TIMESTAMP '2024-01-01' + interval '1 hour' * 3, TIMESTAMP '2024-01-01' + 0.5 * interval '1 day'", &["2024-01-01T03:00:00|2024-01-01T12:00:00"]),
                ("SELECT TIMESTAMP '2024-01-01' + n * interval '1 day' FROM (VALUES (1), (-1)) v(n)", &["2024-01-02T00:00:00", "2023-12-31T00:00:00"]),
                ("SELECT TIMESTAMP '2024-01-01' + interval '1 day' / 4, TIMESTAMP '2024-01-01' + CAST(i AS interval) FROM (VALUES ('2 days')) v(i)", &["2024-01-01T06:00:00|2024-01-03T00:00:00"]),
                ("SELECT interval '90 minutes' = '01:30:00', interval '1 day' > '23:59'", &["true|true"]),
                ("SELECT count(*) FROM pump WHERE time < to_timestamp(0) + interval '1' minute", &["180"]),
                ("SELECT extract(epoch FROM (max(time) - min(time)) * 2) FROM pump", &["198.0"]),
            ],
        )
        .await;
        let error = lake.error("SELECT '9999-01-01'::timestamp").await;
        assert_ne!(error.code, "internal", "{error}");
        let error = lake.error("SELECT interval 'one day'").await;
        assert_ne!(error.code, "internal", "{error}");
    });
}

#[test]
fn subqueries_are_conditions_and_columns() {
    block_on(async {
        let lake = Lake::new();
        let mut batch = Batch::new();
        let rows = batch.stream(&StreamName::new("many", [("id", "a")]));
        for i in 0..60_000i64 {
            let mut values = vec![("speed", ((i % 40) as f64).into())];
            if i % 7 != 0 {
                values.push(("route", (i % 5).into()));
            }
            rows.row(i * SECOND, values).unwrap();
        }
        lake.db.commit(batch).unwrap();
        // Each key is there some ten thousand times on both sides.
        answers(
            &lake,
            &[
                ("SELECT count(*) FROM many WHERE route IN (SELECT route FROM many WHERE speed > 5)", &["51428"]),
                ("SELECT count(*) FROM many m WHERE EXISTS (SELECT 1 FROM many n WHERE n.route = m.route AND n.speed > 5)", &["51428"]),
                ("SELECT count(*) FROM many m WHERE NOT EXISTS (SELECT 1 FROM many n WHERE n.route = m.route)", &["8572"]),
                ("SELECT count(*) FROM many WHERE route NOT IN (SELECT route FROM many WHERE speed = 5 AND route IS NOT NULL)", &["41143"]),
                ("SELECT count(*) FROM many WHERE route NOT IN (SELECT route FROM many)", &["0"]),
                ("SELECT count(*) FROM many WHERE EXISTS (SELECT 1 FROM many WHERE speed > 38)", &["60000"]),
                ("SELECT count(*) FROM many WHERE EXISTS (SELECT 1 FROM many WHERE speed > 50)", &["0"]),
                ("SELECT count(*) FROM many WHERE speed > 38 OR route IN (SELECT route FROM many WHERE speed = 3)", &["11786"]),
                ("SELECT EXISTS (SELECT 1 FROM many WHERE speed > 38), NOT EXISTS (SELECT * FROM many)", &["true|false"]),
                ("SELECT CASE WHEN EXISTS (SELECT 1 FROM many WHERE speed > 50) THEN 'y' ELSE 'n' END", &["n"]),
                ("SELECT g, EXISTS (SELECT 1 FROM many WHERE speed = g) FROM (VALUES (1), (41)) v(g) ORDER BY g", &["1|true", "41|false"]),
                ("SELECT row_number() OVER (ORDER BY g), arrow_typeof(rank() OVER (ORDER BY g)), array_length(make_array(1, 2)) FROM (VALUES (5)) v(g)", &["1|Int64|2"]),
            ],
        )
        .await;
    });
}

#[test]
fn what_the_program_is_and_what_a_mistake_was_is_told_in_its_own_words() {
    block_on(async {
        let lake = Lake::pumps();
        let version = lake.rows("SELECT version()").await;
        assert!(version[0].starts_with("Headwater "), "{version:?}");
        for sql in [
            "SELECT avg(note) FROM pump",
            "SELECT sum(note) FROM pump",
            "SELECT stddev(site) FROM pump",
            "SELECT abs(note) FROM pump",
            "SELECT median(note) FROM pump",
            "SELECT id, avg(note) OVER () FROM pump",
            "SELECT note + 1 FROM pump",
            "SELECT sqrt(id) FROM pump",
        ] {
            let error = match batches(&lake.session, sql).await {
                Ok(_) => continue,
                Err(error) => error,
            };
            let told = format!("{} {:?}", error.message, error.hint);
            for word in [
                "bug",
                "github",
                "Internal",
                "DataFusion",
                "signature",
                "Utf8",
            ] {
                assert!(!told.contains(word), "{sql}: {told}");
            }
        }
    });
}

#[test]
fn calls_that_differ_by_their_casts_alone_stand_beside_each_other() {
    block_on(async {
        let lake = Lake::pumps();
        for (sql, expected) in [
            (
                "SELECT max(CAST(temp AS BIGINT)), max(temp), count(*) FROM pump",
                "50|49.5|300",
            ),
            (
                "SELECT max(temp), max(temp::bigint), max((temp)::bigint + 1) FROM pump",
                "49.5|50|51",
            ),
            (
                "SELECT id, max(temp) FROM pump GROUP BY 1 HAVING max(temp::bigint) IS NOT NULL AND id = 'a'",
                "a|49.5",
            ),
            (
                "SELECT id, avg(rpm::double) FROM pump WHERE id = 'b' GROUP BY id HAVING avg(rpm) * 2 >= 0",
                "b|495.0",
            ),
            (
                "SELECT id FROM pump GROUP BY id ORDER BY max(temp), max(temp::bigint) DESC, id DESC LIMIT 1",
                "c",
            ),
            (
                "SELECT m FROM (SELECT min(temp::bigint) AS m, min(temp) FROM pump) AS q",
                "0",
            ),
            (
                "SELECT sum(n) FROM (SELECT count(temp::bigint) AS n, count(temp) FROM pump UNION ALL SELECT 1, 2) AS q",
                "301",
            ),
            (
                "SELECT id IN (SELECT id FROM pump WHERE temp > 3), id IN (SELECT id FROM pump WHERE temp > 1000), \
                 id NOT IN (SELECT id FROM pump WHERE rpm > 3), id NOT IN (SELECT id FROM pump WHERE rpm < 0) \
                 FROM pump WHERE time = to_timestamp(0) AND id = 'a'",
                "true|false|false|true",
            ),
            (
                "SELECT EXISTS (SELECT 1 FROM pump), NOT EXISTS (SELECT 1 FROM pump), EXISTS (SELECT 1 FROM pump WHERE temp > 99)",
                "true|false|false",
            ),
        ] {
            assert_eq!(lake.rows(sql).await, [expected], "{sql}");
        }
        let sql = "SELECT min(temp::bigint), min(temp) FROM pump";
        let answer = lake.session.run(sql, Parameters::none()).await.unwrap();
        let names: Vec<&str> = answer
            .schema
            .fields()
            .iter()
            .map(|f| f.name().as_str())
            .collect();
        assert_eq!(names, ["min(temp::BIGINT)", "min(temp)"]);
    });
}
