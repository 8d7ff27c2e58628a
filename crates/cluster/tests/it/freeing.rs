//! An edge that frees rows that its cloud has: only once they are safe beyond the cloud.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{CarryMark, EdgeCopies, FreeStatus, FreedStatus};
use headwater_engine::{AggregateSpec, Bins, ErrorKind, Options, ScanSpec, Snapshot};
use headwater_types::{ClosedRange, StreamName};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Does what a node does that keeps its copies in a bucket: what has come is there, and said to be.
fn keeper(fleet: Arc<EdgeCopies>) -> tokio::task::JoinHandle<()> {
    fleet.confirm_when_persisted();
    tokio::spawn(async move {
        let mut marks: BTreeMap<String, CarryMark> = BTreeMap::new();
        loop {
            fleet.set_roster_persisted(fleet.roster_version());
            for name in fleet.copy_folders() {
                if let Some(carry) = fleet.carry(&name, marks.get(&name).copied()).unwrap() {
                    fleet.set_persisted(&name, carry.mark, &carry.carried);
                    marks.insert(name, carry.mark);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

fn freed(edge: &Edge) -> FreedStatus {
    edge.uplink.status().unwrap().freed.unwrap()
}

fn stream() -> StreamName {
    StreamName::new("m", [("id", "1")])
}

fn count(snapshot: &Snapshot) -> u64 {
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let bins = snapshot.aggregate(&stream(), "v", &spec).unwrap();
    bins.iter().map(|bin| bin.aggregate.count).sum()
}

fn rows(snapshot: &Snapshot) -> Result<usize, ErrorKind> {
    let scan = snapshot.scan(&stream(), &ScanSpec::default());
    let mut rows = 0;
    for chunk in scan.map_err(|e| e.kind())? {
        rows += chunk.map_err(|e| e.kind())?.times.len();
    }
    Ok(rows)
}

#[test]
fn nothing_is_freed_before_it_survives_the_cloud_and_then_the_cloud_has_all() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let mut edge = Edge::start_freeing(&cloud.invite("a")).await;
        edge.write_noise();
        let proven = || {
            let copy = cloud.edge("a").copy;
            copy.is_some_and(|copy| copy.missing_bytes == 0 && copy.proven_bytes > 0)
        };
        until("proven", proven).await;
        until("confirmed", || {
            edge.uplink.status().unwrap().confirmed_bytes > 0
        })
        .await;
        // It is on the cloud's medium only: it is asked for every ten seconds, and not freed.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let status = freed(&edge);
        assert_eq!((status.state, status.partitions), (FreeStatus::NotSafe, 0));
        // From here on the cloud keeps what it has elsewhere, and says so to who comes.
        let keeps = keeper(Arc::clone(&cloud.fleet));
        edge.uplink.pause(true).unwrap();
        until("no connection", || !cloud.edge("a").state.is_connected()).await;
        edge.uplink.pause(false).unwrap();
        until("freed", || freed(&edge).partitions > 0).await;
        assert_eq!(freed(&edge).state, FreeStatus::Confirmed);
        let own = edge.db.snapshot().unwrap();
        assert_eq!(count(&own), 5_000);
        assert_eq!(rows(&own), Err(ErrorKind::Elsewhere));
        let carry = cloud.fleet.carry("a", None).unwrap().unwrap();
        let far = carry.copy.reader(Options::new("/")).unwrap().snapshot();
        assert_eq!((count(&far), rows(&far)), (5_000, Ok(5_000)));
        // Life goes on, and both media are compared: what was freed is proven.
        edge.write_noise();
        until("all is here", || {
            let number = edge.db.state_number().unwrap();
            cloud
                .edge("a")
                .copy
                .is_some_and(|copy| copy.state == number && copy.missing_bytes == 0)
        })
        .await;
        until("no lag", || {
            edge.uplink.status().unwrap().lag_seconds == Some(0)
        })
        .await;
        cloud.fleet.verify("a").unwrap();
        until("compared", || {
            let status = cloud.edge("a");
            !status.is_verifying && status.verified.is_some()
        })
        .await;
        let found = cloud.edge("a").verified.unwrap();
        assert_eq!((found.different, found.missing), (0, 0));
        keeps.abort();
    });
}

#[test]
fn rows_are_freed_once_both_of_two_peers_have_proven_them() {
    runtime().block_on(async {
        let (north, south) = (Cloud::start().await, Cloud::start().await);
        // Each waits for the other, for its own edges only.
        north.fleet.confirm_when_at_peer();
        south.fleet.confirm_when_at_peer();
        let mut edge = Edge::start_freeing(&north.invite("a")).await;
        edge.write_noise();
        let proven = || {
            let copy = north.edge("a").copy;
            copy.is_some_and(|copy| copy.missing_bytes == 0 && copy.proven_bytes > 0)
        };
        until("proven at one", proven).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let status = edge.uplink.status().unwrap();
        assert_eq!((status.confirmed_number, status.confirmed_bytes), (None, 0));
        north.relay("a", &south, "a.north").await.unwrap();
        until("freed", || freed(&edge).partitions > 0).await;
        assert_eq!(freed(&edge).state, FreeStatus::Confirmed);
        let own = edge.db.snapshot().unwrap();
        assert_eq!(
            (count(&own), rows(&own)),
            (5_000, Err(ErrorKind::Elsewhere))
        );
        for (cloud, name) in [(&north, "a"), (&south, "a.north")] {
            let carry = cloud.fleet.carry(name, None).unwrap().unwrap();
            let far = carry.copy.reader(Options::new("/")).unwrap().snapshot();
            assert_eq!((count(&far), rows(&far)), (5_000, Ok(5_000)), "{name}");
        }
        // What comes later is confirmed again when both have it, and not while one is gone.
        north.relays.stop("a").unwrap();
        let before = edge.uplink.status().unwrap().confirmed_number;
        edge.write();
        until("at one", || {
            let number = edge.db.state_number().unwrap();
            let copy = north.edge("a").copy;
            copy.is_some_and(|copy| copy.state == number && copy.missing_bytes == 0)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(edge.uplink.status().unwrap().confirmed_number, before);
        let again = headwater_cluster::RelaySpec {
            invitation: south.invite_again("a.north"),
            ..headwater_cluster::RelaySpec::default()
        };
        north.relays.relay("a", again).await.unwrap();
        until("confirmed", || {
            let number = edge.db.state_number().unwrap();
            edge.uplink.status().unwrap().confirmed_number == Some(number)
        })
        .await;
    });
}
