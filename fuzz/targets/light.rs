//! Rows of a log record that decode are encoded and decoded to themselves.
#![no_main]

use headwater_codec::Cursor;
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_fuzz::{CELLS_MAX, assert_same_rows};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Both counts stand first. Huge ones are legal, and decoding them would be all the fuzzer does.
    let mut head = Cursor::new(data);
    let (Ok(rows), Ok(columns)) = (head.varint("rows"), head.varint("columns")) else {
        return;
    };
    if rows.saturating_mul(columns.saturating_add(1)) > CELLS_MAX as u64 {
        return;
    }
    let Ok(rows) = decode_rows(&mut Cursor::new(data)) else {
        return;
    };
    let mut again = Vec::new();
    encode_rows(&rows, &mut again);
    let mut cursor = Cursor::new(&again);
    assert_same_rows(
        &decode_rows(&mut cursor).expect("rows that were just encoded"),
        &rows,
    );
    cursor.finish().expect("nothing behind the rows");
});
