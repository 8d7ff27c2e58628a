//! Parameters: their number and types are those that are written and declared, whatever becomes of
//! the places where they stand; values keep their digits.

use super::raw::{Client, bind, describe, execute, parse, sync};
use super::{session, start};

/// The types that are told of a statement's parameters.
fn types(client: &mut Client, sql: &str, declared: &[u32]) -> String {
    let told = client.exchange(&[parse("", sql, declared), describe("S", ""), sync()]);
    let types = told
        .iter()
        .find(|line| line.starts_with("t ") || line.starts_with("E "));
    types.unwrap_or_else(|| panic!("{sql}: {told:?}")).clone()
}

/// The rows that a statement gives with these values as text, or its error.
fn rows(client: &mut Client, sql: &str, declared: &[u32], values: &[&str]) -> Vec<String> {
    let values: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_bytes())).collect();
    let told = client.exchange(&[
        parse("", sql, declared),
        bind("", "", 0, &values),
        execute("", 0),
        sync(),
    ]);
    let rows = told.into_iter();
    rows.filter(|line| line.starts_with("D ") || line.starts_with("E "))
        .collect()
}

#[test]
fn parameters_that_the_plan_drops_are_counted() {
    let server = start(|_| {});
    let mut client = session(&server);
    for (sql, declared, wanted) in [
        ("WITH a AS (SELECT $1::int) SELECT 1", &[][..], "t 23"),
        (
            "WITH a AS (SELECT $2::bool, $1::timestamptz) SELECT $3 + 1",
            &[],
            "t 1184,16,20",
        ),
        ("SELECT 1 WHERE false AND $1::text IS NULL", &[], "t 25"),
        (
            "SELECT conname FROM pg_constraint WHERE conname = $1 AND conrelid = $2::int8",
            &[],
            "t 25,20",
        ),
        (
            "SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE oid = $1::int)",
            &[],
            "t 23",
        ),
        ("SELECT 1", &[23, 25], "t 23,25"),
        (
            "SELECT '$1', \"speed\" FROM cars WHERE speed > $1 -- $7",
            &[],
            "t 701",
        ),
        (
            "INSERT INTO cars (time, speed) SELECT now(), 1 WHERE $1::int = 1",
            &[],
            "t 23",
        ),
        ("DELETE FROM cars WHERE id = $1", &[], "t 25"),
    ] {
        assert_eq!(types(&mut client, sql, declared), wanted, "{sql}");
    }
    let sql = "WITH a AS (SELECT $1::int) SELECT 1";
    assert_eq!(rows(&mut client, sql, &[], &["5"]), ["D 1"]);
    assert_eq!(
        rows(
            &mut client,
            "SELECT count(*) FROM pg_constraint WHERE conname = $1",
            &[],
            &["x"]
        ),
        ["D 0"]
    );
    let few = rows(&mut client, sql, &[], &[]);
    assert!(few[0].starts_with("E 08P01"), "{few:?}");
}

#[test]
fn declared_decimals_keep_their_digits() {
    let server = start(|_| {});
    let mut client = session(&server);
    for (sql, values, wanted) in [
        ("SELECT $1 + 1", &["1.25"][..], "D 2.25"),
        ("SELECT $1 * 2", &["0.0000000000001"], "D 0.0000000000002"),
        ("SELECT id FROM cars WHERE speed > $1", &["1.75"], "D other"),
        ("SELECT id FROM cars WHERE laps = $1", &["3"], "D seen"),
        ("SELECT id FROM cars WHERE n < $1", &["4.5"], "D seen"),
        (
            "SELECT $1",
            &["12345678901234567890123456789.5"],
            "D 12345678901234567890123456789.5",
        ),
        (
            "SELECT id FROM cars ORDER BY time LIMIT $1",
            &["1"],
            "D seen",
        ),
        (
            "SELECT id FROM cars WHERE speed = ANY($1)",
            &["{2.5,17.25}"],
            "D other",
        ),
    ] {
        let oid = if sql.contains("ANY") { 1231 } else { 1700 };
        assert_eq!(rows(&mut client, sql, &[oid], values), [wanted], "{sql}");
        assert_eq!(types(&mut client, sql, &[oid]), format!("t {oid}"), "{sql}");
    }
    let far = rows(&mut client, "SELECT $1", &[1700], &["1e100"]);
    assert!(far[0].starts_with("E 22003"), "{far:?}");
    let none = rows(&mut client, "SELECT $1", &[1700], &["1.2.3"]);
    assert!(none[0].starts_with("E 22P02"), "{none:?}");
}

#[test]
fn instants_without_end_are_refused() {
    let server = start(|_| {});
    let mut client = session(&server);
    for (sql, declared) in [
        ("SELECT count(*) FROM cars WHERE time < $1", &[][..]),
        ("SELECT count(*) FROM cars WHERE time < $1", &[1184]),
        ("SELECT $1::timestamptz", &[]),
        ("SELECT $1::date", &[]),
        ("INSERT INTO cars (time, speed) VALUES ($1, 1)", &[]),
        ("SELECT $1::timestamp", &[25]),
    ] {
        for value in ["infinity", "-Infinity"] {
            let told = rows(&mut client, sql, declared, &[value]);
            assert!(told[0].starts_with("E 22008"), "{sql} {value}: {told:?}");
        }
    }
    // In the binary form.
    for (oid, value) in [
        (1184, i64::MAX.to_be_bytes().to_vec()),
        (1184, i64::MIN.to_be_bytes().to_vec()),
        (1082, i32::MAX.to_be_bytes().to_vec()),
        (1082, i32::MIN.to_be_bytes().to_vec()),
    ] {
        let told = client.exchange(&[
            parse("", "SELECT $1", &[oid]),
            bind("", "", 1, &[Some(&value)]),
            sync(),
        ]);
        assert!(
            told.iter().any(|line| line.starts_with("E 22008")),
            "{oid}: {told:?}"
        );
    }
}

#[test]
fn conditions_of_patterns_take_parameters() {
    let server = start(|_| {});
    let mut client = session(&server);
    let sql = "SELECT * FROM cars MATCH_RECOGNIZE (ORDER BY time MEASURES first(a.speed) + $2 AS s ONE ROW PER MATCH PATTERN (a b) DEFINE a AS a.speed < $1, b AS b.speed > $1)";
    assert_eq!(types(&mut client, sql, &[]), "t 701,701");
    assert_eq!(rows(&mut client, sql, &[], &["2", "0.5"]), ["D 2"]);
    assert!(rows(&mut client, sql, &[], &["9", "0"]).is_empty());
}

#[test]
fn numbers_of_rows_come_as_texts_and_decimals() {
    let server = start(|_| {});
    let mut client = session(&server);
    let sql = "SELECT id FROM cars ORDER BY time LIMIT $1 OFFSET $2";
    for declared in [&[][..], &[20, 20], &[25, 25], &[1700, 1700], &[701, 23]] {
        assert_eq!(
            rows(&mut client, sql, declared, &["1", "1"]),
            ["D other"],
            "{declared:?}"
        );
    }
    let told = rows(&mut client, sql, &[25, 25], &["x", "1"]);
    assert!(told[0].starts_with("E 42P02"), "{told:?}");
}
