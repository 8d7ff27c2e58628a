//! Patterns with and without what the pyramid lets them leave out.

use crate::support::{Lake, SECOND, batches, block_on, text};
use headwater::io::ManualClock;
use headwater::{Batch, DeleteSpec, IndexUse, StreamName, TableChange, Timestamp, Value};
use headwater::{ClosedRange, IndexSpec};
use headwater_query::Limits;
use headwater_testing::Dice;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Numbers that are the same each time.
const STREAMS: [(&str, &str); 4] = [("a", "n"), ("b", "n"), ("c", "s"), ("d", "s")];
/// Seconds that a life writes about.
const SPAN_S: usize = 3_000;
/// Where rows begin, in seconds.
const BEGIN_S: i64 = 1_714_521_600;

/// A calm value, with a rare peak, or one that is no number.
fn temp(dice: &mut Dice) -> f64 {
    match dice.index(220) {
        0 => 100.0 + dice.index(20) as f64,
        1 => f64::NAN,
        2 => -f64::NAN,
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        5 => -0.0,
        6 => 0.0,
        7 => -100.0,
        _ => 20.0 + dice.index(10) as f64,
    }
}

fn write(lake: &Lake, dice: &mut Dice, seconds: std::ops::Range<i64>, each: usize) {
    let mut batch = Batch::new();
    for (id, site) in STREAMS {
        let rows = batch.stream(&StreamName::new("t", [("id", id), ("site", site)]));
        for second in seconds.clone() {
            if dice.index(each) > 0 {
                continue;
            }
            let mut values: Vec<(&str, Value)> = Vec::new();
            if dice.index(9) > 0 {
                values.push(("temp", temp(dice).into()));
            }
            if dice.index(9) > 0 || values.is_empty() {
                let rare = dice.index(130) == 0;
                let rpm = if rare { 9_000 } else { dice.index(50) as i64 };
                values.push(("rpm", rpm.into()));
            }
            if dice.index(160) == 0 {
                values.push(("note", Value::String(format!("alarm {}", dice.index(9)))));
            }
            rows.row((BEGIN_S + second) * SECOND, values).unwrap();
        }
    }
    if dice.index(12) == 0 {
        let at = BEGIN_S + seconds.end + 50;
        batch.expire_at(Timestamp::from_nanos(at * SECOND));
    }
    lake.db.commit(batch).unwrap();
}

/// A few seconds or minutes of it are written in order, late or again, deleted, flushed, compacted.
fn change(lake: &Lake, dice: &mut Dice, newest: &mut i64) {
    match dice.index(10) {
        0 => lake.db.flush().unwrap(),
        1 => lake.db.compact().unwrap(),
        2 => {
            let from = BEGIN_S + dice.index(SPAN_S) as i64;
            let range = ClosedRange::nanos(from * SECOND, (from + 60) * SECOND);
            let spec = DeleteSpec {
                table: "t".into(),
                tags: vec![("id".into(), dice.pick(&["a", "b", "c", "d"]).into())],
                range,
            };
            lake.db.delete(&spec).unwrap();
        }
        3 | 4 => {
            let from = dice.index((*newest).max(1) as usize) as i64;
            let until = from + 1 + dice.index(80) as i64;
            write(lake, dice, from..until, 4);
        }
        _ => {
            let until = *newest + 1 + dice.index(SPAN_S / 10) as i64;
            write(lake, dice, *newest..until, 2);
            *newest = until;
        }
    }
}

const CONDITIONS: [&str; 19] = [
    "temp > 100",
    "temp >= 119",
    "temp < -50",
    "temp = 0",
    "temp <= 0",
    "temp >= 0 AND temp < 5",
    "temp = 'NaN'",
    "temp > 'infinity'",
    "temp = '-infinity'",
    "rpm = 9000",
    "rpm IN (9000, 9001) AND temp < 25",
    "temp > 110 OR rpm = 9000",
    "note LIKE 'alarm 1%'",
    "note = 'alarm 3' OR temp > 115",
    "temp < 40",
    "rpm > PREV(rpm, 2)",
    "temp > NEXT(temp) AND rpm = 9000",
    "temp > 100 AND count(*) < 9",
    "site = 'n' AND temp > 100",
];

/// A pattern. `ends` = each of its matches has so many rows at the most: a search for others takes
/// a time that grows with the square of the rows, unless something else bounds them.
fn pattern(dice: &mut Dice, depth: usize, ends: bool) -> String {
    if depth == 0 || dice.index(3) == 0 {
        let symbol = dice.pick(&["A", "B", "C", "X"]);
        let (some, any) = if ends {
            ("{1,4}", "{0,4}?")
        } else {
            ("+", "*?")
        };
        let often = dice.pick(&["", "", some, any, "?", "{1,3}", "{2}"]);
        return format!("{symbol}{often}");
    }
    let parts: Vec<String> = (0..2 + dice.index(2))
        .map(|_| pattern(dice, depth - 1, ends))
        .collect();
    match dice.index(6) {
        0 => format!("({})", parts.join(" | ")),
        1 => format!("PERMUTE({})", parts.join(", ")),
        2 => format!(
            "({}){}",
            parts.join(" "),
            dice.pick(&[if ends { "{1,3}" } else { "+" }, "?", "{1,2}", ""])
        ),
        3 => format!("{{- {} -}}", parts.join(" ")),
        _ => parts.join(" "),
    }
}

fn statement(dice: &mut Dice) -> String {
    let from = dice.pick(&[
        "t",
        "t",
        "(SELECT * FROM t WHERE time < '2024-05-01T00:25:00Z')",
        "(SELECT time, id, site, temp, rpm, note FROM t WHERE rpm < 40 OR rpm = 9000)",
        "(SELECT id, time, temp + 0 AS temp, rpm, note, site FROM t)",
        "(SELECT * FROM t WHERE site = 's' AND abs(rpm) < 9999)",
    ]);
    let by = dice.pick(&[
        "",
        "PARTITION BY id",
        "PARTITION BY site",
        "PARTITION BY site, id",
    ]);
    let rows = dice.pick(&[
        "ONE ROW PER MATCH",
        "ALL ROWS PER MATCH",
        "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    ]);
    let within = dice.pick(&[
        "",
        "",
        "WITHIN INTERVAL '30 seconds'",
        "WITHIN INTERVAL '4 minutes'",
    ]);
    let ends = !within.is_empty() || dice.index(8) > 0;
    let skips: &[&str] = match ends {
        true => &["PAST LAST ROW", "TO NEXT ROW", "TO LAST A"],
        false => &["PAST LAST ROW"],
    };
    let skip = dice.pick(skips);
    let order = dice.pick(&["time, id", "time, id", "time, id", "time DESC, id"]);
    let mut parts = Vec::new();
    let ends = ends && within.is_empty();
    for _ in 0..1 + dice.index(2) {
        parts.push(pattern(dice, 2, ends));
    }
    let pattern = parts.join(" ");
    let defines = ["A", "B", "C"]
        .iter()
        .filter(|symbol| pattern.contains(**symbol));
    let mut defines: Vec<String> = defines
        .map(|symbol| format!("{symbol} AS {}", dice.pick(&CONDITIONS)))
        .collect();
    if defines.is_empty() {
        defines.push("X AS temp > 100".to_owned());
    }
    format!(
        "SELECT * FROM {from} MATCH_RECOGNIZE ({by} ORDER BY {order} \
         MEASURES MATCH_NUMBER() AS number, FIRST(time) AS first, LAST(time) AS last, count(*) AS n, CLASSIFIER() AS c, \
           PREV(temp, 3) AS before, NEXT(FIRST(rpm), 2) AS next \
         {rows} AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} DEFINE {})",
        defines.join(", ")
    )
}

/// The answer, whatever the order of its rows, or the code of the error.
async fn answered(lake: &Lake, sql: &str) -> Result<Vec<String>, &'static str> {
    match batches(&lake.session, sql).await {
        Ok(batches) => {
            let mut rows = text(&batches);
            rows.sort_unstable();
            Ok(rows)
        }
        Err(error) => Err(error.code),
    }
}

/// What a life saw: statements that left something out, and those of them that had an answer.
#[derive(Default)]
struct Counts {
    skipped: usize,
    answered: usize,
}

async fn life(seed: u64, seen: &mut Counts) {
    let mut dice = Dice::new(seed);
    let begin = Timestamp::from_nanos(BEGIN_S * SECOND);
    let clock = Arc::new(ManualClock::new(begin));
    let lake = Lake::of(Arc::clone(&clock));
    lake.outcome("CREATE TABLE t (id TAG, site TAG, temp DOUBLE, rpm BIGINT, note TEXT) WITH (leaf_events = 64)")
        .await;
    if dice.index(3) == 0 {
        let kept = Some(Some(Duration::from_secs(2_000)));
        let ages = dice.index(2) == 0;
        let change = TableChange {
            retention: kept.filter(|_| !ages),
            raw_for: kept.filter(|_| ages),
            ..TableChange::default()
        };
        lake.db.alter_table("t", &change).unwrap();
    }
    let mut newest = 0;
    for _ in 0..24 {
        change(&lake, &mut dice, &mut newest);
        clock.set(Timestamp::from_nanos((BEGIN_S + newest) * SECOND));
        lake.db.maintain().unwrap();
    }
    if dice.index(3) == 0 {
        let spec = IndexSpec {
            name: "by_rpm".into(),
            table: "t".into(),
            fields: vec!["rpm".into()],
        };
        lake.db.create_index(&spec).unwrap();
        let mut goes_on = |_: &_| ControlFlow::Continue(());
        lake.db.build_index("by_rpm", &mut goes_on).unwrap();
        lake.db.use_indexes(IndexUse::Always);
    }
    for _ in 0..14 {
        let sql = statement(&mut dice);
        let explained = answered(&lake, &format!("EXPLAIN {sql}")).await;
        let skips = explained.is_ok_and(|plan| plan.join("").contains("only near"));
        let with = answered(&lake, &sql).await;
        lake.outcome("SET headwater.use_pyramid = off").await;
        let without = answered(&lake, &sql).await;
        lake.outcome("RESET headwater.use_pyramid").await;
        assert_eq!(with, without, "seed {seed}: {sql}");
        if skips {
            seen.skipped += 1;
            seen.answered += usize::from(with.is_ok_and(|rows| !rows.is_empty()));
        }
    }
}

#[test]
fn what_is_left_out_changes_no_answer() {
    let lives = std::env::var("HEADWATER_MODEL_SEEDS").ok();
    let lives = lives.and_then(|lives| lives.parse().ok()).unwrap_or(5);
    let first = std::env::var("HEADWATER_MODEL_FIRST_SEED").ok();
    let first: u64 = first.and_then(|first| first.parse().ok()).unwrap_or(0);
    block_on(async {
        let mut seen = Counts::default();
        for seed in first..first + lives {
            life(seed, &mut seen).await;
        }
        assert!(seen.skipped as u64 > 2 * lives, "{} left out", seen.skipped);
        assert!(seen.answered as u64 > lives / 2, "{} found", seen.answered);
    });
}

/// Two streams with a row a second, and a peak every so often, compacted.
async fn peaks(rows: i64, apart: i64) -> Lake {
    let lake = Lake::new();
    lake.outcome("CREATE TABLE t (id TAG, temp DOUBLE, rpm BIGINT) WITH (leaf_events = 64)")
        .await;
    for (id, from) in ["a", "b"].into_iter().flat_map(|id| {
        let parts = (0..rows).step_by(50_000);
        parts.map(move |from| (id, from))
    }) {
        let mut batch = Batch::new();
        let stream = batch.stream(&StreamName::new("t", [("id", id)]));
        for second in from..rows.min(from + 50_000) {
            let peak = second % apart == apart / 2;
            let temp = if peak {
                95.0
            } else {
                20.0 + (second % 7) as f64
            };
            let values = [("temp", temp.into()), ("rpm", second.into())];
            stream.row((BEGIN_S + second) * SECOND, values).unwrap();
        }
        lake.db.commit(batch).unwrap();
    }
    lake.db.flush().unwrap();
    lake.db.compact().unwrap();
    lake
}

/// Leaves that a statement reads, and rows that it reads of them.
async fn read(lake: &Lake, sql: &str) -> (u64, u64) {
    let plan = lake
        .rows(&format!("EXPLAIN ANALYZE {sql}"))
        .await
        .join("\n");
    let scan = plan.lines().find(|line| line.contains("ScanExec")).unwrap();
    let number = |name: &str| {
        let text = scan.split(&format!("{name}=")).nth(1).unwrap();
        let text = text.split([',', ']']).next().unwrap().trim();
        match text.split_once(' ') {
            Some((number, "K")) => (number.parse::<f64>().unwrap() * 1e3) as u64,
            Some((number, "M")) => (number.parse::<f64>().unwrap() * 1e6) as u64,
            _ => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        }
    };
    (number("leaves"), number("output_rows"))
}

#[test]
fn leaves_that_no_match_reaches_are_not_read() {
    block_on(async {
        let lake = peaks(24_000, 6_000).await;
        let asked = |pattern: &str, define: &str| {
            format!(
                "SELECT id, first, last FROM t MATCH_RECOGNIZE (PARTITION BY id ORDER BY time \
                 MEASURES FIRST(rpm) AS first, LAST(rpm) AS last PATTERN ({pattern}) DEFINE {define}) ORDER BY id, first"
            )
        };
        let hot = "HOT AS temp > 90, COOL AS temp < 27";
        for (pattern, define) in [
            ("HOT COOL+ WITHIN_", hot),
            ("COOL X{1,2} HOT", hot),
            ("(HOT | LOW) X", "HOT AS temp > 90, LOW AS temp < 0"),
            (
                "X+? HOT WITHIN_",
                "HOT AS temp > 90 AND temp > PREV(temp, 2)",
            ),
        ] {
            let sql = asked(pattern, define).replace(" WITHIN_)", ") WITHIN INTERVAL '1 minute'");
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert!(plan.contains("only near"), "{plan}");
            assert!(
                plan.contains("HOT: temp > 90") || plan.contains("hot: temp > 90"),
                "{plan}"
            );
            let (leaves, rows) = read(&lake, &sql).await;
            let found = lake.rows(&sql).await;
            lake.outcome("SET headwater.use_pyramid = off").await;
            let (all_leaves, all_rows) = read(&lake, &sql).await;
            assert_eq!(lake.rows(&sql).await, found, "{sql}");
            lake.outcome("RESET headwater.use_pyramid").await;
            assert_eq!(all_rows, 48_000);
            assert!(found.len() >= 8, "{sql}: {found:?}");
            assert!(leaves * 5 < all_leaves, "{leaves} of {all_leaves}: {sql}");
            assert!(rows * 20 < all_rows, "{rows} of {all_rows}: {sql}");
        }
        // What matches may have no anchor, have no bound, or are told of rows without one.
        for (pattern, define) in [
            ("X COOL+ HOT?", hot),
            ("HOT COOL+", hot),
            ("^ HOT", "HOT AS temp > 90"),
            ("HOT*", "HOT AS temp > 90"),
            ("(HOT | X) X", "HOT AS temp > 90"),
            ("HOT X", "HOT AS PREV(temp) > 90"),
        ] {
            let plan = lake
                .rows(&format!("EXPLAIN {}", asked(pattern, define)))
                .await;
            assert!(!plan.join("").contains("only near"), "{pattern}: {plan:?}");
        }
    });
}

#[test]
fn of_a_partition_no_more_is_held_than_a_match_can_reach() {
    block_on(async {
        let limits = Limits {
            memory: 6 << 20,
            ..Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        lake.outcome("CREATE TABLE t (n BIGINT, k BIGINT)").await;
        for part in 0..8i64 {
            let mut batch = Batch::new();
            let stream = batch.stream(&StreamName::new("t", [] as [(&str, &str); 0]));
            for n in part * 50_000..(part + 1) * 50_000 {
                let values = [("n", n.into()), ("k", (n % 1000).into())];
                stream.row((BEGIN_S + n) * SECOND, values).unwrap();
            }
            lake.db.commit(batch).unwrap();
        }
        // Without a bound all of it must be held.
        let sql = |pattern: &str, within: &str| {
            format!(
                "SELECT count(*), min(first), max(last), sum(before), max(number) FROM t MATCH_RECOGNIZE (ORDER BY time \
                 MEASURES FIRST(n) AS first, LAST(n) AS last, PREV(FIRST(n), 3) AS before, MATCH_NUMBER() AS number \
                 PATTERN ({pattern}) {within} DEFINE A AS k = 2, B AS k > PREV(k), C AS k = 4 OR NEXT(k, 2) = 7)"
            )
        };
        let endless = lake.error(&sql("A B+ C", "")).await;
        assert_eq!(endless.code, "memory_limit", "{endless}");
        let sum: i64 = (1..400).map(|round| round * 1_000 - 1).sum();
        let expected = [format!("400|2|399005|{sum}|400")];
        let within = "WITHIN INTERVAL '30 seconds'";
        assert_eq!(lake.rows(&sql("A B+ C", within)).await, expected);
        // A bound of rows is as good.
        assert_eq!(lake.rows(&sql("A B{1,20} C", "")).await, expected);
    });
}

#[test]
fn stretch_after_stretch_gives_what_the_whole_partition_gives() {
    block_on(async {
        let lake = peaks(40_000, 900).await;
        let sql = |within: &str, bound: &str, rest: &str| {
            format!(
                "SELECT * FROM t MATCH_RECOGNIZE ({rest} \
                 MEASURES FIRST(rpm) AS first, LAST(rpm) AS last, count(*) AS n, MATCH_NUMBER() AS number, \
                   PREV(FIRST(temp), 4) AS before, NEXT(temp, 5) AS next \
                 PATTERN (A B*? C) {within} \
                 DEFINE A AS temp > 25 AND PREV(rpm, 2) % 3 = 1, C AS temp > NEXT(temp, 2){bound})"
            )
        };
        for rest in [
            "PARTITION BY id ORDER BY time",
            "PARTITION BY id ORDER BY time DESC",
            "ORDER BY time, id",
        ] {
            // The same bound where the search does not know of it.
            let time = match rest.contains("DESC") {
                true => "FIRST(time) - time",
                false => "time - FIRST(time)",
            };
            let bound = format!(" AND {time} <= INTERVAL '40 seconds'");
            let bounded = answered(&lake, &sql("WITHIN INTERVAL '40 seconds'", "", rest)).await;
            let whole = answered(&lake, &sql("", &bound, rest)).await;
            assert!(bounded.as_ref().is_ok_and(|rows| rows.len() > 1_000));
            assert_eq!(bounded, whole, "{rest}");
        }
        // Rows without a match, the ends of the partition, and matches without rows.
        for (pattern, define) in [
            ("^ A", "A AS temp > 0"),
            ("A $", "A AS temp > 0"),
            ("A?", "A AS temp > 90"),
            ("(A B){2,4}", "A AS temp > PREV(temp), B AS temp < 90"),
        ] {
            let sql = |within: &str| {
                format!(
                    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY id ORDER BY time MEASURES count(*) AS n, MATCH_NUMBER() AS number \
                     ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ({pattern}) {within} DEFINE {define})"
                )
            };
            let bounded = answered(&lake, &sql("WITHIN INTERVAL '40 seconds'")).await;
            // So long a bound that all of it is read before the search begins.
            let whole = answered(&lake, &sql("WITHIN INTERVAL '400 days'")).await;
            assert!(bounded.as_ref().is_ok_and(|rows| rows.len() == 80_000));
            assert_eq!(bounded, whole, "{pattern}");
        }
    });
}
