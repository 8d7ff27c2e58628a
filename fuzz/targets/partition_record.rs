//! Reading a partition's record, or a named snapshot's, never panics.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz as _;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzzing::partition_record(data);
    fuzzing::snapshot_record(data);
});
