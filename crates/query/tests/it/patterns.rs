//! `MATCH_RECOGNIZE`.

use crate::support::{Lake, block_on};

/// Prices of two symbols, a row a second: `a` falls and rises twice, `b` only falls.
async fn market() -> Lake {
    let lake = Lake::new();
    lake.outcome("CREATE TABLE ticks (sym TAG, price DOUBLE, n BIGINT)")
        .await;
    for (sym, prices) in [
        ("a", &[10.0, 8.0, 5.0, 7.0, 9.0, 6.0, 4.0, 11.0][..]),
        ("b", &[9.0, 8.0, 7.0][..]),
    ] {
        for (second, price) in prices.iter().enumerate() {
            lake.outcome(&format!(
                "INSERT INTO ticks (time, sym, price, n) VALUES ('1970-01-01T00:00:{second:02}Z', '{sym}', {price}, {second})"
            ))
            .await;
        }
    }
    lake
}

const VEE: &str = "PARTITION BY sym ORDER BY time";

#[test]
fn a_fall_and_a_rise_are_found_in_each_partition() {
    block_on(async {
        let lake = market().await;
        let sql = format!(
            "SELECT * FROM ticks MATCH_RECOGNIZE ({VEE} \
             MEASURES MATCH_NUMBER() AS m, STRT.n AS s, LAST(DOWN.n) AS bottom, LAST(UP.n) AS e, \
               count(*) AS rows, min(price) AS low, avg(DOWN.price) AS mean, sum(UP.n) AS ups, first(UP.price, 1) AS second_up, \
               FINAL LAST(price) - FIRST(price) AS gain, CLASSIFIER() AS c \
             ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP \
             PATTERN (STRT DOWN+ UP+) \
             DEFINE DOWN AS price < PREV(price), UP AS UP.price > PREV(UP.price)) ORDER BY sym, m"
        );
        assert_eq!(
            lake.rows(&sql).await,
            [
                "a|1|0|2|4|5|5.0|6.5|7|9.0|-1.0|UP",
                "a|2|4|6|7|4|4.0|5.0|7|-|2.0|UP"
            ]
        );
        let sql = format!(
            "SELECT sym, n, c, running, total FROM ticks MATCH_RECOGNIZE ({VEE} \
             MEASURES CLASSIFIER() AS c, RUNNING sum(n) AS running, FINAL sum(n) AS total \
             ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW \
             PATTERN (STRT {{- DOWN+ -}} UP+) \
             DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) ORDER BY sym, n"
        );
        assert_eq!(
            lake.rows(&sql).await,
            [
                "a|0|STRT|0|10",
                "a|3|UP|6|10",
                "a|4|UP|10|10",
                "a|5|STRT|5|18",
                "a|7|UP|18|18"
            ]
        );
        let columns = lake
            .rows(
                &sql.replace("sym, n, c, running, total", "*")
                    .replace("ORDER BY sym, n", "LIMIT 1"),
            )
            .await;
        assert_eq!(columns, ["a|1970-01-01T00:00:00Z|STRT|0|10|10.0|0"]);
    });
}

#[test]
fn quantifiers_take_as_much_or_as_little_as_they_say() {
    block_on(async {
        let lake = market().await;
        for (pattern, expected) in [
            ("A B*", "0-7"),
            ("A B*?", "0-0"),
            ("A B{2,3}", "0-3"),
            ("A B{2,3}?", "0-2"),
            ("A B{2}", "0-2"),
            ("A B{,2}", "0-2"),
            ("A B+? C", "0-2"),
            ("(A | B) C?", "0-1"),
            ("A B?? C", "0-1"),
            ("^ A B* $", "0-7"),
            ("PERMUTE(C, A)", "0-1"),
            ("\"A\" (B C)+", "0-6"),
        ] {
            let sql = format!(
                "SELECT s || '-' || e FROM (SELECT * FROM ticks WHERE sym = 'a') AS t MATCH_RECOGNIZE (ORDER BY time \
                 MEASURES FIRST(n) AS s, LAST(n) AS e PATTERN ({pattern}) DEFINE C AS TRUE) AS m LIMIT 1"
            );
            let sql = if pattern.contains('C') {
                sql
            } else {
                sql.replace("DEFINE C AS TRUE", "DEFINE A AS TRUE")
            };
            let sql = if pattern.starts_with('"') {
                sql.replace("DEFINE A", "DEFINE \"A\"")
            } else {
                sql
            };
            assert_eq!(lake.rows(&sql).await, [expected], "{pattern}");
        }
    });
}

#[test]
fn conditions_look_back_at_what_was_matched() {
    block_on(async {
        let lake = market().await;
        // Rows that sum up to at most 25, then one above all of them.
        let sql = format!(
            "SELECT sym, s, e, total FROM ticks MATCH_RECOGNIZE ({VEE} \
             MEASURES FIRST(n) AS s, LAST(n) AS e, sum(A.price) AS total \
             PATTERN (A+ B) DEFINE A AS sum(A.price) <= 25, B AS B.price > max(A.price) AND B.price > FIRST(A.price)) ORDER BY sym, s"
        );
        assert_eq!(lake.rows(&sql).await, ["a|1|4|20.0", "a|5|7|10.0"]);
        let sql = format!(
            "SELECT sym, s, e FROM ticks MATCH_RECOGNIZE ({VEE} \
             MEASURES FIRST(X.n) AS s, LAST(X.n) AS e AFTER MATCH SKIP TO NEXT ROW \
             PATTERN (A (B | C)) SUBSET X = (A, B) \
             DEFINE B AS B.price = A.price - 3, C AS price > NEXT(price, 1) AND PREV(LAST(A.price), 1) IS NULL) ORDER BY sym, s"
        );
        assert_eq!(lake.rows(&sql).await, ["a|0|0", "a|1|2", "a|4|5", "b|0|0"]);
    });
}

#[test]
fn a_match_is_no_longer_than_within_says() {
    block_on(async {
        let lake = market().await;
        for (within, expected) in [
            ("3 seconds", "3"),
            ("2 seconds", "2"),
            ("100 milliseconds", "0"),
        ] {
            let sql = format!(
                "SELECT e FROM ticks MATCH_RECOGNIZE ({VEE} MEASURES LAST(n) AS e PATTERN (A+) WITHIN INTERVAL '{within}' DEFINE A AS sym = 'a') LIMIT 1"
            );
            assert_eq!(lake.rows(&sql).await, [expected], "{within}");
        }
        let sql = "SELECT 1 FROM ticks MATCH_RECOGNIZE (ORDER BY n MEASURES LAST(n) AS e PATTERN (A) WITHIN INTERVAL '1s' DEFINE A AS TRUE)";
        assert_eq!(lake.error(sql).await.code, "type_mismatch");
    });
}

#[test]
fn empty_matches_and_unmatched_rows_are_told_where_they_are_asked_for() {
    block_on(async {
        let lake = market().await;
        let ask = async |rows: &str, pattern: &str| {
            let sql = format!(
                "SELECT n, m, c FROM (SELECT * FROM ticks WHERE sym = 'b') MATCH_RECOGNIZE (ORDER BY time \
                 MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c ALL ROWS PER MATCH {rows} \
                 PATTERN ({pattern}) DEFINE A AS price = 8) ORDER BY n"
            );
            lake.rows(&sql).await
        };
        assert_eq!(ask("", "A*").await, ["0|1|-", "1|2|A", "2|3|-"]);
        assert_eq!(
            ask("SHOW EMPTY MATCHES", "A*").await,
            ["0|1|-", "1|2|A", "2|3|-"]
        );
        assert_eq!(ask("OMIT EMPTY MATCHES", "A*").await, ["1|2|A"]);
        assert_eq!(
            ask("WITH UNMATCHED ROWS", "A").await,
            ["0|-|-", "1|1|A", "2|-|-"]
        );
        assert_eq!(ask("", "A").await, ["1|1|A"]);
        let sql = "SELECT count(*) FROM (SELECT * FROM ticks WHERE sym = 'nobody') MATCH_RECOGNIZE (ORDER BY time MEASURES count(*) AS c PATTERN (A*) DEFINE A AS TRUE)";
        assert_eq!(lake.rows(sql).await, ["0"]);
    });
}

#[test]
fn what_means_nothing_or_is_not_supported_is_refused_by_name() {
    block_on(async {
        let lake = market().await;
        for (clause, code, says) in [
            (
                "ORDER BY time PATTERN (A B) DEFINE Z AS TRUE",
                "invalid",
                "`z`",
            ),
            (
                "ORDER BY time PATTERN (A**) DEFINE A AS TRUE",
                "syntax_error",
                "quantifier",
            ),
            (
                "ORDER BY time PATTERN (A DEFINE A AS TRUE",
                "syntax_error",
                "",
            ),
            ("ORDER BY time PATTERN (A)", "syntax_error", "DEFINE"),
            ("PATTERN (A) DEFINE A AS TRUE", "invalid", "ORDER BY"),
            (
                "ORDER BY time PATTERN (A) DEFINE A AS price",
                "type_mismatch",
                "boolean",
            ),
            (
                "ORDER BY time PATTERN (A) DEFINE A AS Q.price > 1",
                "unknown_column",
                "not a symbol",
            ),
            (
                "ORDER BY time PATTERN (A) DEFINE A AS nothing > 1",
                "unknown_column",
                "nothing",
            ),
            (
                "ORDER BY time MEASURES median(price) AS m PATTERN (A) DEFINE A AS TRUE",
                "unsupported",
                "aggregate",
            ),
            (
                "ORDER BY time PATTERN (A) DEFINE A AS EXISTS (SELECT 1)",
                "unsupported",
                "subquery",
            ),
            (
                "ORDER BY time PATTERN (A) DEFINE A AS FINAL LAST(price) > 1",
                "unsupported",
                "FINAL",
            ),
            (
                "PARTITION BY lower(sym) ORDER BY time PATTERN (A) DEFINE A AS TRUE",
                "unsupported",
                "PARTITION BY",
            ),
            (
                "ORDER BY time ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ({- A -} B) DEFINE A AS TRUE",
                "unsupported",
                "UNMATCHED",
            ),
            (
                "ORDER BY time AFTER MATCH SKIP TO Q PATTERN (A) DEFINE A AS TRUE",
                "unknown_column",
                "not a symbol",
            ),
            (
                "ORDER BY time AFTER MATCH SKIP TO FIRST A PATTERN (A) DEFINE A AS TRUE",
                "invalid",
                "the search would not end",
            ),
            (
                "ORDER BY time PATTERN (A{9999}{2}) DEFINE A AS TRUE",
                "syntax_error",
                "",
            ),
            (
                "ORDER BY time PATTERN ((A{9999}){3}) DEFINE A AS TRUE",
                "too_large",
                "steps",
            ),
            (
                "ORDER BY time MEASURES sum(sym) AS s PATTERN (A) DEFINE A AS TRUE",
                "type_mismatch",
                "numbers",
            ),
        ] {
            let error = lake
                .error(&format!("SELECT * FROM ticks MATCH_RECOGNIZE ({clause})"))
                .await;
            assert_eq!(error.code, code, "{clause}: {error}");
            assert!(error.message.contains(says), "{clause}: {error}");
        }
    });
}

#[test]
fn a_sum_of_matched_integers_that_does_not_fit_fails() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE big (x BIGINT)").await;
        lake.outcome("INSERT INTO big (time, x) VALUES (to_timestamp(1), 9223372036854775807), (to_timestamp(2), 1)").await;
        let error = lake
            .error("SELECT * FROM big MATCH_RECOGNIZE (ORDER BY time MEASURES sum(x) AS s PATTERN (A+) DEFINE A AS TRUE)")
            .await;
        assert_eq!((error.code, error.sqlstate), ("out_of_range", "22003"));
        let error = lake.error("SELECT sum(x) FROM big").await;
        assert_eq!((error.code, error.sqlstate), ("out_of_range", "22003"));
    });
}

#[test]
fn rows_that_were_written_late_and_again_are_matched_as_they_are_now() {
    block_on(async {
        let lake = market().await;
        lake.db.flush().unwrap();
        lake.outcome("INSERT INTO ticks (time, sym, price, n) VALUES ('1970-01-01T00:00:01Z', 'b', 100, 1), ('1970-01-01T00:00:01.5Z', 'b', 101, 9)").await;
        let sql = format!(
            "SELECT sym, e FROM ticks MATCH_RECOGNIZE ({VEE} MEASURES LAST(n) AS e PATTERN (A B B) DEFINE B AS price > PREV(price)) ORDER BY sym"
        );
        assert_eq!(lake.rows(&sql).await, ["a|4", "b|9"]);
    });
}

#[test]
fn a_partition_beyond_the_memory_of_a_statement_is_an_error() {
    block_on(async {
        let limits = headwater_query::Limits {
            memory: 4 << 20,
            ..headwater_query::Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        let sql = "SELECT count(*) FROM (SELECT to_timestamp(g.value) AS time, g.value AS n FROM generate_series(1, 3000000) g) \
                   MATCH_RECOGNIZE (ORDER BY time MEASURES LAST(n) AS e PATTERN (A+ B) DEFINE B AS n < 0)";
        assert_eq!(lake.error(sql).await.code, "memory_limit");
        // Pasts that conditions tell from each other, as no two sums are the same: twice as many
        // with every row.
        let sql = "SELECT count(*) FROM (SELECT to_timestamp(g.value) AS time, CAST(power(2, g.value) AS BIGINT) AS n FROM generate_series(1, 60) g) \
                   MATCH_RECOGNIZE (ORDER BY time MEASURES LAST(n) AS e PATTERN ((A | B)* C) DEFINE C AS sum(A.n) > sum(B.n) + 1000000)";
        assert_eq!(lake.error(sql).await.code, "memory_limit");
    });
}

#[test]
fn many_partitions_are_looked_through_one_after_the_other() {
    block_on(async {
        let lake = Lake::new();
        let sql = "SELECT count(*), sum(c) FROM (SELECT to_timestamp(g.value) AS time, g.value % 10000 AS k, g.value AS n FROM generate_series(1, 40000) g) \
                   MATCH_RECOGNIZE (PARTITION BY k ORDER BY time MEASURES count(*) AS c PATTERN (A B+) DEFINE B AS n > PREV(n))";
        assert_eq!(lake.rows(sql).await, ["10000|40000"]);
    });
}

#[test]
fn what_a_condition_calls_is_computed_anew_each_time() {
    block_on(async {
        let lake = market().await;
        let sql = "SELECT at FROM ticks MATCH_RECOGNIZE (ORDER BY time, sym MEASURES now() AS at PATTERN (A) DEFINE A AS n = 7 AND now() > time)";
        let first = lake.rows(sql).await;
        assert_eq!(first.len(), 1);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        assert_ne!(lake.rows(sql).await, first);
        // A parameter needs its value.
        let sql = "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time MEASURES n AS n PATTERN (A) DEFINE A AS n = $1)";
        assert_eq!(lake.error(sql).await.code, "invalid_parameters");
    });
}

#[test]
fn looking_back_costs_the_same_however_much_was_matched() {
    block_on(async {
        let lake = Lake::new();
        // Before each row, one to all of the 60,000 rows of the match are asked for.
        let of = |define: &str| {
            format!(
                "SELECT c FROM (SELECT to_timestamp(g.value) AS time, g.value AS n FROM generate_series(1, 60000) g) \
                 MATCH_RECOGNIZE (ORDER BY time MEASURES count(*) AS c PATTERN (A B+) DEFINE B AS {define})"
            )
        };
        for define in [
            "n > LAST(A.n)",
            "n > FIRST(B.n, 100) OR COUNT(B.*) <= 101",
            "n > LAST(B.n, 100) OR COUNT(B.*) <= 101",
            "avg(B.n) < n + 1 AND count(B.*) < 100000 AND max(n) = n AND min(B.n) = 2",
        ] {
            assert_eq!(lake.rows(&of(define)).await, ["60000"], "{define}");
        }
        // Ways that say the same go on as one: sums are few, sets of rows are not.
        let sql = "SELECT c FROM (SELECT to_timestamp(g.value) AS time, g.value AS n FROM generate_series(1, 300) g) \
                   MATCH_RECOGNIZE (ORDER BY time MEASURES count(A.*) AS c PATTERN ((A | B)* C $) DEFINE C AS count(A.*) = 100)";
        assert_eq!(lake.rows(sql).await, ["100"]);
    });
}

#[test]
fn a_search_that_takes_too_long_says_so() {
    block_on(async {
        let limits = headwater_query::Limits {
            time: Some(std::time::Duration::from_millis(200)),
            ..headwater_query::Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        let sql = "SELECT count(*) FROM (SELECT to_timestamp(g.value) AS time, g.value AS n FROM generate_series(1, 100000) g) \
                   MATCH_RECOGNIZE (ORDER BY time MEASURES count(*) AS c PATTERN (A B+ C) DEFINE B AS n > LAST(A.n), C AS avg(B.n) < 0)";
        assert_eq!(lake.error(sql).await.code, "time_limit");
    });
}

/// What a statement's scan says that it reads.
async fn reads(lake: &Lake, sql: &str) -> String {
    let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
    let scan = plan.lines().filter(|line| line.contains("ScanExec"));
    scan.map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn partitions_that_are_asked_away_are_not_read() {
    block_on(async {
        let lake = market().await;
        let clause = format!(
            "MATCH_RECOGNIZE ({VEE} MEASURES MATCH_NUMBER() AS number, FIRST(n) AS s PATTERN (A B+) DEFINE B AS price < PREV(price)) AS m"
        );
        let all = lake
            .rows(&format!(
                "SELECT sym, number, s FROM ticks {clause} ORDER BY sym, s"
            ))
            .await;
        let of_b: Vec<String> = all
            .iter()
            .filter(|row| row.starts_with('b'))
            .cloned()
            .collect();
        assert!(!of_b.is_empty() && of_b.len() < all.len());
        for (condition, less) in [
            ("sym = 'b'", true),
            ("m.sym IN ('b', 'c') AND s >= 0", true),
            ("upper(sym) = 'B'", true),
            ("sym = 'b' AND (s >= 0 OR sym = 'a')", true),
            ("sym = 'b' OR s < 0", false),
        ] {
            let sql = format!(
                "SELECT sym, number, s FROM ticks {clause} WHERE {condition} ORDER BY sym, s"
            );
            assert_eq!(lake.rows(&sql).await, of_b, "{condition}");
            let whole = format!("SELECT sym, number, s FROM ticks {clause} ORDER BY sym, s");
            let (some, every) = (reads(&lake, &sql).await, reads(&lake, &whole).await);
            assert_eq!(some != every, less, "{condition}: {some} / {every}");
        }
        // A measure of the name of a tag is no tag; what is different each time is asked of
        // matches, and so is what another statement has to answer first.
        let sql = "SELECT count(*) FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY time MEASURES FIRST(n) AS s PATTERN (A+) DEFINE A AS TRUE) WHERE s = 0 AND random() >= 0 AND sym IN (SELECT sym FROM ticks)";
        let whole = "SELECT count(*) FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY time MEASURES FIRST(n) AS s PATTERN (A+) DEFINE A AS TRUE) WHERE s = 0";
        assert_eq!(lake.rows(sql).await, lake.rows(whole).await);
        // A partition without rows has no match, also where an empty one is answered.
        let sql = "SELECT count(*) FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY time MEASURES FIRST(n) AS s PATTERN (A*) DEFINE A AS FALSE) WHERE sym = 'nobody'";
        assert_eq!(lake.rows(sql).await, ["0"]);
        // Two columns of one name, of which the partition has one.
        let sql = "SELECT count(*) FROM (SELECT a.time, a.sym, b.sym AS other, a.n FROM ticks a JOIN ticks b ON a.time = b.time AND a.sym <> b.sym) \
                   MATCH_RECOGNIZE (PARTITION BY other ORDER BY time MEASURES FIRST(sym) AS sym PATTERN (A+) DEFINE A AS TRUE) WHERE sym = 'a' AND other = 'b'";
        assert_eq!(lake.rows(sql).await, ["1"]);
    });
}
