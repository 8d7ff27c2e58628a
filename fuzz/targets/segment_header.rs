//! Reading a segment's header never panics.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz::{split_mode, with_segment_checksum};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    if repair {
        fuzzing::segment_header(&with_segment_checksum(rest));
    } else {
        fuzzing::segment_header(rest);
    }
});
