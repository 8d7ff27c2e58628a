//! Statements of some bytes that would take gigabytes or hours.

use super::child::{Watched, lake, resident, resident_max, run};
use crate::support::block_on;

/// What ends a statement that asks too much.
pub(super) const REFUSALS: [&str; 3] = ["memory_limit", "too_large", "time_limit"];

fn doubling(times: usize) -> String {
    let mut from = "(SELECT repeat('x', 1000) AS a) t0".to_owned();
    for n in 1..=times {
        from = format!("(SELECT a || a AS a FROM {from}) t{n}");
    }
    format!("SELECT length(a) FROM {from}")
}

fn cube(columns: usize) -> String {
    let keys: Vec<String> = (0..columns).map(|n| format!("i + {n}")).collect();
    format!("SELECT count(*) FROM t GROUP BY CUBE({})", keys.join(", "))
}

fn many_columns() -> String {
    let columns: Vec<String> = (0..2_000).map(|n| format!("i + {n} AS c{n}")).collect();
    format!("SELECT {} FROM t", columns.join(", "))
}

fn bombs() -> Vec<String> {
    let mut all: Vec<String> = [
        "SELECT repeat('x', 2147483647)",
        "SELECT repeat('x', 1000000000)",
        "SELECT length(repeat('x', 1000000000))",
        "SELECT length(lpad('x', 2000000000, 'y'))",
        "SELECT length(rpad('x', 2000000000, 'yz'))",
        "SELECT sum(length(repeat(s, 100000))) FROM t",
        "SELECT rpad(s, 10000000, 'ab') FROM t",
        "SELECT lpad(s, i * 100000, 'ab') FROM t",
        "SELECT repeat('x', 10000000) FROM t",
        "SELECT unnest(range(1, 100000)) FROM t",
        "SELECT count(*) FROM (SELECT unnest(range(1, 100000)) FROM t) u",
        "SELECT unnest(range(1, 9000000000))",
        "SELECT unnest(array_repeat(s, 100000)) FROM t",
        "SELECT string_agg(repeat('x', 100), '') OVER (ORDER BY time) FROM t",
        "SELECT string_agg(s, 'abcdefghijklmnop') OVER (ORDER BY time) FROM t",
        "SELECT array_agg(s) OVER (ORDER BY time) FROM t",
        "SELECT last_value(repeat(s, 10000)) OVER (ORDER BY time) FROM t",
        "SELECT levenshtein(repeat('ab', 50000), repeat('ba', 50000))",
        "SELECT levenshtein(repeat(s, 100), repeat(s, 101)) FROM t",
        "SELECT cardinality(array_repeat(array_repeat(array_repeat(1, 2000), 2000), 2000))",
        "SELECT array_repeat(repeat('x', 100000), 100000)",
        "SELECT arrow_cast(NULL, 'FixedSizeList(2000000000, Int64)')",
        "SELECT arrow_cast([1], 'FixedSizeList(2000000000, Int64)') FROM t",
        "SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)') FROM t",
        "SELECT NULL::int[2000000000] FROM t",
        "SELECT * FROM generate_series(1, 9000000000000000000)",
        "SELECT count(*) FROM generate_series(1, 9000000000000000000)",
        "SELECT generate_series(1, 9000000000000000000)",
        "SELECT * FROM generate_series(1, length(repeat('x', 2000000000)))",
        "SELECT range(0, i * 1000000000) FROM t",
        "SELECT array_resize([1], 2000000000, 0)",
        "SELECT array_to_string(range(1, 10000000), repeat('x', 1000))",
        "SELECT replace(repeat('x', 100000), 'x', repeat('y', 100000))",
        "SELECT regexp_replace(repeat('x', 100000), '(x)', repeat('\\1', 10000), 'g')",
        "SELECT regexp_replace(s, '', repeat('y', 1000000), 'g') FROM t",
        "SELECT translate(repeat('x', 1000000000), 'x', 'é')",
        "SELECT concat(repeat('x', 1000000), s, repeat('y', 1000000)) FROM t",
        "SELECT concat_ws(repeat('-', 1000000), s, s, s, s, s, s) FROM t",
        "SELECT repeat('a', 1000000) ~ '((a{100}){100}){100}'",
        "SELECT repeat(s, 100) ~ (s || '{500}' || i::text) FROM t",
        "SELECT repeat('a', 100000) LIKE repeat('%a', 100000)",
        "SELECT to_char(time, repeat('%c', 100000)) FROM t",
        "SELECT string_to_array(repeat('a,', 100000000), ',')",
        "SELECT a.s || b.s || c.s FROM t a, t b, t c",
        "SELECT count(*) FROM t a, t b, t c, t d WHERE a.i + b.i + c.i + d.i = 123456789",
        "SELECT w, t.i FROM (SELECT repeat('x', 3000000) AS w) a, t",
        "SELECT (SELECT string_agg(repeat(s, 10), ',') FROM t), i FROM t",
        "SELECT approx_percentile_cont(f, 0.5, 1000000000000) FROM t",
        "SELECT array_agg(repeat(s, 10000)) FROM t",
        "SELECT array_has_all(range(1, 100000), range(2, 100001))",
        "SELECT array_sort(array_repeat(s, 100000)) FROM t",
        "WITH RECURSIVE d AS (SELECT repeat('x', 1000) AS a UNION ALL SELECT a || a FROM d) SELECT length(a) FROM d",
        "WITH RECURSIVE d AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM d) SELECT sum(a) FROM d",
        "SELECT array_agg(a) FROM (SELECT repeat(s, 5000) AS a FROM t) u GROUP BY length(a)",
        "SELECT CASE WHEN b THEN repeat('x', 10000000) ELSE s END FROM t",
        "SELECT coalesce(s, repeat('x', 10000000)) FROM t",
        "SELECT DISTINCT repeat(s, 5000) || i::text FROM t",
        "SELECT repeat(s, 4000) FROM t ORDER BY 1",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push(doubling(30));
    all.push(doubling(18));
    all.push("SELECT * FROM (VALUES (repeat('x', 1000000000))) v(a)".to_owned());
    let rows = vec!["(repeat('x', 3000000))"; 400].join(", ");
    all.push(format!("SELECT length(a) FROM (VALUES {rows}) v(a)"));
    all.push(format!("INSERT INTO t (s) VALUES {rows}"));
    let long = "x".repeat(900_000);
    all.push(format!(
        "SELECT lag(s, 1, '{long}') OVER (ORDER BY time) FROM t"
    ));
    all.push(format!("SELECT string_agg(s, '{long}') FROM t"));
    all.push(cube(8));
    all.push(cube(12));
    all.push(many_columns());
    all.push(format!("SELECT '{}' FROM t", "x".repeat(900_000)));
    all.push(format!("SELECT '{}' || s FROM t", "x".repeat(900_000)));
    all.push(format!(
        "SELECT [{}]",
        vec!["repeat('x', 4000000)"; 1_000].join(", ")
    ));
    all.push(format!(
        "SELECT * FROM generate_series(1, cardinality([{}]))",
        vec!["repeat('x', 4000000)"; 1_000].join(", ")
    ));
    all
}

#[test]
fn what_makes_much_of_little_is_answered_or_refused_and_the_process_lives() {
    const NAME: &str =
        "guards::bombs::what_makes_much_of_little_is_answered_or_refused_and_the_process_lives";
    run(NAME, || {
        block_on(async {
            let lake = lake(10_000);
            let sessions = Watched::new(&lake.query);
            let other = Watched::new(&lake.query);
            assert_eq!(sessions.run("SELECT * FROM t").await.unwrap(), 20_000);
            for sql in bombs() {
                let short: String = sql.chars().take(120).collect();
                println!("{short}");
                let began = std::time::Instant::now();
                // Somebody else asks meanwhile.
                let (bomb, bystander) = tokio::join!(
                    sessions.run(&sql),
                    other.run("SELECT tag, count(*), max(f) FROM t GROUP BY tag")
                );
                assert_eq!(bystander.unwrap(), 2, "beside {short}");
                match bomb {
                    Ok(rows) => println!("  {rows} rows"),
                    Err(error) => {
                        println!("  {}: {error:.200}", error.code);
                        assert!(
                            REFUSALS.contains(&error.code),
                            "{short}: {}: {error}",
                            error.code
                        );
                    }
                }
                println!(
                    "  {:?}, resident {} MiB, at most {} MiB",
                    began.elapsed(),
                    resident("VmRSS") >> 20,
                    resident("VmHWM") >> 20
                );
            }
            let found = resident("VmHWM");
            assert!(found <= resident_max(), "{} MiB were resident", found >> 20);
        });
    });
}
