//! Streams of equal names at several edges: moves, and tags that are added to streams.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{ClusterErrorKind, ConflictReport, EdgeCopies, EdgeState, StreamShare};
use headwater_engine::{ConflictBounds, Database, Options, ScanSpec, Snapshot};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn write(edge: &Edge, stream: &str, seconds: std::ops::Range<i64>, value: f64) {
    let mut batch = Batch::new();
    let name = StreamName::parse(stream).unwrap();
    let rows = batch.stream(&name);
    for second in seconds {
        let row = [("v", Value::F64(value))];
        rows.row(second * SECOND, row).unwrap();
    }
    edge.db.commit(batch).unwrap();
    edge.db.flush().unwrap();
}

async fn is_here(cloud: &Cloud, name: &str, edge: &Edge) {
    let number = edge.db.state_number().unwrap();
    until("it is here", || {
        let status = cloud.edge(name);
        status.state == EdgeState::Current && status.copy.is_some_and(|copy| copy.state == number)
    })
    .await;
}

/// Two edges with rows of one stream, from second 0 to 100 and from 50 to 150.
async fn two(cloud: &Cloud) -> (Edge, Edge) {
    let a = Edge::start(&cloud.invite("a")).await;
    let b = Edge::start(&cloud.invite("b")).await;
    write(&a, "m,id=1", 0..100, 1.0);
    write(&b, "m,id=1", 50..150, 2.0);
    is_here(cloud, "a", &a).await;
    is_here(cloud, "b", &b).await;
    (a, b)
}

/// Number of rows of a stream with the value 1, and with another one.
fn counts(snapshot: &Snapshot, stream: &str) -> (usize, usize) {
    let name = StreamName::parse(stream).unwrap();
    let scan = snapshot.scan(&name, &ScanSpec::default()).unwrap();
    let chunks: Vec<_> = scan.map(Result::unwrap).collect();
    let values = chunks.iter().flat_map(|chunk| {
        let rows = 0..chunk.times.len();
        rows.map(|row| chunk.columns[0].get(row).map(|value| value.to_owned()))
    });
    let ones = values
        .filter(|value| *value == Some(Value::F64(1.0)))
        .count();
    let all: usize = chunks.iter().map(|chunk| chunk.times.len()).sum();
    let spec = headwater_engine::AggregateSpec {
        range: ClosedRange::ALL,
        bins: headwater_engine::Bins::Whole,
        first_last: false,
    };
    let whole = snapshot.aggregate(&name, "v", &spec).unwrap();
    assert_eq!(whole[0].aggregate.count, all as u64);
    (ones, all - ones)
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let streams = snapshot.streams("m", &[]).unwrap();
    streams.iter().map(StreamName::to_string).collect()
}

fn conflicts(cloud: &Cloud) -> usize {
    let bounds = ConflictBounds::default();
    let report = ConflictReport::of(&cloud.snapshot(), &bounds).unwrap();
    report.list().len()
}

#[test]
fn conflicts_are_looked_for_again_where_a_database_has_changed() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let (a, _b) = two(&cloud).await;
        let refresh = || {
            let own = cloud.own().snapshot().unwrap();
            cloud.fleet.refresh_conflicts(own).unwrap()
        };
        let hidden = || -> u64 {
            let report = cloud.fleet.conflicts();
            let list = report.list().iter();
            list.map(|conflict| conflict.hidden_rows.unwrap()).sum()
        };
        assert!(refresh(), "there was no report");
        until("nothing changes any more", || !refresh()).await;
        assert_eq!(hidden(), 50);
        write(&a, "m,id=1", 100..120, 1.0);
        is_here(&cloud, "a", &a).await;
        assert!(refresh(), "a copy has changed");
        assert_eq!(hidden(), 70);
        until("nothing changes any more", || !refresh()).await;
        let mut batch = Batch::new();
        let name = StreamName::parse("m,id=1").unwrap();
        let row = [("v", Value::F64(3.0))];
        batch.stream(&name).row(10 * SECOND, row).unwrap();
        cloud.own().commit(batch).unwrap();
        assert!(refresh(), "the node's own database has changed");
        assert_eq!(hidden(), 71);
        assert!(!refresh(), "nothing has changed");
    });
}

/// What a node shows that is started with the files of a cloud.
fn after_a_restart(cloud: &Cloud) -> (tempfile::TempDir, Snapshot) {
    let (kept, dir) = cloud.copied();
    let fleet = EdgeCopies::open(Env::system(), &dir, Options::new(&dir)).unwrap();
    let own = Database::open_in(Env::memory(), Options::new("own")).unwrap();
    let snapshot = fleet.across(own.snapshot().unwrap()).unwrap();
    (kept, snapshot)
}

#[test]
fn a_move_says_whose_rows_count_when_until_it_is_undone() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let (a, b) = two(&cloud).await;
        let shown = || counts(&cloud.snapshot(), "m,id=1");
        assert_eq!((shown(), conflicts(&cloud)), ((100, 50), 1));
        let pattern = || "m,id=1".parse().unwrap();
        let at = Some(Timestamp::from_nanos(75 * SECOND));
        let change = cloud.fleet.move_streams(pattern(), "a", "b", at).unwrap();
        assert_eq!((shown(), conflicts(&cloud)), ((75, 75), 0));
        assert_eq!(cloud.rows(), 150);
        assert_eq!(counts(&after_a_restart(&cloud).1, "m,id=1"), (75, 75));
        // Rows that arrive later are shown by the same rule, at renamed edges too.
        cloud.fleet.rename("b", "north").unwrap();
        write(&a, "m,id=1", 150..160, 1.0);
        write(&b, "m,id=1", 160..170, 2.0);
        is_here(&cloud, "a", &a).await;
        is_here(&cloud, "north", &b).await;
        assert_eq!(shown(), (75, 85));
        // Closed parts of both are the two sides, too.
        let removed = cloud.fleet.remove("a").unwrap();
        assert_eq!(shown(), (75, 85));
        cloud.fleet.undo(removed).unwrap();
        cloud.fleet.undo(change).unwrap();
        assert_eq!((shown(), conflicts(&cloud)), ((110, 60), 1));
        let text: Vec<String> = (cloud.fleet.change_records().iter())
            .map(|record| record.change.text())
            .collect();
        assert!(
            text[0].contains("m,id=1 moved from a to b at 1970-01-01T00:01:15Z"),
            "{text:?}"
        );
        // From now on: all of what is there is from before.
        cloud
            .fleet
            .move_streams(pattern(), "a", "north", None)
            .unwrap();
        assert_eq!(shown(), (110, 0));
    });
}

#[test]
fn a_tag_tells_streams_of_two_edges_apart_until_it_is_undone() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let (a, b) = two(&cloud).await;
        assert_eq!((names(&cloud.snapshot()).len(), conflicts(&cloud)), (1, 1));
        let tags = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let refused = cloud.fleet.tag("b", tags("id", "x")).unwrap_err();
        assert_eq!(refused.kind(), ClusterErrorKind::Invalid);
        assert!(refused.to_string().contains("`m,id=1`"), "{refused}");
        let change = cloud.fleet.tag("b", tags("gateway", "b")).unwrap();
        let tagged = ["m,gateway=b,id=1", "m,id=1"];
        assert_eq!(sorted(names(&cloud.snapshot())), tagged);
        assert_eq!(counts(&cloud.snapshot(), "m,id=1"), (100, 0));
        assert_eq!(counts(&cloud.snapshot(), "m,gateway=b,id=1"), (0, 100));
        assert_eq!((cloud.rows(), conflicts(&cloud)), (200, 0));
        assert_eq!(sorted(names(&after_a_restart(&cloud).1)), tagged);
        let there = cloud.fleet.streams_of_part("b", 10).unwrap();
        assert_eq!(there.streams[0].stream, "m,gateway=b,id=1");
        assert_eq!(there.only_here_rows, 100);
        // What arrives later has the tag; a tag of its own gives way to it.
        write(&b, "m,id=1", 150..160, 2.0);
        write(&b, "m,gateway=own,id=2", 0..10, 2.0);
        is_here(&cloud, "b", &b).await;
        assert_eq!(counts(&cloud.snapshot(), "m,gateway=b,id=1"), (0, 110));
        let own = "m,exported_gateway=own,gateway=b,id=2";
        assert_eq!(counts(&cloud.snapshot(), own), (0, 10));
        // It stays with the edge under another name, and with the part that it becomes.
        cloud.fleet.rename("b", "north").unwrap();
        let removed = cloud.fleet.remove("north").unwrap();
        assert_eq!(counts(&cloud.snapshot(), "m,gateway=b,id=1"), (0, 110));
        cloud.fleet.undo(removed).unwrap();
        cloud.fleet.undo(change).unwrap();
        assert_eq!(
            sorted(names(&cloud.snapshot())),
            ["m,gateway=own,id=2", "m,id=1"]
        );
        assert_eq!(counts(&cloud.snapshot(), "m,id=1"), (100, 60));
        drop(a);
    });
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn rows_of_a_tagged_edge_are_fetched_and_its_peer_shows_the_same_names() {
    runtime().block_on(async {
        let (cloud, peer) = (Cloud::start().await, Cloud::start().await);
        let edge = Edge::start(&cloud.invite("a")).await;
        let level = StreamShare::Summaries(10);
        cloud
            .fleet
            .set_subscription("a", level, Vec::new())
            .unwrap();
        let tags = [("gateway".to_owned(), "a".to_owned())].into();
        cloud.fleet.tag("a", tags).unwrap();
        write(&edge, "m,id=1", 0..20_000, 1.0);
        is_here(&cloud, "a", &edge).await;
        let name = StreamName::parse("m,gateway=a,id=1").unwrap();
        let reader = cloud.fleet.fetch_reader("", None);
        let read = || -> headwater_engine::Result<usize> {
            headwater_engine::reading_for(reader.number, || {
                let scan = cloud.snapshot().scan(&name, &ScanSpec::default())?;
                scan.map(|chunk| Ok(chunk?.times.len())).sum()
            })
        };
        assert!(read().is_err(), "only summaries are here");
        for _ in 0..100 {
            if read().is_ok() {
                break;
            }
            let within = Duration::from_secs(5);
            cloud.fleet.fetch_missed(&reader, within).await.unwrap();
        }
        assert_eq!(read().unwrap(), 20_000);
        cloud.send_to(&peer, "north");
        until("the peer shows the same names", || {
            peer.fleet.status().len() == 1
                && peer.snapshot().table_names() == ["m"]
                && names(&peer.snapshot()) == ["m,gateway=a,id=1"]
        })
        .await;
        let change = cloud.fleet.tag("a", Default::default()).unwrap();
        until("the tag is removed there too", || {
            names(&peer.snapshot()) == ["m,id=1"]
        })
        .await;
        cloud.fleet.undo(change).unwrap();
        until("and added again", || {
            names(&peer.snapshot()) == ["m,gateway=a,id=1"]
        })
        .await;
    });
}
