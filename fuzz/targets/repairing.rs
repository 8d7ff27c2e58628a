//! Reading which files a repair is about to write never panics, and names nothing elsewhere.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz::split_mode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((repair, rest)) = split_mode(data) {
        fuzzing::repairing(rest, repair);
    }
});
