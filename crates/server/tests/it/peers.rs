//! Two clouds that are peers: each has everything, and either answers about everything.

use crate::dispatch::dispatcher;
use crate::support::{Running, client, json};
use crate::sync::{an_hour, edge, flushed, status, until_current, write};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::{Value, json};
use std::net::TcpListener;
use tempfile::TempDir;

/// Ports that nobody uses now.
fn ports() -> [u16; 2] {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn cloud_in(dir: TempDir, ports: [u16; 2], at: usize) -> Running {
    Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Cloud;
        s.http_addr.set_port(ports[at]);
        s.peer.url = Some(format!("http://127.0.0.1:{}", ports[1 - at]));
        s.peer.name = ["north", "south"][at].to_owned();
        s.sync.flush_every = Some(std::time::Duration::from_secs(1));
    })
}

/// Two peers, each with an edge that has an hour of a stream.
fn peers() -> ([u16; 2], [Running; 2], [Running; 2]) {
    let ports = ports();
    let clouds = [0, 1].map(|at| cloud_in(TempDir::new().unwrap(), ports, at));
    let edges = [edge(&clouds[0], "pump"), edge(&clouds[1], "pump")];
    for (at, tag) in ["a", "b"].into_iter().enumerate() {
        write(&edges[at], &an_hour(tag));
        flushed(&edges[at]);
        until_current(&clouds[at], &edges[at], "pump");
    }
    (ports, clouds, edges)
}

fn count(server: &Running) -> (u16, Value) {
    let mut answer = client().get(server.url("/api/v1/count")).call().unwrap();
    (answer.status().as_u16(), json(&mut answer)["rows"].clone())
}

/// What a count about everything must be: rows of all edges and of the clouds themselves.
fn until_both_count(servers: &[&Running], rows: u64) {
    for server in servers {
        let mut shown = std::time::Instant::now();
        until("everything is counted", || {
            let found = count(server);
            if shown.elapsed() > std::time::Duration::from_secs(20) {
                shown = std::time::Instant::now();
                eprintln!("{found:?} for {rows}: {}", status(server));
            }
            found == (200, json!(rows))
        });
    }
}

#[test]
fn either_peer_has_everything_and_a_dispatcher_answers_about_everything() {
    let (ports, clouds, edges) = peers();
    let one = {
        let (_, rows) = count(&edges[0]);
        rows.as_u64().unwrap()
    };
    until_both_count(&[&clouds[0], &clouds[1]], 2 * one);
    let desk = dispatcher(&[&clouds[0], &clouds[1]]);
    until("the dispatcher knows", || {
        count(&desk) == (200, json!(2 * one))
    });
    // Rows that were written to a cloud itself are at its peer, too.
    write(&clouds[1], &an_hour("own"));
    until_both_count(&[&clouds[0], &clouds[1], &desk], 3 * one);
    // An edge that joins later, and rows that come later.
    let third = edge(&clouds[0], "fan");
    write(&third, &an_hour("c"));
    flushed(&third);
    until_both_count(&[&clouds[0], &clouds[1], &desk], 4 * one);
    let known = status(&clouds[1]);
    let names: Vec<&str> = known["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| edge["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fan.north", "pump", "pump.north"], "{known}");
    assert_eq!(known["peer"]["relayed"], 2, "{known}");
    assert_eq!(known["peer"]["error"], Value::Null);
    // One of them dies: everything is still answered, and it goes on when it is back.
    let [north, south] = clouds;
    let dir = north.ended();
    until("the other answers", || {
        count(&desk) == (200, json!(4 * one))
    });
    let north = cloud_in(dir, ports, 0);
    write(&edges[1], "pump,id=late flow=1 1700000000000000000");
    flushed(&edges[1]);
    until_both_count(&[&north, &south, &desk], 4 * one + 1);
    assert_eq!(status(&north)["edges"].as_array().unwrap().len(), 4);
}

#[test]
fn an_unreachable_peer_is_reported_and_one_that_is_the_node_itself_is_refused() {
    let [port, other] = ports();
    let lonely = cloud_in(TempDir::new().unwrap(), [port, other], 0);
    until("the reason is shown", || {
        let known = status(&lonely);
        known["peer"]["error"]
            .as_str()
            .is_some_and(|error| error.contains(&other.to_string()))
    });
    let itself = cloud_in(TempDir::new().unwrap(), [other, other], 0);
    until("the node finds itself", || {
        let known = status(&itself);
        known["peer"]["error"]
            .as_str()
            .is_some_and(|error| error.contains("itself"))
    });
}
