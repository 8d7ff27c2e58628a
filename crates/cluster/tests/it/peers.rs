//! Two clouds as peers: edges that are replaced, renamed, removed and put back at one are so at the
//! other, and rows of closed parts are at both.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{ClusterErrorKind, EdgeState, PartStatus};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Rows of one [`Edge::write`].
const ROWS: u64 = 5_000;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// What two clouds have alike of a part: its name at the peer of `north`, its edge there, whether
/// and why it is closed, its database, rows and span.
fn of_part(part: &PartStatus, name: &dyn Fn(&str) -> String) -> String {
    let edge = part.edge.as_deref().map(name);
    let (label, number) = part.part.split_once('@').unwrap_or((&part.part, ""));
    format!(
        "{}@{number} {edge:?} {} {:?} {:?} {:?} {:?} {:?} {:?}",
        name(label),
        part.is_closed,
        part.why,
        part.closed_ns,
        part.identity,
        part.incarnation,
        part.rows,
        (part.first_ns, part.last_ns),
    )
}

/// Whether a cloud has the parts of another one, whose name is `north`, and no others.
fn is_like(south: &Cloud, north: &Cloud) -> bool {
    let there = |name: &str| format!("{name}.north");
    let mut wanted: Vec<String> = (north.fleet.parts().iter())
        .filter(|part| part.identity.is_some())
        .map(|part| of_part(part, &there))
        .collect();
    let same = |name: &str| name.to_owned();
    let mut found: Vec<String> = (south.fleet.parts().iter())
        .map(|part| of_part(part, &same))
        .collect();
    wanted.sort();
    found.sort();
    wanted == found && south.rows() == north.rows()
}

async fn with_edge(cloud: &Cloud, name: &str, second: i64) -> Edge {
    let mut edge = Edge::start(&cloud.invite(name)).await;
    edge.write_from(second);
    let number = edge.db.state_number().unwrap();
    let is_here = || {
        let status = cloud.edge(name);
        let is_newest = status.copy.is_some_and(|copy| copy.state == number);
        is_newest && status.state == EdgeState::Current
    };
    until("it is here", is_here).await;
    edge
}

#[test]
fn what_becomes_of_an_edge_at_one_cloud_becomes_of_it_at_its_peer() {
    runtime().block_on(async {
        let (north, south) = (Cloud::start().await, Cloud::start().await);
        let pump = with_edge(&north, "pump", 1_600_000_000).await;
        let mut fan = with_edge(&north, "fan", 1_700_000_000).await;
        // Closed before there is a peer.
        north.fleet.remove("pump").unwrap();
        drop(pump);
        north.send_to(&south, "north");
        until("both parts", || is_like(&south, &north)).await;
        assert_eq!(south.rows(), 2 * ROWS);
        let part = south.fleet.parts().into_iter().find(|part| part.is_closed);
        let part = part.unwrap();
        assert!(part.part.starts_with("pump.north@"), "{part:?}");
        let verified = south.fleet.verify_part(&part.part).unwrap();
        assert_eq!((verified.different, verified.unproven), (0, 0));
        assert!(verified.equal > 0);
        // Renamed, while rows go on to arrive.
        north.fleet.rename("fan", "vent").unwrap();
        fan.write();
        until("renamed", || {
            north.rows() == 3 * ROWS && is_like(&south, &north)
        })
        .await;
        let is_current = || south.edge("vent.north").state == EdgeState::Current;
        until("the same connection goes on", is_current).await;
        // Replaced by another machine, of another name.
        let replaced = north
            .fleet
            .replace("vent", "vent-b", &north.url, None, HOUR);
        let (_, invitation) = replaced.unwrap();
        until("replaced", || is_like(&south, &north)).await;
        let mut successor = Edge::start(&invitation.unwrap()).await;
        successor.write_from(1_800_000_000);
        until("and its successor's rows", || {
            north.rows() == 4 * ROWS && is_like(&south, &north)
        })
        .await;
        // What comes from another cloud is changed there.
        for error in [
            south.fleet.remove("vent-b.north").unwrap_err(),
            south.fleet.rename("vent-b.north", "x").unwrap_err(),
            south.fleet.remove_part(&part.part).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ClusterErrorKind::Invalid);
            assert!(error.to_string().contains("change it there"), "{error}");
        }
        // Removed, and that undone: rows arrive again.
        let removed = north.fleet.remove("vent-b").unwrap();
        until("removed", || is_like(&south, &north)).await;
        assert_eq!(south.rows(), 4 * ROWS);
        north.fleet.undo(removed).unwrap();
        successor.write();
        until("there again", || {
            north.rows() == 5 * ROWS && is_like(&south, &north)
        })
        .await;
        // A part that is deleted, and an edge with its history.
        let parts = north.fleet.parts().into_iter();
        for part in parts.filter(|part| part.is_closed) {
            north.fleet.remove_part(&part.part).unwrap();
        }
        until("deleted", || {
            south.rows() == 2 * ROWS && is_like(&south, &north)
        })
        .await;
        north.fleet.remove_with_history("vent-b").unwrap();
        until("nothing", || south.rows() == 0 && is_like(&south, &north)).await;
        let folders = std::fs::read_dir(south.dir.join("copies")).unwrap();
        assert_eq!(folders.count(), 0);
    });
}

#[test]
fn two_peers_have_everything_of_one_another_and_nothing_twice() {
    runtime().block_on(async {
        let (north, south) = (Cloud::start().await, Cloud::start().await);
        north.send_to(&south, "north");
        south.send_to(&north, "south");
        let _pump = with_edge(&north, "pump", 1_600_000_000).await;
        let fan = with_edge(&south, "pump", 1_700_000_000).await;
        let has_all =
            |cloud: &Cloud, rows, parts| cloud.rows() == rows && cloud.fleet.parts().len() == parts;
        let both = |rows, parts| has_all(&north, rows, parts) && has_all(&south, rows, parts);
        until("both edges at both", || both(2 * ROWS, 2)).await;
        drop(fan);
        let replaced = south.fleet.replace("pump", "pump", &south.url, None, HOUR);
        let mut fan = Edge::start(&replaced.unwrap().1.unwrap()).await;
        fan.write_from(1_800_000_000);
        until("and the successor", || both(3 * ROWS, 3)).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(both(3 * ROWS, 3), "nothing comes back");
    });
}
