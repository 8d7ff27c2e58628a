//! InfluxQL over `/query`: what statements answer, byte for byte, and what is said to bad ones.

mod access;
mod databases;
mod forms;
mod into;
mod shapes;
mod show;
mod statements;
mod ycsb;

use crate::read_routes::{encoded, get};
use crate::support::Running;
use serde_json::Value;

/// The results of statements, times in seconds.
pub(crate) fn results(server: &Running, statements: &str) -> Vec<Value> {
    let path = format!("/query?db=any&epoch=s&q={}", encoded(statements));
    let (status, body) = get(server, &path);
    assert_eq!(status, 200, "{statements}: {body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["results"].as_array().unwrap().clone()
}

/// The series of one statement.
pub(crate) fn series(server: &Running, statement: &str) -> Value {
    let result = results(server, statement).remove(0);
    assert!(result["error"].is_null(), "{statement}: {result}");
    result["series"].clone()
}

/// The rows of a statement that answers one series.
pub(crate) fn rows(server: &Running, statement: &str) -> Value {
    let series = series(server, statement);
    assert_eq!(
        series.as_array().map(Vec::len),
        Some(1),
        "{statement}: {series}"
    );
    series[0]["values"].clone()
}

/// What a statement that cannot be carried out is told.
pub(crate) fn error(server: &Running, statement: &str) -> String {
    let result = results(server, statement).remove(0);
    let error = result["error"].as_str();
    error
        .unwrap_or_else(|| panic!("{statement}: {result}"))
        .to_owned()
}
