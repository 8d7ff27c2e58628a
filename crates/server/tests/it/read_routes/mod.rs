//! The routes that read, over loopback: what they answer, and what they say to bad questions.

mod aggregate;
mod count;
mod live;
mod rows;
mod streams;
mod tiles;

use crate::support::{Running, client};
use headwater::{Batch, Database, StreamName};
use serde_json::Value;

pub(crate) const SECOND: i64 = 1_000_000_000;
/// A round instant in 2023.
pub(crate) const START: i64 = 1_700_000_000 * SECOND;

/// A server over a database that is filled before it starts.
pub(crate) fn serve(fill: impl FnOnce(&Database)) -> Running {
    Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        fill(&db);
        db.close().unwrap();
    })
}

/// Two cars a second, and a door whose fields are text and a flag: of the first car the speed is
/// its number of seconds.
pub(crate) fn cars(db: &Database) {
    let mut batch = Batch::new();
    for car in ["a", "b"] {
        let rows = batch.stream(&StreamName::new("obd", [("car", car)]));
        for second in 0..3_000 {
            let time = START + second * SECOND;
            let mut row = vec![
                ("speed", (second as f64).into()),
                ("odometer", (9_007_199_254_740_993 + second).into()),
            ];
            if second % 10 == 0 {
                row.push(("gear", (second as u64 % 7).into()));
            }
            rows.row(time, row).unwrap();
        }
    }
    let door = batch.stream(&StreamName::new("door", [("room", "k 1,2")]));
    for second in 0..4 {
        let time = START + second * SECOND;
        door.row(
            time,
            [
                ("state", format!("\"{second}\"").into()),
                ("open", (second % 2 == 0).into()),
            ],
        )
        .unwrap();
    }
    db.commit(batch).unwrap();
}

/// Status and body of an answer.
pub(crate) fn get(server: &Running, path: &str) -> (u16, String) {
    let mut answer = client().get(server.url(path)).call().unwrap();
    let status = answer.status().as_u16();
    (status, answer.body_mut().read_to_string().unwrap())
}

/// Writes line protocol; gives the status and what was answered.
pub(crate) fn write(server: &Running, lines: &str) -> (u16, String) {
    let mut answer = client()
        .post(server.url("/write?precision=ns"))
        .send(lines)
        .unwrap();
    let status = answer.status().as_u16();
    (status, answer.body_mut().read_to_string().unwrap())
}

/// The body of an answer that must be a success.
pub(crate) fn json(server: &Running, path: &str) -> Value {
    let (status, body) = get(server, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Checks that these are refused with this status and code, and a message.
pub(crate) fn refused(server: &Running, status: u16, code: &str, paths: &[&str]) {
    for path in paths {
        let (found, body) = get(server, path);
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        assert_eq!(
            (found, answer["code"].as_str()),
            (status, Some(code)),
            "{path}: {body}"
        );
        assert!(
            answer["message"].as_str().is_some_and(|m| m.len() > 10),
            "{path}: {body}"
        );
    }
}

/// Percent-encodes everything but letters and digits.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
