//! The door for PostgreSQL's clients, over loopback.

mod bombs;
mod clients;
mod copy;
mod copy_binary;
mod expressions;
mod grafana;
mod hoards;
mod meanings;
mod placeholders;
mod protocol;
pub(crate) mod raw;
mod relations;
mod rough;
mod rules;
mod tools;
mod zones;

use crate::support::Running;
use headwater::{Batch, Database, StreamName, Value};
use headwater_server::Settings;
use raw::Client;

/// A server with rows in it, and the door open.
fn start(change: impl FnOnce(&mut Settings)) -> Running {
    Running::start_with(|settings| {
        let db = Database::open(settings.engine.clone()).unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        settings.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
        change(settings);
    })
}

fn fill(db: &Database) {
    const S: i64 = 1_700_000_000_000_000_000;
    let mut batch = Batch::new();
    let seen = StreamName::new("cars", [("id", "seen")]);
    let values: [(&str, Value); 5] = [
        ("speed", Value::F64(1.5)),
        ("laps", Value::U64(3)),
        ("name", Value::String("x".to_owned())),
        ("ok", Value::Bool(true)),
        ("n", Value::I64(4)),
    ];
    batch.stream(&seen).row(S, values).unwrap();
    let other = StreamName::new("cars", [("id", "other")]);
    let values = [
        ("speed", Value::F64(2.5)),
        ("raw", Value::Bytes(vec![0, 255])),
    ];
    batch.stream(&other).row(S + 1_123_456_789, values).unwrap();
    let odd = StreamName::new("Odd Name", [("t", "1")]);
    batch.stream(&odd).row(S, [("v", Value::F64(1.0))]).unwrap();
    db.commit(batch).unwrap();
}

/// A session without a token.
pub(crate) fn session(server: &Running) -> Client {
    let mut client = Client::connect(server.postgres.unwrap());
    client.begin(&[("user", "ann"), ("database", "plant")]);
    client.ready();
    client
}
