//! Reading a group's footer never panics.
#![no_main]

use headwater_engine::fuzzing;
use headwater_fuzz::{split_mode, with_footer_trailer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    if repair {
        fuzzing::footer(&with_footer_trailer(rest));
    } else {
        fuzzing::footer(rest);
    }
});
