//! Bytes of what a node tells, as they are for good.

use crate::dispatch::world::{edge, stream};
use headwater_protocol::dispatch::{
    Address, Change, Database, Exception, Filter, FilterChange, InventoryReport, Reach,
    ShardChange, StreamKey, TileKey, decode, encode,
};
use headwater_types::{Level, Timestamp};
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
            reach: Reach::Nothing,
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
        edges: vec![
            (0, Change::Gone),
            (
                1,
                Change::Is {
                    facts,
                    streams: Some(vec![stream(1), stream(2)].into_iter().collect()),
                },
            ),
            (
                2,
                Change::Is {
                    facts: own,
                    streams: None,
                },
            ),
        ],
        shard_bits: 2,
        shards: vec![
            ShardChange {
                index: 0,
                filter: FilterChange::Is(Filter::of(&keys).unwrap()),
                exact: vec![TileKey(1), TileKey(2)],
            },
            ShardChange {
                index: 1,
                filter: FilterChange::None,
                exact: Vec::new(),
            },
            ShardChange {
                index: 3,
                filter: FilterChange::AsBefore,
                exact: vec![TileKey(u64::MAX)],
            },
        ],
    }
}

#[test]
fn what_a_node_tells_has_the_bytes_it_always_had() {
    let mut held = everything();
    if let Change::Is { streams, .. } = &mut held.edges[1].1 {
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
