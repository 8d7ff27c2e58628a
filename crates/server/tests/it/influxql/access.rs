//! A table of tokens and statements: what may not be read is as if it were not there.

use crate::asking::{START, encoded};
use crate::support::{Running, client};
use headwater::{Batch, Database, StreamName};
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn fill(db: &Database, with_hidden: bool) {
    let mut batch = Batch::new();
    let streams = [
        ("cars", "seen", true),
        ("cars", "hidden", with_hidden),
        ("secret", "hidden", with_hidden),
    ];
    for (table, id, there) in streams {
        if there {
            let rows = batch.stream(&StreamName::new(
                table,
                [("id", id), (&format!("only_{id}"), "x")],
            ));
            let start = if id == "seen" { 0 } else { 5 };
            for second in start..start + 3 {
                rows.row(
                    START + second * 1_000_000_000,
                    [("v", (second as f64).into())],
                )
                .unwrap();
            }
        }
    }
    db.commit(batch).unwrap();
}

/// A server and its tokens, with or without what is to be hidden.
fn scene(with_hidden: bool) -> (Running, BTreeMap<&'static str, String>) {
    let mut tokens = BTreeMap::new();
    let server = Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        fill(&db, with_hidden);
        db.close().unwrap();
        let file = TokenFile::of_database(settings.db());
        for (name, rules) in [
            ("seen", vec!["read cars,id=seen"]),
            ("all", vec!["read *"]),
            ("other", vec!["read vans"]),
            ("writes", vec!["write *"]),
            ("nothing", vec![]),
        ] {
            let new = NewToken {
                name: name.to_owned(),
                rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                expires: None,
            };
            tokens.insert(name, file.create(new).unwrap());
        }
    });
    (server, tokens)
}

fn ask(scene: &(Running, BTreeMap<&str, String>), token: &str, statement: &str) -> Value {
    let mut answer = client()
        .get(scene.0.url(&format!("/query?q={}", encoded(statement))))
        .header("Authorization", format!("Token {}", scene.1[token]))
        .call()
        .unwrap();
    assert_eq!(answer.status(), 200, "{statement}");
    answer.body_mut().read_json().unwrap()
}

const STATEMENTS: [&str; 21] = [
    "SELECT v FROM cars",
    "SELECT * FROM cars",
    "SELECT * FROM /.*/",
    "SELECT * FROM cars GROUP BY *",
    "SELECT v FROM cars ORDER BY time DESC LIMIT 1",
    "SELECT count(v), sum(v) FROM /.*/",
    "SELECT last(v), * FROM cars",
    "SELECT max(v) FROM cars GROUP BY id",
    "SELECT mean(v) FROM cars WHERE time < 1700000010s GROUP BY time(1s), *",
    "SELECT median(v) FROM /.*/ WHERE id = 'hidden'",
    "SELECT v FROM secret",
    "SELECT count(v) FROM cars WHERE v >= 0",
    "SHOW MEASUREMENTS",
    "SHOW MEASUREMENTS WHERE id != ''",
    "SHOW MEASUREMENT CARDINALITY",
    "SHOW TAG KEYS",
    "SHOW TAG VALUES WITH KEY =~ /./",
    "SHOW FIELD KEYS",
    "SHOW SERIES",
    "SHOW SERIES CARDINALITY",
    "SHOW TAG VALUES FROM secret WITH KEY = id",
];

#[test]
fn what_may_not_be_read_is_not_there() {
    let (with, without) = (scene(true), scene(false));
    let empty = scene(false);
    for statement in STATEMENTS {
        let seen = ask(&with, "seen", statement);
        assert_eq!(seen, ask(&without, "seen", statement), "{statement}");
        assert_eq!(seen, ask(&without, "all", statement), "{statement}");
        let text = seen.to_string();
        assert!(
            !text.contains("hidden") && !text.contains("secret"),
            "{statement}: {text}"
        );
        // The test must be able to tell.
        assert_ne!(seen, ask(&with, "all", statement), "{statement}");
        // A token for what is not there sees nothing at all.
        let other = ask(&with, "other", statement).to_string();
        assert_eq!(other, ask(&empty, "other", statement).to_string());
        assert!(
            !other.contains("seen") && !other.contains("hidden"),
            "{statement}: {other}"
        );
        for token in ["writes", "nothing"] {
            let refused = ask(&with, token, statement);
            let error = refused["results"][0]["error"].as_str().unwrap_or_default();
            assert!(
                error.contains("no rule of this token"),
                "{statement}: {refused}"
            );
        }
    }
    // What clients ask before they write needs no right to read.
    let made = ask(&with, "writes", "SHOW DATABASES");
    assert_eq!(
        made["results"][0]["series"][0]["values"],
        json!([["headwater"]])
    );
    ask(&with, "writes", "CREATE DATABASE x");
}
