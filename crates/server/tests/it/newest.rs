//! Newest events of an edge at its cloud, before the edge has stored them.

use crate::support::{Running, client, json};
use crate::sync::{cloud, invite, joined, of_edge, status, write};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::{Value, json};
use std::time::Duration;

/// An edge that sends newest events along, and stores them only when it is told to.
fn live_edge(cloud: &Running, name: &str, want: &Value) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(cloud, name, want);
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    Running::start_in(dir, live)
}

fn live(s: &mut headwater_server::settings::Settings) {
    s.sync.role = NodeRole::Edge;
    s.sync.flush_every = None;
    s.sync.live = Some(Duration::from_secs(1));
    s.sync.withhold = vec!["secret".into()];
    s.engine.idle_after = None;
}

fn get(server: &Running, path: &str) -> (u16, Value) {
    let mut answer = client().get(server.url(path)).call().unwrap();
    (answer.status().as_u16(), json(&mut answer))
}

fn in_memory(edge: &Running) -> u64 {
    get(edge, "/api/v1/storage").1["events_in_memory"]
        .as_u64()
        .unwrap()
}

fn line(id: &str, second: i64, value: f64) -> String {
    let at = (1_700_000_000 + second) * 1_000_000_000;
    format!("pump,id={id} flow={value} {at}\n")
}

const QUESTIONS: [&str; 5] = [
    "/api/v1/last?stream=pump,id%3Da",
    "/api/v1/scan?stream=pump,id%3Da",
    "/api/v1/tiles?channel=pump,id%3Da.flow&level=3&offset=415039",
    "/api/v1/tiles?channel=pump,id%3Da.flow&level=12&offset=810",
    "/api/v1/count?table=pump",
];

/// Waits until the cloud answers as the edge does.
fn until_alike(cloud: &Running, edge: &Running) {
    for question in QUESTIONS {
        until(&format!("{question} is as at the edge"), || {
            let (there, here) = (get(edge, question), get(cloud, question));
            there.0 == 200 && there == here
        });
    }
}

/// How old newest events were when they came is in the status, the metrics and the answers.
fn the_lag_is_told(cloud: &Running, edge: &Running) {
    until("the lag of newest events is known", || {
        // The edge reports it with events.
        write(edge, &line("lag", 0, 1.5));
        let lag = of_edge(cloud, "e")["lag"].clone();
        (1..60_000).contains(&lag["live_ms"].as_i64().unwrap_or(0)) && lag["clock_ms"].is_i64()
    });
    let lag = of_edge(cloud, "e")["lag"].clone();
    assert!(lag["clock_ms"].as_i64().unwrap().abs() < 60_000, "{lag}");
    let header = |server: &Running, path: &str| {
        let answer = client().get(server.url(path)).call().unwrap();
        let found = answer.headers().get("x-headwater-live-lag");
        found.map(|lag| lag.to_str().unwrap().parse::<i64>().unwrap())
    };
    let newest = QUESTIONS[0];
    assert!(header(cloud, newest).is_some_and(|lag| lag >= 0));
    assert_eq!(header(edge, newest), None);
    let metric = "headwater_sync_edge_live_lag_seconds{edge=\"e\"}";
    until("the lag is a metric", || {
        let mut answer = client().get(cloud.url("/metrics")).call().unwrap();
        let page = answer.body_mut().read_to_string().unwrap();
        page.contains(metric)
    });
}

#[test]
fn newest_events_are_at_the_cloud_before_the_edge_stores_them() {
    let cloud = cloud();
    let edge = live_edge(&cloud, "e", &json!({}));
    write(&edge, &line("a", 0, 1.5));
    write(&edge, "secret,id=x hidden=1 1700000000000000000");
    until_alike(&cloud, &edge);
    // More of it, late, and of a stream and a field that nobody knew.
    let mut more: String = (1..50).map(|n| line("a", n, n as f64)).collect();
    more += &line("a", -30, 7.0);
    more += &line("b", 3, 2.0);
    more += "pump,id=a power=4i 1700000100000000000\n";
    write(&edge, &more);
    until_alike(&cloud, &edge);
    assert!(in_memory(&edge) > 50, "nothing was stored for it");
    until("it is said so", || {
        let there = of_edge(&cloud, "e");
        there["copy"]["is_live"] == true && there["about"]["live_bytes"].as_u64() > Some(0)
    });
    the_lag_is_told(&cloud, &edge);
    // Nothing of what is withheld came along.
    let secret = "/api/v1/last?stream=secret,id%3Dx";
    let says = |server: &Running| get(server, secret).1.to_string().contains("hidden");
    assert!(says(&edge) && !says(&cloud));
    // What is deleted goes as soon, though it was never stored.
    let delete = json!({"op": "delete", "table": "pump", "tags": {"id": "a"},
        "from": "2023-11-14T22:13:30Z", "to": "2023-11-14T22:13:40Z"});
    let mut answer = client()
        .post(edge.url("/api/v1/manage"))
        .send(delete.to_string())
        .unwrap();
    assert_eq!(answer.status(), 200, "{}", json(&mut answer));
    until_alike(&cloud, &edge);
}

#[test]
fn newest_events_are_there_again_after_either_was_started_anew() {
    let cloud = cloud();
    let edge = live_edge(&cloud, "e", &json!({"want": {"summaries": 8}}));
    write(
        &edge,
        &(0..20).map(|n| line("a", n, 0.5)).collect::<String>(),
    );
    until_alike(&cloud, &edge);
    let edge = edge.restarted(live);
    write(
        &edge,
        &(20..40).map(|n| line("a", n, 0.5)).collect::<String>(),
    );
    let newest = "/api/v1/last?stream=pump,id%3Da";
    until("the newest value is there", || {
        get(&cloud, newest) == get(&edge, newest)
    });
    let port = cloud.addr.port();
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(port);
    });
    write(&edge, &line("a", 41, 9.0));
    until("the newest value is there", || {
        get(&cloud, newest) == get(&edge, newest)
    });
    assert_eq!(status(&edge)["cloud"]["state"], "connected");
}
