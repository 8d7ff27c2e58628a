//! Lengths of time: comparing differences of instants with intervals, and taking them apart.

use crate::support::{Lake, SECOND, batches, block_on};
use headwater::{Batch, StreamName};
use headwater_query::Parameters;
use headwater_query::arrow::datatypes::IntervalMonthDayNano;
use headwater_query::datafusion::common::ScalarValue;

/// Two devices: one with two events 400 days, 5 hours and 1.5 s apart, one with events a minute
/// apart.
fn gaps() -> Lake {
    let lake = Lake::new();
    let mut batch = Batch::new();
    let far = 400 * 86_400 * SECOND + 5 * 3_600 * SECOND + SECOND * 3 / 2;
    for (id, times) in [("far", vec![0, far]), ("near", vec![0, 60 * SECOND])] {
        let name = StreamName::new("t", [("id", id)]);
        for time in times {
            let rows = batch.stream(&name);
            rows.row(time, [("x", 1.5.into())]).unwrap();
        }
    }
    lake.db.commit(batch).unwrap();
    lake
}

const LENGTH: &str = "max(time) - min(time)";

#[test]
fn differences_of_instants_are_compared_by_their_length() {
    block_on(async {
        let lake = gaps();
        for (condition, wanted) in [
            ("# > INTERVAL '360 days'", "true"),
            ("# > INTERVAL '401 days'", "false"),
            ("# < INTERVAL '401 days'", "true"),
            ("INTERVAL '360 days' < #", "true"),
            ("# >= INTERVAL '400 days 5 hours 1.5 seconds'", "true"),
            ("# = INTERVAL '400 days 5 hours 1.5 seconds'", "true"),
            ("# = INTERVAL '9605 hours 1500 milliseconds'", "true"),
            ("# <> INTERVAL '400 days'", "true"),
            (
                "# IS DISTINCT FROM INTERVAL '9605 hours 1.5 seconds'",
                "false",
            ),
            ("# BETWEEN INTERVAL '1 day' AND INTERVAL '401 days'", "true"),
            (
                "# NOT BETWEEN INTERVAL '1 day' AND INTERVAL '2 days'",
                "true",
            ),
            (
                "# IN (INTERVAL '1 day', INTERVAL '9605 hours 1.5 seconds')",
                "true",
            ),
            ("# NOT IN (INTERVAL '1 day')", "true"),
            (
                "CASE # WHEN INTERVAL '400 days' THEN 'a' WHEN INTERVAL '9605 hours 1.5 seconds' THEN 'b' END",
                "b",
            ),
            ("# > '360 days'::INTERVAL", "true"),
            ("# > CAST(NULL AS INTERVAL)", "-"),
            ("greatest(#, INTERVAL '360 days') = #", "true"),
            (
                "least(#, INTERVAL '360 days') = INTERVAL '360 days'",
                "true",
            ),
            ("nullif(#, INTERVAL '9605 hours 1.5 seconds')", "-"),
            (
                "coalesce(#, INTERVAL '0 days') > INTERVAL '360 days'",
                "true",
            ),
            (
                "# > INTERVAL '1 hour' AND NOT # > INTERVAL '1000 days'",
                "true",
            ),
            // Intervals alone, of different parts.
            ("INTERVAL '30 hours' > INTERVAL '1 day'", "true"),
            ("INTERVAL '24 hours' = INTERVAL '1 day'", "true"),
            ("INTERVAL '-2 days' < INTERVAL '1 hour'", "true"),
        ] {
            let condition = condition.replace('#', &format!("({LENGTH})"));
            let sql = format!("SELECT {condition} FROM t WHERE id = 'far' LIMIT 1");
            assert_eq!(lake.rows(&sql).await, [wanted], "{sql}");
        }
    });
}

#[test]
fn conditions_on_lengths_keep_the_right_rows() {
    block_on(async {
        let lake = gaps();
        for (sql, wanted) in [
            (format!("SELECT id FROM t GROUP BY id HAVING {LENGTH} > INTERVAL '360 days'"), vec!["far"]),
            (format!("SELECT id FROM t GROUP BY id HAVING {LENGTH} < INTERVAL '1 day'"), vec!["near"]),
            (
                "SELECT id, x FROM (SELECT id, x, time - lag(time) OVER (PARTITION BY id ORDER BY time) AS gap FROM t) AS g \
                 WHERE gap > INTERVAL '1 day'".to_owned(),
                vec!["far|1.5"],
            ),
            ("SELECT id FROM t WHERE time - TIMESTAMP '1970-01-01' BETWEEN INTERVAL '30 seconds' AND INTERVAL '1 day'".to_owned(), vec!["near"]),
            (format!("SELECT id FROM t GROUP BY id ORDER BY {LENGTH} DESC"), vec!["far", "near"]),
            (
                "SELECT w FROM (VALUES (INTERVAL '30 hours', 'long'), (INTERVAL '1 day', 'short')) AS v(l, w) ORDER BY l".to_owned(),
                vec!["short", "long"],
            ),
            (
                "SELECT max(l) = INTERVAL '30 hours', min(l) = INTERVAL '24 hours' FROM (VALUES (INTERVAL '30 hours'), (INTERVAL '1 day')) AS v(l)".to_owned(),
                vec!["true|true"],
            ),
            (
                "SELECT first_value(w ORDER BY l DESC) FROM (VALUES (INTERVAL '1 day', 'short'), (INTERVAL '30 hours', 'long')) AS v(l, w)".to_owned(),
                vec!["long"],
            ),
            (
                "SELECT a.id FROM (SELECT id, max(time) - min(time) AS d FROM t GROUP BY id) AS a \
                 JOIN (VALUES (INTERVAL '1 minute')) AS v(l) ON a.d = v.l".to_owned(),
                vec!["near"],
            ),
        ] {
            assert_eq!(lake.rows(&sql).await, wanted, "{sql}");
        }
    });
}

#[test]
fn parts_of_a_length_are_days_and_the_rest_of_the_last_one() {
    block_on(async {
        let lake = gaps();
        let parts = ["epoch", "day", "hour", "minute", "second", "millisecond"];
        let parts: Vec<String> = parts
            .iter()
            .map(|part| format!("extract({part} FROM {LENGTH})"))
            .collect();
        let sql = format!("SELECT {} FROM t WHERE id = 'far'", parts.join(", "));
        // Seconds with their fraction, as of other types of time.
        assert_eq!(lake.rows(&sql).await, ["34578001.5|400|5|0|1.5|1500.0"]);
        let sql = "SELECT extract(epoch FROM TIMESTAMP '2200-01-01' - TIMESTAMP '2000-01-01'), \
                   extract(epoch FROM TIMESTAMP '2000-01-01' - TIMESTAMP '2000-01-02T00:00:00.25')";
        assert_eq!(lake.rows(sql).await, ["6311433600.0|-86400.25"]);
    });
}

#[test]
fn what_has_no_length_is_refused_with_advice() {
    block_on(async {
        let lake = gaps();
        for (sql, code) in [
            (format!("SELECT {LENGTH} > INTERVAL '1 month' FROM t"), "invalid_value"),
            (format!("SELECT {LENGTH} BETWEEN INTERVAL '1 day' AND INTERVAL '1 year' FROM t"), "invalid_value"),
            ("SELECT INTERVAL '1 month' > INTERVAL '30 days'".to_owned(), "invalid_value"),
            ("SELECT l FROM (VALUES (INTERVAL '1 month'), (INTERVAL '30 days')) AS v(l) ORDER BY l".to_owned(), "invalid_value"),
            (format!("SELECT id FROM t GROUP BY id HAVING {LENGTH} IN (SELECT INTERVAL '1 minute')"), "unsupported"),
        ] {
            let error = lake.error(&sql).await;
            assert_eq!(error.code, code, "{sql}: {error:?}");
            assert!(error.hint.is_some(), "{error:?}");
        }
        // Months are still added to instants, and lengths of one kind looked for.
        assert_eq!(
            lake.rows("SELECT max(time) > min(time) + INTERVAL '13 months' FROM t")
                .await,
            ["true"]
        );
        assert_eq!(
            lake.rows(&format!("SELECT count(*) FROM (SELECT {LENGTH} AS d FROM t GROUP BY id) AS a WHERE d IN (SELECT {LENGTH} FROM t WHERE id = 'near')")).await,
            ["1"]
        );
    });
}

#[test]
fn parameters_are_compared_by_their_length_too() {
    block_on(async {
        let lake = gaps();
        let interval = |days: i32| {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, days, 0)))
        };
        let sql = format!("SELECT {LENGTH} > $1 FROM t WHERE id = 'far' LIMIT 1");
        for (value, wanted) in [(interval(360), "true"), (interval(401), "false")] {
            let parameters = Parameters::positional(vec![value.clone()]);
            let answer = lake.session.run(&sql, parameters.clone()).await.unwrap();
            let rows = crate::support::text(&answer.collect().await.unwrap());
            assert_eq!(rows, [wanted], "{value:?}");
            let types = [Some(value.data_type())];
            let prepared = lake.session.prepare(&sql, &types).await.unwrap();
            let answer = prepared.run(parameters).await.unwrap();
            let rows = crate::support::text(&answer.collect().await.unwrap());
            assert_eq!(rows, [wanted], "{value:?}");
        }
        assert!(
            batches(&lake.session, &sql).await.is_err(),
            "without a value"
        );
    });
}
