//! Tests of the list of tokens.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::access::guard::{Denied, Guard};
use crate::access::token::Carried;
use headwater_io::{Env, ManualClock};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

fn new(name: &str, rules: &[&str]) -> NewToken {
    NewToken {
        name: name.to_owned(),
        rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
        expires: None,
    }
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path().join("db"));
    assert!(file.read().unwrap().is_none());
    let first = file.create(new("a", &["read *"])).unwrap();
    let second = file
        .create(new("b", &["write weather,origin=E*", "read x"]))
        .unwrap();
    assert_ne!(first, second);
    assert!(first.starts_with("hw_") && first.len() == 67);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        !text.contains(&first[3..]),
        "the file must not hold the token"
    );
    let mode = std::fs::metadata(file.path()).unwrap().mode();
    assert_eq!(mode & 0o077, 0, "only the owner reads the file");

    let tokens = file.read().unwrap().unwrap();
    assert_eq!(
        tokens.grants()[1].rules[0].pattern.to_string(),
        "weather,origin=E*"
    );
    let found = find_by_hash(tokens.grants(), &hash(&first));
    assert_eq!(found.unwrap().name, "a");
    assert!(find_by_hash(tokens.grants(), &hash("hw_")).is_none());
    let (taken, id) = (file.create(new("a", &[])), tokens.grants()[1].id.clone());
    assert!(matches!(taken, Err(TokenError::NameExists(_))));
    file.revoke("a").unwrap();
    assert!(matches!(file.revoke("a"), Err(TokenError::Unknown(_))));
    file.revoke(&id).unwrap();
    assert!(file.read().unwrap().unwrap().grants().is_empty());
    for name in ["", "a\nb", &"x".repeat(201)] {
        assert!(matches!(file.create(new(name, &[])), Err(TokenError::Name)));
    }
}

#[test]
fn a_token_that_has_ended_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
    let file = TokenFile::of_database(dir.path()).with_clock(Arc::clone(&clock) as _);
    let mut ends = new("a", &["read *"]);
    ends.expires = Some("2024-01-01T00:00:10Z".parse().unwrap());
    let token = file.create(ends).unwrap();
    let guard = Arc::new(Guard::new(file).unwrap());
    clock.advance(Duration::from_nanos(9_999_999_999));
    let access = guard.admit(&Carried::Token(token.clone())).unwrap();
    assert!(access.is_current());
    clock.advance(Duration::from_nanos(1));
    assert!(!access.is_current());
    assert_eq!(
        guard.admit(&Carried::Token(token)).unwrap_err(),
        Denied::Wrong
    );
}

#[test]
fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path());
    for (text, part) in [
        ("", "EOF"),
        ("{\"version\":3,\"tokens\":[]}", "version 3"),
        ("{\"version\":1,\"tokens\":[],\"x\":1}", "unknown field"),
        (
            "{\"version\":1,\"tokens\":[{\"id\":\"1\",\"name\":\"n\",\"created\":\"2026-01-01T00:00:00Z\",\"rules\":[\"peek *\"],\"sha256\":\"00\"}]}",
            "peek",
        ),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(Guard::new(file.clone()).is_err());
    }
}

#[test]
fn a_budget_for_fetching_is_stored_and_only_then_the_file_has_a_later_version() {
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path());
    file.create(new("a", &["read *"])).unwrap();
    let version = || {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["version"].as_u64().unwrap()
    };
    assert_eq!(version(), 1);
    for (name, limit) in [
        ("b", FetchLimit::Bytes(0)),
        ("c", FetchLimit::Bytes(u64::MAX)),
        ("d", FetchLimit::Unlimited),
    ] {
        let token = new(name, &["read *"]);
        file.create_with_budget(token, Some(limit)).unwrap();
        let tokens = file.read().unwrap().unwrap();
        assert_eq!(tokens.grants().last().unwrap().fetch_per_day, Some(limit));
    }
    assert_eq!(version(), 2);
    assert_eq!(
        file.read().unwrap().unwrap().grants()[0].fetch_per_day,
        None
    );
    let good = std::fs::read_to_string(file.path()).unwrap();
    for wrong in [
        "\"-1\"",
        "\"\"",
        "\"+5\"",
        "\"1e3\"",
        "\"10MiB\"",
        "7",
        "\"18446744073709551616\"",
    ] {
        let bad = good.replace("\"unlimited\"", wrong);
        assert_ne!(bad, good);
        std::fs::write(file.path(), bad).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("tokens.json"), "{wrong}: {error}");
    }
}

#[test]
fn a_guard_follows_the_file_and_never_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path());
    let guard = Arc::new(Guard::new(file.clone()).unwrap());
    let open = guard.admit(&Carried::Missing).unwrap();
    assert!(open.is_current() && open.reads_all() && open.writes_all());

    let token = file.create(new("a", &["read weather"])).unwrap();
    guard.refresh();
    assert!(!open.is_current());
    assert_eq!(guard.admit(&Carried::Missing).unwrap_err(), Denied::Missing);
    assert_eq!(
        guard.admit(&Carried::Token("hw_x".into())).unwrap_err(),
        Denied::Wrong
    );
    let carried = Carried::Token(token);
    let access = guard.admit(&carried).unwrap();
    assert!(access.may_read("weather", &[]) && !access.may_read("x", &[]));
    assert!(!access.reads_all() && !access.may_write("weather", &[]));

    // A damaged or removed file does not change the tokens.
    let good = std::fs::read(file.path()).unwrap();
    std::fs::write(file.path(), "{").unwrap();
    guard.refresh();
    assert!(guard.admit(&carried).is_ok());
    std::fs::remove_file(file.path()).unwrap();
    guard.refresh();
    assert!(guard.admit(&Carried::Missing).is_err());
    std::fs::write(file.path(), good).unwrap();
    guard.refresh();
    assert!(access.is_current());

    // Without any token the server stays locked.
    file.revoke("a").unwrap();
    guard.refresh();
    assert!(!access.is_current());
    assert_eq!(guard.admit(&carried).unwrap_err(), Denied::Wrong);
    assert_eq!(guard.admit(&Carried::Missing).unwrap_err(), Denied::Missing);
}
