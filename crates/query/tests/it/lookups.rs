//! What looks into other rows: subqueries among what is selected, `LATERAL`, the row at an end,
//! numbers of rows; and what is compared there.

use crate::support::{Lake, SECOND, batches, block_on, text};
use headwater::{Batch, Duplicates, StreamName, TableSpec, Value};
use headwater_query::Limits;

/// Each statement with its rows, with the pyramid and without.
async fn answers(lake: &Lake, cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for pyramid in ["on", "off"] {
        lake.outcome(&format!("SET headwater.use_pyramid = {pyramid}"))
            .await;
        for (sql, wanted) in cases {
            let found = match batches(&lake.session, sql).await {
                Ok(batches) => text(&batches),
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

async fn plan(lake: &Lake, sql: &str) -> String {
    lake.rows(&format!("EXPLAIN {sql}")).await.join("\n")
}

#[test]
fn in_is_true_false_or_unknown_among_what_is_selected() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT v, v IN (SELECT w FROM (VALUES (1), (2)) x(w)) FROM (VALUES (1), (3), (NULL)) y(v) ORDER BY v", &["1|true", "3|false", "-|-"]),
                ("SELECT v, v NOT IN (SELECT w FROM (VALUES (1), (2)) x(w)) FROM (VALUES (1), (3), (NULL)) y(v) ORDER BY v", &["1|false", "3|true", "-|-"]),
                ("SELECT v, v IN (SELECT w FROM (VALUES (1), (NULL)) x(w)) FROM (VALUES (1), (3)) y(v) ORDER BY v", &["1|true", "3|-"]),
                ("SELECT v, v IN (SELECT w FROM (VALUES (1)) x(w) WHERE w > 5), v NOT IN (SELECT w FROM (VALUES (1)) x(w) WHERE w > 5) FROM (VALUES (1), (NULL)) y(v) ORDER BY v", &["1|false|true", "-|false|true"]),
                ("SELECT id, site IN (SELECT site FROM pump WHERE id = 'b') FROM pump GROUP BY id, site ORDER BY id", &["a|false", "b|true", "c|-"]),
                ("SELECT 5 IN (SELECT rpm FROM pump), 50 IN (SELECT rpm FROM pump)", &["false|true"]),
                ("SELECT coalesce(site IN (SELECT site FROM pump WHERE id = 'b'), false) AS x FROM pump WHERE rpm = 0 ORDER BY id", &["false", "true", "false"]),
            ],
        )
        .await;
        // What is aggregated has no rows to look by.
        let error = lake
            .error("SELECT count(*) FILTER (WHERE rpm IN (SELECT rpm FROM pump WHERE rpm > 970)) FROM pump")
            .await;
        assert_eq!(error.code, "unsupported", "{error}");
        assert!(error.message.contains("subquery"), "{error}");
    });
}

#[test]
fn lateral_takes_some_rows_for_each_row() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT d.id, l.rpm FROM (SELECT DISTINCT id FROM pump) d CROSS JOIN LATERAL (SELECT rpm FROM pump p WHERE p.id = d.id ORDER BY time DESC LIMIT 1) l ORDER BY 1", &["a|990", "b|990", "c|990"]),
                ("SELECT d.id, l.rpm FROM (SELECT DISTINCT id FROM pump) d, LATERAL (SELECT rpm FROM pump WHERE pump.id = d.id AND rpm < 500 ORDER BY time DESC LIMIT 2) l ORDER BY 1, 2", &["a|480", "a|490", "b|480", "b|490", "c|480", "c|490"]),
                ("SELECT v.k, l.rpm FROM (VALUES ('a'), ('z')) v(k) LEFT JOIN LATERAL (SELECT rpm FROM pump p WHERE p.id = v.k ORDER BY time LIMIT 1) l ON true ORDER BY 1", &["a|0", "z|-"]),
                ("SELECT l.* FROM (VALUES ('a')) v(k) JOIN LATERAL (SELECT p.id, p.rpm FROM pump p WHERE v.k = p.id ORDER BY p.rpm DESC LIMIT 1) l ON true", &["a|990"]),
                ("SELECT l.on, l.temp FROM (VALUES ('a')) v(k) JOIN LATERAL (SELECT * FROM pump p WHERE v.k = p.id ORDER BY p.rpm DESC LIMIT 1) l ON true", &["false|49.5"]),
                ("SELECT d.id, l.m FROM (SELECT DISTINCT id FROM pump) d, LATERAL (SELECT max(rpm) AS m FROM pump p WHERE p.id = d.id) l ORDER BY 1 LIMIT 1", &["a|990"]),
                ("SELECT d.id, (SELECT rpm FROM pump p WHERE p.id = d.id ORDER BY time DESC LIMIT 1) AS r FROM (SELECT DISTINCT id FROM pump) d ORDER BY 1", &["a|990", "b|990", "c|990"]),
                ("SELECT v.k, (SELECT rpm + 1 FROM pump p WHERE p.id = v.k ORDER BY p.time LIMIT 1) FROM (VALUES ('a'), ('z')) v(k) ORDER BY 1", &["a|1", "z|-"]),
            ],
        )
        .await;
        // What depends by anything else than equal columns is refused in words of its own.
        let error = lake
            .error("SELECT v.k, l.rpm FROM (VALUES (30)) v(k), LATERAL (SELECT rpm FROM pump p WHERE p.rpm < v.k ORDER BY time LIMIT 1) l")
            .await;
        assert_eq!(error.code, "unsupported", "{error}");
        assert!(error.message.contains("subquery"), "{error}");
        assert!(error.hint.is_some());
    });
}

#[test]
fn tables_and_columns_may_be_named_with_their_schema_and_catalog() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT count(*) FROM headwater.public.pump", &["300"]),
                ("SELECT pump.rpm, public.pump.rpm, headwater.public.pump.rpm FROM headwater.public.pump WHERE id = 'a' AND rpm = 10", &["10|10|10"]),
            ],
        )
        .await;
    });
}

#[test]
fn distinct_tags_come_in_their_order() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT string_agg(DISTINCT id, ',' ORDER BY id) FROM pump", &["a,b,c"]),
                ("SELECT string_agg(DISTINCT id, ',' ORDER BY id DESC) FROM pump", &["c,b,a"]),
                ("SELECT string_agg(DISTINCT note, ';' ORDER BY note) FROM pump WHERE time < '1970-01-01 00:00:15'", &["at 0;at 10"]),
                ("SELECT array_agg(DISTINCT id ORDER BY id) FROM pump", &["[a, b, c]"]),
            ],
        )
        .await;
        let error = lake
            .error("SELECT string_agg(DISTINCT note, ',' ORDER BY length(note)) FROM pump")
            .await;
        assert_eq!(error.code, "invalid_value", "{error}");
    });
}

#[test]
fn distinct_floats_are_estimated_too() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT approx_distinct(temp), approx_distinct(rpm), arrow_typeof(approx_distinct(temp)) FROM pump WHERE rpm < 50", &["5|5|Int64"]),
                ("SELECT id, approx_distinct(temp) FROM pump WHERE rpm < 30 GROUP BY id ORDER BY id", &["a|3", "b|3", "c|3"]),
                ("SELECT approx_distinct(v) FROM (VALUES (0.0::double precision), (-0.0::double precision), ('NaN'::double precision), (-('NaN'::double precision)), (NULL)) t(v)", &["2"]),
            ],
        )
        .await;
    });
}

#[test]
fn what_is_computed_is_compared_as_what_is_stored() {
    block_on(async {
        let lake = Lake::pumps();
        let values = "(VALUES (1, 'Infinity'::double precision), (1, '-Infinity'::double precision), (2, 1.0)) t(k, v)";
        answers(
            &lake,
            &[
                (&format!("SELECT k FROM {values} GROUP BY k HAVING sum(v) > 5"), &["1"]),
                (&format!("SELECT k FROM {values} GROUP BY k HAVING avg(v) > 5"), &["1"]),
                (&format!("SELECT k FROM {values} GROUP BY k HAVING sum(v) < 5"), &["2"]),
                (&format!("SELECT count(*) FROM {values} WHERE v - v > 5"), &["2"]),
                (&format!("SELECT count(*) FROM {values} WHERE v * 0 BETWEEN 1 AND 'NaN'"), &["2"]),
                ("SELECT v > 5, v = 'NaN'::double precision FROM (VALUES (-('NaN'::double precision))) t(v)", &["true|true"]),
                (&format!("SELECT x, count(*) FROM (SELECT v - v AS x FROM {values} UNION ALL SELECT 'NaN'::double precision) u GROUP BY x ORDER BY x"), &["0.0|1", "NaN|3"]),
            ],
        )
        .await;
        // Conditions on what is stored are still the engine's.
        let told = plan(
            &lake,
            "SELECT t.temp FROM (SELECT temp, id FROM pump) t WHERE t.temp > 3",
        )
        .await;
        assert!(told.contains("temp > 3"), "{told}");
        assert!(!told.contains("FilterExec"), "{told}");
    });
}

#[test]
fn sums_of_distinct_integers_over_a_window_do_not_wrap() {
    block_on(async {
        let lake = Lake::new();
        answers(
            &lake,
            &[
                ("SELECT sum(DISTINCT v) OVER (ORDER BY k ROWS 1 PRECEDING) FROM (VALUES (1, 5), (2, 5), (3, 7), (4, NULL), (5, NULL)) t(k, v)", &["5", "5", "12", "7", "-"]),
            ],
        )
        .await;
        let error = lake
            .error("SELECT sum(DISTINCT v) OVER (ORDER BY k ROWS 1 PRECEDING) FROM (VALUES (1, 9223372036854775807), (2, 5)) t(k, v)")
            .await;
        assert_eq!(error.code, "out_of_range", "{error}");
    });
}

#[test]
fn numbers_of_rows_are_signed_and_keep_their_order() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT arrow_typeof(row_number() OVER w), arrow_typeof(rank() OVER w), arrow_typeof(dense_rank() OVER w), arrow_typeof(ntile(2) OVER w) FROM (VALUES (1)) t(v) WINDOW w AS (ORDER BY v)", &["Int64|Int64|Int64|Int64"]),
                ("SELECT id, rpm FROM (SELECT id, rpm, row_number() OVER (PARTITION BY id ORDER BY time DESC) AS n FROM pump) t WHERE n = 1 ORDER BY id", &["a|990", "b|990", "c|990"]),
                ("SELECT rpm, row_number() OVER (ORDER BY rpm DESC, id) AS n FROM pump ORDER BY n LIMIT 2", &["990|1", "990|2"]),
                ("SELECT sum(r) FROM (SELECT ntile(4) OVER (ORDER BY time) - 1 AS r FROM pump) t", &["450"]),
            ],
        )
        .await;
        // Rows that are numbered in an order are in it, and not sorted once more.
        let told = plan(
            &lake,
            "SELECT rpm, row_number() OVER (ORDER BY temp) AS n FROM pump ORDER BY n LIMIT 3",
        )
        .await;
        assert_eq!(told.matches("SortExec").count(), 1, "{told}");
    });
}

#[test]
fn the_row_at_an_end_comes_from_the_end() {
    block_on(async {
        let lake = Lake::pumps();
        let mut batch = Batch::new();
        // The newest row of one pump lacks what the row before it has.
        let name = StreamName::new("pump", [("id", "a"), ("site", "north")]);
        let rows = batch.stream(&name);
        rows.row(200 * SECOND, [("rpm", 7i64.into())]).unwrap();
        lake.db.commit(batch).unwrap();
        let last =
            "SELECT DISTINCT ON (id) id, site, time, temp, rpm FROM pump ORDER BY id, time DESC";
        let cases: &[(&str, &[&str])] = &[
            (
                last,
                &[
                    "a|north|1970-01-01T00:03:20Z|-|7",
                    "b|south|1970-01-01T00:01:39Z|49.5|990",
                    "c|-|1970-01-01T00:01:39Z|49.5|990",
                ],
            ),
            (
                "SELECT DISTINCT ON (id) rpm, temp FROM pump WHERE id < 'c' AND time < '1970-01-01 00:00:50' ORDER BY id, time DESC",
                &["490|24.5", "490|24.5"],
            ),
            (
                "SELECT DISTINCT ON (id) * FROM pump WHERE id = 'b' ORDER BY id, time",
                &["1970-01-01T00:00:00Z|b|south|true|0|0.0|at 0"],
            ),
            (
                "SELECT DISTINCT ON (upper(id)) id, rpm FROM pump ORDER BY upper(id), time",
                &["a|0", "b|0", "c|0"],
            ),
            (
                "SELECT id, first_value(rpm ORDER BY time DESC), last_value(temp ORDER BY time), count(*) FROM pump GROUP BY id ORDER BY id",
                &["a|7|-|101", "b|990|49.5|100", "c|990|49.5|100"],
            ),
            (
                "SELECT first_value(id ORDER BY time DESC), first_value(site ORDER BY time DESC) FROM pump",
                &["a|north"],
            ),
        ];
        let mut fields: Vec<String> = lake
            .db
            .snapshot()
            .unwrap()
            .table_info("pump")
            .unwrap()
            .fields
            .into_iter()
            .map(|f| f.name)
            .collect();
        fields.sort();
        assert_eq!(fields, ["note", "on", "rpm", "temp"]);
        for (sql, _) in cases {
            let told = plan(&lake, sql).await;
            assert!(told.contains("PyramidExec"), "{sql}: {told}");
            assert!(told.contains("row"), "{sql}: {told}");
        }
        // The order of columns is the table's.
        let star = lake
            .rows("SELECT * FROM pump WHERE id = 'b' AND rpm = 0")
            .await;
        for (sql, wanted) in cases {
            let wanted: Vec<String> = match sql.contains('*') && !sql.contains("count(*)") {
                true => star.clone(),
                false => wanted.iter().map(|row| (*row).to_owned()).collect(),
            };
            for pyramid in ["on", "off"] {
                lake.outcome(&format!("SET headwater.use_pyramid = {pyramid}"))
                    .await;
                assert_eq!(lake.rows(sql).await, wanted, "{pyramid}: {sql}");
            }
            lake.outcome("RESET headwater.use_pyramid").await;
        }
        // Of many fields the newest values are taken together, also of a range that ends before
        // them, and of one that the newest rows are not in.
        for condition in [
            "",
            "WHERE time < '1970-01-01 00:00:50'",
            "WHERE time < '1970-01-01 00:01:40'",
            "WHERE time > '1970-01-01 00:01:40'",
        ] {
            let sql =
                format!("SELECT DISTINCT ON (id) * FROM pump {condition} ORDER BY id, time DESC");
            let told = plan(&lake, &sql).await;
            assert!(told.contains("PyramidExec"), "{sql}: {told}");
            let found = lake.rows(&sql).await;
            assert!(!found.is_empty(), "{sql}");
            lake.outcome("SET headwater.use_pyramid = off").await;
            assert_eq!(found, lake.rows(&sql).await, "{sql}");
            lake.outcome("RESET headwater.use_pyramid").await;
        }
        // What orders rows of one instant, or chooses by a field, is asked of the rows.
        for sql in [
            "SELECT DISTINCT ON (id) id, rpm FROM pump ORDER BY id, time DESC, rpm",
            "SELECT DISTINCT ON (id) id, rpm FROM pump ORDER BY id, rpm DESC",
            "SELECT DISTINCT ON (id) id, rpm FROM pump WHERE rpm > 5 ORDER BY id, time DESC",
            "SELECT DISTINCT ON (rpm) id, rpm FROM pump ORDER BY rpm, time DESC",
        ] {
            let told = plan(&lake, sql).await;
            assert!(!told.contains("PyramidExec"), "{sql}: {told}");
        }
    });
}

#[test]
fn of_rows_that_are_kept_at_one_instant_one_is_told_as_a_whole() {
    block_on(async {
        let lake = Lake::new();
        let mut spec = TableSpec::new("twice");
        spec.duplicates = Duplicates::Keep;
        lake.db.create_table(&spec).unwrap();
        for values in [
            vec![("a", Value::F64(1.0)), ("b", Value::F64(1.0))],
            vec![("a", Value::F64(2.0))],
        ] {
            let mut batch = Batch::new();
            batch
                .stream(&StreamName::new("twice", [("id", "x")]))
                .row(SECOND, values)
                .unwrap();
            lake.db.commit(batch).unwrap();
        }
        let found = lake
            .rows("SELECT DISTINCT ON (id) a, b FROM twice ORDER BY id, time DESC")
            .await;
        assert_eq!(found, ["2.0|-"]);
        let found = lake
            .rows("SELECT DISTINCT ON (id) a, b FROM twice ORDER BY id, time")
            .await;
        assert_eq!(found, ["1.0|1.0"]);
    });
}

#[test]
fn narrow_bins_of_many_rows_are_computed_in_little_memory() {
    block_on(async {
        let limits = Limits {
            memory: 24 << 20,
            ..Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        for id in ["a", "b", "c"] {
            let mut batch = Batch::new();
            let rows = batch.stream(&StreamName::new("fine", [("id", id)]));
            for i in 0..100_000i64 {
                rows.row(i * SECOND, [("v", (i as f64).into()), ("w", i.into())])
                    .unwrap();
            }
            lake.db.commit(batch).unwrap();
        }
        for (sql, rows) in [
            (
                "SELECT date_trunc('second', time), min(v), stddev_pop(w) FROM fine GROUP BY 1",
                100_000,
            ),
            (
                "SELECT date_bin(interval '1 second', time) AS t, id, min(v), stddev_pop(w) FROM fine GROUP BY 1, 2",
                300_000,
            ),
        ] {
            let told = plan(&lake, sql).await;
            assert!(told.contains("PyramidExec"), "{sql}: {told}");
            let found = lake
                .rows(&format!(
                    "SELECT count(*), sum(n) FROM (SELECT 1 AS n FROM ({sql}) s) t"
                ))
                .await;
            assert_eq!(found, [format!("{rows}|{rows}")], "{sql}");
        }
        let whole = lake
            .rows("SELECT count(*), sum(m), sum(c) FROM (SELECT date_trunc('second', time) AS t, min(w) AS m, count(v) AS c FROM fine GROUP BY 1) s")
            .await;
        assert_eq!(whole, ["100000|4999950000|300000"]);
        // One group comes ordered by its bins, though it is computed in parts.
        let told = plan(
            &lake,
            "SELECT date_trunc('second', time) AS t, min(v) FROM fine GROUP BY 1 ORDER BY 1",
        )
        .await;
        assert!(!told.contains("SortExec"), "{told}");
        let first = lake
            .rows("SELECT date_trunc('second', time) AS t, min(v) FROM fine GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 99998")
            .await;
        assert_eq!(
            first,
            [
                "1970-01-02T03:46:38Z|99998.0",
                "1970-01-02T03:46:39Z|99999.0"
            ]
        );
    });
}

#[test]
fn each_subquery_gives_its_own_value() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                ("SELECT (SELECT count(*) FROM pump WHERE id = 'a') AS x, (SELECT count(*) FROM pump WHERE id < 'c') AS y, (SELECT count(*) FROM pump WHERE time < '1970-01-01 00:00:10') AS z", &["100|200|30"]),
                ("SELECT (SELECT max(rpm) FROM pump WHERE id = 'a'), (SELECT max(rpm) FROM pump WHERE rpm < 500)", &["990|490"]),
                ("SELECT count(*) FROM pump WHERE (SELECT count(*) FROM pump WHERE id = 'a') < (SELECT count(*) FROM pump)", &["300"]),
                ("SELECT (SELECT count(*) FROM pump LIMIT 1)", &["300"]),
            ],
        )
        .await;
    });
}
