//! A stream name that parses prints as text that parses to the same name.
#![no_main]

use headwater_fuzz as _;
use headwater_types::StreamName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some(name) = StreamName::parse(text) else {
        return;
    };
    assert!(
        name.tags().windows(2).all(|pair| pair[0].0 < pair[1].0),
        "tags are sorted and distinct: {name}"
    );
    assert_eq!(StreamName::parse(&name.to_string()), Some(name));
});
