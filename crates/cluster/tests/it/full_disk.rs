//! A cloud whose disk is full.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::UplinkState;
use headwater_io::{Env, FaultyFiles};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_whose_copy_cannot_be_written_waits_longer_each_time_and_goes_on() {
    let disk = FaultyFiles::new(1);
    let env = Env {
        files: Arc::new(disk.clone()),
        ..Env::system()
    };
    let cloud = Cloud::start_with(env).await;
    let mut edge = Edge::start(&cloud.invite("a")).await;
    edge.write_noise();
    let is_complete = || {
        let copy = cloud.edge("a").copy;
        copy.is_some_and(|copy| copy.missing_bytes == 0 && copy.bytes > 0)
    };
    until("the copy is complete", is_complete).await;
    disk.capacity(disk.files().iter().map(|(_, bytes)| bytes).sum());
    edge.write_noise();
    until("the copy cannot be written", || {
        cloud.edge("a").error.is_some()
    })
    .await;
    let before = cloud.connections.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(14)).await;
    let made = cloud.connections.load(Ordering::Relaxed) - before;
    // After 1, 2, 4 and 8 seconds, not after each second.
    assert!((1..=5).contains(&made), "{made} connections");
    let status = edge.uplink.status().unwrap();
    assert_eq!(status.state, UplinkState::Offline);
    let why = status.error.unwrap();
    assert!(
        why.contains("cannot write its copy") && !why.contains("copies"),
        "{why}"
    );
    // With room again, it goes on by itself.
    disk.capacity(u64::MAX);
    until("the copy is complete again", is_complete).await;
}
