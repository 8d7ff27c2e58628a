//! The store of S3's protocol against a server of it, versitygw.

use crate::race::{RACERS, race};
use crate::stores::check_conformance;
use headwater_bucket::{
    BucketErrorKind, Credentials, Holder, Member, Now, ObjectStore, S3, S3Location, carry_out,
    read_head,
};
use headwater_io::{Clock, SystemChance, SystemClock};
use headwater_testing::S3Server;
use std::sync::Arc;

/// A server with a bucket `plants`.
struct Gateway(S3Server);

impl Gateway {
    fn start() -> Option<Gateway> {
        S3Server::start().map(Gateway)
    }

    fn store(&self, bucket: &str, secret: &str) -> S3 {
        let place = S3Location {
            endpoint: self.0.endpoint().to_owned(),
            region: "us-east-1".to_owned(),
            bucket: bucket.to_owned(),
            prefix: "north/".to_owned(),
            is_path_style: true,
        };
        let credentials = Credentials {
            key: S3Server::KEY.to_owned(),
            secret: secret.to_owned(),
            token: None,
        };
        S3::new(&place, &credentials, Arc::new(SystemClock::new())).unwrap()
    }
}

#[test]
fn a_bucket_of_a_server_passes_the_conformance_tests() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    check_conformance(&gateway.store("plants", S3Server::SECRET), "a/b");
    let refused = gateway
        .store("plants", "another")
        .get("a/b/head")
        .unwrap_err();
    assert!(refused.is_final, "{refused}");
    let missing = gateway
        .store("nowhere", S3Server::SECRET)
        .create("x", b"x")
        .unwrap_err();
    assert!(missing.is_final, "{missing}");
}

#[test]
fn of_six_who_put_to_a_server_one_wins_each_time() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let stores: Vec<S3> = (0..RACERS)
        .map(|_| gateway.store("plants", S3Server::SECRET))
        .collect();
    let stores: Vec<&dyn ObjectStore> = stores.iter().map(|s| s as &dyn ObjectStore).collect();
    assert_eq!(race(&stores, "race", 20), vec![1; 40]);
}

#[test]
fn a_node_holds_a_group_in_a_bucket_of_a_server_and_gives_it_back() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let store = gateway.store("plants", S3Server::SECRET);
    let clock = SystemClock::new();
    let now = || Now {
        monotonic: clock.monotonic(),
        wall: clock.now(),
    };
    let mut epochs = Vec::new();
    for node in [1, 2] {
        let me = Member {
            node,
            name: format!("node-{node}"),
            lease_millis: 600_000,
        };
        let mut holder = Holder::new(me, 0, Arc::new(SystemChance::new()));
        while !holder.is_done() {
            if holder.is_ready(now()) {
                epochs.push(holder.head().unwrap().epoch);
                holder.give_back();
            }
            if let Some(request) = holder.next_pack(now()) {
                holder.take_pack(now(), &carry_out(&store, &request));
            }
            if let Some(request) = holder.next(now()) {
                let answer = carry_out(&store, &request);
                holder.take(now(), answer);
            }
        }
    }
    assert_eq!(epochs, [1, 2], "the second need not wait for ten minutes");
    let unknown = gateway.store("nowhere", S3Server::SECRET);
    let error = read_head(&unknown, 0).unwrap_err();
    assert_eq!(error.kind(), BucketErrorKind::Denied);
}
