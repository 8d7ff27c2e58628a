//! A server that only reads: beside the owner of the database, without a lock, without a change.

use crate::support::{Running, client};
use headwater::{Batch, Database, Options, StreamName};
use headwater_testing::until;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

fn row(time: i64) -> Batch {
    let mut batch = Batch::new();
    let name = StreamName::new("pump", [("id", "p1")]);
    batch
        .stream(&name)
        .row(time, [("rpm", 1.5.into())])
        .unwrap();
    batch
}

/// Every file below a folder: how long it is, and when it was changed.
fn files(dir: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            found.extend(files(&entry.path()));
        }
        found.insert(entry.path(), (about.len(), about.modified().unwrap()));
    }
    found
}

fn get(server: &Running, path: &str) -> String {
    let mut answer = client().get(server.url(path)).call().unwrap();
    let status = answer.status();
    // Tiles and what a node holds are no text.
    let body = answer.body_mut().read_to_vec().unwrap();
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn sql(server: &Running, statement: &str) -> String {
    let mut answer = client()
        .post(server.url("/api/v1/sql"))
        .send(statement)
        .unwrap();
    assert_eq!(answer.status(), 200, "{statement}");
    answer.body_mut().read_to_string().unwrap()
}

const COUNT: &str = "/api/v1/count?table=pump";

/// Everything that can be asked for, at every door.
fn answers(server: &Running) -> Vec<String> {
    let mut paths = vec![
        COUNT,
        "/ready",
        "/metrics",
        "/api/v1/streams",
        "/api/v1/storage",
        "/api/v1/last?stream=pump,id=p1",
        "/api/v1/scan?stream=pump,id=p1",
        "/api/v1/tiles?channel=pump,id%3Dp1.rpm&level=0&offset=0",
        "/query?db=other&q=SELECT+count(rpm)+FROM+pump",
        "/query?q=SHOW+DATABASES",
        "/api/v1/export?table=pump",
        "/api/v1/held",
    ];
    if cfg!(feature = "sql") {
        paths.push("/api/v1/watches");
    }
    let mut answers: Vec<String> = paths.into_iter().map(|path| get(server, path)).collect();
    if cfg!(feature = "sql") {
        answers.push(sql(server, "SELECT count(*) FROM pump"));
    }
    answers
}

#[test]
fn a_server_that_only_reads_changes_no_file_and_stands_beside_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    // Whoever asks for its history has it begun, so that dispatchers can be told.
    let owner = Database::open(Options::new(&path)).unwrap();
    owner.commit(row(1)).unwrap();
    owner.history().unwrap();
    let before = files(&path);
    let server = Running::start_in(dir, |settings| {
        settings.read_only = true;
        settings.read_only_refresh = Some(Duration::from_millis(100));
    });
    answers(&server);
    assert_eq!(files(&path), before);
    // What the owner stores meanwhile is seen at the next look, by every door.
    owner.commit(row(2)).unwrap();
    until("it looks again", || get(&server, COUNT).contains('2'));
    if cfg!(feature = "sql") {
        let counted = sql(&server, "SELECT count(*) AS n FROM pump");
        assert!(counted.contains('2'), "{counted}");
    }
    owner.compact().unwrap();
    owner.commit(row(3)).unwrap();
    until("it looks again", || get(&server, COUNT).contains('3'));
    owner
        .create_table(&headwater::TableSpec::new("valve"))
        .unwrap();
    until("a table is seen", || {
        get(&server, "/query?q=SHOW+MEASUREMENTS").contains("pump")
            && (cfg!(not(feature = "sql")) || sql(&server, "SHOW TABLES").contains("valve"))
    });
    owner.close().unwrap();
    drop(owner);
    let closed = files(&path);
    answers(&server);
    let dir = server.ended();
    assert_eq!(files(&path), closed);
    // The owner comes back to everything.
    let server = Running::start_in(dir, |_| {});
    assert!(get(&server, COUNT).contains('3'));
}

#[test]
fn without_looking_again_a_server_that_only_reads_shows_what_was_there_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let owner = Database::open(Options::new(&path)).unwrap();
    owner.commit(row(1)).unwrap();
    let server = Running::start_in(dir, |settings| settings.read_only = true);
    // A name for dispatchers only the owner can give it.
    let mut refused = client().get(server.url("/api/v1/held")).call().unwrap();
    assert_eq!(refused.status(), 403);
    let refused = refused.body_mut().read_to_string().unwrap();
    assert!(refused.contains("E_READ_ONLY"), "{refused}");
    let dir = server.ended();
    owner.history().unwrap();
    let server = Running::start_in(dir, |settings| settings.read_only = true);
    let first = answers(&server);
    owner.commit(row(2)).unwrap();
    owner.compact().unwrap();
    assert_eq!(get(&server, COUNT), first[0]);
    // Its end is not that of the database.
    drop(server.ended());
    owner.commit(row(3)).unwrap();
}
