//! Coverage of queries about everything: which node has every database, and what is missing.

use crate::dispatch::world::{edge, stream};
use headwater_protocol::dispatch::{Database, EdgeFacts, Missing, NodeIndex, Registry, Tables};
use headwater_types::Timestamp;

fn database(identity: u64) -> Database {
    Database {
        identity,
        incarnation: 1,
    }
}

/// A node with these edges: name and identity of each.
fn node(own: u64, edges: &[(&str, u64)]) -> Registry {
    let mut registry = Registry::new(database(own), 1);
    for (name, identity) in edges {
        registry.set_edge(EdgeFacts {
            database: Some(database(*identity)),
            ..edge(name)
        });
    }
    registry
}

fn report(tables: &mut Tables, at: usize, node: &Registry) {
    tables.apply(NodeIndex(at), node.since(0, 0));
}

fn missing(edge: &str, nodes: &[usize], since: Option<Timestamp>) -> Missing {
    Missing {
        edge: Some(edge.to_owned()),
        nodes: nodes.iter().copied().map(NodeIndex).collect(),
        since,
    }
}

#[test]
fn a_node_with_every_database_is_whole_however_it_calls_the_edges() {
    let mut tables = Tables::new(2);
    report(&mut tables, 0, &node(1, &[("pump", 7)]));
    report(&mut tables, 1, &node(2, &[("north-pump", 7), ("fan", 8)]));
    let coverage = tables.coverage();
    assert_eq!(coverage.node, Some(NodeIndex(1)));
    assert!(
        coverage.is_whole() && coverage.apart == [NodeIndex(1)],
        "{coverage:?}"
    );
    // Invited edges without a database are nothing that could be missing.
    let mut invited = node(1, &[("pump", 7)]);
    invited.set_edge(edge("soon"));
    report(&mut tables, 0, &invited);
    assert!(tables.coverage().is_whole());
}

#[test]
fn a_database_of_another_node_is_missing_whether_it_answers_or_not() {
    let mut tables = Tables::new(2);
    report(&mut tables, 0, &node(1, &[("pump", 7)]));
    report(&mut tables, 1, &node(2, &[("fan", 8), ("door", 9)]));
    let coverage = tables.coverage().clone();
    assert_eq!(coverage.node, Some(NodeIndex(1)));
    assert_eq!(coverage.missing, [missing("pump", &[0], None)]);
    assert_eq!(coverage.apart, [NodeIndex(1), NodeIndex(0)]);
    assert!(coverage.missing_apart.is_empty());
    // The tables of a lost node say what is missing since when.
    let at = Timestamp::from_nanos(5);
    tables.lost(NodeIndex(0), at);
    tables.lost(NodeIndex(0), Timestamp::from_nanos(9));
    let coverage = tables.coverage();
    assert_eq!(coverage.missing, [missing("pump", &[0], Some(at))]);
    assert_eq!(coverage.missing_apart, coverage.missing);
    // It comes back.
    report(&mut tables, 0, &node(1, &[("pump", 7)]));
    assert_eq!(tables.coverage().missing, [missing("pump", &[0], None)]);
    tables.lost(NodeIndex(1), at);
    let names: Vec<_> = tables.coverage().missing.iter().map(|m| &m.edge).collect();
    assert_eq!(names, [&Some("door".to_owned()), &Some("fan".to_owned())]);
}

#[test]
fn rows_of_a_node_itself_count_and_a_node_that_never_reported_is_missing() {
    let mut tables = Tables::new(2);
    let silent = Missing {
        edge: None,
        nodes: vec![NodeIndex(1)],
        since: None,
    };
    report(&mut tables, 0, &node(1, &[("pump", 7)]));
    assert_eq!(tables.coverage().missing, [silent]);
    report(&mut tables, 1, &node(2, &[("pump", 7)]));
    assert!(tables.coverage().is_whole());
    let mut own = node(2, &[("pump", 7)]);
    own.set_edge(EdgeFacts {
        is_own: true,
        ..edge("this node")
    });
    // Without a stream there is nothing of its own.
    report(&mut tables, 1, &own);
    assert!(tables.coverage().is_whole());
    own.set_streams("this node", vec![stream(5)]);
    report(&mut tables, 1, &own);
    let coverage = tables.coverage();
    assert_eq!(coverage.node, Some(NodeIndex(1)));
    assert!(coverage.is_whole(), "{coverage:?}");
    // Its rows are at no other node.
    tables.lost(NodeIndex(1), Timestamp::MIN);
    let coverage = tables.coverage();
    assert_eq!(
        (coverage.node, coverage.missing.len()),
        (Some(NodeIndex(0)), 1)
    );
    assert_eq!(coverage.missing[0].edge, None);
}

#[test]
fn closed_parts_count_like_copies_of_edges_each_incarnation_by_itself() {
    let with = |own: u64, edges: &[(&str, u64, u64)]| {
        let mut registry = Registry::new(database(own), 1);
        for (name, identity, incarnation) in edges {
            registry.set_edge(EdgeFacts {
                database: Some(Database {
                    identity: *identity,
                    incarnation: *incarnation,
                }),
                ..edge(name)
            });
        }
        registry
    };
    let mut tables = Tables::new(2);
    let owner = [("pump", 7, 2), ("pump@1", 7, 1), ("fan@2", 8, 1)];
    report(&mut tables, 0, &with(1, &owner));
    // The peer has been told of neither closed part.
    report(&mut tables, 1, &with(2, &[("pump.north", 7, 2)]));
    assert_eq!(tables.coverage().node, Some(NodeIndex(0)));
    assert!(tables.coverage().is_whole());
    let at = Timestamp::from_nanos(5);
    tables.lost(NodeIndex(0), at);
    let lost = |name| missing(name, &[0], Some(at));
    assert_eq!(tables.coverage().missing, [lost("fan@2"), lost("pump@1")]);
    let peer = [
        ("pump.north", 7, 2),
        ("pump.north@1", 7, 1),
        ("fan.north@2", 8, 1),
    ];
    report(&mut tables, 1, &with(2, &peer));
    assert!(tables.coverage().is_whole(), "{:?}", tables.coverage());
    // A node's own rows are its own in any incarnation: it was restored since its peer copied them.
    let mut own = with(2, &peer);
    own.set_edge(EdgeFacts {
        is_own: true,
        ..edge("this node")
    });
    own.set_streams("this node", vec![stream(5)]);
    report(&mut tables, 1, &own);
    let copied = [peer.as_slice(), &[("south", 2, 9)]].concat();
    report(&mut tables, 0, &with(1, &copied));
    tables.lost(NodeIndex(1), at);
    assert!(tables.coverage().is_whole(), "{:?}", tables.coverage());
}
