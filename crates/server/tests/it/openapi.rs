//! The OpenAPI page and the routes say the same.

use crate::support::{Running, client, json};
use headwater_server::{Needs, endpoints};
use serde_json::Value;
use std::collections::BTreeSet;

/// How OpenAPI writes a path: the rest of a path is a part like any other.
fn path(path: &str) -> String {
    path.replace("{*", "{")
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let server = Running::start();
    let page: Value = json(
        &mut client()
            .get(server.url("/api/openapi.json"))
            .call()
            .unwrap(),
    );
    let mut described = BTreeSet::new();
    for (path, methods) in page["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert((path.clone(), method.to_uppercase()));
        }
    }
    let mut served = BTreeSet::new();
    for endpoint in endpoints() {
        let (path, method) = (path(endpoint.path), endpoint.method.to_string());
        let operation = &page["paths"][&path][method.to_lowercase()];
        served.insert((path.clone(), method.clone()));
        if operation.is_null() {
            // Told below, all at once.
            continue;
        }
        let open = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(open, endpoint.needs == Needs::Public, "{method} {path}");
        let responses = operation["responses"].as_object().unwrap();
        let wanted: &[&str] = match endpoint.needs {
            Needs::Public => &[],
            Needs::Token => &["401"],
            Needs::Read | Needs::Write | Needs::Manage => &["401", "403", "503"],
        };
        for status in wanted {
            assert!(responses.contains_key(*status), "{method} {path}: {status}");
        }
        assert!(operation["summary"].is_string(), "{method} {path}");
        for name in path.split('{').skip(1).map(|part| part.split('}').next()) {
            let parameters = operation["parameters"].as_array().unwrap();
            let has = |p: &Value| p["name"].as_str() == name && p["in"] == "path";
            assert!(parameters.iter().any(has), "{method} {path}: {name:?}");
        }
    }
    assert_eq!(
        described, served,
        "left: docs/http/openapi.json, right: the routes"
    );
}

#[test]
fn operations_have_names_of_their_own_and_references_lead_somewhere() {
    let server = Running::start();
    let page = json(
        &mut client()
            .get(server.url("/api/openapi.json"))
            .call()
            .unwrap(),
    );
    let mut names = BTreeSet::new();
    for methods in page["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} comes twice");
        }
    }
    let mut rest = vec![&page];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(values) => {
                if let Some(Value::String(to)) = values.get("$ref") {
                    let place = to.strip_prefix('#').unwrap();
                    assert!(page.pointer(place).is_some(), "{to} leads nowhere");
                }
                rest.extend(values.values());
            }
            _ => {}
        }
    }
}
