//! Reading the index of a pack of a bucket never panics, and what is read is written the same again.
#![no_main]

use headwater_bucket::PackIndex;
use headwater_codec::checksum::crc32c;
use headwater_fuzz::split_mode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((repair, rest)) = split_mode(data) {
        let mut bytes = rest.to_vec();
        if repair {
            bytes.truncate(bytes.len().saturating_sub(4));
            let crc = crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        if let Ok(found) = PackIndex::decode(&bytes) {
            assert_eq!(PackIndex::decode(&found.encode()), Ok(found));
        }
    }
});
