//! Reading a log file back at opening never panics, whatever stands in it.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz::{log_file, split_mode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    if repair {
        fuzzing::log_file(&log_file(rest));
    } else {
        fuzzing::log_file(rest);
    }
});
