//! Closed parts: what an edge had before it was replaced, renamed or removed stays in answers.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{
    ClusterErrorKind, CopyStatus, EdgeCopies, EdgeState, PartStatus, database_of,
};
use headwater_engine::Options;
use headwater_io::Env;
use std::path::Path;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Rows of one [`Edge::write`].
const ROWS: u64 = 5_000;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn is_current(cloud: &Cloud, name: &str, edge: &Edge) -> bool {
    let number = edge.db.state_number().unwrap();
    let identity = format!("{:016x}", database_of(&edge.db).unwrap().0);
    let status = cloud.edge(name);
    let is_newest = |copy: CopyStatus| copy.state == number && copy.identity == identity;
    status.state == EdgeState::Current && status.copy.is_some_and(is_newest)
}

async fn with_edge(cloud: &Cloud, name: &str) -> Edge {
    let mut edge = Edge::start(&cloud.invite(name)).await;
    edge.write();
    until("it is here", || is_current(cloud, name, &edge)).await;
    edge
}

fn closed(fleet: &EdgeCopies) -> Vec<PartStatus> {
    let parts = fleet.parts().into_iter();
    parts.filter(|part| part.is_closed).collect()
}

#[test]
fn a_new_machine_goes_on_where_a_dead_one_ended_with_one_command_and_one_join() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let edge = with_edge(&cloud, "pump-7").await;
        drop(edge);
        let (change, invitation) = cloud
            .fleet
            .replace("pump-7", "pump-7b", &cloud.url, None, HOUR)
            .unwrap();
        assert_eq!(cloud.rows(), ROWS);
        let mut edge = Edge::start(&invitation.unwrap()).await;
        edge.write_from(1_800_000_000);
        until("its rows are here", || is_current(&cloud, "pump-7b", &edge)).await;
        assert_eq!(cloud.rows(), 2 * ROWS);
        let part = &closed(&cloud.fleet)[0];
        assert_eq!(part.part, format!("pump-7@{change}"));
        assert_eq!(part.edge.as_deref(), Some("pump-7b"));
        assert_eq!((part.rows, part.streams), (Some(ROWS), 1));
        let verified = cloud.fleet.verify_part(&part.part).unwrap();
        assert!(
            verified.equal > 0 && verified.different == 0,
            "{verified:?}"
        );
        // The streams are one.
        let live = cloud.fleet.streams_of_part("pump-7b", 10).unwrap();
        assert_eq!((live.count, live.only_here_rows), (1, ROWS));
        // Its own hashes find a changed byte.
        cloud.damage(&part.part);
        let verified = cloud.fleet.verify_part(&part.part).unwrap();
        assert!(verified.different > 0, "{verified:?}");
    });
}

#[test]
fn an_edge_that_has_joined_takes_the_place_of_another_and_that_is_undone() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let old = with_edge(&cloud, "old").await;
        let new = cloud.invite("new");
        let mut new = Edge::start(&new).await;
        new.write_from(1_800_000_000);
        until("the other is here", || is_current(&cloud, "new", &new)).await;
        assert_eq!(cloud.rows(), 2 * ROWS);
        let (change, invitation) = cloud
            .fleet
            .replace("old", "new", &cloud.url, None, HOUR)
            .unwrap();
        assert_eq!(invitation, None);
        assert_eq!(cloud.rows(), 2 * ROWS);
        assert!(cloud.fleet.edge_status("old").is_none());
        new.write();
        until("it goes on", || is_current(&cloud, "new", &new)).await;
        assert_eq!(cloud.rows(), 3 * ROWS);
        cloud.fleet.undo(change).unwrap();
        assert!(closed(&cloud.fleet).is_empty());
        assert_eq!(cloud.rows(), 3 * ROWS);
        until("the old one connects again", || {
            is_current(&cloud, "old", &old)
        })
        .await;
        let again = cloud.fleet.undo(change).unwrap_err();
        assert_eq!(again.kind(), ClusterErrorKind::Invalid);
    });
}

#[test]
fn a_renamed_edge_keeps_its_rows_and_its_connection() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let mut edge = with_edge(&cloud, "a").await;
        let change = cloud.fleet.rename("a", "north").unwrap();
        assert_eq!(cloud.rows(), ROWS);
        edge.write();
        until("under its new name", || is_current(&cloud, "north", &edge)).await;
        assert_eq!(cloud.rows(), 2 * ROWS);
        // The name is free again, and its folder is not.
        let mut other = with_edge(&cloud, "a").await;
        other.write_from(1_900_000_000);
        until("both", || is_current(&cloud, "a", &other)).await;
        let taken = cloud.fleet.undo(change).unwrap_err();
        assert_eq!(taken.kind(), ClusterErrorKind::NameExists);
        cloud.fleet.remove("a").unwrap();
        cloud.fleet.undo(change).unwrap();
        edge.write();
        until("under its old name", || is_current(&cloud, "a", &edge)).await;
    });
}

#[test]
fn a_removed_edge_is_in_answers_until_its_part_is_removed() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let mut edge = with_edge(&cloud, "a").await;
        let removed = cloud.fleet.remove("a").unwrap();
        assert_eq!(cloud.rows(), ROWS);
        until("its key is worth nothing", || {
            edge.uplink.status().unwrap().state != headwater_cluster::UplinkState::Connected
        })
        .await;
        cloud.fleet.undo(removed).unwrap();
        edge.write();
        until("it is there again", || is_current(&cloud, "a", &edge)).await;
        assert_eq!((cloud.rows(), closed(&cloud.fleet).len()), (2 * ROWS, 0));
        cloud.fleet.remove("a").unwrap();
        let part = closed(&cloud.fleet)[0].part.clone();
        cloud.fleet.remove_part(&part).unwrap();
        assert_eq!((cloud.rows(), closed(&cloud.fleet).len()), (0, 0));
        assert!(!cloud.dir.join("copies/a").exists());
        let gone = cloud.fleet.remove_part(&part).unwrap_err();
        assert_eq!(gone.kind(), ClusterErrorKind::NotFound);
        let with_edge = with_edge(&cloud, "a").await;
        cloud.fleet.remove_with_history("a").unwrap();
        assert_eq!((cloud.rows(), closed(&cloud.fleet).len()), (0, 0));
        drop(with_edge);
    });
}

#[test]
fn ten_incarnations_of_an_edge_are_all_in_answers_in_their_order() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let mut edge = with_edge(&cloud, "a").await;
        for n in 1..=10 {
            drop(edge);
            edge = Edge::start_replacing(&cloud.invite_again("a")).await;
            edge.write_from(1_700_000_000 + n * 10_000);
            until("the next one", || is_current(&cloud, "a", &edge)).await;
        }
        assert_eq!(cloud.rows(), 11 * ROWS);
        let parts = closed(&cloud.fleet);
        assert_eq!(parts.len(), 10);
        assert!(parts.is_sorted_by_key(|part| part.first_ns));
        // All of it is there after a restart.
        let (dir, again) = cloud.copied();
        let fleet = EdgeCopies::open(Env::system(), &again, Options::new(&again)).unwrap();
        let rows = fleet.parts().iter().map(|p| p.rows.unwrap()).sum::<u64>();
        assert_eq!(rows, 11 * ROWS);
        drop(dir);
    });
}

fn moved(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::rename(from, to).unwrap();
}

#[test]
fn folders_and_the_list_agree_after_a_crash_between_their_changes() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let edge = with_edge(&cloud, "a").await;
        let open = |dir: &Path| EdgeCopies::open(Env::system(), dir, Options::new(dir)).unwrap();
        // A folder of an earlier version is taken up, once, before the edge of its name.
        let (_kept, dir) = cloud.copied();
        moved(&dir.join("copies/a"), &dir.join("copies-aside/a.1"));
        for _ in 0..2 {
            let parts = open(&dir).parts();
            assert_eq!(parts.len(), 2, "{parts:?}");
            let found = &parts[0];
            assert_eq!((found.rows, found.edge.as_deref()), (Some(ROWS), Some("a")));
            assert!(!dir.join("copies-aside").exists());
        }
        // The folder was moved, and the list was not written.
        let (_kept, dir) = cloud.copied();
        std::fs::remove_file(dir.join("edges.json")).unwrap();
        moved(&dir.join("copies/a"), &dir.join("copies/a+1"));
        let parts = open(&dir).parts();
        assert_eq!((parts.len(), parts[0].rows), (1, Some(ROWS)));
        assert_eq!(parts[0].edge, None);
        // The list was written, and the folder was not deleted.
        let (_kept, dir) = cloud.copied();
        let list = r#"{"version":2,"edges":[],"dropped":["a"],"last_number":1}"#;
        std::fs::write(dir.join("edges.json"), list).unwrap();
        assert!(open(&dir).parts().is_empty());
        assert!(!dir.join("copies/a").exists());
        let text = std::fs::read_to_string(dir.join("edges.json")).unwrap();
        assert!(!text.contains("dropped"), "{text}");
        drop(edge);
    });
}

#[test]
fn a_relayed_edge_is_renamed_and_its_relay_goes_on() {
    runtime().block_on(async {
        let (cloud, other) = (Cloud::start().await, Cloud::start().await);
        let mut edge = with_edge(&cloud, "a").await;
        cloud.relay("a", &other, "a").await.unwrap();
        until("relayed", || other.rows() == ROWS).await;
        cloud.fleet.rename("a", "b").unwrap();
        edge.write();
        until("the other cloud has more", || other.rows() == 2 * ROWS).await;
        let relays = cloud.relays.status().unwrap();
        assert_eq!((relays.len(), relays[0].edge.as_str()), (1, "b"));
        cloud.relays.stop("b").unwrap();
        // Another edge of the first name is another one.
        let _other = with_edge(&cloud, "a").await;
        assert!(cloud.relays.status().unwrap().is_empty());
    });
}
