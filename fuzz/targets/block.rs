//! A block of buckets that decodes is encoded and decoded to itself.
#![no_main]

use headwater_codec::block::BucketBlock;
use headwater_fuzz::split_mode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((_, rest)) = split_mode(data) else { return };
    let Ok(block) = BucketBlock::decode(rest) else { return };
    let once = block.encode();
    let again = BucketBlock::decode(&once).expect("a block that was just encoded");
    assert_eq!(again.encode(), once, "encoding a decoded block gives the same bytes");
    assert_eq!(again.buckets, block.buckets);
    assert_eq!(again.rows, block.rows);
});
