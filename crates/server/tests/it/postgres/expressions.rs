//! Expressions mean what they mean to PostgreSQL 15, whose answers are kept in
//! `tests/postgres/expressions.tsv` (`tests/postgres/record` asks it again); where ours differ on
//! purpose, they stay as they are written there, with the reason (decision 0026).

use super::{session, start};

const EXPRESSIONS: &str = include_str!("../../../../../tests/postgres/expressions.tsv");
/// Floats have no more digits in common with decimals than this.
const RELATIVE: f64 = 1e-12;

fn is_same(ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Ok(a), Ok(b)) if a.is_nan() && b.is_nan() => true,
        (Ok(a), Ok(b)) => a == b || (a - b).abs() <= RELATIVE * a.abs().max(b.abs()),
        _ => false,
    }
}

#[test]
fn expressions_mean_what_they_mean_to_postgresql() {
    let server = start(|_| {});
    let mut client = session(&server);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in EXPRESSIONS.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('\t');
        let (sql, theirs) = (parts.next().unwrap(), parts.next().unwrap());
        let (ours, why) = (parts.next(), parts.next());
        assert_eq!(ours.is_some(), why.is_some(), "no reason: {line}");
        let rows = client.rows(sql);
        let answer = match rows.as_slice() {
            // `E`, the code, the message.
            [row] if row.starts_with("E ") && row.as_bytes().get(7) == Some(&b' ') => "ERROR",
            [row] => row.as_str(),
            rows => panic!("{sql}: {rows:?}"),
        };
        let answer = if answer == "NULL" { "\\N" } else { answer };
        count += 1;
        match ours {
            None if is_same(answer, theirs) => {}
            None => wrong.push(format!("{sql}\n  {answer}\n  PostgreSQL: {theirs}")),
            Some(ours) => {
                assert!(!is_same(ours, theirs), "differs no more: {line}");
                if answer != ours {
                    wrong.push(format!("{sql}\n  {answer}\n  was: {ours}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 500, "{count} expressions");
}
