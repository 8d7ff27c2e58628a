//! Alive and ready.

use crate::support::{Running, client, json};

#[test]
fn a_server_says_that_it_is_alive_and_ready() {
    let server = Running::start();
    let client = client();
    assert_eq!(
        client.get(server.url("/ping")).call().unwrap().status(),
        204
    );
    for path in ["/health", "/-/healthy"] {
        let mut answer = client.get(server.url(path)).call().unwrap();
        let body: serde_json::Value = answer.body_mut().read_json().unwrap();
        assert_eq!(body["status"], "pass");
    }
    for path in ["/ready", "/-/ready"] {
        let mut answer = client.get(server.url(path)).call().unwrap();
        let body: serde_json::Value = answer.body_mut().read_json().unwrap();
        assert_eq!(body["status"], "ready");
    }
    assert_eq!(
        client.head(server.url("/ping")).call().unwrap().status(),
        204
    );
}

/// Makes a database with one partition, and turns a bit of its segment's header.
fn with_a_damaged_partition(options: &headwater::Options) {
    let db = headwater::Database::open(options.clone()).unwrap();
    let mut batch = headwater::Batch::new();
    let pump = headwater::StreamName::new("pump", [("id", "1")]);
    let row = [("rpm", headwater::Value::F64(9.5))];
    batch
        .stream(&pump)
        .row(1_700_000_000_000_000_000, row)
        .unwrap();
    db.commit(batch).unwrap();
    db.close().unwrap();
    let segments = std::fs::read_dir(options.dir.join("segment")).unwrap();
    let path = segments.map(|entry| entry.unwrap().path()).next().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_server_starts_without_a_damaged_partition_and_says_so() {
    let server = Running::start_with(|settings| with_a_damaged_partition(&settings.engine));
    let client = client();
    let get = |path: &str| client.get(server.url(path)).call().unwrap();
    let ready: serde_json::Value = json(&mut get("/ready"));
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready["partitions_unreadable"], 1);
    let storage: serde_json::Value = json(&mut get("/api/v1/storage"));
    let said = storage["partitions"][0]["unreadable"].as_str().unwrap();
    assert!(said.contains(".seg"), "{said}");
    let metrics = get("/metrics").body_mut().read_to_string().unwrap();
    let gauge = "headwater_partitions_unreadable 1";
    assert!(
        metrics.lines().any(|line| line.starts_with(gauge)),
        "{metrics}"
    );
    // A sum over everything fails, and writes of other times and tables go on.
    assert_eq!(get("/api/v1/count?table=pump").status(), 500);
    let line = "pump,id=1 rpm=3 1500000000000000000\nother,id=2 rpm=4 1700000000000000000\n";
    let written = client.post(server.url("/write")).send(line).unwrap();
    assert_eq!(written.status(), 204);
}
