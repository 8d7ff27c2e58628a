//! Log rows round-trip, follow each other, and stay small.

use crate::shapes::{any_rows, assert_same, named_columns, rows_of};
use headwater_codec::Cursor;
use headwater_codec::light::{decode_rows, encode_rows, within_limits};
use headwater_types::{Column, FieldId, FieldType, Rows, Values};
use proptest::prelude::*;

fn check(rows: &Rows) -> usize {
    assert!(within_limits(rows));
    let mut out = vec![0xaa];
    encode_rows(rows, &mut out);
    let len = out.len() - 1;
    out.push(0xbb);
    let mut cursor = Cursor::new(&out[1..]);
    let back = decode_rows(&mut cursor).unwrap();
    assert_same(&back, rows);
    assert_eq!(back.columns.len(), rows.columns.len());
    assert_eq!(cursor.offset(), len);
    len
}

#[test]
fn every_shape_at_every_length_round_trips() {
    for rows in [0, 1, 2, 3, 7, 64, 255, 256, 257, 1000, 2048] {
        check(&rows_of(rows, rows as u64, |i| {
            1_700_000_000_000 + i as i64 * 1000
        }));
        check(&rows_of(rows, 5, |i| (i as i64).wrapping_mul(i64::MAX / 5)));
    }
}

#[test]
fn columns_without_rows_and_without_values_keep_their_types() {
    let mut rows = Rows::default();
    for (at, field_type) in FieldType::ALL.into_iter().enumerate() {
        rows.columns
            .push((FieldId(at as u32 * 1000), Column::new(field_type)));
    }
    check(&rows);
    rows.times = vec![5, 4];
    for (_, column) in &mut rows.columns {
        column.push_absent(2);
    }
    check(&rows);
}

#[test]
fn decimals_are_much_smaller_than_doubles() {
    let rows = 1000;
    for (name, column) in named_columns(rows, 9) {
        let (limit, times) = (column.heap_bytes(), (0..rows as i64).collect());
        let len = check(&Rows {
            times,
            columns: vec![(FieldId(0), column)],
        });
        assert!(len <= limit + 100, "{name}: {len} bytes, {limit} in memory");
        if name == "f64 decimals walk" {
            assert!(len < rows * 12 / 10, "{name}: {len} bytes");
        }
    }
}

#[test]
fn large_claims_of_rows_and_text_are_refused_early() {
    // 2^24 rows of constant columns would take 128 MiB each.
    let mut bytes = vec![0x80, 0x80, 0x80, 0x08, 0xff, 0x01];
    bytes.extend(std::iter::repeat_n(0u8, 3_000_000));
    assert!(decode_rows(&mut Cursor::new(&bytes)).is_err());
    // One string of 1 MiB said to repeat 2^24 times.
    let mut rows = Rows {
        times: vec![0; 100],
        columns: Vec::new(),
    };
    let mut text = headwater_types::VarBytes::new();
    for _ in 0..100 {
        text.push(&vec![7u8; 1 << 20]);
    }
    rows.columns
        .push((FieldId(0), Column::from_values(Values::Bytes(text))));
    assert!(!within_limits(&rows));
    let mut out = Vec::new();
    encode_rows(&rows, &mut out);
    assert!(decode_rows(&mut Cursor::new(&out)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_rows_round_trip(rows in any_rows(400)) {
        check(&rows);
    }

    #[test]
    fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_rows(&mut Cursor::new(&bytes));
    }
}
