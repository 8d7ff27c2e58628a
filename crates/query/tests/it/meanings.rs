//! What PostgreSQL means by words that the SQL library reads otherwise: joins by columns, rounding,
//! escapes, numbers of columns, correlations,
//! aggregates of distinct rows.

use crate::answers::{answers, odd};
use crate::support::{Lake, block_on};

#[test]
fn a_column_of_both_sides_has_a_value_wherever_one_of_them_has() {
    block_on(async {
        let lake = Lake::new();
        for sql in [
            "CREATE TABLE one (d TAG, v BIGINT)",
            "CREATE TABLE two (d TAG, w BIGINT)",
            "CREATE TABLE three (d TAG, x BIGINT)",
            "INSERT INTO one (time, d, v) VALUES (to_timestamp(1), 'a', 1), (to_timestamp(1), 'b', 2)",
            "INSERT INTO two (time, d, w) VALUES (to_timestamp(1), 'b', 20), (to_timestamp(1), 'c', 30)",
            "INSERT INTO three (time, d, x) VALUES (to_timestamp(1), 'c', 300), (to_timestamp(1), 'e', 500)",
        ] {
            lake.outcome(sql).await;
        }
        answers(
            &lake,
            &[
                (
                    "SELECT d, v, w FROM one RIGHT JOIN two USING (d, time) ORDER BY d",
                    &["b|2|20", "c|-|30"],
                ),
                (
                    "SELECT d, v, w FROM one FULL JOIN two USING (d, time) ORDER BY d DESC",
                    &["c|-|30", "b|2|20", "a|1|-"],
                ),
                (
                    "SELECT * FROM one FULL JOIN two USING (d) ORDER BY 1 LIMIT 1",
                    &["a|1970-01-01T00:00:01Z|1|-|-"],
                ),
                (
                    "SELECT * FROM (one RIGHT JOIN two USING (time, d)) ORDER BY d",
                    &["1970-01-01T00:00:01Z|b|2|20", "1970-01-01T00:00:01Z|c|-|30"],
                ),
                (
                    "SELECT d, count(*), sum(w) FROM one FULL JOIN two USING (d, time) GROUP BY d ORDER BY 1",
                    &["a|1|-", "b|1|20", "c|1|30"],
                ),
                (
                    "SELECT upper(d) AS u FROM one RIGHT JOIN two USING (d, time) WHERE d = 'c' ORDER BY lower(d)",
                    &["C"],
                ),
                // Rows of the third are looked for by what the first two have together.
                (
                    "SELECT d, v, w, x FROM one FULL JOIN two USING (d, time) FULL JOIN three USING (d, time) ORDER BY d",
                    &["a|1|-|-", "b|2|20|-", "c|-|30|300", "e|-|-|500"],
                ),
                (
                    "SELECT d, x FROM one JOIN two USING (d, time) RIGHT JOIN three USING (d, time) ORDER BY d",
                    &["c|300", "e|500"],
                ),
                (
                    "SELECT max(d), count(DISTINCT d) FROM one FULL JOIN two USING (d, time) HAVING max(d) > 'b'",
                    &["c|3"],
                ),
                (
                    "SELECT t.d, row_number() OVER (ORDER BY d DESC) FROM one AS o FULL JOIN two AS t USING (d, time) ORDER BY d",
                    &["-|3", "b|2", "c|1"],
                ),
                (
                    "SELECT d FROM one FULL JOIN two USING (d, time) UNION SELECT d FROM two RIGHT JOIN three USING (d, time) ORDER BY d",
                    &["a", "b", "c", "e"],
                ),
                (
                    "SELECT (SELECT max(d) FROM one), d FROM one RIGHT JOIN two USING (d, time) ORDER BY 2",
                    &["b|b", "b|c"],
                ),
                // The others are as they were.
                (
                    "SELECT d, v, w FROM one LEFT JOIN two USING (d, time) ORDER BY d",
                    &["a|1|-", "b|2|20"],
                ),
            ],
        )
        .await;
        for (sql, code) in [
            ("SELECT d FROM one NATURAL FULL JOIN two", "unsupported"),
            (
                "SELECT d FROM one, two FULL JOIN three USING (two.d)",
                "invalid",
            ),
            (
                "SELECT d FROM one JOIN two ON one.d = two.d RIGHT JOIN three USING (d)",
                "unsupported",
            ),
            (
                "SELECT q FROM one FULL JOIN two USING (q)",
                "unknown_column",
            ),
        ] {
            assert_eq!(lake.error(sql).await.code, code, "{sql}");
        }
    });
}

#[test]
fn integers_are_rounded_as_numbers_with_fractions_and_days_begin_at_an_instant() {
    block_on(async {
        let lake = Lake::new();
        answers(
            &lake,
            &[
                ("SELECT round(2) / 4, round(7, 1) / 2", &["0.5|3.5"]),
                ("SELECT 5 / round(count(*)) FROM generate_series(1, 2)", &["2.5"]),
                ("SELECT a / 4 FROM (SELECT round(value) AS a FROM generate_series(2, 2)) t", &["0.5"]),
                ("SELECT round(5, 0) / 2, round(round(5, 0) / 2)", &["2.5|3.0"]),
                ("SELECT date_trunc('month', DATE '2024-02-29')", &["2024-02-01T00:00:00Z"]),
                (
                    "SELECT arrow_typeof(date_trunc('month', DATE '2024-02-29')) = arrow_typeof(now())",
                    &["true"],
                ),
            ],
        )
        .await;
    });
}

#[test]
fn distinct_floats_have_one_nan_whatever_computed_it() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE odd (x DOUBLE)").await;
        lake.outcome("INSERT INTO odd (time, x) VALUES (to_timestamp(1), 'NaN'), (to_timestamp(2), 'Infinity'), (to_timestamp(3), '-Infinity'), (to_timestamp(4), 1)").await;
        answers(
            &lake,
            &[
                ("SELECT DISTINCT x - x FROM odd ORDER BY 1", &["0.0", "NaN"]),
                (
                    "SELECT count(*) FROM (SELECT DISTINCT x - x, -(x - x) FROM odd) t",
                    &["2"],
                ),
                (
                    "SELECT count(*) FROM (SELECT x - x FROM odd UNION SELECT -(x - x) FROM odd) t",
                    &["2"],
                ),
                (
                    "SELECT count(*) FROM (SELECT DISTINCT x FROM odd) t",
                    &["4"],
                ),
            ],
        )
        .await;
    });
}

#[test]
fn like_takes_any_escape_character() {
    block_on(async {
        let lake = Lake::pumps();
        answers(
            &lake,
            &[
                (
                    "SELECT 'x_y' LIKE '%!_y' ESCAPE '!', 'xay' LIKE '%!_y' ESCAPE '!'",
                    &["true|false"],
                ),
                (
                    r"SELECT 'a\b' LIKE 'a\_' ESCAPE '', 'A%' ILIKE 'a#%' ESCAPE '#'",
                    &["true|true"],
                ),
                (
                    r"SELECT 'a\b' NOT LIKE 'a\b' ESCAPE '!', 'a!' LIKE '_!!' ESCAPE '!'",
                    &["false|true"],
                ),
                (
                    "SELECT NULL LIKE 'a' ESCAPE '!', 'a' LIKE NULL ESCAPE '!'",
                    &["-|-"],
                ),
                (
                    "SELECT count(*) FROM pump WHERE note LIKE id || '!%' ESCAPE '!'",
                    &["0"],
                ),
                (
                    "SELECT count(DISTINCT id) FROM pump WHERE id LIKE '!a%' ESCAPE '!'",
                    &["1"],
                ),
            ],
        )
        .await;
        for sql in [
            "SELECT 'a' LIKE 'a' ESCAPE 'xy'",
            "SELECT 'a' LIKE 'a!' ESCAPE '!'",
        ] {
            assert_eq!(lake.error(sql).await.code, "invalid_value", "{sql}");
        }
    });
}

#[test]
fn numbers_of_columns_order_by_what_is_computed_of_aggregates() {
    block_on(async {
        let lake = odd();
        answers(
            &lake,
            &[
                (
                    "SELECT k, coalesce(sum(n), 0) FROM odd WHERE n < 9 GROUP BY 1 ORDER BY 2 DESC",
                    &["c|15", "b|11", "a|4"],
                ),
                // One aggregate, within what syntax stands for and beside it.
                (
                    "SELECT extract(epoch FROM max(time) - min(time)), max(time) - min(time), max(time) = min(time), \
                            position('a' IN max(k)), max(k) || max(k), max(k), [max(k)][1] \
                     FROM odd WHERE n < 9 AND k = 'a'",
                    &["2.0|PT2S|false|1|aa|a|a"],
                ),
                (
                    "SELECT k, extract(epoch FROM max(time)) AS e, max(time) IS NULL, rank() OVER (ORDER BY max(time)) FROM odd \
                     WHERE n < 9 GROUP BY k HAVING extract(epoch FROM max(time)) > 0 ORDER BY extract(epoch FROM max(time)) DESC LIMIT 1",
                    &["c|8.0|false|3"],
                ),
                (
                    "SELECT max(n) - min(n), upper(k) FROM odd WHERE n < 9 GROUP BY 2 ORDER BY 1, 2",
                    &["1|A", "1|B", "1|C"],
                ),
                (
                    "SELECT coalesce(sum(n), 0), upper(max(k)) FROM odd WHERE n < 9 ORDER BY 1 DESC, 2",
                    &["30|C"],
                ),
                (
                    "SELECT DISTINCT upper(lower(k)) FROM odd WHERE n < 9 ORDER BY 1 DESC",
                    &["C", "B", "A"],
                ),
                (
                    "SELECT round(avg(n)), k AS n FROM odd WHERE n < 9 GROUP BY k ORDER BY 2 DESC",
                    &["8.0|c", "6.0|b", "1.0|a"],
                ),
                (
                    "SELECT date_bin(INTERVAL '4 seconds', time), coalesce(sum(n), 0) FROM odd \
                     WHERE n < 9 GROUP BY 1 ORDER BY 2 LIMIT 1",
                    &["1970-01-01T00:00:00Z|4"],
                ),
            ],
        )
        .await;
    });
}

#[test]
fn a_correlation_is_nan_where_both_vary_and_one_is_not_finite() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (d TAG, x DOUBLE, y DOUBLE)")
            .await;
        lake.outcome(
            "INSERT INTO t (time, d, x, y) VALUES
             (to_timestamp(1), 'a', 1, 2), (to_timestamp(2), 'a', 2, 4), (to_timestamp(3), 'a', 3, 6),
             (to_timestamp(1), 'b', 1, 2), (to_timestamp(2), 'b', 'NaN', 4),
             (to_timestamp(1), 'c', 1, 'Infinity'), (to_timestamp(2), 'c', 2, 4),
             (to_timestamp(1), 'e', 1, 2), (to_timestamp(2), 'e', 'NaN', 2),
             (to_timestamp(1), 'f', 1, NULL), (to_timestamp(2), 'f', 2, 4)",
        )
        .await;
        answers(
            &lake,
            &[
                (
                    "SELECT d, corr(x, y) FROM t GROUP BY d ORDER BY d",
                    &["a|1.0", "b|NaN", "c|NaN", "e|-", "f|-"],
                ),
                ("SELECT corr(x, y) FROM t WHERE d = 'a'", &["1.0"]),
                ("SELECT corr(y, x) FROM t", &["NaN"]),
                // Rows that left the window leave nothing behind.
                (
                    "SELECT corr(x, y) OVER (ORDER BY d, time ROWS 1 PRECEDING) AS c FROM t
                     WHERE d IN ('a', 'b') ORDER BY d, time",
                    &["-", "1.0", "1.0", "1.0", "NaN"],
                ),
                (
                    "SELECT corr(x, y) OVER (ORDER BY d DESC, time DESC ROWS 1 PRECEDING) AS c FROM t
                     WHERE d IN ('a', 'b') ORDER BY d DESC, time DESC",
                    &["-", "NaN", "1.0", "1.0", "1.0"],
                ),
            ],
        )
        .await;
    });
}

/// Calls of aggregates that depend on how often a row comes, over a table of columns `f`, `i`,
/// `s` and `time`.
const OF_ROWS: [&str; 34] = [
    "approx_median(DISTINCT f)",
    "approx_percentile_cont(DISTINCT f, 0.5)",
    "approx_percentile_cont_with_weight(DISTINCT f, i, 0.5)",
    "array_agg(DISTINCT i ORDER BY i)",
    "avg(DISTINCT f)",
    "bit_xor(DISTINCT i)",
    "corr(DISTINCT f, i)",
    "count(DISTINCT f)",
    "count(DISTINCT s)",
    "covar(DISTINCT f, i)",
    "covar_pop(DISTINCT f, i)",
    "covar_samp(DISTINCT f, i)",
    "histogram(DISTINCT f, 0, 10, 3)",
    "median(DISTINCT f)",
    "num_changes(gauge_agg(DISTINCT time, f))",
    "regr_avgx(DISTINCT f, i)",
    "regr_avgy(DISTINCT f, i)",
    "regr_count(DISTINCT f, i)",
    "regr_intercept(DISTINCT f, i)",
    "regr_r2(DISTINCT f, i)",
    "regr_slope(DISTINCT f, i)",
    "regr_sxx(DISTINCT f, i)",
    "regr_sxy(DISTINCT f, i)",
    "regr_syy(DISTINCT f, i)",
    "stddev(DISTINCT f)",
    "stddev_pop(DISTINCT f)",
    "stddev_samp(DISTINCT f)",
    "string_agg(DISTINCT s, ',')",
    "sum(DISTINCT f)",
    "sum(DISTINCT i)",
    "var(DISTINCT f)",
    "var_pop(DISTINCT f)",
    "var_samp(DISTINCT f)",
    "lttb(DISTINCT time, f, 3)",
];

/// Whether rows are alike but for the last digits of numbers: those of parts are added in any
/// order.
fn is_near(rows: &[String], wanted: &[String]) -> bool {
    let cells = |rows: &[String]| -> Vec<String> {
        let rows = rows.join("|");
        rows.split(['|', ',', '[', ']'])
            .map(str::to_owned)
            .collect()
    };
    let (rows, wanted) = (cells(rows), cells(wanted));
    let near = |(one, other): (&String, &String)| match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => (one - other).abs() <= 1e-12 * other.abs(),
        _ => one == other,
    };
    rows.len() == wanted.len() && rows.iter().zip(&wanted).all(near)
}

#[test]
fn distinct_counts_whatever_the_aggregate() {
    block_on(async {
        let lake = Lake::new();
        for table in ["once", "often"] {
            let create = format!("CREATE TABLE {table} (d TAG, f DOUBLE, i BIGINT, s VARCHAR)");
            lake.outcome(&create).await;
        }
        let rows = [
            ("1", "1"),
            ("'-0.0'", "7"),
            ("2.5", "7"),
            ("NULL", "3"),
            ("4.5", "12"),
        ];
        for (table, times) in [("once", 1), ("often", 3)] {
            for copy in 0..times {
                for (at, (f, i)) in rows.iter().enumerate() {
                    // Two zeros are one.
                    let f = if copy == 1 { f.trim_matches('\'') } else { f };
                    let f = f.replace("-0.0", if copy == 2 { "0.0" } else { "-0.0" });
                    lake.outcome(&format!(
                        "INSERT INTO {table} (time, d, f, i, s) VALUES (to_timestamp({at}), '{copy}', {f}, {i}, 's{i}')"
                    ))
                    .await;
                }
            }
        }
        for call in OF_ROWS {
            // Beside another aggregate, so that it is not computed of groups.
            for rest in ["", " GROUP BY i % 2 ORDER BY i % 2"] {
                let sql = |table: &str| {
                    format!("SELECT {call}, max(i), count(DISTINCT i) FROM {table}{rest}")
                };
                let (once, often) = (sql("once"), sql("often"));
                let (once, of_often) = (lake.rows(&once).await, lake.rows(&often).await);
                assert!(
                    is_near(&of_often, &once),
                    "{often}: {of_often:?}, wanted {once:?}"
                );
            }
        }
        let error = lake
            .error("SELECT corr(DISTINCT f, i) OVER (ORDER BY time ROWS 1 PRECEDING) FROM often")
            .await;
        assert!(error.message.contains("corr: DISTINCT"), "{error:?}");
    });
}

#[test]
fn rows_are_ordered_by_a_key_that_is_constant() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (d TAG, n BIGINT, g DOUBLE)")
            .await;
        lake.outcome(
            "INSERT INTO t (time, d, n, g) VALUES (to_timestamp(1), 'a', 1, 2.0), (to_timestamp(2), 'b', 4, 3.0)",
        )
        .await;
        answers(
            &lake,
            &[(
                "SELECT n % 3, median(g), count(*) FILTER (WHERE n % 3 = 0) FROM t
                 WHERE n % 3 = 1 AND (NOT (time >= '2024-02-29T14:10:04') OR n % 2 <= 2)
                 GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 3 ASC NULLS LAST, 1 ASC NULLS FIRST LIMIT 7",
                &["1|2.5|0"],
            )],
        )
        .await;
    });
}
