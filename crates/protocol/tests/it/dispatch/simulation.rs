//! Nodes that change, die and come back, dispatchers that hear of it over lines that lose, double,
//! reorder, damage and forge; and questions all the while.

use crate::dispatch::world::{
    Desk, EDGES, OFFSETS, STREAMS, Site, random_registry, random_step, stream,
};
use headwater_protocol::dispatch::{
    At, Client, Decision, NodeIndex, Question, Reach, Registry, StreamKey, Tables, Why,
};
use headwater_testing::Dice;
use headwater_types::Level;
use std::collections::BTreeSet;

const WORLDS: u64 = 60;
const STEPS: u64 = 400;
const NODES: usize = 3;

fn site(dice: &mut Dice) -> Site {
    Site {
        registry: random_registry(dice, 0),
        tiles: BTreeSet::new(),
        is_up: true,
    }
}

/// A node is started anew: what it holds it finds again, under another epoch.
fn restart(dice: &mut Dice, site: &mut Site) {
    let mut fresh = Registry::new(site_database(site), dice.next());
    for (_, change) in site.registry.since(0, 0).edges {
        if let headwater_protocol::dispatch::Change::State {
            facts,
            streams,
            spans,
        } = change
        {
            let name = facts.name.clone();
            fresh.set_edge(facts);
            fresh.set_streams(&name, streams.unwrap_or_default());
            fresh.set_spans(&name, spans.unwrap_or_default());
        }
    }
    for tile in &site.tiles {
        fresh.add_tile(*tile);
    }
    site.registry = fresh;
}

fn site_database(site: &Site) -> headwater_protocol::dispatch::Database {
    site.registry.since(0, 0).database
}

fn questions() -> Vec<(StreamKey, Question)> {
    let mut all = Vec::new();
    for number in 0..STREAMS {
        let stream = stream(number);
        all.extend([(stream, Question::Rows), (stream, Question::Live)]);
        for level in -2..5 {
            for offset in 0..i64::try_from(OFFSETS).unwrap() {
                let level = Level::clamped(level);
                all.push((stream, Question::Tile { level, offset }));
            }
        }
    }
    all
}

const TARGETS: [At; 3] = [At::Any, At::Edge, At::Node];

fn clients() -> [Client; 2] {
    [false, true].map(|is_browser| Client { is_browser })
}

/// What must hold of an answer, whatever the tables know.
fn check(tables: &Tables, stream: StreamKey, question: Question, at: At, client: Client) {
    match tables.decide(stream, question, at, client) {
        Decision::Node { node, fetches, why } => {
            assert!(tables.stats(node).unwrap().is_live, "a dead node is chosen");
            let of_its_own = matches!(why, Why::Base | Why::Span | Why::Filter);
            assert!(at != At::Edge || !of_its_own, "the edge was asked for");
            assert!(at != At::Edge || fetches || why == Why::Unknown || is_own(tables, stream));
        }
        Decision::Edge {
            url, is_relayed, ..
        } => {
            assert!(at != At::Node, "a node was asked for");
            assert!(url.starts_with("https://edge-"));
            assert!(!is_relayed || client.is_browser);
        }
        Decision::Nowhere { .. } => {}
    }
}

fn is_own(_: &Tables, _: StreamKey) -> bool {
    // No world of this test has streams of a node's own.
    false
}

#[test]
fn dispatchers_come_to_know_what_nodes_hold_whatever_lines_do() {
    let mut strays = 0;
    for seed in 0..WORLDS {
        let mut dice = Dice(seed);
        let mut sites: Vec<Site> = (0..NODES).map(|_| site(&mut dice)).collect();
        let mut desks = [Desk::new(NODES), Desk::new(NODES)];
        for _ in 0..STEPS {
            let at = usize::try_from(dice.below(u64::try_from(NODES).unwrap())).unwrap();
            match dice.below(20) {
                0 => sites[at].is_up ^= true,
                1 => restart(&mut dice, &mut sites[at]),
                2..=9 => {
                    let Site {
                        registry, tiles, ..
                    } = &mut sites[at];
                    random_step(&mut dice, registry, tiles);
                }
                10..=14 => desks[usize::from(dice.chance(50))].request_changes(at, &sites[at]),
                15..=18 => desks[usize::from(dice.chance(50))].deliver(&mut dice, at, true),
                _ => {
                    let question = Question::Tile {
                        level: Level::clamped(i32::try_from(dice.below(7)).unwrap() - 2),
                        offset: i64::try_from(dice.below(OFFSETS)).unwrap(),
                    };
                    let stream = stream(dice.below(STREAMS + 2));
                    for desk in &desks {
                        for (at, client) in TARGETS.into_iter().zip(clients().into_iter().cycle()) {
                            check(&desk.tables, stream, question, at, client);
                        }
                    }
                }
            }
        }
        settle(&mut dice, &sites, &mut desks, seed);
        strays += desks[0].strays + desks[1].strays;
    }
    assert!(
        strays > 100,
        "only {strays} messages came that did not follow"
    );
}

/// Lines work again: both dispatchers know what who asks for everything knows.
fn settle(dice: &mut Dice, sites: &[Site], desks: &mut [Desk; 2], seed: u64) {
    let mut fresh = Tables::new(NODES);
    for (at, site) in sites.iter().enumerate() {
        if site.is_up {
            fresh.apply(NodeIndex(at), site.registry.since(0, 0));
        }
        // One answer may lead on from what another epoch told, so that all is asked for then.
        for _ in 0..3 {
            for desk in desks.iter_mut() {
                desk.request_changes(at, site);
                desk.deliver(dice, at, false);
            }
        }
        if !site.is_up {
            continue;
        }
        for desk in desks.iter() {
            let known = desk.tables.stats(NodeIndex(at)).unwrap();
            assert_eq!(Some(known), fresh.stats(NodeIndex(at)), "world {seed}");
            assert_eq!(known.tiles, u64::try_from(site.tiles.len()).unwrap());
        }
    }
    // Of a node that is down the two may know different things, by what came before.
    if sites.iter().all(|site| site.is_up) {
        for (stream, question) in questions() {
            for (at, client) in TARGETS
                .into_iter()
                .flat_map(|at| clients().map(|c| (at, c)))
            {
                let wanted = fresh.decide(stream, question, at, client);
                for desk in desks.iter() {
                    let place = desk.tables.decide(stream, question, at, client);
                    assert_eq!(place, wanted, "world {seed}: {question:?}");
                }
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let told = |seed: u64| random_registry(&mut Dice(seed), 300).since(0, 0);
    assert_eq!(told(7), told(7));
    assert_ne!(told(7), told(8));
    assert!(told(7).edges.len() <= usize::try_from(EDGES).unwrap());
    let rows = told(7).edges.iter().any(|(_, change)| {
        matches!(change, headwater_protocol::dispatch::Change::State { facts, .. } if facts.reach == Reach::Rows)
    });
    assert!(rows || told(9).edges.len() > 1);
}
