//! Aggregates over points in the order of time, and what is asked of them.

use crate::support::{Lake, block_on};

async fn meters() -> Lake {
    let lake = Lake::new();
    lake.outcome("CREATE TABLE meter (id TAG, bytes BIGINT, watts DOUBLE, state TEXT)")
        .await;
    // Unordered; `a` begins anew once, one row has no value, one is written again.
    for row in [
        "('1970-01-01T00:01:00Z', 'a', 160, 20.0, 'on')",
        "('1970-01-01T00:00:00Z', 'a', 100, 10.0, 'off')",
        "('1970-01-01T00:02:00Z', 'a', 30, 20.0, 'on')",
        "('1970-01-01T00:03:00Z', 'a', NULL, NULL, NULL)",
        "('1970-01-01T00:04:00Z', 'a', 70, 0.0, 'off')",
        "('1970-01-01T00:00:00Z', 'b', 5, 1.0, 'on')",
        "('1970-01-01T00:00:00Z', 'c', NULL, 'NaN', NULL)",
        "('1970-01-01T00:00:01Z', 'c', NULL, 1.0, NULL)",
        "('1970-01-01T00:01:00Z', 'a', 150, 20.0, 'on')",
    ] {
        lake.outcome(&format!(
            "INSERT INTO meter (time, id, bytes, watts, state) VALUES {row}"
        ))
        .await;
    }
    lake
}

#[test]
fn a_counter_that_begins_anew_goes_on_rising() {
    block_on(async {
        let lake = meters().await;
        let sql = "SELECT id, delta(c), increase(c), rate(c), num_resets(c), num_changes(c), num_elements(c), \
                   time_delta(c), first_val(c), last_time(c) \
                   FROM (SELECT id, counter_agg(time, bytes) AS c FROM meter GROUP BY id) ORDER BY id";
        assert_eq!(
            lake.rows(sql).await,
            [
                "a|120.0|120.0|0.5|1|3|4|240.0|100.0|1970-01-01T00:04:00Z",
                "b|0.0|0.0|-|0|0|1|0.0|5.0|1970-01-01T00:00:00Z",
                "c|-|-|-|-|-|-|-|-|-"
            ]
        );
        assert_eq!(
            lake.rows("SELECT delta(gauge_agg(time, bytes)) FROM meter WHERE id = 'a'")
                .await,
            ["-30.0"]
        );
        for sql in [
            "SELECT increase(gauge_agg(time, bytes)) FROM meter",
            "SELECT rate(bytes) FROM meter",
            "SELECT counter_agg(bytes, time) FROM meter",
            "SELECT average(counter_agg(time, bytes)) FROM meter",
        ] {
            let error = lake.error(sql).await;
            assert_eq!(
                (error.code, error.sqlstate),
                ("type_mismatch", "42804"),
                "{sql}: {error}"
            );
            assert!(error.hint.is_some(), "{sql}");
        }
    });
}

#[test]
fn values_are_weighted_by_how_long_they_last() {
    block_on(async {
        let lake = meters().await;
        // 10 to 20 in a minute, 20 for a minute, 20 to 0 in two minutes.
        let linear = (15.0 * 60.0 + 20.0 * 60.0 + 10.0 * 120.0) / 240.0;
        let last = (10.0 * 60.0 + 20.0 * 60.0 + 20.0 * 120.0) / 240.0;
        let sql = "SELECT average(time_weight('Linear', time, watts)), average(time_weight('LOCF', time, watts)) \
                   FROM meter WHERE id = 'a'";
        assert_eq!(lake.rows(sql).await, [format!("{linear:?}|{last:?}")]);
        let sql = "SELECT id, integral(watts, time), integral(watts, time, 'minute'), \
                   integral(time_weight('Linear', time, watts), 'minute') \
                   FROM meter GROUP BY id ORDER BY id";
        assert_eq!(
            lake.rows(sql).await,
            ["a|3300.0|55.0|55.0", "b|0.0|0.0|0.0", "c|NaN|NaN|NaN"]
        );
        assert_eq!(
            lake.error("SELECT time_weight('cubic', time, watts) FROM meter")
                .await
                .code,
            "invalid_value"
        );
        assert_eq!(
            lake.rows("SELECT integral(watts, time) FROM meter WHERE id = 'nobody'")
                .await,
            ["-"]
        );
    });
}

#[test]
fn derivatives_pass_over_rows_without_a_value() {
    block_on(async {
        let lake = meters().await;
        let sql = "SELECT time, derivative(bytes, time, 'minute') OVER (PARTITION BY id ORDER BY time) \
                   FROM meter WHERE id = 'a' ORDER BY time";
        assert_eq!(
            lake.rows(sql).await,
            [
                "1970-01-01T00:00:00Z|-",
                "1970-01-01T00:01:00Z|50.0",
                "1970-01-01T00:02:00Z|-120.0",
                "1970-01-01T00:03:00Z|-",
                "1970-01-01T00:04:00Z|20.0"
            ]
        );
    });
}

#[test]
fn states_last_until_the_next_row() {
    block_on(async {
        let lake = meters().await;
        let sql = "SELECT id, duration_in(s, 'on') > interval '2 minutes', duration_in(s, 'on') = interval '3 minutes', \
                   extract(epoch FROM duration_in(s, 'off')), extract(epoch FROM duration_in(s, 'broken')) \
                   FROM (SELECT id, state_agg(time, state) AS s FROM meter GROUP BY id) ORDER BY id";
        assert_eq!(
            lake.rows(sql).await,
            ["a|true|true|60.0|0.0", "b|false|false|0.0|0.0", "c|-|-|-|-"]
        );
    });
}

#[test]
fn histograms_count_what_lies_below_and_above_too() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT id, histogram(temp, 10, 40, 3) FROM pump GROUP BY id ORDER BY id";
        let counts = "[20, 20, 20, 20, 20]";
        let expected: Vec<String> = ["a", "b", "c"]
            .iter()
            .map(|id| format!("{id}|{counts}"))
            .collect();
        assert_eq!(lake.rows(sql).await, expected);
        let sql = "SELECT histogram(x, 0, 1, 1) FROM (VALUES ('NaN'::double), (NULL), (0.0), (1.0), (-1.0)) v(x)";
        assert_eq!(lake.rows(sql).await, ["[1, 1, 2]"]);
        assert_eq!(
            lake.rows("SELECT histogram(temp, 0, 1, 1) FROM pump WHERE id = 'nobody'")
                .await,
            ["-"]
        );
        for bad in ["1, 1, 5", "0, 1, 0", "0, 1, 1000000", "0, temp, 5"] {
            let error = lake
                .error(&format!("SELECT histogram(temp, {bad}) FROM pump"))
                .await;
            assert_eq!(error.code, "invalid_value", "{bad}: {error}");
        }
    });
}

#[test]
fn points_are_thinned_out_to_some_of_them() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT p['time'], p['value'] FROM (SELECT unnest(lttb(time, temp, 3)) AS p FROM pump WHERE id = 'a')";
        let kept = lake.rows(sql).await;
        assert_eq!(kept.len(), 3);
        assert_eq!(kept[0], "1970-01-01T00:00:00Z|0.0");
        assert_eq!(kept[2], "1970-01-01T00:01:39Z|49.5");
        let sql =
            "SELECT id, array_length(minmax(time, temp, 10)) FROM pump GROUP BY id ORDER BY id";
        assert_eq!(lake.rows(sql).await, ["a|10", "b|10", "c|10"]);
        let sql = "SELECT lttb(time, temp, 5) FROM pump WHERE id = 'nobody'";
        assert_eq!(lake.rows(sql).await, ["-"]);
        assert_eq!(
            lake.error("SELECT lttb(time, temp, 2) FROM pump")
                .await
                .code,
            "invalid_value"
        );
    });
}

#[test]
fn percentiles_have_the_names_of_the_toolkit() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT approx_percentile(0.5, percentile_agg(rpm)) BETWEEN 480 AND 510, \
                   percentile_cont(0.5) WITHIN GROUP (ORDER BY temp) FROM pump WHERE id = 'a'";
        assert_eq!(lake.rows(sql).await, ["true|24.75"]);
        let error = lake
            .error("SELECT approx_percentile(0.5, temp) FROM pump")
            .await;
        assert_eq!(error.code, "type_mismatch");
    });
}

#[test]
fn what_points_take_is_bounded_by_the_statement() {
    block_on(async {
        let limits = headwater_query::Limits {
            memory: 1 << 20,
            ..headwater_query::Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        let sql = "SELECT num_elements(counter_agg(to_timestamp(g.value), g.value)) \
                   FROM generate_series(1, 20000000) g";
        assert_eq!(lake.error(sql).await.code, "memory_limit");
    });
}
