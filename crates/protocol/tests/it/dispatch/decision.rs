//! Where questions are answered, by tables made by hand.

use crate::dispatch::world::{edge, stream};
use headwater_protocol::dispatch::{
    Address, At, Change, Client, Database, Decision, EXACT_MAX, EdgeFacts, NodeIndex, Question,
    Reach, Registry, Tables, TileSet, Why,
};
use headwater_types::{Level, Timestamp};

const TILE: Question = Question::Tile {
    level: Level::MIN,
    offset: 3,
};
const PROGRAM: Client = Client { is_browser: false };
const BROWSER: Client = Client { is_browser: true };
const PUMP: Database = Database {
    identity: 7,
    incarnation: 1,
};

fn coarse(level: i32, offset: i64) -> Question {
    Question::Tile {
        level: Level::clamped(level),
        offset,
    }
}

/// An edge of which summaries from level 6 on are held.
fn pump() -> EdgeFacts {
    EdgeFacts {
        is_connected: true,
        database: Some(PUMP),
        reach: Reach::Level(Level::clamped(6)),
        until: Timestamp::MAX,
        ..edge("pump-7")
    }
}

fn registry(facts: EdgeFacts, streams: &[u64]) -> Registry {
    let mut registry = Registry::new(Database::default(), 1);
    let name = facts.name.clone();
    registry.set_edge(facts);
    registry.set_streams(&name, streams.iter().map(|n| stream(*n)).collect());
    registry
}

fn tables(nodes: &[&Registry]) -> Tables {
    let mut tables = Tables::new(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        tables.apply(NodeIndex(at), node.since(0, 0));
    }
    tables
}

fn node(at: usize, fetches: bool, why: Why) -> Decision {
    Decision::Node {
        node: NodeIndex(at),
        fetches,
        why,
    }
}

fn itself(is_relayed: bool) -> Decision {
    Decision::Edge {
        name: "pump-7".to_owned(),
        url: "https://pump-7.example".to_owned(),
        database: PUMP,
        is_relayed,
    }
}

fn with_address(for_browsers: bool) -> EdgeFacts {
    EdgeFacts {
        address: Some(Address {
            url: "https://pump-7.example".to_owned(),
            for_browsers,
        }),
        ..pump()
    }
}

#[test]
fn what_a_node_has_it_answers_and_the_rest_it_fetches() {
    let tables = tables(&[&registry(pump(), &[1])]);
    let place = |question, at| tables.place(stream(1), question, at, PROGRAM);
    assert_eq!(place(coarse(6, 0), At::Any), node(0, true, Why::Base));
    assert_eq!(place(TILE, At::Any), node(0, true, Why::Edge));
    assert_eq!(place(Question::Rows, At::Any), node(0, true, Why::Edge));
    assert_eq!(place(coarse(6, 0), At::Edge), node(0, true, Why::Edge));
}

#[test]
fn an_edge_with_an_address_answers_itself_what_nodes_lack() {
    for (for_browsers, relayed) in [(true, false), (false, true)] {
        let tables = tables(&[&registry(with_address(for_browsers), &[1])]);
        let place = |question, at, client| tables.place(stream(1), question, at, client);
        assert_eq!(
            place(coarse(6, 0), At::Any, PROGRAM),
            node(0, true, Why::Base)
        );
        assert_eq!(place(TILE, At::Any, PROGRAM), itself(false));
        assert_eq!(place(Question::Live, At::Any, PROGRAM), itself(false));
        assert_eq!(place(TILE, At::Node, PROGRAM), node(0, true, Why::Edge));
        // A browser is sent only where it is let in.
        assert_eq!(place(TILE, At::Any, BROWSER), itself(relayed));
        assert_eq!(place(coarse(6, 0), At::Edge, BROWSER), itself(relayed));
    }
}

#[test]
fn what_is_not_there_yet_is_not_the_base() {
    let until = Timestamp::from_nanos(32_768_000_000_000 - 1);
    let facts = EdgeFacts { until, ..pump() };
    let tables = tables(&[&registry(facts, &[1])]);
    let place = |question| tables.place(stream(1), question, At::Any, PROGRAM);
    // Tile 0 of level 6 holds 32,768 seconds.
    assert_eq!(place(coarse(6, 0)), node(0, true, Why::Base));
    assert_eq!(place(coarse(6, 1)), node(0, true, Why::Edge));
    assert_eq!(place(coarse(7, 0)), node(0, true, Why::Edge));
}

#[test]
fn a_tile_that_was_registered_is_at_its_node_until_it_is_dropped() {
    let mut registry = registry(pump(), &[1]);
    let key = stream(1).tile(Level::MIN, 3);
    assert!(registry.add_tile(key) && !registry.add_tile(key));
    let mut tables = tables(&[&registry]);
    let place = |tables: &Tables| tables.place(stream(1), TILE, At::Any, PROGRAM);
    assert_eq!(place(&tables), node(0, true, Why::Filter));
    registry.remove_tile(key);
    // The table is older than the node: what is asked there it fetches.
    assert_eq!(place(&tables), node(0, true, Why::Filter));
    let position = tables.position(NodeIndex(0));
    tables.apply(
        NodeIndex(0),
        registry.since(position.epoch, position.version),
    );
    assert_eq!(place(&tables), node(0, true, Why::Edge));
}

#[test]
fn a_dead_node_is_asked_nothing_and_the_edge_itself_still_answers() {
    let offline = EdgeFacts {
        is_connected: false,
        ..pump()
    };
    let mut tables = tables(&[&registry(pump(), &[1]), &registry(offline, &[1])]);
    let place = |tables: &Tables, at| tables.place(stream(1), coarse(6, 0), at, PROGRAM);
    assert_eq!(place(&tables, At::Any), node(0, true, Why::Base));
    tables.lost(NodeIndex(0));
    // The other has an older copy, and no connection.
    assert_eq!(place(&tables, At::Any), node(1, false, Why::Base));
    let nowhere = Decision::Nowhere {
        edge: Some("pump-7".to_owned()),
    };
    assert_eq!(place(&tables, At::Edge), nowhere);
    tables.lost(NodeIndex(1));
    assert_eq!(place(&tables, At::Any), nowhere);
}

#[test]
fn an_unknown_stream_is_looked_for_where_most_is_known() {
    let (small, large) = (registry(edge("a"), &[1]), {
        let mut large = registry(edge("b"), &[2]);
        large.set_edge(edge("c"));
        large
    });
    let mut tables = tables(&[&small, &large]);
    let place = |tables: &Tables| tables.place(stream(9), TILE, At::Any, PROGRAM);
    assert_eq!(place(&tables), node(1, false, Why::Unknown));
    assert_eq!(tables.widest(), Some((NodeIndex(1), vec!["a".to_owned()])));
    tables.lost(NodeIndex(1));
    assert_eq!(place(&tables), node(0, false, Why::Unknown));
    tables.lost(NodeIndex(0));
    assert_eq!(place(&tables), Decision::Nowhere { edge: None });
    assert_eq!(tables.widest(), None);
}

#[test]
fn of_two_edges_with_a_stream_the_first_is_shown_until_it_goes() {
    let ranked = |name: &str, rank, reach| EdgeFacts {
        rank,
        reach,
        until: Timestamp::MAX,
        ..edge(name)
    };
    let mut registry = Registry::new(Database::default(), 1);
    registry.set_edge(ranked("late", 2, Reach::Rows));
    registry.set_streams("late", vec![stream(1), stream(2)]);
    registry.set_edge(ranked("early", 1, Reach::Nothing));
    registry.set_streams("early", vec![stream(1)]);
    let mut tables = tables(&[&registry]);
    let why = |tables: &Tables, number| match tables.place(stream(number), TILE, At::Any, PROGRAM) {
        Decision::Node { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!((why(&tables, 1), why(&tables, 2)), (Why::Edge, Why::Base));
    registry.remove_edge("early");
    let at = tables.position(NodeIndex(0));
    tables.apply(NodeIndex(0), registry.since(at.epoch, at.version));
    assert_eq!((why(&tables, 1), why(&tables, 2)), (Why::Base, Why::Base));
}

#[test]
fn many_tiles_take_9_6_bits_each_and_a_hundredth_are_false_hits() {
    let mut registry = registry(pump(), &[1]);
    let tile = |stream_number: u64, offset: i64| {
        stream(stream_number).tile(
            Level::clamped(offset.rem_euclid(9).try_into().unwrap()),
            offset,
        )
    };
    let mut tables = Tables::new(1);
    let mut rounds = 0;
    for offset in 0..150_000 {
        registry.add_tile(tile(1, offset));
        // Now and then a dispatcher asks for what is new.
        if offset % 40_000 == 39_999 || offset == 149_999 {
            registry.settle();
            let at = tables.position(NodeIndex(0));
            tables.apply(NodeIndex(0), registry.since(at.epoch, at.version));
            rounds += 1;
        }
    }
    assert_eq!(rounds, 4);
    let figures = tables.figures(NodeIndex(0)).unwrap();
    assert_eq!(figures.tiles, 150_000);
    let bits = u64::try_from(figures.tile_bytes).unwrap() * 8_000 / figures.tiles;
    assert!(bits <= 9_600, "{bits} thousandths of a bit a tile");
    let held = registry.since(0, 0);
    assert!(held.shard_bits > 0, "they are divided");
    let why = |number, offset: i64| {
        let level = Level::clamped(offset.rem_euclid(9).try_into().unwrap());
        // Below the level of which everything is held.
        let question = Question::Tile { level, offset };
        match tables.place(stream(number), question, At::Any, PROGRAM) {
            Decision::Node { why, .. } => why,
            other => panic!("{other:?}"),
        }
    };
    for offset in (0..150_000).filter(|offset| offset % 9 < 6) {
        assert_eq!(why(1, offset), Why::Filter);
    }
    let asked = (150_000..350_000).filter(|offset| offset % 9 < 6);
    let (all, hits) = asked.fold((0, 0), |(all, hits), offset| {
        (all + 1, hits + u64::from(why(1, offset) == Why::Filter))
    });
    assert!(hits * 100 <= all, "{hits} false hits of {all}");
}

#[test]
fn tiles_that_are_dropped_are_not_found_for_ever() {
    let mut registry = registry(pump(), &[1]);
    let key = |offset| stream(1).tile(Level::MIN, offset);
    let count = i64::try_from(EXACT_MAX).unwrap() * 2;
    for offset in 0..count {
        registry.add_tile(key(offset));
    }
    for offset in 0..count / 2 {
        registry.remove_tile(key(offset));
    }
    registry.settle();
    let held = registry.since(0, 0);
    let mut tables = Tables::new(1);
    tables.apply(NodeIndex(0), held);
    let found = (0..count / 2).filter(|offset| {
        let question = Question::Tile {
            level: Level::MIN,
            offset: *offset,
        };
        let place = tables.place(stream(1), question, At::Any, PROGRAM);
        place == node(0, true, Why::Filter)
    });
    // A filter keeps a few that are gone until it is made anew.
    assert!(found.count() <= 200);
    assert_eq!(tables.figures(NodeIndex(0)).unwrap().edges, 1);
    assert!(TileSet::default().is_empty());
    assert!(matches!(
        registry.since(1, registry.version()).edges[..],
        []
    ));
    let change = registry.since(0, 0).edges.remove(0).1;
    assert!(matches!(change, Change::Is { .. }));
}
