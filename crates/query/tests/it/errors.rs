//! Errors have a code, a place where there is one, and advice; limits end what goes beyond them.

use crate::support::{Lake, batches, block_on, text};
use futures_util::StreamExt;
use headwater_query::{CODES, Error, Limits, Parameters, Threads};
use std::time::Duration;

/// What helps against a regular expression that cannot be read.
const REGEX_HINT: Option<&str> = Some(r"put a \ before ( [ { * + ? | . that are meant literally");

#[test]
fn an_error_has_its_code_and_says_where_and_what_may_help() {
    block_on(async {
        let lake = Lake::pumps();
        for (sql, code, at, hint) in [
            ("SELECT (1 + ", "syntax_error", false, None),
            ("SELECT 1 FROM pump )", "syntax_error", true, None),
            ("SELECT 'open", "syntax_error", true, None),
            ("", "syntax_error", false, None),
            ("SELECT 1; SELECT 2", "syntax_error", false, None),
            (
                "SELECT\n tmep FROM pump",
                "unknown_column",
                true,
                Some("did you mean `temp`?"),
            ),
            (
                "SELECT * FROM pmup",
                "unknown_table",
                true,
                Some("did you mean `pump`?"),
            ),
            (
                "SELECT avgg(temp) FROM pump",
                "unknown_function",
                true,
                Some("did you mean `avg`?"),
            ),
            // Several are as near: the first by the alphabet, each time.
            (
                "SELECT sun(temp) FROM pump",
                "unknown_function",
                true,
                Some("did you mean `sin`?"),
            ),
            ("SELECT quite_another(1)", "unknown_function", true, None),
            (
                "SELECT count(*) FROM pump WHERE id ~ '('",
                "invalid_regular_expression",
                false,
                REGEX_HINT,
            ),
            (
                "SELECT count(*) FROM pump WHERE id ~* ('[' || id)",
                "invalid_regular_expression",
                false,
                REGEX_HINT,
            ),
            (
                "SELECT regexp_replace(id, '*', 'x') FROM pump",
                "invalid_regular_expression",
                false,
                REGEX_HINT,
            ),
            (
                "SELECT regexp_like(id, '(') FROM pump",
                "invalid_regular_expression",
                false,
                REGEX_HINT,
            ),
            (
                "SELECT regexp_count(id, '(') FROM pump",
                "invalid_regular_expression",
                false,
                REGEX_HINT,
            ),
            ("SELECT 1 / 0", "division_by_zero", false, None),
            ("SELECT rpm / 0 FROM pump", "division_by_zero", false, None),
            ("SELECT CAST('x' AS BIGINT)", "invalid_value", false, None),
            (
                "SELECT count(*) FROM pump WHERE time > 'some day'",
                "invalid_value",
                false,
                None,
            ),
            (
                "UPDATE pump SET temp = 1",
                "unsupported_statement",
                false,
                Some(
                    "insert a row with the same tags and time: it replaces the values of its fields",
                ),
            ),
            (
                "SELECT a.time FROM pump a, pump b WHERE time = now()",
                "ambiguous_column",
                false,
                None,
            ),
        ] {
            let error = lake.error(sql).await;
            assert_eq!(error.code, code, "{sql}: {error:?}");
            assert!(error.at.is_some() || !at, "{sql}: {error:?}");
            if let Some(hint) = hint {
                assert_eq!(error.hint.as_deref(), Some(hint), "{sql}");
            }
            assert!(
                CODES.contains(&(error.code, error.sqlstate)),
                "{sql}: {error:?}"
            );
        }
        assert_eq!(lake.error("SELECT\n tmep FROM pump").await.at, Some((2, 2)));
    });
}

#[test]
fn a_long_chain_of_operators_is_planned_and_a_longer_one_refused() {
    block_on(async {
        let lake = Lake::pumps();
        let chain = |n: usize| format!("SELECT 1{} AS n", " + 1".repeat(n));
        assert_eq!(lake.rows(&chain(500)).await, ["501"]);
        assert_eq!(lake.error(&chain(501)).await.code, "too_large");
        let either = |n: usize| {
            let terms: Vec<String> = (0..n).map(|i| format!("rpm + 1 = {i}")).collect();
            format!("SELECT count(*) FROM pump WHERE {}", terms.join(" OR "))
        };
        assert_eq!(lake.rows(&either(240)).await, ["72"]);
        let nested = format!("SELECT {}1{} AS n", "(".repeat(45), ")".repeat(45));
        assert_eq!(lake.rows(&nested).await, ["1"]);
        let unions = vec!["SELECT rpm FROM pump"; 100].join(" UNION ALL ");
        assert_eq!(
            lake.rows(&format!("SELECT count(*) FROM ({unions})")).await,
            ["30000"]
        );
    });
}

fn limits(change: impl FnOnce(&mut Limits)) -> Lake {
    let mut limits = Limits::default();
    change(&mut limits);
    let lake = Lake::with(limits, |options| options);
    let mut batch = headwater::Batch::new();
    for stream in 0..4 {
        let name = headwater::StreamName::new("t", [("s", stream.to_string())]);
        let rows = batch.stream(&name);
        for i in 0..20_000i64 {
            rows.row(i, [("x", (i * 7 % 1000).into())]).unwrap();
        }
    }
    lake.db.commit(batch).unwrap();
    lake
}

#[test]
fn a_statement_that_needs_too_much_memory_is_ended_and_gives_it_back() {
    block_on(async {
        let lake = limits(|l| l.memory = 256 << 10);
        let sql = "SELECT * FROM t ORDER BY x, time DESC";
        let error = lake.error(sql).await;
        assert_eq!(
            (error.code, error.sqlstate),
            ("memory_limit", "53200"),
            "{error}"
        );
        assert_eq!(lake.query.memory_bytes(), 0);
        assert_eq!(lake.rows("SELECT count(*) FROM t").await, ["80000"]);
        let together = limits(|l| l.all_memory = 256 << 10);
        assert_eq!(together.error(sql).await.code, "memory_limit");
        assert_eq!(together.query.memory_bytes(), 0);
    });
}

#[test]
fn a_statement_that_takes_too_long_is_ended() {
    block_on(async {
        let lake = limits(|l| l.time = Some(Duration::from_secs(2)));
        // Needs no memory, and days.
        let sql = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000000)";
        let error = lake.error(sql).await;
        assert_eq!(
            (error.code, error.sqlstate),
            ("time_limit", "57014"),
            "{error}"
        );
        assert_eq!(lake.rows("SELECT count(*) FROM t").await, ["80000"]);
    });
}

#[test]
fn an_answer_with_too_many_rows_is_ended_behind_what_is_allowed() {
    block_on(async {
        let lake = limits(|l| l.rows = Some(10));
        assert_eq!(lake.rows("SELECT x FROM t LIMIT 10").await.len(), 10);
        assert_eq!(
            lake.error("SELECT x FROM t LIMIT 11").await.code,
            "too_many_rows"
        );
        let long = format!("SELECT '{}'", "x".repeat(2 << 20));
        assert_eq!(lake.error(&long).await.code, "too_large");
    });
}

#[test]
fn dropping_an_answer_ends_what_computes_it() {
    block_on(async {
        let lake = limits(|_| {});
        let sql = "SELECT a.x FROM t a, t b, t c ORDER BY a.x";
        let answer = lake.session.run(sql, Parameters::none()).await.unwrap();
        let mut rows = answer.rows;
        // It is under way, and has no end that could be waited for.
        let first = tokio::time::timeout(Duration::from_millis(100), rows.next()).await;
        assert!(first.is_err() || matches!(first, Ok(Some(Err(_)))));
        drop(rows);
        for _ in 0..500 {
            if lake.query.memory_bytes() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(lake.query.memory_bytes(), 0);
    });
}

#[test]
fn a_join_that_finds_nothing_ends_with_its_asker_and_with_its_time() {
    // None holds more than a table, however fast the machine: a join of three whose rows all go on
    // to the third would hold those of the first two, and end by its memory.
    for sql in [
        "SELECT count(*) FROM t a, t b, t c WHERE a.x + b.x < -1 AND b.x + c.x < -1",
        "SELECT count(*) FROM t a, t b, t c",
        "SELECT count(*) FROM t a JOIN t b ON a.x % 1 = b.x % 1 AND a.x + b.x < -1 JOIN t c ON b.x + c.x > a.x",
    ] {
        for time in [None, Some(Duration::from_millis(300))] {
            let lake = limits(|l| l.time = time);
            let threads = Threads::new(1).unwrap();
            let ask = |sql: &'static str| {
                let session = lake.session.clone();
                threads.answer(async move { session.run(sql, Parameters::none()).await })
            };
            block_on(async {
                // Its time may be up while it is planned.
                let asked = async { ask(sql).await?.collect().await };
                let limit = Duration::from_millis(time.map_or(300, |_| 60_000));
                match tokio::time::timeout(limit, asked).await {
                    Ok(ended) => assert_eq!(ended.unwrap_err().code, "time_limit", "{sql}"),
                    Err(_) => assert!(time.is_none(), "{sql}"),
                }
                // The only thread is free for the next one.
                let next = async { ask("SELECT 1").await.unwrap().collect().await.unwrap() };
                let next = tokio::time::timeout(Duration::from_secs(60), next).await;
                assert_eq!(text(&next.expect(sql)), ["1"]);
            });
        }
    }
}

#[test]
fn a_reader_beside_the_owner_answers_and_changes_nothing() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let options = headwater::Options::new(dir.path().join("db"));
        let db = headwater::Database::open(options.clone()).unwrap();
        let mut batch = headwater::Batch::new();
        let name = headwater::StreamName::new("t", [("s", "1")]);
        batch.stream(&name).row(1, [("x", 1.5.into())]).unwrap();
        db.commit(batch).unwrap();
        db.flush().unwrap();
        let reader = headwater::Reader::open(options).unwrap();
        let query = headwater_query::Query::read_only(reader, Limits::default());
        let session = query.session(std::sync::Arc::new(headwater_query::Unrestricted));
        let answer = batches(&session, "SELECT s, x FROM t").await.unwrap();
        assert_eq!(text(&answer), ["1|1.5"]);
        for sql in [
            "INSERT INTO t (time, x) VALUES (now(), 1)",
            "DELETE FROM t",
            "CREATE TABLE u (x DOUBLE)",
            "DROP TABLE t",
        ] {
            let error: Error = batches(&session, sql).await.unwrap_err();
            assert_eq!(error.code, "read_only", "{sql}");
        }
    });
}
