//! Reading the superblock, a set's header, a redo slot or a page of the map of a block device never
//! panics; what decodes is encoded to the same bytes.
#![no_main]

use headwater_block::fuzzing;
use headwater_fuzz::split_mode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((repair, rest)) = split_mode(data) {
        fuzzing::device(rest, repair);
    }
});
