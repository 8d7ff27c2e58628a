//! Whatever a client of the block device says, its negotiation ends, and no request that is taken
//! reaches beyond the device.
#![no_main]

use headwater_block::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzzing::client(data);
});
