//! A block of buckets that decodes is encoded and decoded to itself.
#![no_main]

use headwater_codec::block::BucketBlock;
use headwater_fuzz::{split_mode, with_block_checksum};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    let decoded = if repair {
        BucketBlock::decode(&with_block_checksum(rest))
    } else {
        BucketBlock::decode(rest)
    };
    let Ok(block) = decoded else { return };
    let once = block.encode();
    let middle = block
        .buckets
        .get(block.buckets.len() / 2)
        .copied()
        .unwrap_or_default();
    let part = BucketBlock::decode_part(&once, None, middle..=middle).expect("a part of a block");
    assert_eq!(part.buckets.len(), block.buckets.len().min(1));
    let again = BucketBlock::decode(&once).expect("a block that was just encoded");
    assert_eq!((&again.buckets, &again.rows), (&block.buckets, &block.rows));
    // Aggregates that no events have may be NaN, which is not equal to itself: compare bytes.
    assert_eq!(
        again.encode(),
        once,
        "encoding a decoded block gives the same bytes"
    );
});
