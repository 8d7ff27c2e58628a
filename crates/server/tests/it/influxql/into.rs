//! `SELECT … INTO` over HTTP: what is written, and who may.

use super::{results, rows, series};
use crate::read_routes::{cars, encoded, get, serve};
use crate::support::{Running, client};
use headwater::Database;
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn post(server: &Running, token: Option<&str>, statement: &str) -> Value {
    let mut request = client().post(server.url("/query?epoch=s"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Token {token}"));
    }
    let mut answer = request.send_form([("q", statement)]).unwrap();
    assert_eq!(answer.status(), 200, "{statement}");
    answer.body_mut().read_json().unwrap()
}

#[test]
fn what_was_answered_is_written() {
    let server = serve(cars);
    let told = post(
        &server,
        None,
        "SELECT mean(speed) INTO means FROM obd GROUP BY car",
    );
    let count = &told["results"][0]["series"][0]["values"][0][1];
    assert!(count.as_i64().unwrap() > 1, "{told}");
    let cars = series(&server, "SELECT mean FROM means GROUP BY car");
    assert_eq!(json!(cars.as_array().unwrap().len()), *count);
    assert_eq!(
        cars,
        series(
            &server,
            "SELECT mean FROM (SELECT mean(speed) FROM obd GROUP BY car) GROUP BY car"
        )
        .to_string()
        .replace("\"obd\"", "\"means\"")
        .parse::<Value>()
        .unwrap()
    );
    // In parts, and by GET with a warning.
    let q = encoded("SELECT max(speed) INTO most FROM obd");
    let (_, told) = get(&server, &format!("/query?q={q}&chunked=true"));
    assert!(
        told.contains("\"written\"") && told.contains("please use a POST request"),
        "{told}"
    );
    assert_eq!(
        rows(&server, "SELECT count(max) FROM most"),
        json!([[0, 1]])
    );
    let gone = results(&server, "SELECT speed INTO nodb..t FROM nope");
    assert!(
        gone[0]["error"].is_null() || gone[0]["code"] == "E_NOT_FOUND",
        "{gone:?}"
    );
    // Another page cannot make a browser write.
    let refused = client()
        .get(server.url(&format!("/query?q={q}")))
        .header("Sec-Fetch-Site", "cross-site")
        .call()
        .unwrap();
    assert_eq!(refused.status(), 403);
}

#[test]
fn rights_are_asked_before_anything_is_written() {
    let mut tokens = BTreeMap::new();
    let server = Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        cars(&db);
        db.close().unwrap();
        let file = TokenFile::of_database(settings.db());
        for (name, rules) in [
            ("reads", vec!["read *"]),
            ("one", vec!["read *", "write means,car=a"]),
            ("both", vec!["read *", "write means"]),
        ] {
            let new = NewToken {
                name: name.to_owned(),
                rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                expires: None,
            };
            tokens.insert(name, file.create(new).unwrap());
        }
    });
    let statement = "SELECT mean(speed) INTO means FROM obd GROUP BY car";
    let ask = |token: &str, statement: &str| post(&server, Some(&tokens[token]), statement);
    for token in ["reads", "one"] {
        let told = ask(token, statement);
        assert_eq!(told["results"][0]["code"], "E_ACCESS", "{token}: {told}");
        let shown = ask("reads", "SHOW MEASUREMENTS").to_string();
        assert!(!shown.contains("means"), "{token}: {shown}");
    }
    let told = ask("both", statement);
    assert!(told["results"][0]["error"].is_null(), "{told}");
    let told = ask("reads", "SHOW SERIES FROM means").to_string();
    assert!(told.contains("means,car="), "{told}");
}

#[test]
fn a_server_that_only_reads_writes_nothing() {
    let server = Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        cars(&db);
        db.close().unwrap();
        settings.read_only = true;
    });
    let told = post(&server, None, "SELECT mean(speed) INTO means FROM obd");
    assert_eq!(told["results"][0]["code"], "E_READ_ONLY", "{told}");
}
