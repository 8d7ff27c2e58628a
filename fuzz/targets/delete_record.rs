//! Reading what a delete's log record says never panics.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz as _;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzzing::delete_record(data);
});
