//! A leaf that decodes holds rows that encode and decode to themselves, and any part of it reads as
//! that part of the whole.
#![no_main]

use headwater_codec::leaf::{EncodingCache, Leaf, encode_leaf};
use headwater_fuzz::{
    CELLS_MAX, assert_same_rows, split_mode, with_leaf_checksum, without_empty_columns,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((repair, rest)) = split_mode(data) else {
        return;
    };
    let bytes = if repair {
        with_leaf_checksum(rest)
    } else {
        rest.to_vec()
    };
    let Ok(leaf) = Leaf::open(bytes.into()) else {
        return;
    };
    let verified = leaf.verify();
    let count = leaf.rows();
    if count * (1 + leaf.fields().count()) > CELLS_MAX {
        drop(leaf.read(count / 2..count / 2 + 3, None));
        return;
    }
    let Ok(rows) = leaf.read(0..count, None) else {
        return;
    };
    assert!(
        verified.is_ok(),
        "rows were read from a leaf whose checksums do not fit"
    );

    let (from, to) = (count / 3, count - count / 4);
    let part = leaf
        .read(from..to, None)
        .expect("a part of rows that can be read");
    assert_same_rows(&part, &rows.slice(from..to));

    let rows = without_empty_columns(&rows);
    let again = encode_leaf(&rows, &mut EncodingCache::default());
    let leaf = Leaf::open(again.into()).expect("a leaf that was just encoded");
    assert_same_rows(
        &leaf
            .read(0..count, None)
            .expect("rows that were just encoded"),
        &rows,
    );
});
