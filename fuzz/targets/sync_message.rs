//! Reading what the other side of a copy says never panics.
#![no_main]

use headwater_codec::checksum::crc32c;
use headwater_fuzz::split_mode;
use headwater_protocol::replication::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((repair, rest)) = split_mode(data) {
        let mut bytes = rest.to_vec();
        if repair {
            bytes.truncate(bytes.len().saturating_sub(4));
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        if let Ok(message) = decode(&bytes) {
            assert_eq!(decode(&encode(&message)), Ok(message));
        }
    }
});
