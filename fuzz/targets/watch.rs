//! Reading what a watch is, and what it has told, never panics.
#![no_main]

use headwater_codec::checksum::crc32c;
use headwater_fuzz::split_mode;
use headwater_watch::{decode, decode_definitions, encode_definitions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    let mut definitions = rest.to_vec();
    // A file of one record that has its checksum put right.
    let mut file = rest.to_vec();
    if repair {
        definitions.truncate(definitions.len().saturating_sub(4));
        let crc = crc32c(&definitions);
        definitions.extend_from_slice(&crc.to_le_bytes());
        file = b"HWWATCH\x01".to_vec();
        file.extend_from_slice(&3u64.to_le_bytes());
        file.extend_from_slice(&1u64.to_le_bytes());
        for body in rest
            .split(|byte| *byte == 0xa5)
            .filter(|body| !body.is_empty())
        {
            file.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
            file.extend_from_slice(&crc32c(body).to_le_bytes());
            file.extend_from_slice(body);
        }
    }
    if let Ok(all) = decode_definitions(&definitions) {
        assert_eq!(decode_definitions(&encode_definitions(&all)), Ok(all));
    }
    if let Ok(read) = decode(&file, 3) {
        let behind = read.state.journal.behind(0, 16);
        assert!(behind.events.len() <= 16);
    }
});
