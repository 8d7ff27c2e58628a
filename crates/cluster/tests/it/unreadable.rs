//! Copies that cannot be read: no answer takes them for empty.

use crate::nodes::{Cloud, Edge, until};
use headwater_cluster::{EdgeCopies, EdgeState};
use headwater_engine::{Database, ErrorKind, Options, ScanSpec};
use headwater_io::Env;
use headwater_types::ClosedRange;

#[test]
fn a_copy_that_cannot_be_read_is_named_by_answers_that_need_it() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let cloud = Cloud::start().await;
        let mut edges = Vec::new();
        for name in ["north", "south"] {
            let mut edge = Edge::start(&cloud.invite(name)).await;
            edge.write();
            let is_here = || {
                let status = cloud.edge(name);
                let number = edge.db.state_number().unwrap();
                status.state == EdgeState::Current && status.copy.is_some_and(|c| c.state == number)
            };
            until("it is here", is_here).await;
            edges.push(edge);
        }
        let (_kept, again) = cloud.copied();
        std::fs::write(again.join("copies/south/copy.redb"), b"damaged").unwrap();
        let db = Database::open_in(Env::system(), Options::new(&again)).unwrap();
        let fleet = EdgeCopies::open(Env::system(), &again, Options::new(&again)).unwrap();
        let across = || fleet.across(db.snapshot().unwrap()).unwrap();
        let all = across();
        let count = all.row_count("m", ClosedRange::ALL, &mut || true);
        let error = count.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Elsewhere);
        assert!(error.to_string().contains("`south`"), "{error}");
        assert_eq!(
            all.require_whole().unwrap_err().kind(),
            ErrorKind::Elsewhere
        );
        assert_eq!(&*all.unreadable_parts()[0].0, "south");
        // Without it, the rest is answered, and a stream of the rest is answered anyway.
        let partial = across().allowing_partial();
        let streams = partial.streams("m", &[]).unwrap();
        assert_eq!(streams.len(), 1);
        let mut rows = 0;
        for chunk in all.scan(&streams[0], &ScanSpec::default()).unwrap() {
            rows += chunk.unwrap().times.len();
        }
        let whole = partial.row_count("m", ClosedRange::ALL, &mut || true);
        assert_eq!(whole.unwrap(), Some(rows as u64));
    });
}
