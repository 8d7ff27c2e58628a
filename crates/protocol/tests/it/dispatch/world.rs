//! Nodes and dispatchers of a small world, and what they tell each other over lines that fail.

use headwater_protocol::dispatch::{
    Address, Applied, Database, EdgeFacts, Exception, NodeIndex, Position, Reach, Registry, Span,
    StreamKey, Tables, TileKey, decode, encode,
};
use headwater_testing::Dice;
use headwater_types::{ClosedRange, Level, StreamName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const STREAMS: u64 = 24;
pub(crate) const EDGES: u64 = 6;
pub(crate) const OFFSETS: u64 = 5;

pub(crate) fn stream(number: u64) -> StreamKey {
    StreamKey::of(&StreamName::new("pump", [("id", number.to_string())]))
}

pub(crate) fn edge(name: &str) -> EdgeFacts {
    EdgeFacts {
        name: name.to_owned(),
        is_own: false,
        is_connected: false,
        rank: 0,
        database: None,
        address: None,
        reach: Reach::None,
        until: Timestamp::MIN,
        exceptions: Vec::new(),
    }
}

fn random_reach(dice: &mut Dice) -> (Reach, Timestamp) {
    let reach = match dice.below(4) {
        0 => Reach::Rows,
        1 => Reach::None,
        _ => Reach::Level(Level::clamped(i32::try_from(dice.below(5)).unwrap())),
    };
    let until = match dice.chance(50) {
        true => Timestamp::MAX,
        false => Timestamp::from_nanos(i64::try_from(dice.below(4_000)).unwrap() * 1_000_000_000),
    };
    (reach, until)
}

pub(crate) fn random_facts(dice: &mut Dice, number: u64) -> EdgeFacts {
    let (reach, until) = random_reach(dice);
    let mut exceptions: BTreeMap<StreamKey, Exception> = BTreeMap::new();
    for _ in 0..dice.below(4) {
        let stream = stream(dice.below(STREAMS));
        let (reach, until) = random_reach(dice);
        let exception = Exception {
            stream,
            reach,
            until,
        };
        exceptions.insert(stream, exception);
    }
    EdgeFacts {
        is_connected: dice.chance(60),
        rank: dice.below(4),
        database: dice.chance(80).then(|| Database {
            identity: number,
            incarnation: dice.below(3),
        }),
        // It moves now and then.
        address: dice.chance(50).then(|| Address {
            url: format!("https://edge-{number}.example:{}", 7000 + dice.below(3)),
            for_browsers: dice.chance(50),
        }),
        reach,
        until,
        exceptions: exceptions.into_values().collect(),
        ..edge(&format!("edge-{number}"))
    }
}

fn random_spans(dice: &mut Dice) -> Vec<Span> {
    let second = |number: u64| i64::try_from(number).unwrap() * 1_000_000_000;
    let spans = (0..dice.below(30)).map(|_| Span {
        stream: stream(dice.below(STREAMS)),
        reach: random_reach(dice).0,
        range: ClosedRange::nanos(second(dice.below(2_000)), second(dice.below(4_000))),
    });
    spans.collect()
}

pub(crate) fn random_tile(dice: &mut Dice) -> TileKey {
    let level = Level::clamped(i32::try_from(dice.below(3)).unwrap() - 2);
    let offset = i64::try_from(dice.below(OFFSETS)).unwrap();
    stream(dice.below(STREAMS)).tile(level, offset)
}

/// Something changes at a node.
pub(crate) fn random_step(dice: &mut Dice, registry: &mut Registry, tiles: &mut BTreeSet<TileKey>) {
    let number = dice.below(EDGES);
    let name = format!("edge-{number}");
    match dice.below(10) {
        0..=2 => registry.set_edge(random_facts(dice, number)),
        3 if dice.chance(50) => registry.set_spans(&name, random_spans(dice)),
        3..=4 => {
            let count = dice.below(8);
            let streams = (0..count).map(|_| stream(dice.below(STREAMS)));
            registry.set_streams(&name, streams.collect());
        }
        5 => {
            registry.remove_edge(&name);
            registry.settle();
        }
        6 => {
            let tile = random_tile(dice);
            registry.remove_tile(tile);
            tiles.remove(&tile);
        }
        7 => registry.set_load(u32::try_from(dice.below(40)).unwrap()),
        _ => {
            let tile = random_tile(dice);
            assert_eq!(registry.add_tile(tile), tiles.insert(tile));
        }
    }
}

pub(crate) fn random_registry(dice: &mut Dice, steps: u64) -> Registry {
    let database = Database {
        identity: dice.next(),
        incarnation: dice.next(),
    };
    let mut registry = Registry::new(database, dice.next());
    let mut tiles = BTreeSet::new();
    for _ in 0..steps {
        random_step(dice, &mut registry, &mut tiles);
    }
    registry
}

/// A node, and the tiles it has.
pub(crate) struct Site {
    pub(crate) registry: Registry,
    pub(crate) tiles: BTreeSet<TileKey>,
    pub(crate) is_up: bool,
}

/// A dispatcher, and what is on its way to it from each node.
pub(crate) struct Desk {
    pub(crate) tables: Tables,
    on_the_way: Vec<Vec<Vec<u8>>>,
    /// Messages that did not follow on what was known.
    pub(crate) strays: u64,
}

impl Desk {
    pub(crate) fn new(nodes: usize) -> Desk {
        Desk {
            tables: Tables::new(nodes),
            on_the_way: vec![Vec::new(); nodes],
            strays: 0,
        }
    }

    /// Asks a node what has changed; the answer is on its way then.
    pub(crate) fn request_changes(&mut self, at: usize, site: &Site) {
        if !site.is_up {
            self.tables.lost(NodeIndex(at), Timestamp::MIN);
            return;
        }
        let Position { epoch, version } = self.tables.position(NodeIndex(at));
        let held = site.registry.since(epoch, version);
        self.on_the_way[at].push(encode(&held));
    }

    /// Something of what is on its way comes, is lost, doubled, damaged, or comes from elsewhere.
    pub(crate) fn deliver(&mut self, dice: &mut Dice, at: usize, faults: bool) {
        let waiting = &mut self.on_the_way[at];
        if waiting.is_empty() {
            return;
        }
        let which = match faults {
            true => usize::try_from(dice.below(u64::try_from(waiting.len()).unwrap())).unwrap(),
            false => waiting.len() - 1,
        };
        let mut bytes = waiting.swap_remove(which);
        if !faults {
            waiting.clear();
        } else if dice.chance(10) {
            return;
        } else if dice.chance(10) {
            waiting.push(bytes.clone());
        } else if dice.chance(10) {
            let place = usize::try_from(dice.below(u64::try_from(bytes.len()).unwrap())).unwrap();
            bytes[place] ^= 1 << dice.below(8);
            assert!(decode(&bytes).is_err(), "damage is seen");
            return;
        } else if dice.chance(5) {
            // What another node, or nobody, said: it follows on nothing that is known here.
            let mut forged = decode(&bytes).unwrap();
            forged.epoch = dice.next();
            forged.since = forged.since.max(1);
            forged.version = forged.version.max(forged.since);
            bytes = encode(&forged);
        }
        if self.tables.apply(NodeIndex(at), decode(&bytes).unwrap()) == Applied::DoesNotFollow {
            self.strays += 1;
        }
    }
}
