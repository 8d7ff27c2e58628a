//! A table of tokens and statements: what may not be read is as if it were not there.

use crate::read_routes::{START, encoded};
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

fn query_as(scene: &(Running, BTreeMap<&str, String>), token: &str, statement: &str) -> Value {
    let mut answer = client()
        .get(scene.0.url(&format!("/query?q={}", encoded(statement))))
        .header("Authorization", format!("Token {}", scene.1[token]))
        .call()
        .unwrap();
    assert_eq!(answer.status(), 200, "{statement}");
    answer.body_mut().read_json().unwrap()
}

const STATEMENTS: [&str; 31] = [
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
    "SHOW SERIES EXACT CARDINALITY",
    "SHOW TAG VALUES CARDINALITY WITH KEY = id",
    "SHOW STATS",
    "SELECT max(n) FROM (SELECT count(v) AS n FROM /.*/ GROUP BY id)",
    "SELECT * FROM (SELECT v, id FROM cars), secret",
    "SELECT top(v, id, 5) FROM cars",
    "SELECT * FROM cars, secret GROUP BY *",
    "SELECT *::tag FROM (SELECT mean(v) FROM /.*/ GROUP BY *)",
    "SELECT v FROM cars WHERE time = 1700000001s OR time = 1700000006s OR id = 'hidden'",
    "EXPLAIN SELECT mean(v) FROM /.*/ GROUP BY *",
];

#[test]
fn what_may_not_be_read_is_not_there() {
    let (with, without) = (scene(true), scene(false));
    let empty = scene(false);
    for statement in STATEMENTS {
        let seen = query_as(&with, "seen", statement);
        assert_eq!(seen, query_as(&without, "seen", statement), "{statement}");
        assert_eq!(seen, query_as(&without, "all", statement), "{statement}");
        let text = seen.to_string();
        assert!(
            !text.contains("hidden") && !text.contains("secret"),
            "{statement}: {text}"
        );
        // The test must be able to tell.
        assert_ne!(seen, query_as(&with, "all", statement), "{statement}");
        // A token for what is not there sees nothing at all.
        let other = query_as(&with, "other", statement).to_string();
        assert_eq!(other, query_as(&empty, "other", statement).to_string());
        assert!(
            !other.contains("seen") && !other.contains("hidden"),
            "{statement}: {other}"
        );
        for token in ["writes", "nothing"] {
            let refused = query_as(&with, token, statement);
            let error = refused["results"][0]["error"].as_str().unwrap_or_default();
            assert!(
                error.contains("this token may not read anything"),
                "{statement}: {refused}"
            );
        }
    }
    // What clients ask before they write needs no right to read.
    let made = query_as(&with, "writes", "SHOW DATABASES");
    assert_eq!(
        made["results"][0]["series"][0]["values"],
        json!([["headwater"]])
    );
    query_as(&with, "writes", "CREATE DATABASE x");
}

/// Devices that send no header send user and password in the address.
#[test]
fn a_token_may_be_the_password_in_the_address() {
    let scene = scene(true);
    let token = |name: &str| encoded(&scene.1[name]);
    let q = encoded("SHOW MEASUREMENTS");
    let ask = |rest: &str| {
        let answer = client()
            .get(scene.0.url(&format!("/query?q={q}{rest}")))
            .call()
            .unwrap();
        answer.status().as_u16()
    };
    assert_eq!(ask(&format!("&u=any&p={}", token("seen"))), 200);
    assert_eq!(ask("&u=any&p=hw_wrong"), 401);
    assert_eq!(ask("&u=any&p="), 401);
    assert_eq!(ask(""), 401);
    let write = |name: &str| {
        let path = format!("/write?db=x&u=any&p={}", token(name));
        let answer = client()
            .post(scene.0.url(&path))
            .send("cars,id=new v=1")
            .unwrap();
        answer.status().as_u16()
    };
    assert_eq!(write("writes"), 204);
    assert_eq!(write("seen"), 403);
    // Elsewhere a token in the address is none.
    let path = format!("/api/v1/streams?u=any&p={}", token("all"));
    assert_eq!(
        client().get(scene.0.url(&path)).call().unwrap().status(),
        401
    );
}

#[test]
fn who_may_write_may_remove_and_others_may_not() {
    let scene = scene(true);
    let change = |token: &str, text: &str| -> Value {
        let mut answer = client()
            .post(scene.0.url("/query"))
            .header("Authorization", format!("Token {}", scene.1[token]))
            .content_type("application/x-www-form-urlencoded")
            .send(&format!("q={}", encoded(text)))
            .unwrap();
        answer.body_mut().read_json().unwrap()
    };
    let counted = || query_as(&scene, "all", "SELECT count(v) FROM cars GROUP BY id").to_string();
    let before = counted();
    for text in [
        "DELETE FROM cars",
        "DROP SERIES FROM cars",
        "DROP MEASUREMENT cars",
    ] {
        for token in ["seen", "all"] {
            let answer = change(token, text);
            assert_eq!(answer["results"][0]["code"], "E_ACCESS", "{text}: {answer}");
        }
        // Nothing of it is there for these.
        for token in ["other", "nothing"] {
            let answer = change(token, text);
            assert!(answer["results"][0]["error"].is_null(), "{text}: {answer}");
        }
    }
    assert_eq!(counted(), before);
    let answer = change(
        "writes",
        "DELETE FROM cars WHERE id = 'seen' AND time < 1700000001s",
    );
    assert!(answer["results"][0]["error"].is_null(), "{answer}");
    assert_ne!(counted(), before);
    change("writes", "DROP SERIES FROM cars WHERE id = 'hidden'");
    assert!(!counted().contains("hidden"), "{}", counted());
    // A page of somebody else cannot make a browser remove anything.
    let server = Running::start();
    let path = format!("/query?q={}", encoded("DROP MEASUREMENT m"));
    for (from, status) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        ("none", 200),
    ] {
        let request = client()
            .get(server.url(&path))
            .header("Sec-Fetch-Site", from);
        assert_eq!(request.call().unwrap().status(), status, "{from}");
    }
}
