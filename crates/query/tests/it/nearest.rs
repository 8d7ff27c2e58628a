//! `ASOF JOIN`, and newest rows as other databases ask for them.

use crate::support::{Lake, block_on};

async fn market() -> Lake {
    let lake = Lake::new();
    lake.outcome("CREATE TABLE trades (sym TAG, price DOUBLE)")
        .await;
    lake.outcome("CREATE TABLE quotes (sym TAG, bid DOUBLE)")
        .await;
    for (table, column, rows) in [
        (
            "trades",
            "price",
            [
                ("a", 10, "1"),
                ("a", 20, "2"),
                ("b", 5, "3"),
                ("b", 30, "4"),
                ("c", 1, "5"),
            ],
        ),
        (
            "quotes",
            "bid",
            [
                ("a", 10, "10"),
                ("a", 15, "11"),
                ("a", 25, "12"),
                ("b", 6, "20"),
                ("b", 29, "NULL"),
            ],
        ),
    ] {
        for (sym, second, value) in rows {
            lake.outcome(&format!(
                "INSERT INTO {table} (time, sym, {column}) VALUES ('1970-01-01T00:00:{second:02}Z', '{sym}', {value})"
            ))
            .await;
        }
    }
    lake
}

#[test]
fn the_nearest_row_that_is_not_later_is_joined() {
    block_on(async {
        let lake = market().await;
        let select = "SELECT t.sym, t.price, q.bid, extract(second FROM q.time) FROM trades t";
        let order = "ORDER BY t.sym, t.time";
        let left = [
            "a|1.0|10.0|10.0",
            "a|2.0|11.0|15.0",
            "b|3.0|-|-",
            "b|4.0|-|29.0",
            "c|5.0|-|-",
        ];
        let inner: Vec<&str> = left
            .iter()
            .copied()
            .filter(|row| !row.ends_with("|-|-"))
            .collect();
        for (join, expected) in [
            (
                "ASOF JOIN quotes q MATCH_CONDITION (t.time >= q.time) ON t.sym = q.sym",
                left.to_vec(),
            ),
            (
                "ASOF JOIN quotes q MATCH_CONDITION (q.time <= t.time) ON q.sym = t.sym",
                left.to_vec(),
            ),
            (
                "ASOF LEFT JOIN quotes q ON t.sym = q.sym AND t.time >= q.time",
                left.to_vec(),
            ),
            (
                "ASOF JOIN quotes q ON t.sym = q.sym AND t.time >= q.time",
                inner.clone(),
            ),
            (
                "asof inner join (SELECT * FROM quotes) AS q ON t.time >= q.time AND t.sym = q.sym",
                inner,
            ),
            (
                "ASOF JOIN quotes q ON t.sym = q.sym AND t.time > q.time",
                vec!["a|2.0|11.0|15.0", "b|4.0|-|29.0"],
            ),
            (
                "ASOF JOIN quotes q ON t.sym = q.sym AND t.time <= q.time",
                vec!["a|1.0|10.0|10.0", "a|2.0|12.0|25.0", "b|3.0|20.0|6.0"],
            ),
            (
                "ASOF JOIN quotes q ON t.sym = q.sym AND t.time < q.time",
                vec!["a|1.0|11.0|15.0", "a|2.0|12.0|25.0", "b|3.0|20.0|6.0"],
            ),
        ] {
            assert_eq!(
                lake.rows(&format!("{select} {join} {order}")).await,
                expected,
                "{join}"
            );
        }
        let sql = "SELECT t.price, q.bid FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.time >= q.time) \
                   WHERE t.sym = 'c' OR q.bid > 10.5 ORDER BY t.time";
        assert_eq!(lake.rows(sql).await, ["5.0|-", "2.0|11.0"]);
        let sql = "SELECT count(*) FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.time >= q.time \
                   JOIN quotes r ON r.sym = q.sym AND r.time = q.time";
        assert_eq!(lake.rows(sql).await, ["3"]);
    });
}

#[test]
fn asof_joins_agree_with_a_search_of_all_pairs() {
    block_on(async {
        let lake = Lake::new();
        let mut next = 7u64;
        let mut random = move |below: u64| {
            next = next
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (next >> 33) % below
        };
        lake.outcome("CREATE TABLE l (k TAG, x BIGINT)").await;
        lake.outcome("CREATE TABLE r (k TAG, y BIGINT)").await;
        for (table, column, count) in [("l", "x", 400), ("r", "y", 300)] {
            let rows: Vec<String> = (0..count)
                .map(|n| {
                    let key = match random(5) {
                        0 => "NULL".to_owned(),
                        k => format!("'k{k}'"),
                    };
                    format!("({key}, to_timestamp({}), {n})", random(500))
                })
                .collect();
            lake.outcome(&format!(
                "INSERT INTO {table} (k, time, {column}) VALUES {}",
                rows.join(", ")
            ))
            .await;
        }
        for (sign, side) in [(">=", "max"), (">", "max"), ("<=", "min"), ("<", "min")] {
            let pairs = format!(
                "SELECT l.k, l.time, {side}(r.time) AS n FROM l LEFT JOIN r ON l.k = r.k AND l.time {sign} r.time GROUP BY l.k, l.time"
            );
            let asof = format!(
                "SELECT l.k, l.time, r.time AS n FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.time {sign} r.time"
            );
            let order = "ORDER BY 1, 2, 3";
            assert_eq!(
                lake.rows(&format!("SELECT * FROM ({asof}) {order}")).await,
                lake.rows(&format!("SELECT * FROM ({pairs}) {order}")).await,
                "{sign}"
            );
        }
    });
}

#[test]
fn an_asof_join_that_means_nothing_is_refused_with_advice() {
    block_on(async {
        let lake = market().await;
        for (join, code) in [
            ("ASOF JOIN quotes q USING (sym, time)", "syntax_error"),
            ("ASOF JOIN quotes q", "syntax_error"),
            ("ASOF JOIN quotes q ON t.sym = q.sym", "unsupported"),
            (
                "ASOF JOIN quotes q ON t.time >= q.time AND t.price >= q.bid",
                "unsupported",
            ),
            (
                "ASOF JOIN quotes q ON t.time >= q.time AND t.price <> q.bid",
                "unsupported",
            ),
            (
                "ASOF JOIN quotes q ON t.time >= t.time AND t.sym = q.sym",
                "unsupported",
            ),
            (
                "ASOF JOIN quotes q MATCH_CONDITION (t.time = q.time)",
                "unsupported",
            ),
        ] {
            let error = lake.error(&format!("SELECT * FROM trades t {join}")).await;
            assert_eq!(error.code, code, "{join}: {error}");
            assert!(error.hint.is_some(), "{join}: {error}");
        }
    });
}

#[test]
fn the_newest_row_of_each_device_is_asked_in_several_ways() {
    block_on(async {
        let lake = Lake::pumps();
        let expected = ["a|99|49.5", "b|99|49.5", "c|99|49.5"];
        for sql in [
            "SELECT id, extract(epoch FROM time)::bigint, temp FROM pump LATEST ON time PARTITION BY id ORDER BY id",
            "SELECT p.id, extract(epoch FROM p.time)::bigint, p.temp FROM pump AS p LATEST ON time PARTITION BY id ORDER BY p.id",
            "SELECT id, extract(epoch FROM time)::bigint, temp FROM (SELECT * FROM pump WHERE rpm >= 0) LATEST ON time PARTITION BY id, site ORDER BY 1",
            "SELECT DISTINCT ON (id) id, extract(epoch FROM time)::bigint, temp FROM pump ORDER BY id, time DESC",
        ] {
            assert_eq!(lake.rows(sql).await, expected, "{sql}");
        }
        let sql = "SELECT id, temp FROM pump WHERE time < '1970-01-01T00:00:10Z' LATEST ON time PARTITION BY id ORDER BY id LIMIT 1";
        assert_eq!(lake.rows(sql).await, ["a|4.5"]);
        let sql = "SELECT count(*) FROM (SELECT * FROM pump LATEST ON time PARTITION BY id) x";
        assert_eq!(lake.rows(sql).await, ["3"]);
        let plan = lake
            .rows("EXPLAIN SELECT id, time, temp FROM pump LATEST ON time PARTITION BY id")
            .await
            .join("\n");
        assert!(plan.contains("PyramidExec"), "no row is sorted: {plan}");
        for sql in [
            "SELECT * FROM pump LATEST ON time",
            "SELECT * FROM pump a JOIN pump b ON a.id = b.id LATEST ON time PARTITION BY id",
        ] {
            let error = lake.error(sql).await;
            assert!(error.hint.is_some(), "{sql}: {error}");
        }
        assert_eq!(
            lake.rows("SELECT latest FROM (VALUES (1)) v(latest)").await,
            ["1"]
        );
    });
}
