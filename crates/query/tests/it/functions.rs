//! Functions of time.

use crate::support::{Lake, block_on};

#[test]
fn buckets_have_widths_as_people_write_them() {
    block_on(async {
        let lake = Lake::pumps();
        let expected = lake
            .rows("SELECT date_bin(INTERVAL '30 seconds', time) AS t, count(*) FROM pump GROUP BY t ORDER BY t")
            .await;
        assert_eq!(expected.len(), 4);
        for width in [
            "'30s'",
            "'30 seconds'",
            "'30000ms'",
            "INTERVAL '30 seconds'",
        ] {
            let sql = format!(
                "SELECT time_bucket({width}, time) AS t, count(*) FROM pump GROUP BY t ORDER BY t"
            );
            assert_eq!(lake.rows(&sql).await, expected, "{width}");
        }
        assert_eq!(
            lake.rows("SELECT time_bucket('1m', time, '1970-01-01T00:00:10Z') AS t, count(*) FROM pump GROUP BY t ORDER BY t").await,
            [
                "1969-12-31T23:59:10Z|30",
                "1970-01-01T00:00:10Z|180",
                "1970-01-01T00:01:10Z|90"
            ]
        );
        for sql in [
            "SELECT time_bucket('5 parsecs', time) FROM pump",
            "SELECT time_bucket(note, time) FROM pump",
            "SELECT time_bucket('5m', temp) FROM pump",
        ] {
            let error = lake.error(sql).await;
            assert_eq!(error.code, "invalid_value", "{sql}: {error:?}");
            assert!(error.hint.is_some(), "{error:?}");
        }
    });
}

#[test]
fn first_and_last_are_those_of_the_earliest_and_latest_instant() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.rows("SELECT id, first(temp, time), last(temp, time), last(note, time), first(id, time) FROM pump GROUP BY id ORDER BY id").await,
            ["a|0.0|49.5|at 90|a", "b|0.0|49.5|at 90|b", "c|0.0|49.5|at 90|c"]
        );
        assert_eq!(
            lake.rows("SELECT last(rpm, time) FROM pump WHERE time < '1970-01-01T00:00:20Z'")
                .await,
            ["190"]
        );
        assert_eq!(
            lake.rows("SELECT first(note, time) FROM pump WHERE id = 'nobody'")
                .await,
            ["-"]
        );
        assert_eq!(
            lake.rows("SELECT first_value(rpm ORDER BY time DESC), last_value(rpm ORDER BY time) FROM pump WHERE id = 'a'").await,
            ["990|990"]
        );
        assert_eq!(
            lake.error("SELECT last(temp, rpm) FROM pump").await.code,
            "type_mismatch"
        );
    });
}

#[test]
fn now_and_intervals_move_with_the_clock() {
    block_on(async {
        let lake = Lake::pumps();
        // Twice, so that a plan that was kept would give the first answer again.
        let sql = "SELECT now() > '2024-01-01', now() - interval '1 hour' < now()";
        for _ in 0..2 {
            assert_eq!(lake.rows(sql).await, ["true|true"]);
        }
        let first = lake.rows("SELECT now()").await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        assert_ne!(lake.rows("SELECT now()").await, first);
    });
}

#[test]
fn a_negative_length_pads_to_nothing() {
    block_on(async {
        let lake = Lake::new();
        let sql = "SELECT '<' || lpad(a, n) || '|' || rpad(a, n, 'xy') || '>' \
                   FROM (VALUES ('ab', -3), ('ab', 4), ('ab', 0)) v(a, n)";
        assert_eq!(lake.rows(sql).await, ["<|>", "<  ab|abxy>", "<|>"]);
    });
}

#[test]
fn a_window_without_its_value_is_refused() {
    block_on(async {
        let lake = Lake::pumps();
        for name in ["first_value", "last_value", "nth_value"] {
            let error = lake
                .error(&format!("SELECT {name}() OVER () FROM pump"))
                .await;
            assert_ne!(error.code, "internal", "{name}: {error}");
        }
    });
}
