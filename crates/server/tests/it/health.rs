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

#[test]
fn a_server_with_a_fast_tier_tells_what_lies_on_which_medium_and_how_they_wear() {
    let client = client();
    let storage = |server: &Running| -> serde_json::Value {
        json(&mut client.get(server.url("/api/v1/storage")).call().unwrap())
    };
    assert!(storage(&Running::start())["tiers"].is_null());
    let fast = tempfile::tempdir().unwrap();
    let folder = fast.path().join("tier");
    let server = Running::start_with(|settings| {
        settings.engine.fast_dir = Some(folder.clone());
        settings.engine.fast_bytes = Some(64 << 20);
        settings.engine.fast_parts.index = true;
        settings.engine.fast_parts.newest = true;
        settings.engine.log_mirror = Some(std::time::Duration::from_millis(10));
    });
    let line = "pump,id=1 rpm=3 1500000000000000000\n";
    let written = client.post(server.url("/write")).send(line).unwrap();
    assert_eq!(written.status(), 204);
    let tiers = loop {
        let tiers = storage(&server)["tiers"].take();
        if tiers["log_mirror_behind_bytes"] == 0 {
            break tiers;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!(tiers["fast"], folder.to_str().unwrap());
    assert_eq!(tiers["parts"], "log,pins,index,newest");
    assert_eq!(tiers["fast_index_bytes"], 0, "nothing is stored yet");
    assert_eq!(tiers["fast_newest_bytes"], 0, "nothing is stored yet");
    // The log's share of the tier.
    assert_eq!(tiers["fast_bytes_max"], 32 << 20);
    let newest = &tiers["fast_newest"];
    assert_eq!(newest["segments"], 0, "{tiers}");
    assert_eq!(newest["dropped"], 0, "{tiers}");
    assert!(newest["bytes_max"].as_u64() > Some(0), "{tiers}");
    assert_eq!(tiers["fast_index"]["bytes_max"], 8 << 20);
    assert_eq!(tiers["fast_index"]["refused"], 0);
    for medium in ["fast", "bulk"] {
        let figure = |name: &str| tiers[format!("{medium}_{name}")].as_u64().unwrap();
        assert!(
            figure("bytes") > 0 && figure("written_bytes") > 0,
            "{tiers}"
        );
    }
    let mut answer = client.get(server.url("/metrics")).call().unwrap();
    let metrics = answer.body_mut().read_to_string().unwrap();
    for name in [
        "headwater_fast_tier_bytes_max 33554432",
        "headwater_fast_tier_written_bytes_total ",
        "headwater_bulk_written_bytes_total ",
        "headwater_log_mirror_behind_bytes 0",
        "headwater_fast_tier_index_bytes 0",
        "headwater_fast_tier_index_reads_total 0",
        "headwater_fast_tier_index_dropped_total 0",
        "headwater_fast_tier_index_refused_total 0",
        "headwater_fast_tier_newest_bytes 0",
        "headwater_fast_tier_newest_segments 0",
    ] {
        let is_told = metrics.lines().any(|line| line.starts_with(name));
        assert!(is_told, "{name}: {metrics}");
    }
}
