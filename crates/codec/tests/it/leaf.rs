//! Leaves round-trip whole and in ranges, stay small when they are small, and do not depend on
//! cached encodings.

use crate::shapes::{Noise, any_rows, assert_same, named_columns, rows_of};
use headwater_codec::leaf::{EncodingCache, Leaf, PAGE_ROWS, encode_leaf};
use headwater_types::{Column, FieldId, Rows, Values};
use proptest::prelude::*;
use std::ops::Range;

fn open(rows: &Rows, encodings: &mut EncodingCache) -> Leaf {
    Leaf::open(encode_leaf(rows, encodings).into()).unwrap()
}

fn check_range(leaf: &Leaf, rows: &Rows, range: Range<usize>) {
    assert_same(&leaf.read(range.clone(), None).unwrap(), &rows.slice(range));
}

fn check(rows: &Rows, encodings: &mut EncodingCache) -> usize {
    let leaf = open(rows, encodings);
    leaf.verify().unwrap();
    assert_eq!(leaf.rows(), rows.len());
    let firsts: Vec<i64> = rows.times.iter().step_by(PAGE_ROWS).copied().collect();
    assert_eq!(leaf.page_first_times(), firsts);
    check_range(&leaf, rows, 0..rows.len());
    leaf.encoded_bytes()
}

#[test]
fn every_shape_at_every_length_round_trips() {
    for rows in [0, 1, 2, 3, 20, 95, 96, 255, 256, 257, 1000, 2048, 5000] {
        let mut encodings = EncodingCache::default();
        for seed in 0..2 {
            let made = rows_of(rows, seed, |i| {
                1_700_000_000_000_000_000 + i as i64 * 1_000_000_000
            });
            check(&made, &mut encodings);
        }
    }
}

#[test]
fn the_largest_leaf_round_trips() {
    let mut noise = Noise(4);
    let rows = rows_of(65_536, 3, |i| {
        i as i64 * 1_000_000 + noise.below(900_000) as i64
    });
    check(&rows, &mut EncodingCache::default());
}

#[test]
fn any_range_reads_what_a_slice_holds() {
    let mut noise = Noise(8);
    let rows = rows_of(1300, 6, |i| {
        i as i64 * 1_000_000_000 + noise.below(999) as i64 * 1_000_000
    });
    let leaf = open(&rows, &mut EncodingCache::default());
    for range in [
        0..1,
        0..256,
        256..512,
        255..257,
        1299..1300,
        1024..1300,
        512..512,
        1300..1300,
        0..0,
    ] {
        check_range(&leaf, &rows, range);
    }
    for _ in 0..40 {
        let from = noise.below(1300) as usize;
        let to = from + noise.below(1301 - from as u64) as usize;
        check_range(&leaf, &rows, from..to);
    }
    assert_same(
        &leaf.read(1000..9999, None).unwrap(),
        &rows.slice(1000..1300),
    );
    assert!(leaf.read(2000..3000, None).unwrap().is_empty());
}

#[test]
fn only_the_fields_asked_for_are_read() {
    let rows = rows_of(600, 2, |i| i as i64);
    let leaf = open(&rows, &mut EncodingCache::default());
    let fields: Vec<FieldId> = leaf.fields().collect();
    let asked = [fields[3], FieldId(9_999_999), fields[10]];
    let read = leaf.read(10..20, Some(&asked)).unwrap();
    let got: Vec<FieldId> = read.columns.iter().map(|(f, _)| *f).collect();
    assert_eq!(got, [fields[3], fields[10]]);
    assert!(leaf.read(0..5, Some(&[])).unwrap().columns.is_empty());
}

#[test]
fn several_streams_may_share_a_leaf() {
    let mut rows = Rows::default();
    for stream in 0..40 {
        rows.extend_from(&rows_of(17, stream, |i| 1000 + i as i64 * 13), 0..17);
    }
    check(&rows, &mut EncodingCache::default());
}

#[test]
fn small_leaves_are_small() {
    let one = Rows {
        times: vec![1_700_000_000_123_456_789],
        columns: vec![(FieldId(3), Column::from_values(Values::F64(vec![21.5])))],
    };
    let len = check(&one, &mut EncodingCache::default());
    assert!(len <= 40, "1 row x 1 field: {len} bytes");
    let mut noise = Noise(1);
    let twenty = Rows {
        times: (0..20)
            .map(|i| 1_700_000_000_000_000_000 + i * 1_000_000_000)
            .collect(),
        columns: (0..5)
            .map(|f| {
                let values = (0..20).map(|_| noise.below(1000) as f64 / 10.0).collect();
                (FieldId(f), Column::from_values(Values::F64(values)))
            })
            .collect(),
    };
    let len = check(&twenty, &mut EncodingCache::default());
    assert!(len <= 220, "20 rows x 5 fields: {len} bytes");
}

#[test]
fn columns_without_a_value_are_left_out() {
    let mut rows = rows_of(10, 1, |i| i as i64);
    rows.columns.push((
        FieldId(4_000_000_000),
        Column::absent(headwater_types::FieldType::F64, 10),
    ));
    let leaf = open(&rows, &mut EncodingCache::default());
    assert!(!leaf.fields().any(|f| f == FieldId(4_000_000_000)));
}

#[test]
fn hints_of_other_data_change_no_value() {
    let mut encodings = EncodingCache::default();
    let lengths = [2048, 100, 2048, 700];
    for turn in 0..90usize {
        // Columns change places, so that every hint meets data of another kind.
        let rows = lengths[turn % 4];
        let mut columns = named_columns(rows, turn as u64);
        columns.retain(|(name, _)| turn == 0 || !name.starts_with("string"));
        let by = turn / 4 % columns.len();
        columns.rotate_left(by);
        let rows = Rows {
            times: (0..rows as i64)
                .map(|i| i * i % (turn as i64 + 1))
                .collect(),
            columns: columns
                .into_iter()
                .enumerate()
                .map(|(at, (_, c))| (FieldId(at as u32), c))
                .collect(),
        };
        check(&rows, &mut encodings);
    }
}

#[test]
fn remembered_choices_are_as_small_as_searched_ones() {
    let mut encodings = EncodingCache::default();
    for seed in 0..5 {
        for (at, (name, column)) in named_columns(2048, seed).into_iter().enumerate() {
            let rows = Rows {
                times: (0..2048).map(|i| i * 1_000_000_000).collect(),
                columns: vec![(FieldId(at as u32), column)],
            };
            let searched = encode_leaf(&rows, &mut EncodingCache::default()).len();
            let remembered = encode_leaf(&rows, &mut encodings).len();
            assert!(
                remembered <= searched * 5 / 4 + 32,
                "{name}: {remembered} against {searched}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_rows_round_trip(rows in any_rows(700), from in 0usize..700, len in 0usize..700) {
        let leaf = open(&rows, &mut EncodingCache::default());
        check_range(&leaf, &rows, 0..rows.len());
        let from = from.min(rows.len());
        check_range(&leaf, &rows, from..(from + len).min(rows.len()));
    }
}

/// Encodes rows whose column `0` has these values; gives the bytes of the leaf.
fn bytes_of(values: Vec<i64>, encodings: &mut EncodingCache) -> usize {
    let rows = Rows {
        times: (0..values.len() as i64).collect(),
        columns: vec![(FieldId(0), Column::from_values(Values::I64(values)))],
    };
    check(&rows, encodings)
}

#[test]
fn data_that_become_easier_are_noticed() {
    let mut noise = Noise(12);
    let hard: Vec<i64> = (0..2048).map(|_| noise.below(1 << 40) as i64).collect();
    // A slope: differences are small, the values themselves are half as long as the hard ones.
    let easy: Vec<i64> = (0..2048)
        .map(|i| i * 1000 + noise.below(8) as i64)
        .collect();
    let fresh = bytes_of(easy.clone(), &mut EncodingCache::default());
    let mut encodings = EncodingCache::default();
    bytes_of(hard, &mut encodings);
    let after = bytes_of(easy, &mut encodings);
    assert!(
        after <= fresh + fresh / 20,
        "{after} bytes after hard data, {fresh} alone"
    );
}
