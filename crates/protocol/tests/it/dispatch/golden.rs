//! Bytes of what a node tells, as they are for good.

use crate::dispatch::world::{edge, stream};
use headwater_codec::{Cursor, DecodeError};
use headwater_protocol::dispatch::{
    Address, Change, Database, Exception, Filter, FilterChange, InventoryReport, Reach,
    ShardChange, Span, StreamKey, TileKey, decode, encode,
};
use headwater_types::{ClosedRange, Level, Timestamp};
use std::fmt::Write as _;
use std::path::Path;

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn everything() -> InventoryReport {
    let mut facts = edge("pump-7");
    facts.is_connected = true;
    facts.rank = 300;
    facts.database = Some(Database {
        identity: 1,
        incarnation: 2,
    });
    facts.address = Some(Address {
        url: "https://pump-7.example:7373".to_owned(),
        for_browsers: true,
    });
    facts.reach = Reach::Level(Level::clamped(-3));
    facts.until = Timestamp::from_nanos(1_700_000_000_000_000_000);
    facts.exceptions = vec![
        Exception {
            stream: StreamKey(5),
            reach: Reach::Rows,
            until: Timestamp::MAX,
        },
        Exception {
            stream: StreamKey(6),
            reach: Reach::None,
            until: Timestamp::MIN,
        },
    ];
    let mut own = edge("this node");
    own.is_own = true;
    let keys: Vec<TileKey> = (0..9).map(|n| TileKey(n << 60)).collect();
    InventoryReport {
        database: Database {
            identity: 0x0102_0304_0506_0708,
            incarnation: 9,
        },
        epoch: 10,
        since: 3,
        version: 200,
        load: 300,
        edges: vec![
            (0, Change::Removed),
            (
                1,
                Change::State {
                    facts,
                    streams: Some(vec![stream(1), stream(2)].into_iter().collect()),
                    spans: Some(vec![
                        Span {
                            stream: StreamKey(5),
                            reach: Reach::Level(Level::clamped(-4)),
                            range: ClosedRange::nanos(-7, 1_700_000_000_000_000_000),
                        },
                        Span {
                            stream: StreamKey(6),
                            reach: Reach::Rows,
                            range: ClosedRange::ALL,
                        },
                    ]),
                },
            ),
            (
                2,
                Change::State {
                    facts: own,
                    streams: None,
                    spans: None,
                },
            ),
        ],
        shard_bits: 2,
        shards: vec![
            ShardChange {
                index: 0,
                filter: FilterChange::Replaced(Filter::of(&keys).unwrap()),
                exact: vec![TileKey(1), TileKey(2)],
            },
            ShardChange {
                index: 1,
                filter: FilterChange::None,
                exact: Vec::new(),
            },
            ShardChange {
                index: 3,
                filter: FilterChange::Unchanged,
                exact: vec![TileKey(u64::MAX)],
            },
        ],
    }
}

#[test]
fn what_a_node_tells_has_the_bytes_it_always_had() {
    let mut held = everything();
    if let Change::State { streams, .. } = &mut held.edges[1].1 {
        streams.as_mut().unwrap().sort_unstable();
    }
    let bytes = encode(&held);
    assert_eq!(decode(&bytes).unwrap(), held);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/held.hex");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, hex(&bytes)).unwrap();
    }
    assert_eq!(hex(&bytes), std::fs::read_to_string(path).unwrap());
}

/// The bytes of hexadecimal text.
fn bytes_of(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The beginning of the decoder of version 1, with its words.
fn decode_as_version_1(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut from = Cursor::new(bytes);
    if from.take(6, "HWHELD")? != b"HWHELD" {
        return Err(from.expected("HWHELD"));
    }
    match from.u16("a version")? {
        1 => Ok(()),
        _ => Err(from.expected("version 1")),
    }
}

#[test]
fn a_newer_version_is_refused_by_its_number_and_not_as_damage() {
    let first = bytes_of(include_str!("../../golden/held_v1.hex"));
    let second = bytes_of(include_str!("../../golden/held.hex"));
    assert_eq!(decode_as_version_1(&first), Ok(()));
    let refused = decode_as_version_1(&second).unwrap_err();
    assert_eq!(refused.expected, "version 1");
    assert!(decode(&first).is_ok() && decode(&second).is_ok());
    // The version comes before the checksum, which a later version may compute otherwise.
    let mut third = second;
    third[6] = 3;
    let refused = decode(&third).unwrap_err();
    assert_eq!(
        refused.expected,
        "version 1 or 2: dispatchers are upgraded before nodes"
    );
}

#[test]
fn what_nodes_of_the_first_version_tell_is_read() {
    let bytes = bytes_of(include_str!("../../golden/held_v1.hex"));
    let mut held = everything();
    held.load = 0;
    if let Change::State { streams, spans, .. } = &mut held.edges[1].1 {
        streams.as_mut().unwrap().sort_unstable();
        *spans = None;
    }
    assert_eq!(decode(&bytes), Ok(held));
}
