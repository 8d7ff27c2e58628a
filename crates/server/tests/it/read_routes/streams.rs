//! The list of streams: pages, search, names.

use super::{SECOND, START, cars, encoded, json, refused, serve};
use headwater::{Batch, Database, StreamName};
use serde_json::{Value, json as value};

fn names(answer: &Value) -> Vec<String> {
    let streams = answer["streams"].as_array().unwrap();
    streams
        .iter()
        .map(|s| s["stream"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_stream_is_told_with_its_fields_and_newest_values() {
    let server = serve(cars);
    let answer = json(&server, "/api/v1/streams");
    assert_eq!(
        (&answer["total"], &answer["next"]),
        (&value!(3), &Value::Null)
    );
    assert_eq!(
        names(&answer),
        [r"door,room=k\ 1\,2", "obd,car=a", "obd,car=b"]
    );
    let last = (START + 2_999 * SECOND).to_string();
    let gear = (START + 2_990 * SECOND).to_string();
    assert_eq!(
        answer["streams"][1],
        value!({
            "stream": "obd,car=a", "table": "obd", "tags": {"car": "a"},
            "first": START.to_string(), "last": last, "events": 3_000,
            "fields": [
                {"name": "speed", "type": "f64", "last": {"time": last, "value": 2_999.0}},
                {"name": "odometer", "type": "i64", "last": {"time": last, "value": 9_007_199_254_743_992i64}},
                {"name": "gear", "type": "u64", "last": {"time": gear, "value": 1}},
            ],
        })
    );
    let door = &answer["streams"][0];
    assert_eq!(door["tags"], value!({"room": "k 1,2"}));
    assert_eq!(door["fields"][0]["last"]["value"], "\"3\"");
}

#[test]
fn a_search_needs_every_word_somewhere() {
    let server = serve(cars);
    let found = |search: &str| {
        names(&json(
            &server,
            &format!("/api/v1/streams?search={}", encoded(search)),
        ))
    };
    assert_eq!(found("CAR=A"), ["obd,car=a"]);
    assert_eq!(found("speed"), ["obd,car=a", "obd,car=b"]);
    assert_eq!(found("gear b obd"), ["obd,car=a", "obd,car=b"]);
    assert_eq!(found("gear =b"), ["obd,car=b"]);
    assert_eq!(found("open state"), [r"door,room=k\ 1\,2"]);
    assert!(found("open speed").is_empty());
    let by_table = json(&server, "/api/v1/streams?table=obd&search=car&limit=1");
    assert_eq!(
        (&by_table["total"], names(&by_table)),
        (&value!(2), vec!["obd,car=a".to_owned()])
    );
    assert_eq!(json(&server, "/api/v1/streams?table=none")["total"], 0);
}

#[test]
fn the_streams_that_fit_are_counted_by_table() {
    let server = serve(cars);
    let tables = |path: &str| json(&server, path)["tables"].clone();
    let all = value!([{"table": "door", "streams": 1}, {"table": "obd", "streams": 2}]);
    assert_eq!(tables("/api/v1/streams"), all);
    // Whatever the page holds.
    assert_eq!(tables("/api/v1/streams?limit=0"), all);
    assert_eq!(
        tables("/api/v1/streams?search=car%3Db"),
        value!([{"table": "obd", "streams": 1}])
    );
    assert_eq!(tables("/api/v1/streams?search=nothing"), value!([]));
}

#[test]
fn pages_follow_one_another_without_a_gap() {
    let server = serve(|db: &Database| {
        let mut batch = Batch::new();
        for table in ["a", "b", "c"] {
            for id in 0..37 {
                let name = StreamName::new(table, [("id", id.to_string())]);
                batch.stream(&name).row(START, [("v", 1.0.into())]).unwrap();
            }
        }
        db.commit(batch).unwrap();
    });
    for search in ["", "&search=id", "&search=1%20v"] {
        let all = json(&server, &format!("/api/v1/streams?limit=1000{search}"));
        let mut walked = Vec::new();
        let mut after = String::new();
        loop {
            let page = json(&server, &format!("/api/v1/streams?limit=10{search}{after}"));
            assert_eq!(page["total"], all["total"]);
            walked.extend(names(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", encoded(next)),
                None => break,
            }
        }
        assert_eq!(walked, names(&all));
        assert_eq!(all["total"], walked.len());
        assert!(
            walked.len() == 111 || search == "&search=1%20v",
            "{}",
            walked.len()
        );
    }
    let none = json(&server, "/api/v1/streams?limit=0");
    assert_eq!((&none["total"], names(&none).len()), (&value!(111), 0));
}

#[test]
fn streams_are_found_by_name() {
    let server = serve(cars);
    let path = format!(
        "/api/v1/streams?stream=obd%2Ccar%3Db&stream=obd%2Ccar%3Dz&stream={}&stream=obd%2Ccar%3Db",
        encoded(r"door,room=k\ 1\,2")
    );
    let answer = json(&server, &path);
    assert_eq!(names(&answer), ["obd,car=b", r"door,room=k\ 1\,2"]);
    assert_eq!(answer["total"], 2);
}

#[test]
fn bad_questions_about_streams_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/streams?limit=1001",
            "/api/v1/streams?limit=-1",
            "/api/v1/streams?limit=x",
            "/api/v1/streams?after=,",
            "/api/v1/streams?stream=,",
            "/api/v1/streams?stream=a&table=b",
            "/api/v1/streams?tables=b",
            "/api/v1/streams?search=a&search=b",
            &format!("/api/v1/streams?search={}", "a+".repeat(20)),
        ],
    );
    let many = "stream=a&".repeat(65);
    refused(
        &server,
        400,
        "E_LIMIT",
        &[&format!("/api/v1/streams?{many}")],
    );
}
