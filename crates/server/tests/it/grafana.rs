//! What is packaged for Grafana: it can be read, fits together, and its questions are answered.

use crate::support::{Running, client, json};
use serde_json::Value;
use std::path::Path;

/// A file of `packaging/grafana`. Those that end in `yaml` are JSON too.
fn packaged(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every value under a key, wherever it stands.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                if name == key {
                    found.push(inner);
                }
                all(inner, key, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|inner| all(inner, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_the_data_source_that_is_provisioned() {
    let sources = packaged("datasource.yaml");
    let source = &sources["datasources"][0];
    assert_eq!(
        (&sources["apiVersion"], &source["type"]),
        (&1.into(), &"influxdb".into())
    );
    let dashboard = packaged("dashboards/headwater.json");
    let mut asked = Vec::new();
    all(&dashboard, "datasource", &mut asked);
    assert!(asked.len() >= 8, "{}", asked.len());
    for each in asked {
        assert_eq!(
            (&each["uid"], &each["type"]),
            (&source["uid"], &source["type"])
        );
    }
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["id"])
        .collect();
    assert!(
        ids.iter().enumerate().all(|(k, id)| !ids[..k].contains(id)),
        "{ids:?}"
    );
    let providers = packaged("dashboards.yaml");
    assert_eq!(providers["providers"][0]["type"], "file");
}

#[test]
fn every_question_of_the_dashboard_is_answered() {
    let server = Running::start();
    let lines: String = (0..48)
        .flat_map(|hour| {
            ["JFK", "EWR"].map(|origin| {
                let at = 1_700_000_000 + hour * 3_600;
                format!("weather,origin={origin} temp={hour}.5 {at}\n")
            })
        })
        .collect();
    let written = client().post(server.url("/write?precision=s")).send(lines);
    assert_eq!(written.unwrap().status(), 204);
    let dashboard = packaged("dashboards/headwater.json");
    let mut questions = Vec::new();
    all(&dashboard, "query", &mut questions);
    assert!(questions.len() >= 6, "{questions:?}");
    for question in questions {
        // As Grafana fills them in.
        let question = question
            .as_str()
            .unwrap()
            .replace("$table", "weather")
            .replace("$field", "temp")
            .replace(
                "$timeFilter",
                "time >= 1700000000000ms and time <= 1700200000000ms",
            )
            .replace("$__interval", "6h");
        assert!(!question.contains('$'), "{question}");
        let mut answer = client()
            .get(server.url("/query"))
            .query("db", "headwater")
            .query("epoch", "ms")
            .query("q", &question)
            .call()
            .unwrap();
        let told = json(&mut answer);
        let result = &told["results"][0];
        assert!(result["error"].is_null(), "{question}: {told}");
        let rows = result["series"][0]["values"].as_array();
        assert!(
            rows.is_some_and(|rows| !rows.is_empty()),
            "{question}: {told}"
        );
    }
}
