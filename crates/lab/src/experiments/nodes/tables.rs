//! Tables of a dispatcher at full size: a million streams of ten thousand edges, and ten million
//! single tiles (rows R-12).
//!
//! A node without other functions reports a registry of that size to a dispatcher in a process of
//! its own, and the resources of the process are measured. The same message is applied to tables
//! here, and a million missing tiles are looked up: a lookup that still selects the node is a false
//! positive.

use super::Arguments;
use super::requests::{json, number, until};
use crate::experiments::server::{Connection, Server, get};
use crate::harness::{Bench, Bound, Failure, Targets, real, signed, size, unsigned};
use headwater_protocol::dispatch::{
    At, Client, Database, Decision, EdgeFacts, NodeIndex, Question, Reach, Registry, StreamKey,
    Tables, Why, decode, encode,
};
use headwater_types::{Level, StreamName, Timestamp};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Streams of an edge.
const OF_EDGE: usize = 100;
/// Missing tiles that are requested.
const PROBES: usize = 1_000_000;
/// All tiles from this level on are present.
const BASE: i32 = 8;

#[derive(Serialize)]
pub(super) struct Results {
    streams: usize,
    edges: usize,
    tiles: usize,
    message_bytes: usize,
    bits_a_tile: f64,
    false_hits: f64,
    resident_bytes: u64,
    peak_bytes: u64,
}

/// Inventory of a complete node: the first report, and one without changes.
struct Inventory {
    first: Vec<u8>,
    nothing_new: Vec<u8>,
    version: u64,
}

fn name(number: usize) -> StreamName {
    StreamName::new("many", [("id", number.to_string())])
}

/// Tile of a number: below the base, of one of `streams` streams.
fn tile(number: usize, streams: usize) -> (usize, Level, i64) {
    let (of, nth) = (number % streams, number / streams);
    let level = Level::clamped(BASE - 1 - i32::try_from(nth % 4).unwrap_or(0));
    (of, level, 3_320_000 + signed(nth / 4))
}

fn registry(streams: usize, tiles: usize) -> Registry {
    let database = Database {
        identity: 17,
        incarnation: 1,
    };
    let mut registry = Registry::new(database, 1);
    let keys: Vec<StreamKey> = (0..streams).map(|n| StreamKey::of(&name(n))).collect();
    for (edge, own) in keys.chunks(OF_EDGE).enumerate() {
        let name = format!("edge-{edge}");
        registry.set_edge(EdgeFacts {
            name: name.clone(),
            is_own: false,
            is_connected: true,
            rank: unsigned(edge),
            database: None,
            address: None,
            reach: Reach::Level(Level::clamped(BASE)),
            until: Timestamp::MAX,
            exceptions: Vec::new(),
        });
        registry.set_streams(&name, own.to_vec());
    }
    for number in 0..tiles {
        let (of, level, offset) = tile(number, streams);
        if let Some(key) = keys.get(of) {
            registry.add_tile(key.tile(level, offset));
        }
    }
    registry.settle();
    registry
}

/// Answers the requests of a dispatcher as a node does, until the process ends.
fn node(inventory: Arc<Inventory>) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let inventory = Arc::clone(&inventory);
            // A connection that ends ends its thread.
            std::thread::spawn(move || answer(stream, &inventory).is_ok());
        }
    });
    Ok(addr)
}

fn answer(mut stream: TcpStream, inventory: &Inventory) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    let known = format!("since={}&", inventory.version);
    loop {
        while !asked.ends_with(b"\r\n\r\n") {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            asked.extend_from_slice(buffer.get(..length).unwrap_or(&[]));
        }
        let knows = asked
            .windows(known.len())
            .any(|part| part == known.as_bytes());
        asked.clear();
        let body = if knows {
            std::thread::sleep(Duration::from_secs(1));
            &inventory.nothing_new
        } else {
            &inventory.first
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
    }
}

/// Share of missing tiles whose lookups still select the node, 0 to 1.
fn false_hits(tables: &Tables, streams: usize, tiles: usize) -> f64 {
    let mut hits = 0;
    for number in 0..PROBES {
        // Tiles after the existing ones, of all streams in turn.
        let (of, level, offset) = tile(tiles + number, streams);
        let key = StreamKey::of(&name(of));
        let question = Question::Tile {
            level,
            offset: offset + 1_000_000,
        };
        let place = tables.decide(key, question, At::Any, Client::default());
        let is_hit = matches!(
            place,
            Decision::Node {
                why: Why::Filter,
                ..
            }
        );
        hits += usize::from(is_hit);
    }
    real(hits) / real(PROBES)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let (streams, tiles) = (arguments.streams, arguments.tiles);
    let registry = registry(streams, tiles);
    let inventory = Inventory {
        first: encode(&registry.since(0, 0)),
        nothing_new: encode(&registry.since(registry.epoch(), registry.version())),
        version: registry.version(),
    };
    drop(registry);
    let mut tables = Tables::new(1);
    tables.apply(NodeIndex(0), decode(&inventory.first)?);
    let known = tables.stats(NodeIndex(0)).ok_or("no node")?;
    if (known.streams, known.tiles) != (streams, unsigned(tiles)) {
        return Err(format!("known are {known:?}").into());
    }
    let false_hits = false_hits(&tables, streams, tiles);
    drop(tables);
    let message_bytes = inventory.first.len();
    let url = format!("http://{}", node(Arc::new(inventory))?);
    let dir = bench.path("desk-of-many");
    let desk = Server::start_with(&dir, &["--role", "dispatcher", "--node", &url])?;
    until("the dispatcher is ready", || {
        let ready = json(&desk, "/ready");
        Ok(ready.is_ok_and(|ready| number(&ready, "/nodes") == Some(1)))
    })?;
    check(&desk, streams, tiles)?;
    let used = desk.used()?;
    desk.stop()?;
    let results = Results {
        streams,
        edges: streams.div_ceil(OF_EDGE),
        tiles,
        message_bytes,
        bits_a_tile: real(known.tile_bytes * 8) / real(tiles.max(1)),
        false_hits,
        resident_bytes: used.resident_bytes,
        peak_bytes: used.peak_bytes,
    };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

/// A tile that is there, and one at the base, are sent where they are.
fn check(desk: &Server, streams: usize, tiles: usize) -> Result<(), Failure> {
    let mut connection = Connection::open(desk.addr)?;
    for number in [0, tiles / 2, tiles.saturating_sub(1)] {
        let (of, level, offset) = tile(number, streams);
        for (level, why) in [(level.get(), "filter"), (BASE + 1, "base")] {
            let path = format!("/tiles/many,id%3D{of}.v/{level}.{offset}.json");
            let answer = connection.send(&get(&path))?;
            let head = connection.head(&answer);
            if answer.status != 307 || !head.contains(&format!("x-headwater-place: {why}")) {
                return Err(format!("{path}: {} {head}", answer.status).into());
            }
        }
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    real(bytes) / f64::from(1 << 20)
}

fn print(results: &Results) {
    println!(
        "\n{} streams of {} edges, {} tiles: {:.0} MiB resident ({:.0} at most), {:.2} bits a tile, {:.3} % false hits of {PROBES}; the message has {:.1} MB",
        results.streams,
        results.edges,
        results.tiles,
        mib(results.resident_bytes),
        mib(results.peak_bytes),
        results.bits_a_tile,
        results.false_hits * 100.0,
        real(size(results.message_bytes)) / 1e6,
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    targets.add(
        format!(
            "resident with {} streams, {} tiles",
            results.streams, results.tiles
        ),
        Bound::AtMost(300.0),
        " MiB",
        mib(results.resident_bytes),
    );
    targets.add("bits a tile", Bound::AtMost(9.6), "", results.bits_a_tile);
    targets.add(
        "false hits",
        Bound::AtMost(1.0),
        " %",
        results.false_hits * 100.0,
    );
}
