//! What Prometheus sends: no panic, and every row belongs to a series of the message.
//!
//! The first byte: even, the rest is packed; odd, it is the message.
#![no_main]

use headwater_fuzz as _;
use headwater_wire::prometheus::{read, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let unpacked;
    let message = if first % 2 == 0 {
        match unpack(rest, 1 << 20) {
            Ok(bytes) => {
                assert!(bytes.len() <= 1 << 20);
                unpacked = bytes;
                &unpacked
            }
            Err(_) => return,
        }
    } else {
        rest
    };
    let Ok(parsed) = read(message) else {
        return;
    };
    assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
    for (lines, entry) in parsed.lines.iter().zip(parsed.batch.entries()) {
        assert!(!entry.name.table().is_empty() && !entry.times.is_empty());
        assert_eq!(lines.len(), entry.times.len());
        assert_eq!(entry.fields.len(), 1);
        assert_eq!(entry.fields[0].1.len(), entry.times.len());
        assert!(
            lines
                .iter()
                .all(|line| (1..=parsed.line_count).contains(line))
        );
    }
    // Nothing is made of nothing: a sample takes some bytes.
    assert!(parsed.batch.row_count() <= message.len());
});
