//! Where questions are answered, by tables made by hand.

use crate::dispatch::world::{edge, stream};
use headwater_protocol::dispatch::{
    Address, At, Change, Client, Database, Decision, EXACT_MAX, EdgeFacts, InventoryReport,
    NodeIndex, Position, Question, Reach, Registry, SPANS_MAX, Span, Tables, TileSet, Why, decode,
    encode,
};
use headwater_types::{ClosedRange, Level, Timestamp};

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
    let place = |question, at| tables.decide(stream(1), question, at, PROGRAM);
    assert_eq!(place(coarse(6, 0), At::Any), node(0, true, Why::Base));
    assert_eq!(place(TILE, At::Any), node(0, true, Why::Edge));
    assert_eq!(place(Question::Rows, At::Any), node(0, true, Why::Edge));
    assert_eq!(place(coarse(6, 0), At::Edge), node(0, true, Why::Edge));
}

#[test]
fn an_edge_with_an_address_answers_itself_what_nodes_lack() {
    for (for_browsers, relayed) in [(true, false), (false, true)] {
        let tables = tables(&[&registry(with_address(for_browsers), &[1])]);
        let place = |question, at, client| tables.decide(stream(1), question, at, client);
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
fn an_edge_that_is_away_is_not_redirected_to() {
    let away = EdgeFacts {
        is_connected: false,
        ..with_address(true)
    };
    let at = |tables: &Tables, at| tables.decide(stream(1), TILE, at, PROGRAM);
    let nowhere = Decision::Nowhere {
        edge: Some("pump-7".to_owned()),
    };
    let one = tables(&[&registry(away.clone(), &[1])]);
    assert_eq!(at(&one, At::Any), node(0, false, Why::Edge));
    assert_eq!(at(&one, At::Edge), nowhere);
    // Another node has its connection, whichever of them has the address.
    let mut two = tables(&[&registry(away, &[1]), &registry(pump(), &[1])]);
    assert_eq!(at(&two, At::Any), itself(false));
    two.lost(NodeIndex(1), Timestamp::MIN);
    assert_eq!(at(&two, At::Any), node(0, false, Why::Edge));
    // The connection of another database of that name does not count.
    let other = EdgeFacts {
        database: Some(Database {
            identity: 8,
            incarnation: 1,
        }),
        ..pump()
    };
    let away = EdgeFacts {
        is_connected: false,
        ..with_address(true)
    };
    let two = tables(&[&registry(away, &[1]), &registry(other, &[1])]);
    assert_eq!(at(&two, At::Any), node(1, true, Why::Edge));
}

#[test]
fn what_is_not_there_yet_is_not_the_base() {
    let until = Timestamp::from_nanos(32_768_000_000_000 - 1);
    let facts = EdgeFacts { until, ..pump() };
    let tables = tables(&[&registry(facts, &[1])]);
    let place = |question| tables.decide(stream(1), question, At::Any, PROGRAM);
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
    let place = |tables: &Tables| tables.decide(stream(1), TILE, At::Any, PROGRAM);
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
    let place = |tables: &Tables, at| tables.decide(stream(1), coarse(6, 0), at, PROGRAM);
    assert_eq!(place(&tables, At::Any), node(0, true, Why::Base));
    tables.lost(NodeIndex(0), Timestamp::MIN);
    // The other has an older copy, and no connection.
    assert_eq!(place(&tables, At::Any), node(1, false, Why::Base));
    let nowhere = Decision::Nowhere {
        edge: Some("pump-7".to_owned()),
    };
    assert_eq!(place(&tables, At::Edge), nowhere);
    tables.lost(NodeIndex(1), Timestamp::MIN);
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
    let place = |tables: &Tables| tables.decide(stream(9), TILE, At::Any, PROGRAM);
    assert_eq!(place(&tables), node(1, false, Why::Unknown));
    tables.lost(NodeIndex(1), Timestamp::MIN);
    assert_eq!(place(&tables), node(0, false, Why::Unknown));
    tables.lost(NodeIndex(0), Timestamp::MIN);
    assert_eq!(place(&tables), Decision::Nowhere { edge: None });
    assert_eq!(tables.coverage().node, None);
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
    registry.set_edge(ranked("early", 1, Reach::None));
    registry.set_streams("early", vec![stream(1)]);
    let mut tables = tables(&[&registry]);
    let why = |tables: &Tables, number| match tables.decide(stream(number), TILE, At::Any, PROGRAM)
    {
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
    let figures = tables.stats(NodeIndex(0)).unwrap();
    assert_eq!(figures.tiles, 150_000);
    let bits = u64::try_from(figures.tile_bytes).unwrap() * 8_000 / figures.tiles;
    assert!(bits <= 9_600, "{bits} thousandths of a bit a tile");
    let held = registry.since(0, 0);
    assert!(held.shard_bits > 0, "they are divided");
    let why = |number, offset: i64| {
        let level = Level::clamped(offset.rem_euclid(9).try_into().unwrap());
        // Below the level of which everything is held.
        let question = Question::Tile { level, offset };
        match tables.decide(stream(number), question, At::Any, PROGRAM) {
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
        let place = tables.decide(stream(1), question, At::Any, PROGRAM);
        place == node(0, true, Why::Filter)
    });
    // A filter keeps a few that are gone until it is made anew.
    assert!(found.count() <= 200);
    assert_eq!(tables.stats(NodeIndex(0)).unwrap().edges, 1);
    assert!(TileSet::default().is_empty());
    assert!(matches!(
        registry.since(1, registry.version()).edges[..],
        []
    ));
    let change = registry.since(0, 0).edges.remove(0).1;
    assert!(matches!(change, Change::State { .. }));
}

/// Stretch of tiles of a level, without the first and the last instant of its neighbours.
fn stretch(level: i32, from: i64, to: i64) -> ClosedRange {
    let level = Level::clamped(level);
    let (first, last) = (
        level.tile_buckets(from).unwrap(),
        level.tile_buckets(to).unwrap(),
    );
    level.span(*first.start(), *last.end())
}

#[test]
fn what_was_fetched_ahead_is_answered_where_it_is() {
    let mut registry = registry(with_address(true), &[1, 2]);
    registry.set_spans(
        "pump-7",
        vec![
            Span {
                stream: stream(1),
                reach: Reach::Rows,
                range: stretch(0, 10, 19),
            },
            Span {
                stream: stream(1),
                reach: Reach::Level(Level::clamped(3)),
                range: stretch(3, 5, 6),
            },
        ],
    );
    let mut tables = tables(&[&registry]);
    let place = |tables: &Tables, number, question, at| {
        tables.decide(stream(number), question, at, PROGRAM)
    };
    let here = node(0, true, Why::Span);
    for (level, offset) in [(0, 10), (0, 19), (-2, 40), (1, 5), (3, 5), (4, -1), (3, 6)] {
        let wanted = match (level, offset) {
            (4, -1) => itself(false),
            _ => here.clone(),
        };
        let found = place(&tables, 1, coarse(level, offset), At::Any);
        assert_eq!(found, wanted, "{level}.{offset}");
    }
    // Beside the stretch, finer than it, another stream, and what is asked of the edge itself.
    for (level, offset) in [(0, 9), (0, 20), (1, 4), (2, 12), (3, 7), (5, 0)] {
        let found = place(&tables, 1, coarse(level, offset), At::Any);
        assert_eq!(found, itself(false), "{level}.{offset}");
    }
    assert_eq!(place(&tables, 2, coarse(0, 10), At::Any), itself(false));
    assert_eq!(place(&tables, 1, coarse(0, 10), At::Edge), itself(false));
    // With the edge cut off it is still there.
    registry.set_edge(EdgeFacts {
        is_connected: false,
        ..with_address(true)
    });
    let at = tables.position(NodeIndex(0));
    let change = registry.since(at.epoch, at.version);
    assert!(matches!(
        change.edges[0].1,
        Change::State { spans: None, .. }
    ));
    tables.apply(NodeIndex(0), change);
    let found = place(&tables, 1, coarse(0, 10), At::Any);
    assert_eq!(found, node(0, false, Why::Span));
    // It goes: a change says so.
    registry.set_spans("pump-7", Vec::new());
    let at = tables.position(NodeIndex(0));
    tables.apply(NodeIndex(0), registry.since(at.epoch, at.version));
    let found = place(&tables, 1, coarse(0, 10), At::Any);
    assert_eq!(found, node(0, false, Why::Edge));
}

#[test]
fn of_a_stream_with_many_spans_the_finest_are_told() {
    let mut registry = registry(pump(), &[1, 2]);
    let spans = (0..40).map(|n| Span {
        stream: stream(1),
        reach: if n % 2 == 0 {
            Reach::Rows
        } else {
            Reach::Level(Level::MIN)
        },
        range: ClosedRange::nanos(n * 100, n * 100 + 50),
    });
    let other = Span {
        stream: stream(2),
        reach: Reach::None,
        range: ClosedRange::ALL,
    };
    let empty = Span {
        range: ClosedRange::nanos(5, 4),
        ..other
    };
    registry.set_spans("pump-7", spans.chain([other, empty, other]).collect());
    let held = registry.since(0, 0);
    assert_eq!(decode(&encode(&held)).as_ref(), Ok(&held));
    let Change::State { spans, .. } = &held.edges[0].1 else {
        panic!("{held:?}");
    };
    let told = spans.as_deref().unwrap();
    let of_first = told.iter().filter(|span| span.stream == stream(1));
    assert_eq!(of_first.clone().count(), SPANS_MAX);
    assert!(of_first.into_iter().all(|span| span.reach == Reach::Rows));
    assert_eq!(told.len(), SPANS_MAX + 1);
    // The same again is no news.
    let version = registry.version();
    registry.set_spans("pump-7", told.to_vec());
    assert_eq!(registry.version(), version);
}

/// Nodes that all have every stream, of databases of their own, and how busy they are.
fn peers(loads: &[u32]) -> Tables {
    let streams: Vec<u64> = (0..2_000).collect();
    let nodes: Vec<Registry> = (1u64..)
        .zip(loads)
        .map(|(identity, load)| {
            let database = Database {
                identity,
                incarnation: 1,
            };
            let mut registry = Registry::new(database, 1);
            registry.set_edge(EdgeFacts {
                is_connected: false,
                ..pump()
            });
            registry.set_streams("pump-7", streams.iter().map(|n| stream(*n)).collect());
            registry.set_load(*load);
            registry
        })
        .collect();
    tables(&nodes.iter().collect::<Vec<_>>())
}

fn node_of(tables: &Tables, number: u64) -> usize {
    match tables.decide(stream(number), coarse(6, 0), At::Any, PROGRAM) {
        Decision::Node {
            node,
            why: Why::Base,
            ..
        } => node.0,
        other => panic!("{other:?}"),
    }
}

fn shares(tables: &Tables) -> Vec<usize> {
    let mut shares = vec![0; 4];
    for number in 0..2_000 {
        shares[node_of(tables, number)] += 1;
    }
    shares
}

#[test]
fn streams_are_spread_over_nodes_and_stay_where_they_are() {
    let even = peers(&[3, 3, 3, 3]);
    assert!(shares(&even).iter().all(|share| (400..600).contains(share)));
    // Small differences move nothing.
    let busier = peers(&[14, 3, 5, 9]);
    assert!((0..2_000).all(|n| node_of(&even, n) == node_of(&busier, n)));
    // A busy node gets nothing while another can answer, and all others get a part of its share.
    let busy = peers(&[40, 3, 3, 3]);
    let of_busy = shares(&busy);
    assert_eq!(of_busy[0], 0);
    assert!(of_busy[1..].iter().all(|share| (550..800).contains(share)));
    // Streams of the others stay, so that their caches are warm.
    let moved = (0..2_000).filter(|n| node_of(&even, *n) != node_of(&busy, *n));
    assert!(moved.into_iter().all(|n| node_of(&even, n) == 0));
    // When all are busy, none is avoided.
    assert_eq!(shares(&peers(&[40, 40, 40, 40])), shares(&even));
}

#[test]
fn requests_in_a_model_spread_by_load() {
    // Each request takes ten steps, those of node 0 forty; nodes tell their load each fifth step.
    let mut tables = peers(&[0, 0, 0, 0]);
    let mut running: Vec<Vec<u32>> = vec![Vec::new(); 4];
    let (mut most, mut of_node) = (0, [0; 4]);
    for step in 0..2_000u64 {
        for request in 0..8 {
            // Half of the requests are about few streams.
            let number = if request % 2 == 0 {
                step % 40
            } else {
                (step * 8 + request) % 2_000
            };
            let node = node_of(&tables, number);
            running[node].push(if node == 0 { 40 } else { 10 });
            of_node[node] += 1;
        }
        for node in &mut running {
            node.iter_mut().for_each(|left| *left -= 1);
            node.retain(|left| *left > 0);
        }
        if step % 5 == 0 {
            let loads: Vec<u32> = running
                .iter()
                .map(|r| u32::try_from(r.len()).unwrap())
                .collect();
            most = most.max(*loads.iter().max().unwrap());
            for (at, load) in loads.iter().enumerate() {
                let told = tables.position(NodeIndex(at));
                let database = tables.database(NodeIndex(at)).unwrap();
                tables.apply(NodeIndex(at), news(database, told, *load));
            }
        }
    }
    assert!(
        of_node[0] * 4 < of_node[1..].iter().sum::<i32>(),
        "{of_node:?}"
    );
    assert!(most < 100, "up to {most} at once");
    assert!(
        of_node.iter().all(|requests| *requests > 800),
        "{of_node:?}"
    );
}

/// A report in which only the load is new.
fn news(database: Database, at: Position, load: u32) -> InventoryReport {
    InventoryReport {
        database,
        epoch: at.epoch,
        since: at.version,
        version: at.version,
        load,
        edges: Vec::new(),
        shard_bits: 0,
        shards: Vec::new(),
    }
}
