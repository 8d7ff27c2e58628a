//! Reading what a node tells dispatchers never panics, and neither does looking something up in it.
#![no_main]

use headwater_codec::checksum::crc32c;
use headwater_fuzz::split_mode;
use headwater_protocol::dispatch::{
    At, Client, NodeIndex, Question, StreamKey, Tables, decode, encode,
};
use headwater_types::Level;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((repair, rest)) = split_mode(data) {
        let mut bytes = rest.to_vec();
        if repair {
            bytes.truncate(bytes.len().saturating_sub(4));
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        if let Ok(mut held) = decode(&bytes) {
            assert_eq!(decode(&encode(&held)), Ok(held.clone()));
            held.since = 0;
            let mut tables = Tables::new(1);
            tables.apply(NodeIndex(0), held);
            for number in 0..8 {
                let question = Question::Tile {
                    level: Level::clamped(-2),
                    offset: number,
                };
                let stream = StreamKey(number.unsigned_abs() << 61);
                let _ = tables.decide(stream, question, At::Any, Client::default());
            }
        }
    }
});
