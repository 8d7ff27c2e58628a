//! An edge, a region that copies it, and a centre to which the region passes it on.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{ClusterErrorKind, EdgeState, StreamShare, UplinkState};

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn is_current(cloud: &Cloud, name: &str, edge: &Edge) -> bool {
    let number = edge.db.state_number().unwrap();
    let status = cloud.edge(name);
    let copy = status.copy;
    status.state == EdgeState::Current && copy.is_some_and(|copy| copy.state == number)
}

#[test]
fn a_centre_has_and_proves_what_an_edge_has_written_through_a_region() {
    runtime().block_on(async {
        let (region, centre) = (Cloud::start().await, Cloud::start().await);
        let mut edge = Edge::start(&region.invite("pump-7")).await;
        edge.write();
        region
            .relay("pump-7", &centre, "north-pump-7")
            .await
            .unwrap();
        let name = "north-pump-7";
        until("the centre has all", || is_current(&centre, name, &edge)).await;
        edge.write();
        until("and what came then", || is_current(&centre, name, &edge)).await;
        let status = centre.edge(name);
        assert_eq!(status.through.len(), 1);
        assert!(region.edge("pump-7").through.is_empty());
        // It is the edge's own database, and hash by hash what it has written.
        let (here, there) = (status.copy.unwrap(), region.edge("pump-7").copy.unwrap());
        assert_eq!(here.identity, there.identity);
        centre.fleet.verify(name).unwrap();
        until("compared", || {
            let status = centre.edge(name);
            !status.is_verifying && status.verified.is_some()
        })
        .await;
        let found = centre.edge(name).verified.unwrap();
        assert_eq!((found.different, found.missing), (0, 0));
        assert!(found.equal > 0);
        until("proven", || {
            centre.edge(name).copy.unwrap().proven_bytes > 0
        })
        .await;
        let relays = region.relays.status().unwrap();
        assert_eq!(relays[0].to.state, UplinkState::Connected);
        until("confirmed to the region", || {
            let relays = region.relays.status().unwrap();
            relays[0].to.confirmed_number == Some(edge.db.state_number().unwrap())
        })
        .await;
        assert_eq!(edge.uplink.status().unwrap().differing_segments, 0);
        // It ends with its relay, and what is there stays.
        region.relays.stop("pump-7").unwrap();
        until("not connected", || {
            centre.edge(name).state == EdgeState::Offline
        })
        .await;
        assert!(centre.edge(name).copy.is_some());
        let error = region.relays.stop("pump-7").unwrap_err();
        assert_eq!(error.kind(), ClusterErrorKind::NotFound);
    });
}

#[test]
fn what_the_region_does_not_want_comes_to_the_centre_where_it_fetches_it() {
    runtime().block_on(async {
        let (region, centre) = (Cloud::start().await, Cloud::start().await);
        let mut edge = Edge::start(&region.invite("a")).await;
        edge.write();
        let want = StreamShare::Summaries(8);
        region
            .fleet
            .set_subscription("a", want, Vec::new())
            .unwrap();
        until("summaries", || is_current(&region, "a", &edge)).await;
        region.relay("a", &centre, "a").await.unwrap();
        let lacks = |bytes: fn(u64) -> bool| {
            let copy = centre.edge("a").copy;
            copy.is_some_and(|copy| bytes(copy.missing_bytes) && copy.shown > 0)
        };
        // Rows are what cannot be had; what is here is shown.
        until("the overview", || lacks(|bytes| bytes > 0)).await;
        assert!(region.edge("a").copy.unwrap().bytes < 20_000);
        // The same relay again, which fetches.
        region.relays.stop("a").unwrap();
        let spec = headwater_cluster::RelaySpec {
            invitation: centre.invite_again("a"),
            fetches_requested: true,
            ..headwater_cluster::RelaySpec::default()
        };
        region.relays.relay("a", spec).await.unwrap();
        until("all rows", || lacks(|bytes| bytes == 0)).await;
    });
}

#[test]
fn a_circle_is_refused_and_so_is_a_second_edge_under_the_name() {
    runtime().block_on(async {
        let (region, centre) = (Cloud::start().await, Cloud::start().await);
        let mut edge = Edge::start(&region.invite("a")).await;
        edge.write();
        region.relay("a", &centre, "a").await.unwrap();
        until("the centre has all", || is_current(&centre, "a", &edge)).await;
        centre.relay("a", &region, "back").await.unwrap();
        until("refused", || {
            region.edge("back").state == EdgeState::Refused
        })
        .await;
        assert!(region.edge("back").error.unwrap().contains("loop"));
        assert!(region.edge("back").copy.is_none());
        // Nothing is compared that would never be answered.
        let error = region.fleet.verify("back").unwrap_err();
        assert_eq!(error.kind(), ClusterErrorKind::History);
        assert!(error.to_string().contains("loop"), "{error}");
        until("and told", || {
            let relays = centre.relays.status().unwrap();
            relays[0].to.state == UplinkState::Refused
        })
        .await;
        // To begin anew makes no circle better.
        let since = || centre.relays.status().unwrap()[0].to.since_ns;
        let before = since();
        centre.relays.replace_copy("a").unwrap();
        until("refused again", || {
            let relays = centre.relays.status().unwrap();
            since() != before && relays[0].to.state == UplinkState::Refused
        })
        .await;
        edge.write();
        until("the centre has more", || is_current(&centre, "a", &edge)).await;
        let back = region.edge("back");
        assert!(back.copy.is_none() && back.state == EdgeState::Refused);
        // Another edge, passed on under the name of the first.
        let mut other = Edge::start(&region.invite("b")).await;
        other.write();
        until("another", || is_current(&region, "b", &other)).await;
        region.relays.stop("a").unwrap();
        let spec = headwater_cluster::RelaySpec {
            invitation: centre.invite_again("a"),
            ..headwater_cluster::RelaySpec::default()
        };
        let before = centre.edge("a").copy.unwrap();
        region.relays.relay("b", spec).await.unwrap();
        until("refused, too", || {
            centre.edge("a").state == EdgeState::Refused
        })
        .await;
        assert_eq!(centre.edge("a").copy.unwrap().identity, before.identity);
        // With the copy its relay ends.
        region.fleet.remove_with_history("b").unwrap();
        until("gone", || region.relays.status().unwrap().is_empty()).await;
        assert!(!region.dir.join("relays/b/uplink.json").exists());
        let error = region.relays.stop("b").unwrap_err();
        assert_eq!(error.kind(), ClusterErrorKind::NotFound);
    });
}

/// Rows of one [`Edge::write`].
const ROWS: u64 = 5_000;

#[test]
fn another_history_goes_on_at_the_centre_after_a_closed_part_as_at_the_region() {
    runtime().block_on(async {
        let (region, centre) = (Cloud::start().await, Cloud::start().await);
        let mut edge = Edge::start(&region.invite("a")).await;
        edge.write();
        region.relay("a", &centre, "north-a").await.unwrap();
        let name = "north-a";
        until("the centre has all", || is_current(&centre, name, &edge)).await;
        // The machine was replaced, with a database of its own, and the region is told so.
        drop(edge);
        let mut edge = Edge::start_replacing(&region.invite_again("a")).await;
        edge.write_from(1_800_000_000);
        until("the region has it", || is_current(&region, "a", &edge)).await;
        let identity = |cloud: &Cloud, name| cloud.edge(name).copy.map(|copy| copy.identity);
        let is_new = || {
            identity(&centre, name) == identity(&region, "a") && is_current(&centre, name, &edge)
        };
        until("the centre has it, too", is_new).await;
        let closed = |cloud: &Cloud| {
            let parts = cloud.fleet.parts().into_iter();
            let mut closed = parts.filter(|part| part.is_closed);
            (closed.next().unwrap(), closed.count())
        };
        let (part, others) = closed(&centre);
        assert_eq!(
            (part.edge.as_deref(), part.rows, others),
            (Some(name), Some(ROWS), 0)
        );
        assert_eq!(part.identity, closed(&region).0.identity);
        assert_eq!((centre.rows(), region.rows()), (2 * ROWS, 2 * ROWS));
        // An edge that goes for good: its history stays at both.
        region.fleet.remove("a").unwrap();
        let is_closed = || centre.fleet.status().iter().all(|edge| edge.name != name);
        until("closed at the centre", is_closed).await;
        assert_eq!((centre.rows(), region.rows()), (2 * ROWS, 2 * ROWS));
        let (_, others) = closed(&centre);
        assert_eq!(others, 1);
    });
}

#[test]
fn a_closed_part_is_relayed_by_its_name_and_is_one_at_the_centre() {
    runtime().block_on(async {
        let (region, centre) = (Cloud::start().await, Cloud::start().await);
        let mut edge = Edge::start(&region.invite("a")).await;
        edge.write();
        until("the region has it", || is_current(&region, "a", &edge)).await;
        drop(edge);
        let hour = std::time::Duration::from_secs(3600);
        let replaced = region.fleet.replace("a", "a", &region.url, None, hour);
        let (change, again) = replaced.unwrap();
        // Neither the part nor its successor is relayed.
        let part = format!("a@{change}");
        region.relay(&part, &centre, "north-a").await.unwrap();
        until("the part", || centre.rows() == ROWS).await;
        let mut edge = Edge::start(&again.unwrap()).await;
        edge.write_from(1_800_000_000);
        // With the part, the centre was told that another copy goes on in its place.
        until("and its successor", || centre.rows() == 2 * ROWS).await;
        let name = "north-a";
        until("current", || is_current(&centre, name, &edge)).await;
        let parts = centre.fleet.parts();
        let closed: Vec<_> = parts.iter().filter(|part| part.is_closed).collect();
        assert_eq!((closed.len(), closed[0].edge.as_deref()), (1, Some(name)));
        let verified = centre.fleet.verify_part(&closed[0].part).unwrap();
        assert_eq!((verified.different, verified.unproven), (0, 0));
    });
}
