//! `SHOW`, and the statements clients send before they write.

use super::{error, results, series};
use crate::read_routes::{cars, encoded, get, json as ask, serve};
use crate::support::{Running, client};
use serde_json::json;

#[test]
fn names_are_listed() {
    let server = serve(cars);
    let measurements =
        json!([{"name": "measurements", "columns": ["name"], "values": [["door"], ["obd"]]}]);
    for (statement, expected) in [
        ("SHOW MEASUREMENTS", measurements.clone()),
        (
            "SHOW MEASUREMENTS ON plant WITH MEASUREMENT =~ /o/ LIMIT 10",
            measurements,
        ),
        (
            "SHOW MEASUREMENTS WHERE car = 'a' LIMIT 1",
            json!([{"name": "measurements", "columns": ["name"], "values": [["obd"]]}]),
        ),
        ("SHOW MEASUREMENTS WITH MEASUREMENT = none", json!([])),
        (
            "SHOW TAG KEYS",
            json!([
                {"name": "door", "columns": ["tagKey"], "values": [["room"]]},
                {"name": "obd", "columns": ["tagKey"], "values": [["car"]]},
            ]),
        ),
        (
            "SHOW TAG VALUES FROM obd WITH KEY = \"car\"",
            json!([{"name": "obd", "columns": ["key", "value"], "values": [["car", "a"], ["car", "b"]]}]),
        ),
        (
            "SHOW TAG VALUES WITH KEY IN (car, room) WHERE car =~ /b/ OR room != ''",
            json!([
                {"name": "door", "columns": ["key", "value"], "values": [["room", "k 1,2"]]},
                {"name": "obd", "columns": ["key", "value"], "values": [["car", "b"]]},
            ]),
        ),
        (
            "SHOW TAG VALUES WITH KEY =~ /^c/ LIMIT 1 OFFSET 1",
            json!([{"name": "obd", "columns": ["key", "value"], "values": [["car", "b"]]}]),
        ),
        (
            "SHOW TAG VALUES WITH KEY = car WHERE time < 1699999999s",
            json!([]),
        ),
        (
            "SHOW FIELD KEYS FROM obd",
            json!([{"name": "obd", "columns": ["fieldKey", "fieldType"], "values": [["gear", "unsigned"], ["odometer", "integer"], ["speed", "float"]]}]),
        ),
        (
            "SHOW FIELD KEYS SLIMIT 1",
            json!([{"name": "door", "columns": ["fieldKey", "fieldType"], "values": [["open", "boolean"], ["state", "string"]]}]),
        ),
        (
            "SHOW SERIES FROM obd WHERE car = 'a'",
            json!([{"columns": ["key"], "values": [["obd,car=a"]]}]),
        ),
        (
            "SHOW SERIES EXACT CARDINALITY",
            json!([
                {"name": "door", "columns": ["count"], "values": [[1]]},
                {"name": "obd", "columns": ["count"], "values": [[2]]},
            ]),
        ),
        (
            "SHOW MEASUREMENT CARDINALITY",
            json!([{"columns": ["cardinality estimation"], "values": [[2]]}]),
        ),
        (
            "SHOW RETENTION POLICIES ON plant",
            json!([{"columns": ["name", "duration", "shardGroupDuration", "replicaN", "default"], "values": [["autogen", "0s", "168h0m0s", 1, true]]}]),
        ),
        (
            "SHOW DATABASES",
            json!([{"name": "databases", "columns": ["name"], "values": [["headwater"]]}]),
        ),
    ] {
        assert_eq!(series(&server, statement), expected, "{statement}");
    }
    assert_eq!(
        results(&server, "SHOW CONTINUOUS QUERIES")[0]["series"][0]["columns"],
        json!(["name", "query"])
    );
}

#[test]
fn databases_have_one_name_if_it_is_set() {
    let server = Running::start_with(|settings| settings.write_database = Some("plant".to_owned()));
    assert_eq!(
        series(&server, "SHOW DATABASES")[0]["values"],
        json!([["plant"]])
    );
    // The questions here name the database `any`.
    assert!(error(&server, "SELECT v FROM m").contains("database not found: any"));
    assert!(error(&server, "SHOW MEASUREMENTS ON other").contains("database not found: other"));
    assert!(error(&server, "SELECT v FROM other.rp.m").contains("database not found: other"));
    assert_eq!(series(&server, "SELECT v FROM plant.rp.m"), json!([]));
    let body = ask(&server, "/query?db=plant&q=SELECT%20v%20FROM%20m");
    assert_eq!(body["results"][0]["series"], json!([]));
}

#[test]
fn a_database_is_made_by_post_and_with_a_warning_by_get() {
    let server = Running::start();
    let q = encoded("CREATE DATABASE plant");
    let mut answer = client()
        .post(server.url(&format!("/query?q={q}")))
        .send_empty()
        .unwrap();
    assert_eq!(
        answer.body_mut().read_to_string().unwrap(),
        "{\"results\":[{\"statement_id\":0}]}\n"
    );
    let (status, body) = get(&server, &format!("/query?q={q}"));
    assert_eq!(status, 200);
    assert!(body.contains("\"messages\":[{\"level\":\"warning\",\"text\":\"deprecated use of 'CREATE DATABASE plant'"), "{body}");
    let form = "q=CREATE+DATABASE+plant+WITH+DURATION+7d";
    let mut answer = client()
        .post(server.url("/query"))
        .content_type("application/x-www-form-urlencoded")
        .send(form)
        .unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    assert!(body.contains("is ignored: retention is"), "{body}");
}
