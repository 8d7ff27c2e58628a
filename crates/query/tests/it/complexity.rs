//! Statements that are nested or multiply without an end: each is refused with its limit, or
//! answered; none ends the process, and none computes on after it was refused.

use crate::support::{Lake, block_on};
use headwater_query::{Error, Limits, Parameters, Threads};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// As the server runs statements.
static THREADS: LazyLock<Threads> = LazyLock::new(|| Threads::new(2).unwrap());

/// What became of a statement, which must have become something in time: an answer, or an error
/// that users can act on.
async fn outcome(lake: &Lake, sql: &str) -> Result<(), Error> {
    let head: String = sql.chars().take(60).collect();
    let begun = Instant::now();
    let (session, text) = (lake.session.clone(), sql.to_owned());
    let run = async move { session.run(&text, Parameters::none()).await };
    let ran = match THREADS.answer(run).await {
        Ok(answer) => answer.collect().await.map(drop),
        Err(error) => Err(error),
    };
    let prepared = lake.session.prepare(sql, &[]).await.map(drop);
    println!(
        "{head}… ({} bytes): {} ms, {:?}",
        sql.len(),
        begun.elapsed().as_millis(),
        ran.as_ref().err().map(|error| error.code)
    );
    for error in [&ran, &prepared]
        .into_iter()
        .filter_map(|done| done.as_ref().err())
    {
        assert_ne!(error.code, "internal", "{head}: {error}");
        assert!(!error.message.contains("DataFusion"), "{head}: {error}");
    }
    ran
}

fn lake() -> Lake {
    let limits = Limits {
        time: Some(Duration::from_secs(60)),
        ..Limits::default()
    };
    Lake::with(limits, |options| options)
}

async fn answered(lake: &Lake) {
    assert_eq!(lake.rows("SELECT 1 + 1").await, ["2"]);
}

#[test]
fn no_nesting_is_deep_enough_to_end_the_process() {
    block_on(async {
        let lake = lake();
        let nest = |before: &str, link: &str, after: &str, close: &str| {
            let (before, link) = (before.to_owned(), link.to_owned());
            let (after, close) = (after.to_owned(), close.to_owned());
            move |n: usize| format!("{before}{}{after}{}", link.repeat(n), close.repeat(n))
        };
        for made in [
            nest("", "EXPLAIN ", "SELECT 1", ""),
            nest("SELECT ", "INTERVAL ", "'1 s'", ""),
            nest("SELECT now()", " AT TIME ZONE 'UTC'", "", ""),
            nest("SELECT 1", " + 1", "", ""),
            nest("SELECT true", " AND true", "", ""),
            nest("SELECT 'a'", " || 'a'", "", ""),
            nest("SELECT 1", "::int", "", ""),
            nest("SELECT 1::int", "[]", "", ""),
            nest("SELECT 1", " IS NULL", "", ""),
            nest("SELECT ", "NOT ", "true", ""),
            nest("SELECT ", "- ", "1", ""),
            nest("SELECT 1", " UNION ALL SELECT 1", "", ""),
            nest("SELECT 1", " UNION SELECT 1", "", ""),
            nest("SELECT ", "ARRAY[", "1", "]"),
            nest("SELECT ", "[", "1", "]"),
            nest("SELECT ", "ARRAY[", "1", ""),
            nest("SELECT ", "abs(", "1", ")"),
            nest("SELECT ", "(", "1", ")"),
            nest("SELECT ", "(SELECT ", "1", ")"),
            nest("SELECT * FROM ", "(SELECT * FROM ", "(SELECT 1)", ")"),
            nest("SELECT * FROM ", "(", "(SELECT 1) t", ")"),
            nest("SELECT ", "CASE WHEN true THEN ", "1", " END"),
            nest("SELECT ", "CASE WHEN ", "true", " THEN true END"),
            nest("SELECT ", "CAST(", "1", " AS BIGINT)"),
            nest("SELECT ", "struct(", "1", ")"),
            nest("SELECT ", "make_array(", "1", ")"),
            nest("SELECT ", "coalesce(NULL, ", "1", ")"),
            nest("SELECT 1 WHERE ", "EXISTS (SELECT 1 WHERE ", "true", ")"),
            nest("SELECT 1 WHERE ", "1 IN (SELECT 1 WHERE ", "true", ")"),
        ] {
            for n in [30, 48, 51, 200] {
                let sql = made(n);
                if let Err(error) = outcome(&lake, &sql).await {
                    assert_ne!(error.code, "time_limit", "{error}");
                }
            }
            let far = outcome(&lake, &made(20_000)).await;
            assert_eq!(far.unwrap_err().code, "too_large");
            answered(&lake).await;
        }
    });
}

#[test]
fn a_mistake_within_deep_nesting_is_told_soon() {
    block_on(async {
        let lake = lake();
        for link in [
            "ARRAY[",
            "CASE WHEN ",
            "CAST(",
            "EXTRACT(",
            "(",
            "INTERVAL ",
            "NOT ",
            "EXISTS (",
            "(SELECT * FROM (",
            "TRIM(",
            "f(",
        ] {
            for n in [10, 25, 49] {
                for after in ["", "1 1", ") FROM", "'"] {
                    let sql = format!("SELECT {}{after}", link.repeat(n));
                    assert!(outcome(&lake, &sql).await.is_err());
                }
            }
        }
        answered(&lake).await;
    });
}

#[test]
fn what_multiplies_when_it_is_planned_is_refused() {
    block_on(async {
        let lake = lake();
        let doubled = |sum: &str, n: usize| {
            let mut sql = "(SELECT 1 AS a, 'x' AS s)".to_owned();
            for _ in 0..n {
                sql = format!("(SELECT {sum} FROM {sql})");
            }
            format!("SELECT * FROM {sql} WHERE a > 0 ORDER BY a")
        };
        for sum in ["a + a AS a", "a + a AS a, s || s AS s", "a * a - a AS a"] {
            for n in [5, 15, 40] {
                let ended = outcome(&lake, &doubled(sum, n)).await;
                if let Err(error) = ended {
                    assert_eq!(error.code, "too_large", "{sum} {n}: {error}");
                }
            }
        }
        let mut with = vec!["c0 AS (SELECT 1 AS x)".to_owned()];
        for i in 1..=21 {
            let before = i - 1;
            with.push(format!(
                "c{i} AS (SELECT a.x FROM c{before} a, c{before} b)"
            ));
        }
        let ctes = format!("WITH {} SELECT count(*) FROM c21", with.join(", "));
        let columns: Vec<String> = (0..25).map(|i| format!("a{i}")).collect();
        let names = columns.join(", ");
        let values = vec!["1"; 25].join(", ");
        let cube =
            format!("SELECT count(*) FROM (VALUES ({values})) t({names}) GROUP BY CUBE ({names})");
        let windows: Vec<String> = (0..2_000)
            .map(|i| format!("sum(a) OVER (ORDER BY a + {i})"))
            .collect();
        let windows = format!("SELECT {} FROM (SELECT 1 AS a)", windows.join(", "));
        let joins = format!("SELECT 1 FROM (SELECT 1 AS a) t{}", ", t".repeat(5_000));
        for sql in [ctes, cube, windows, joins] {
            assert_eq!(outcome(&lake, &sql).await.unwrap_err().code, "too_large");
        }
        answered(&lake).await;
    });
}

#[test]
fn large_statements_of_every_day_are_answered() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (time TIMESTAMP, id TAG, x DOUBLE, n BIGINT)")
            .await;
        let rows: Vec<String> = (0..3_000)
            .map(|i| format!("({i}, 'a', {i}.5, {i})"))
            .collect();
        let insert = format!("INSERT INTO t (time, id, x, n) VALUES {}", rows.join(", "));
        lake.outcome(&insert).await;
        assert_eq!(lake.rows("SELECT count(*) FROM t").await, ["3000"]);
        let numbers: Vec<String> = (0..10_000).map(|i| (i * 2).to_string()).collect();
        let list = format!("SELECT count(*) FROM t WHERE n IN ({})", numbers.join(", "));
        assert_eq!(lake.rows(&list).await, ["1500"]);
        let unions = vec!["SELECT n FROM t WHERE n = 7"; 100].join(" UNION ALL ");
        let unions = format!("SELECT count(*) FROM ({unions})");
        assert_eq!(lake.rows(&unions).await, ["100"]);
        let whens: String = (0..600)
            .map(|i| format!(" WHEN n = {i} AND x > 0 THEN 'v{i}'"))
            .collect();
        let case = format!("SELECT CASE{whens} ELSE '-' END FROM t WHERE n = 599");
        assert_eq!(lake.rows(&case).await, ["v599"]);
        let columns: Vec<String> = (0..500).map(|i| format!("x + {i} AS c{i}")).collect();
        let wide = format!("SELECT {} FROM t WHERE n = 1", columns.join(", "));
        assert_eq!(lake.rows(&wide).await.len(), 1);
    });
}

#[test]
fn a_statement_of_which_nobody_waits_for_the_plan_stops_being_planned() {
    block_on(async {
        let lake = lake();
        // Long to plan and let in: many joins of many columns.
        let items: Vec<String> = (0..400).map(|i| format!("a + {i} AS a{i}")).collect();
        let sub = format!("(SELECT {} FROM (SELECT 1 AS a))", items.join(", "));
        let sql = format!("SELECT * FROM {}", vec![sub; 12].join(", "));
        for wait in [0, 20, 200] {
            let run = lake.session.run(&sql, Parameters::none());
            drop(tokio::time::timeout(Duration::from_millis(wait), run).await);
        }
        // The threads are free again.
        answered(&lake).await;
    });
}

#[test]
fn a_key_of_an_order_may_come_again() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT DISTINCT ON (id) id, rpm FROM pump ORDER BY id, time, id";
        assert_eq!(lake.rows(sql).await, ["a|0", "b|0", "c|0"]);
        let wrong = lake.error("SELECT avg(id) FROM pump").await;
        assert_eq!(wrong.code, "type_mismatch", "{wrong}");
        assert!(!wrong.message.contains("DataFusion"), "{wrong}");
    });
}
