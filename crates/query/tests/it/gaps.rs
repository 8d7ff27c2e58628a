//! Buckets of time without rows, and buckets by clocks and calendars.

use crate::support::{Lake, block_on};

async fn weather() -> Lake {
    let lake = Lake::new();
    lake.outcome("CREATE TABLE weather (id TAG, temp DOUBLE, n BIGINT)")
        .await;
    for (time, id, temp, n) in [
        ("00:05", "a", "1.0", "1"),
        ("02:10", "a", "3.0", "4"),
        ("01:00", "b", "NULL", "7"),
        ("02:59", "b", "9.0", "NULL"),
    ] {
        lake.outcome(&format!(
            "INSERT INTO weather (time, id, temp, n) VALUES ('2024-05-01T{time}:00Z', '{id}', {temp}, {n})"
        ))
        .await;
    }
    lake
}

fn hour(text: &str) -> String {
    text.replace("2024-05-01T", "").replace(":00:00Z", "")
}

async fn hours(lake: &Lake, sql: &str) -> Vec<String> {
    let rows = lake.rows(sql).await;
    rows.iter().map(|row| hour(row)).collect()
}

#[test]
fn missing_buckets_are_put_in_for_each_group() {
    block_on(async {
        let lake = weather().await;
        let sql = "SELECT time_bucket_gapfill('1h', time) AS t, id, avg(temp), count(*), locf(avg(temp)), \
                   interpolate(avg(temp)), interpolate(sum(n)), locf(sum(n), treat_null_as_missing => true) + 1 \
                   FROM weather WHERE time >= '2024-05-01T00:00:00Z' AND time < '2024-05-01T04:00:00Z' \
                   GROUP BY t, id ORDER BY id, t";
        assert_eq!(
            hours(&lake, sql).await,
            [
                "00|a|1.0|1|1.0|1.0|1|2",
                "01|a|-|-|1.0|2.0|3|2",
                "02|a|3.0|1|3.0|3.0|4|5",
                "03|a|-|-|3.0|-|-|5",
                "00|b|-|-|-|-|-|-",
                "01|b|-|1|-|-|7|8",
                "02|b|9.0|1|9.0|9.0|-|8",
                "03|b|-|-|9.0|-|-|8"
            ]
        );
        // Without the pyramid it is the same, and both are answered from the buckets it has.
        lake.outcome("SET headwater.use_pyramid = off").await;
        assert_eq!(hours(&lake, sql).await.len(), 8);
    });
}

#[test]
fn bounds_come_from_arguments_and_conditions_of_every_kind() {
    block_on(async {
        let lake = weather().await;
        let expected = ["00|1", "01|1", "02|2"];
        for (call, condition) in [
            (
                "'1h', time",
                "WHERE time BETWEEN '2024-05-01' AND '2024-05-01T02:59:59Z'",
            ),
            (
                "'1h', time",
                "WHERE '2024-05-01' <= time AND id LIKE '%' AND time <= '2024-05-01T02:59:59Z'",
            ),
            ("'1h', time, '2024-05-01', '2024-05-01T03:00:00Z'", ""),
            (
                "'1h', time, start => '2024-05-01', finish => '2024-05-01T03:00:00Z'",
                "",
            ),
            (
                "'1h', time, 'UTC', '2024-05-01', '2024-05-01T03:00:00Z'",
                "",
            ),
            (
                "INTERVAL '1 hour', time",
                "WHERE time > '2024-05-01' AND time < TIMESTAMPTZ '2024-05-01' + INTERVAL '3 hours'",
            ),
        ] {
            let sql = format!(
                "SELECT time_bucket_gapfill({call}) AS t, count(*) FROM weather {condition} GROUP BY 1 ORDER BY 1"
            );
            assert_eq!(hours(&lake, &sql).await, expected, "{sql}");
        }
    });
}

#[test]
fn a_range_without_rows_has_its_buckets_where_time_alone_is_grouped() {
    block_on(async {
        let lake = weather().await;
        let begin =
            "FROM weather WHERE time >= '2023-01-01' AND time < '2023-01-01T00:03:00Z' GROUP BY t";
        let sql = format!(
            "SELECT time_bucket_gapfill('1m', time) AS t, avg(temp), locf(avg(temp)) {begin}"
        );
        assert_eq!(
            lake.rows(&sql).await,
            [
                "2023-01-01T00:00:00Z|-|-",
                "2023-01-01T00:01:00Z|-|-",
                "2023-01-01T00:02:00Z|-|-"
            ]
        );
        let sql = format!("SELECT time_bucket_gapfill('1m', time) AS t, id, avg(temp) {begin}, id");
        assert!(lake.rows(&sql).await.is_empty());
    });
}

#[test]
fn what_is_asked_of_filled_buckets_sees_them() {
    block_on(async {
        let lake = weather().await;
        let range = "WHERE time >= '2024-05-01' AND time < '2024-05-01T04:00:00Z'";
        // HAVING leaves groups out before they are filled.
        let sql = format!(
            "SELECT time_bucket_gapfill('1h', time) AS t, count(*) FROM weather {range} GROUP BY t HAVING count(*) > 1 ORDER BY t"
        );
        assert_eq!(hours(&lake, &sql).await, ["00|-", "01|-", "02|2", "03|-"]);
        let sql = format!(
            "SELECT count(*), sum(f) FROM (SELECT time_bucket_gapfill('1h', time) AS t, locf(sum(n)) AS f FROM weather {range} GROUP BY t)"
        );
        assert_eq!(lake.rows(&sql).await, ["4|16"]);
        let sql = format!(
            "SELECT time_bucket_gapfill('1h', time) AS t, sum(locf(sum(n))) OVER (ORDER BY time_bucket_gapfill('1h', time)) FROM weather {range} GROUP BY 1 ORDER BY 1 DESC LIMIT 2"
        );
        assert_eq!(hours(&lake, &sql).await, ["03|16", "02|12"]);
    });
}

#[test]
fn a_gap_that_cannot_be_filled_is_refused_with_advice() {
    block_on(async {
        let lake = weather().await;
        for (sql, code) in [
            (
                "SELECT time_bucket_gapfill('1h', time) AS t, avg(temp) FROM weather GROUP BY t",
                "invalid",
            ),
            (
                "SELECT time_bucket_gapfill('1h', time) AS t, avg(temp) FROM weather WHERE time > '2024-05-01' GROUP BY t",
                "invalid",
            ),
            (
                "SELECT time_bucket_gapfill('1h', time) FROM weather",
                "invalid",
            ),
            ("SELECT locf(temp) FROM weather", "invalid"),
            (
                "SELECT time_bucket('1h', time) AS t, locf(avg(temp)) FROM weather GROUP BY t",
                "invalid",
            ),
            (
                "SELECT time_bucket_gapfill('1h', time, '2024-05-01', '2024-05-02') AS t, interpolate(max(id)) FROM weather GROUP BY t",
                "type_mismatch",
            ),
            (
                "SELECT time_bucket_gapfill('1h', time, '2024-05-01', '2024-05-02') AS t, locf(avg(temp), 1.0) FROM weather GROUP BY t",
                "unsupported",
            ),
        ] {
            let error = lake.error(sql).await;
            assert_eq!(error.code, code, "{sql}: {error}");
            assert!(error.hint.is_some(), "{sql}: {error}");
        }
        let zero = "SELECT time_bucket_gapfill('0s', time, '2024-05-01', '2024-05-02') AS t, avg(temp) FROM weather GROUP BY t";
        assert_eq!(lake.error(zero).await.code, "invalid_value");
    });
}

#[test]
fn a_range_of_very_many_buckets_is_answered_a_batch_at_a_time() {
    block_on(async {
        let lake = weather().await;
        let sql = "SELECT count(*), count(f) FROM (SELECT time_bucket_gapfill('1s', time) AS t, locf(avg(temp)) AS f \
                   FROM weather WHERE time >= '2024-05-01' AND time < '2024-05-11' AND id = 'a' GROUP BY t)";
        assert_eq!(lake.rows(sql).await, ["864000|863700"]);
    });
}

#[test]
fn buckets_follow_the_clocks_of_a_zone_and_the_calendar() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE clock (x DOUBLE)").await;
        // The clocks of Berlin change on 2024-03-31 at 01:00 UTC.
        for time in [
            "2024-03-30T22:30:00Z",
            "2024-03-30T23:30:00Z",
            "2024-03-31T21:30:00Z",
            "2024-03-31T22:30:00Z",
        ] {
            lake.outcome(&format!("INSERT INTO clock (time, x) VALUES ('{time}', 1)"))
                .await;
        }
        let by = async |bucket: &str| {
            let sql = format!("SELECT {bucket} AS t, count(*) FROM clock GROUP BY t ORDER BY t");
            lake.rows(&sql).await
        };
        assert_eq!(
            by("time_bucket('1 day', time, 'Europe/Berlin')").await,
            [
                "2024-03-29T23:00:00Z|1",
                "2024-03-30T23:00:00Z|2",
                "2024-03-31T22:00:00Z|1"
            ]
        );
        assert_eq!(
            by("time_bucket('1 day', time, timezone => 'Europe/Berlin', \"offset\" => INTERVAL '1 hour')").await,
            ["2024-03-30T00:00:00Z|2", "2024-03-31T00:00:00Z|2"]
        );
        assert_eq!(
            by("time_bucket('1 month', time, 'Europe/Berlin')").await,
            ["2024-02-29T23:00:00Z|3", "2024-03-31T22:00:00Z|1"]
        );
        assert_eq!(
            by("time_bucket('1 month', time)").await,
            ["2024-03-01T00:00:00Z|4"]
        );
        assert_eq!(
            by("time_bucket('1 year', time)").await,
            ["2024-01-01T00:00:00Z|4"]
        );
        assert_eq!(
            by("time_bucket('1h', time, INTERVAL '30 minutes')").await,
            by("time_bucket('1h', time, '1970-01-01T00:30:00Z')").await
        );
        assert_eq!(
            by("time_bucket('1 day', time, \"offset\" => '-1h')").await,
            ["2024-03-29T23:00:00Z|1", "2024-03-30T23:00:00Z|3"]
        );
        let sql = "SELECT time_bucket_gapfill('1 day', time, 'Europe/Berlin', '2024-03-29', '2024-04-02') AS t, count(*) FROM clock GROUP BY t ORDER BY t";
        assert_eq!(
            lake.rows(sql).await,
            [
                "2024-03-28T23:00:00Z|-",
                "2024-03-29T23:00:00Z|1",
                "2024-03-30T23:00:00Z|2",
                "2024-03-31T22:00:00Z|1",
                "2024-04-01T22:00:00Z|-"
            ]
        );
        let error = lake
            .error("SELECT time_bucket('1 day', time, nowhere => 1) FROM clock")
            .await;
        assert_eq!(error.code, "invalid_value");
        assert!(error.hint.is_some());
    });
}

#[test]
fn bounds_and_widths_may_be_parameters_of_a_prepared_statement() {
    block_on(async {
        let lake = weather().await;
        let sql = "SELECT time_bucket_gapfill($1, time, $2, $3) AS t, count(*) FROM weather GROUP BY t ORDER BY t";
        let prepared = lake.session.prepare(sql, &[]).await.unwrap();
        assert_eq!(prepared.schema().fields().len(), 2);
        let values = ["2 hours", "2024-05-01T00:00:00Z", "2024-05-01T04:00:00Z"];
        let values = values.map(datafusion::common::ScalarValue::from);
        let parameters = headwater_query::Parameters::positional(values.to_vec());
        let rows = prepared
            .run(parameters)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        let rows = crate::support::text(&rows);
        assert_eq!(rows, ["2024-05-01T00:00:00Z|2", "2024-05-01T02:00:00Z|2"]);
    });
}
