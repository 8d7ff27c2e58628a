//! The lake that a server keeps, and the catalog by which other engines find its tables.

use crate::support::{Running, client, json};
use crate::sync::{edge, flushed};
use headwater_server::Settings;
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::{LAKE_READERS, or_skip, python, run, until};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The first instant of a day long past: 2023-11-15.
const START: i64 = 1_700_006_400;
/// Settings of a server that writes its lake all the time.
fn eager(settings: &mut Settings, dir: &Path) {
    settings.lake.dir = Some(dir.to_str().unwrap().to_owned());
    settings.lake.every = Some(Duration::from_millis(200));
}

/// A token with these rules.
fn token(file: &TokenFile, rules: &[&str]) -> String {
    let new = NewToken {
        name: rules.join("; "),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        expires: None,
    };
    file.create(new).unwrap()
}

fn started(lake: &TempDir) -> Running {
    Running::start_with(|settings| eager(settings, lake.path()))
}

fn write(server: &Running, lines: &str) {
    let answer = client()
        .post(server.url("/write?precision=s"))
        .send(lines)
        .unwrap();
    assert_eq!(answer.status(), 204);
}

fn get(server: &Running, path: &str, token: Option<&str>) -> (u16, Value) {
    let mut asked = client().get(server.url(&format!("/iceberg/v1/{path}")));
    if let Some(token) = token {
        asked = asked.header("authorization", format!("Bearer {token}"));
    }
    let mut answer = asked.call().unwrap();
    (answer.status().as_u16(), json(&mut answer))
}

/// What stands in the table's current snapshot under a name.
fn snapshot_property(server: &Running, table: &str, name: &str) -> Option<String> {
    let (status, body) = get(server, table, None);
    if status == 404 {
        return None;
    }
    assert_eq!(status, 200, "{body}");
    let metadata = &body["metadata"];
    let snapshots = metadata["snapshots"].as_array()?;
    let current = snapshots
        .iter()
        .find(|s| s["snapshot-id"] == metadata["current-snapshot-id"])?;
    current["summary"][name].as_str().map(str::to_owned)
}

fn until_it_has(server: &Running, table: &str, rows: &str) {
    until("the lake has the rows", || {
        snapshot_property(server, table, "total-records").as_deref() == Some(rows)
    });
}

#[test]
fn a_server_keeps_its_lake_and_tells_where_it_is() {
    let lake = tempfile::tempdir().unwrap();
    let server = started(&lake);
    let (status, config) = get(&server, "config?warehouse=x", None);
    assert_eq!((status, &config["overrides"]), (200, &json!({})));
    write(
        &server,
        &format!("pump,id=1 rpm=1 {START}\nfan,id=1 rpm=2 {START}\n"),
    );
    until_it_has(&server, "namespaces/headwater/tables/pump", "1");
    until_it_has(&server, "namespaces/headwater/tables/fan", "1");
    // Late rows, and rows written again, are there by the next turn.
    let late = format!("pump,id=1 rpm=5 {START}\npump,id=1 rpm=3 {}\n", START - 100);
    write(&server, &late);
    until_it_has(&server, "namespaces/headwater/tables/pump", "2");
    let (_, body) = get(&server, "namespaces", None);
    assert_eq!(body, json!({"namespaces": [["headwater"]]}));
    let (_, body) = get(&server, "namespaces?parent=headwater&pageToken=", None);
    assert_eq!(body, json!({"namespaces": []}));
    let (_, body) = get(&server, "namespaces/headwater", None);
    assert_eq!(body["namespace"], json!(["headwater"]));
    let (_, body) = get(&server, "namespaces/headwater/tables", None);
    let names = ["fan", "pump"].map(|name| json!({"namespace": ["headwater"], "name": name}));
    assert_eq!(body, json!({"identifiers": names}));
    let (_, body) = get(&server, "namespaces/headwater/views", None);
    assert_eq!(body, json!({"identifiers": []}));
    let (_, body) = get(
        &server,
        "namespaces/headwater/tables/pump?snapshots=refs",
        None,
    );
    let path = PathBuf::from(body["metadata-location"].as_str().unwrap());
    let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(file["table-uuid"], body["metadata"]["table-uuid"]);
    let figures = client().get(server.url("/metrics")).call().unwrap();
    let figures = figures.into_body().read_to_string().unwrap();
    assert!(
        figures.contains("headwater_lake_failures_total 0"),
        "{figures}"
    );
    // After a restart it goes on from what is there.
    let server = server.restarted(|settings| eager(settings, lake.path()));
    write(&server, &format!("pump,id=2 rpm=1 {START}\n"));
    until_it_has(&server, "namespaces/headwater/tables/pump", "3");
}

#[test]
fn days_that_ended_shortly_ago_are_left_and_today_is_written_when_asked_for() {
    let lake = tempfile::tempdir().unwrap();
    let server = Running::start_with(|settings| {
        eager(settings, lake.path());
        settings.lake.closed_for = Some(Duration::from_secs(86_400));
    });
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    write(
        &server,
        &format!("pump,id=1 rpm=1 {START}\npump,id=1 rpm=2 {now}\n"),
    );
    until_it_has(&server, "namespaces/headwater/tables/pump", "1");
    let server = server.restarted(|settings| {
        eager(settings, lake.path());
        settings.lake.closed_for = None;
    });
    until_it_has(&server, "namespaces/headwater/tables/pump", "2");
}

#[test]
fn what_is_not_there_is_refused_in_the_words_of_the_protocol() {
    let lake = tempfile::tempdir().unwrap();
    let server = started(&lake);
    write(&server, &format!("pump,id=1 rpm=1 {START}\n"));
    until_it_has(&server, "namespaces/headwater/tables/pump", "1");
    for (path, kind) in [
        ("namespaces/none", "NoSuchNamespaceException"),
        ("namespaces/edge_..", "NoSuchNamespaceException"),
        ("namespaces?parent=none", "NoSuchNamespaceException"),
        ("namespaces/none/tables", "NoSuchNamespaceException"),
        ("namespaces/none/tables/pump", "NoSuchTableException"),
        ("namespaces/headwater/tables/none", "NoSuchTableException"),
        (
            "namespaces/headwater/tables/..%2F..",
            "NoSuchTableException",
        ),
        ("namespaces/headwater/tables/%00", "NoSuchTableException"),
        ("namespaces/headwater/views/pump", "NoSuchViewException"),
    ] {
        let (status, body) = get(&server, path, None);
        let error = &body["error"];
        assert_eq!(
            (status, error["type"].as_str()),
            (404, Some(kind)),
            "{path}: {body}"
        );
        assert_eq!(error["code"], 404, "{path}");
    }
    let (status, body) = get(&server, "namespaces?nonsense=1", None);
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!(400)),
        "{body}"
    );
    // Nothing is changed by this door.
    for path in [
        "namespaces",
        "namespaces/headwater/tables",
        "namespaces/headwater/tables/pump",
    ] {
        let url = server.url(&format!("/iceberg/v1/{path}"));
        let answer = client().post(url).send("{}").unwrap();
        assert_eq!(answer.status(), 405, "{path}");
    }
    let metrics = |table: &str| {
        let path = format!("/iceberg/v1/namespaces/headwater/tables/{table}/metrics");
        let answer = client().post(server.url(&path)).send("{}").unwrap();
        answer.status().as_u16()
    };
    assert_eq!((metrics("pump"), metrics("none")), (204, 404));
    // A server without a lake says so.
    let server = Running::start();
    for path in ["config", "namespaces", "namespaces/headwater/tables/pump"] {
        let (status, body) = get(&server, path, None);
        assert_eq!(
            (status, &body["error"]["type"]),
            (404, &json!("E_NO_LAKE")),
            "{path}"
        );
    }
}

#[test]
fn a_table_is_there_for_who_may_read_all_of_it() {
    let lake = tempfile::tempdir().unwrap();
    let mut tokens = Vec::new();
    let server = Running::start_with(|settings| {
        eager(settings, lake.path());
        let file = TokenFile::of_database(settings.db());
        for rules in [
            &["read *", "write *"][..],
            &["read pump"],
            &["read pump,id=1"],
            &["read other", "write pump"],
        ] {
            tokens.push(token(&file, rules));
        }
    });
    let lines = format!("pump,id=1 rpm=1 {START}\nfan,id=1 rpm=2 {START}\n");
    let answer = client()
        .post(server.url("/write?precision=s"))
        .header("authorization", format!("Bearer {}", tokens[0]))
        .send(&lines)
        .unwrap();
    assert_eq!(answer.status(), 204);
    let names = |token: &str| {
        let (status, body) = get(&server, "namespaces/headwater/tables", Some(token));
        assert_eq!(status, 200, "{body}");
        let all = body["identifiers"].as_array().unwrap().clone();
        let names = all
            .iter()
            .map(|table| table["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    until("the lake has both tables", || {
        names(&tokens[0]) == ["fan", "pump"]
    });
    assert_eq!(names(&tokens[1]), ["pump"]);
    // Files know nothing of rules about single streams.
    assert!(names(&tokens[2]).is_empty());
    assert!(names(&tokens[3]).is_empty());
    for (token, sees) in tokens.iter().zip([true, true, false, false]) {
        for (table, is_there) in [
            ("pump", sees),
            ("fan", token == &tokens[0]),
            ("none", false),
        ] {
            let path = format!("namespaces/headwater/tables/{table}");
            let (status, body) = get(&server, &path, Some(token));
            assert_eq!(status, if is_there { 200 } else { 404 }, "{table}");
            if !is_there {
                // Unseen and absent are told alike.
                let absent = get(&server, "namespaces/headwater/tables/none", Some(token)).1;
                let text = body.to_string().replace(&format!("`{table}`"), "`none`");
                assert_eq!(text, absent.to_string());
            }
        }
    }
    assert_eq!(get(&server, "namespaces", None).0, 401);
    assert_eq!(get(&server, "config", Some("nonsense")).0, 401);
}

#[test]
fn a_table_that_cannot_be_written_keeps_no_other_from_it() {
    let lake = tempfile::tempdir().unwrap();
    {
        // A table of another database is in the way.
        let server = started(&lake);
        write(&server, &format!("a,id=1 rpm=1 {START}\n"));
        until_it_has(&server, "namespaces/headwater/tables/a", "1");
    }
    let server = started(&lake);
    write(
        &server,
        &format!("a,id=1 rpm=1 {START}\nb,id=1 rpm=1 {START}\n"),
    );
    until_it_has(&server, "namespaces/headwater/tables/b", "1");
    until("the failure is counted", || {
        let figures = client().get(server.url("/metrics")).call().unwrap();
        let figures = figures.into_body().read_to_string().unwrap();
        let line = figures
            .lines()
            .find_map(|l| l.strip_prefix("headwater_lake_failures_total "));
        line.is_some_and(|count| count != "0")
    });
}

#[test]
fn a_cloud_keeps_the_tables_of_its_edges_each_in_a_namespace_of_its_own() {
    let lake = tempfile::tempdir().unwrap();
    let cloud = Running::start_with(|settings| {
        settings.sync.role = NodeRole::Cloud;
        eager(settings, lake.path());
    });
    let edge = edge(&cloud, "north.1");
    write(
        &edge,
        &format!("pump,id=1 rpm=1 {START}\npump,id=1 rpm=2 {}\n", START + 1),
    );
    flushed(&edge);
    until_it_has(&cloud, "namespaces/edge_north.1/tables/pump", "2");
    let (_, body) = get(&cloud, "namespaces", None);
    assert_eq!(
        body,
        json!({"namespaces": [["headwater"], ["edge_north.1"]]})
    );
}

#[test]
fn duckdb_and_pyiceberg_read_through_the_catalog() {
    let Some(python) = or_skip(python(&LAKE_READERS)) else {
        return;
    };
    let lake = tempfile::tempdir().unwrap();
    let mut secret = String::new();
    let server = Running::start_with(|settings| {
        eager(settings, lake.path());
        let file = TokenFile::of_database(settings.db());
        secret = token(&file, &["read *", "write *"]);
    });
    let lines: Vec<String> = (0..300)
        .map(|row| format!("pump,id={} rpm={row} {}", row % 3, START + row * 1000))
        .collect();
    let answer = client()
        .post(server.url("/write?precision=s"))
        .header("authorization", format!("Bearer {secret}"))
        .send(lines.join("\n"))
        .unwrap();
    assert_eq!(answer.status(), 204);
    until("the lake has the rows", || {
        let path = "namespaces/headwater/tables/pump";
        let (status, body) = get(&server, path, Some(&secret));
        let all = body["metadata"]["snapshots"]
            .as_array()
            .into_iter()
            .flatten();
        let mut all = all.map(|s| &s["summary"]["total-records"]);
        status == 200 && all.any(|rows| rows == "300")
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/iceberg.py");
    let found = run(Command::new(python)
        .arg(script)
        .arg(server.url("/iceberg"))
        .arg(&secret));
    match found {
        Ok(found) => println!("{found}"),
        Err(why) => panic!("{why}"),
    }
}
