//! Numbers, days and texts mean what they mean to PostgreSQL (decision 0026).

use crate::support::{Lake, block_on};

async fn check(lake: &Lake, cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let sql = format!("SELECT {expression}");
        assert_eq!(lake.rows(&sql).await, [*expected], "{expression}");
    }
}

#[test]
fn what_is_written_is_exact_and_rounds_as_decimals_do() {
    block_on(async {
        let lake = Lake::pumps();
        check(
            &lake,
            &[
                ("0.1 + 0.2 = 0.3", "true"),
                ("0.1::float8 + 0.2::float8 = 0.3::float8", "false"),
                ("1.1 * 1.1", "1.21"),
                ("round(5 / 2.0)", "3.0"),
                ("round(5::float8 / 2)", "2.0"),
                ("(5 / 2.0)::int", "3"),
                ("(2.5::float8)::int", "2"),
                ("round(-4.5)", "-5.0"),
                ("round(2.675, 2)", "2.68"),
                ("round(0 - 0.4)", "0.0"),
                ("1.005::numeric(5, 2)", "1.01"),
                ("(-1.005)::numeric(5, 2)", "-1.01"),
                (
                    "12345678901234567890.123456::numeric",
                    "12345678901234567890.1234560000",
                ),
                ("-2 ^ 2", "4.0"),
                ("-(2 ^ 2)", "-4.0"),
                ("2 - 2 ^ 2", "-2.0"),
                ("(-2.5 + ceil(5))::bigint", "2"),
                ("(least(round(2.5), 0.5))::bigint", "1"),
                ("round(CASE WHEN false THEN -3 ELSE 2.5 END)", "3.0"),
                ("(interval '1 year 2 months' / 3)::text", "4 mons 20 days"),
                ("(interval '1 day' / 3)::text", "08:00:00"),
                ("array_remove(ARRAY[1, 2, 1], 1)", "[2]"),
                ("array_length(ARRAY[]::int[], 1)", "-"),
                ("array_length(ARRAY[1, 2], 1)", "2"),
            ],
        )
        .await;
    });
}

#[test]
fn means_of_integers_round_as_decimals_wherever_they_come_from() {
    block_on(async {
        let lake = Lake::pumps();
        for sql in [
            "SELECT round(avg(n)) FROM (VALUES (2), (3)) t(n)",
            "SELECT round(m) FROM (SELECT avg(n) AS m FROM (VALUES (2), (3)) t(n)) s",
            "WITH s AS (SELECT mean(n) AS m FROM (VALUES (2), (3)) t(n)) SELECT round(m + 0) FROM s ORDER BY 1 LIMIT 1",
            "SELECT avg(n)::bigint::float8 FROM (VALUES (2), (3)) t(n)",
            "SELECT round(avg(n)) FROM (VALUES (2), (3)) t(n) HAVING round(avg(n)) = 3",
        ] {
            assert_eq!(lake.rows(sql).await, ["3.0"], "{sql}");
        }
        let floats = "SELECT round(avg(n)) FROM (VALUES (2::float8), (3::float8)) t(n)";
        assert_eq!(lake.rows(floats).await, ["2.0"]);
        // A stored mean of integers too, with and without the pyramid.
        let stored = "SELECT round(avg(rpm)), round(avg(rpm + 0)), round(avg(rpm::float8)) FROM pump WHERE time < '1970-01-01T00:00:01Z'";
        assert_eq!(lake.rows(stored).await.len(), 1);
    });
}

#[test]
fn a_day_and_a_length_of_time_are_an_instant() {
    block_on(async {
        let lake = Lake::pumps();
        check(
            &lake,
            &[
                (
                    "DATE '2024-05-01' - interval '6 hours'",
                    "2024-04-30T18:00:00",
                ),
                (
                    "interval '90 minutes' + DATE '2024-05-01'",
                    "2024-05-01T01:30:00",
                ),
                ("DATE '2024-05-01' + 1", "2024-05-02"),
                ("DATE '2024-05-03' - DATE '2024-05-01'", "2"),
                (
                    "'2024-05-01T12:00:00Z'::timestamptz::date - interval '1 minute'",
                    "2024-04-30T23:59:00",
                ),
                ("extract(epoch FROM interval '1 year')", "31557600.0"),
                (
                    "extract(epoch FROM interval '1 year 2 months 3 days 1.5 seconds')",
                    "37000801.5",
                ),
                ("extract(epoch FROM interval '-90 minutes')", "-5400.0"),
            ],
        )
        .await;
        let sql = "SELECT count(*) > 0 FROM pump WHERE time >= DATE '1970-01-01' - interval '6 hours' AND time < DATE '1970-01-01' + interval '30 seconds'";
        assert_eq!(lake.rows(sql).await, ["true"]);
        let error = lake
            .error("SELECT DATE '9999-01-01' - interval '1 day'")
            .await;
        assert!(
            error.code == "out_of_range" || error.code == "invalid_value",
            "{error:?}"
        );
    });
}

#[test]
fn casts_to_text_are_written_as_postgresql_writes_them() {
    block_on(async {
        let lake = Lake::pumps();
        check(
            &lake,
            &[
                (
                    "TIMESTAMP '2024-05-01 12:00:00'::text",
                    "2024-05-01 12:00:00",
                ),
                (
                    "'2024-05-01T12:00:00.25Z'::timestamptz::text",
                    "2024-05-01 12:00:00.25+00",
                ),
                ("DATE '2024-05-01'::text", "2024-05-01"),
                ("(interval '90 minutes')::text", "01:30:00"),
                (
                    "(interval '1 year 2 months -3 days')::text",
                    "1 year 2 mons -3 days",
                ),
                (
                    "(TIMESTAMP '2024-05-02 01:00:00' - TIMESTAMP '2024-05-01 00:00:00')::text",
                    "1 day 01:00:00",
                ),
                ("1::float8::text", "1"),
                ("1e300::float8::text", "1e+300"),
                ("true::text", "true"),
                ("concat(true, 1.5::float8, NULL)", "t1.5"),
                ("concat_ws('-', false, 2::float8)", "f-2"),
                (
                    "'at ' || TIMESTAMP '2024-05-01 00:00:00'",
                    "at 2024-05-01 00:00:00",
                ),
            ],
        )
        .await;
    });
}

#[test]
fn what_would_be_silently_wrong_is_right_or_refused() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.rows("SELECT percentile_cont(0.123456789) WITHIN GROUP (ORDER BY v) FROM (VALUES (0::float8), (1e9::float8)) t(v)").await,
            ["123456789.0"]
        );
        assert_eq!(
            lake.rows("SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY v DESC) FROM (VALUES (1::float8), (2::float8), (3::float8), (4::float8), (5::float8)) t(v)").await,
            ["4.0"]
        );
        assert_eq!(
            lake.rows("SELECT generate_series(1, 3)").await,
            ["1", "2", "3"]
        );
        for (sql, part) in [
            (
                "SELECT to_char(time, p) FROM pump, (VALUES ('YYYY-MM-DD')) t(p)",
                "found 'YYYY-MM-DD'",
            ),
            (
                "SELECT lead(temp, 2) IGNORE NULLS OVER (ORDER BY time) FROM pump",
                "n greater than 1",
            ),
            ("SELECT derivative(temp) FROM pump", "derivative"),
        ] {
            let error = lake.error(sql).await;
            assert!(error.to_string().contains(part), "{sql}: {error:?}");
        }
        let error = lake.error("SELECT derivative(temp) FROM pump").await;
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains("OVER (ORDER BY time)"), "{hint}");
        assert_eq!(
            lake.rows("SELECT to_char(time, '%Y') FROM pump LIMIT 1")
                .await,
            ["1970"]
        );
    });
}
