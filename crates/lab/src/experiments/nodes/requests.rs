//! Requests to nodes that all parts use.

use crate::experiments::server::{Connection, Server, get, post};
use crate::harness::Failure;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The answer to a query, which has to be one.
pub(crate) fn json(server: &Server, path: &str) -> Result<Value, Failure> {
    let mut connection = Connection::open(server.addr)?;
    let answer = connection.send(&get(path))?;
    let body = connection.body(&answer);
    if answer.status != 200 {
        let text = String::from_utf8_lossy(body);
        return Err(format!("{path}: {} {text}", answer.status).into());
    }
    Ok(serde_json::from_slice(body)?)
}

/// Sends a command about other nodes, and returns the answer.
pub(crate) fn sync(server: &Server, asked: &Value) -> Result<Value, Failure> {
    let mut connection = Connection::open(server.addr)?;
    let answer = connection.send(&post("/api/v1/sync", asked.to_string().as_bytes()))?;
    let body = connection.body(&answer);
    if answer.status != 200 {
        let text = String::from_utf8_lossy(body);
        return Err(format!("{asked}: {} {text}", answer.status).into());
    }
    Ok(serde_json::from_slice(body)?)
}

/// A number of an answer, by JSON pointer.
pub(crate) fn number(answer: &Value, place: &str) -> Option<u64> {
    answer.pointer(place)?.as_u64()
}

/// Waits until a condition is true, for at most ten minutes; returns the time waited.
pub(crate) fn until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, Failure>,
) -> Result<Duration, Failure> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > Duration::from_secs(600) {
            return Err(format!("{what}: not within ten minutes").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(begun.elapsed())
}
