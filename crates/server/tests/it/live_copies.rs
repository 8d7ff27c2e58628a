//! Live values of an edge: at its cloud, and through a dispatcher, as they are written at the edge.

use crate::dispatch::dispatcher;
use crate::support::{Running, client};
use crate::sync::{cloud, flushed, invite, joined, until_current, write};
use headwater_server::settings::NodeRole;
use headwater_testing::until;
use serde_json::json;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An edge whose newest rows go to the cloud every second.
fn live_edge(cloud: &Running, name: &str) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    joined(&db, &invite(cloud, name, &json!({})), false).unwrap();
    Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
        s.sync.live = Some(Duration::from_secs(1));
    })
}

const PATH: &str = "/api/v1/live?channel=pump,id%3Da.flow";

#[test]
fn new_values_of_an_edge_are_live_at_its_cloud_and_through_a_dispatcher() {
    let cloud = cloud();
    let edge = live_edge(&cloud, "pump");
    write(&edge, "pump,id=a flow=1 1700000000000000000");
    flushed(&edge);
    until_current(&cloud, &edge, "pump");
    let desk = dispatcher(&[&cloud]);
    until("the stream is known", || {
        client().get(desk.url(PATH)).call().unwrap().status() == 200
    });
    for server in [&cloud, &desk] {
        let request = client().get(server.url(PATH));
        let mut answer = request.header("x-headwater-relay", "true").call().unwrap();
        assert_eq!(answer.status(), 200);
        let mut reader = answer.body_mut().as_reader();
        let mut text = String::new();
        let mut read_until = |wanted: &str| {
            let mut piece = [0; 4096];
            while !text.contains(wanted) {
                let count = reader.read(&mut piece).unwrap();
                assert!(count > 0, "the answer ended: {text}");
                text.push_str(&String::from_utf8_lossy(&piece[..count]));
            }
            text.clone()
        };
        read_until(": live");
        // The worker takes what is there already as known, also a value that comes before it looks.
        let is_seen = AtomicBool::new(false);
        let last = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut last = 60_000;
                while !is_seen.load(Ordering::Relaxed) && last < 60_200 {
                    last += 1;
                    let now = jiff::Timestamp::now().as_nanosecond();
                    write(&edge, &format!("pump,id=a flow={last}.25 {now}"));
                    std::thread::sleep(Duration::from_millis(300));
                }
                last
            });
            read_until("[60");
            is_seen.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        // So that none of them comes with one of the next values; times have no fraction.
        read_until(&format!("{last}.25"));
        let now = jiff::Timestamp::now().as_nanosecond();
        for n in 0..3 {
            write(&edge, &format!("pump,id=a flow=77{n} {}", now + n));
            // Times have digits of their own.
            read_until(&format!("[77{n}"));
        }
        let all = read_until("[772");
        for n in 0..3 {
            assert_eq!(all.matches(&format!("[77{n}")).count(), 1, "{all}");
        }
        assert!(
            !all.contains("\"value\":[1"),
            "what is old is not new: {all}"
        );
    }
}
