//! A block of an index's entries that decodes is encoded and decoded to itself.
#![no_main]

use headwater_codec::checksum::crc32c;
use headwater_codec::entries::Entries;
use headwater_fuzz::split_mode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    let mut bytes = rest.to_vec();
    if repair {
        bytes.extend_from_slice(&crc32c(rest).to_le_bytes());
    }
    let Ok(entries) = Entries::decode(&bytes) else {
        return;
    };
    let again = Entries::decode(&entries.encode());
    assert_eq!(again.expect("entries that were just encoded"), entries);
});
