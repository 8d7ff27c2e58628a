//! Reading the front of an index's run, and records about indexes, never panics.
#![no_main]

use headwater_engine::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::index(data));
