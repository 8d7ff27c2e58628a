//! Which copies a reader of a cloud looks at.

use crate::nodes::{Cloud, Edge, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_copies_that_changed_are_looked_at() {
    let cloud = Cloud::start().await;
    let mut edges = Vec::new();
    for name in ["a", "b", "c"] {
        let mut edge = Edge::start(&cloud.invite(name)).await;
        edge.write();
        edges.push(edge);
    }
    let is_current = |name: &str, edge: &Edge| {
        let number = edge.db.state_number().unwrap();
        let copy = cloud.edge(name).copy;
        copy.is_some_and(|copy| copy.state == number && copy.missing_bytes == 0)
    };
    for (name, edge) in ["a", "b", "c"].into_iter().zip(&edges) {
        until("all is there", || is_current(name, edge)).await;
    }
    let rows = || drop(cloud.snapshot());
    rows();
    // Nothing changes: nothing is looked at.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    rows();
    let before = cloud.fleet.looks();
    assert!(before >= 3, "{before}");
    rows();
    assert_eq!(cloud.fleet.looks(), before);
    // One changes, and it alone is looked at, however often.
    edges[1].write();
    until("the new rows are shown", || {
        let before = cloud.fleet.looks();
        rows();
        assert!(cloud.fleet.looks() - before <= 1);
        is_current("b", &edges[1])
    })
    .await;
    rows();
    assert!(cloud.fleet.looks() > before);
    // The list of edges is another: all are looked at, what is left of the removed one too.
    cloud.fleet.remove("c").unwrap();
    let before = cloud.fleet.looks();
    rows();
    assert!(cloud.fleet.looks() - before >= 3);
}
