//! Damaged bytes are refused where there is a checksum, and never panic where there is none or it
//! was made to fit.

use crate::block::block_of;
use crate::shapes::{Noise, named_columns, rows_of};
use headwater_codec::block::BucketBlock;
use headwater_codec::checksum::{crc32c, crc32c_append};
use headwater_codec::leaf::{EncodingCache, Leaf, encode_leaf};
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_codec::{Cursor, DecodeError};
use headwater_types::{Column, FieldId, Rows, Values};

fn read_leaf(bytes: &[u8]) -> Result<Rows, DecodeError> {
    let leaf = Leaf::open(bytes.into())?;
    leaf.read(0..leaf.rows(), None)
}

fn verify_leaf(bytes: &[u8]) -> Result<(), DecodeError> {
    Leaf::open(bytes.into())?.verify()
}

/// Every byte changed, one at a time.
fn flips(bytes: &[u8], mut with: impl FnMut(&[u8], usize)) {
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len() {
        for change in [1u8, 0x80, 0xff] {
            bytes[at] ^= change;
            with(&bytes, at);
            bytes[at] ^= change;
        }
    }
}

#[test]
fn a_leaf_with_any_byte_changed_or_cut_is_refused() {
    for rows in [3, 300] {
        let bytes = encode_leaf(
            &rows_of(rows, 1, |i| i as i64 * 3),
            &mut EncodingCache::default(),
        );
        assert!(verify_leaf(&bytes).is_ok());
        flips(&bytes, |bytes, at| {
            assert!(verify_leaf(bytes).is_err(), "byte {at}")
        });
        for cut in 0..bytes.len() {
            assert!(verify_leaf(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(verify_leaf(&longer).is_err());
    }
    assert!(read_leaf(&[]).is_err());
}

#[test]
fn reading_a_damaged_column_names_its_place() {
    let rows = rows_of(2048, 1, |i| i as i64 * 3);
    let mut bytes = encode_leaf(&rows, &mut EncodingCache::default());
    let at = bytes.len() - 5;
    bytes[at] ^= 4;
    let leaf = Leaf::open(bytes.into()).unwrap();
    let last = rows.columns.last().unwrap().0;
    let error = leaf.read(0..1, Some(&[last])).unwrap_err();
    assert!(
        error.expected.contains("checksum") && error.offset <= at,
        "{error}"
    );
    // The other columns can still be read.
    let first = rows.columns[0].0;
    assert!(leaf.read(0..2048, Some(&[first])).is_ok());
}

/// Leaves so small that one checksum covers all, which a test can make fit again.
fn small_leaves() -> Vec<Vec<u8>> {
    let mut leaves = Vec::new();
    for rows in [5, 130, 300] {
        for (_, column) in named_columns(rows, 2) {
            let rows = Rows {
                times: (0..rows as i64).map(|i| i * i).collect(),
                columns: vec![(FieldId(1), column)],
            };
            let bytes = encode_leaf(&rows, &mut EncodingCache::default());
            if bytes[3] == 1 {
                leaves.push(bytes);
            }
        }
    }
    let mut noise = Noise(3);
    // pco with differences and without, integers and floats.
    for kind in 0..3 {
        let skewed = (0..200)
            .map(|_| 1i64 << noise.below(20))
            .collect::<Vec<_>>();
        let mut sum = 0;
        let values = match kind {
            0 => Values::I64(skewed),
            1 => Values::I64(
                skewed
                    .iter()
                    .map(|v| {
                        sum += v;
                        sum
                    })
                    .collect(),
            ),
            _ => Values::F64((0..100).map(|_| f64::from(noise.unit() as f32)).collect()),
        };
        let rows = Rows {
            times: vec![1; 200][..if kind == 2 { 100 } else { 200 }].to_vec(),
            columns: vec![(FieldId(1), Column::from_values(values))],
        };
        let bytes = encode_leaf(&rows, &mut EncodingCache::default());
        assert_eq!(bytes[3], 1);
        leaves.push(bytes);
    }
    leaves
}

fn seal_leaf(bytes: &mut [u8]) {
    let checksum = crc32c_append(crc32c(&bytes[..4]), &bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_changed_leaf_whose_checksum_fits_never_panics() {
    let mut noise = Noise(17);
    for leaf in small_leaves() {
        flips(&leaf, |bytes, _| {
            let mut bytes = bytes.to_vec();
            seal_leaf(&mut bytes);
            let _ = read_leaf(&bytes);
        });
        for _ in 0..300 {
            let mut bytes = leaf.clone();
            for _ in 0..=noise.below(6) {
                let at = noise.below(bytes.len() as u64 - 8) as usize + 8;
                bytes[at] = noise.next() as u8;
            }
            seal_leaf(&mut bytes);
            let _ = read_leaf(&bytes);
        }
    }
}

#[test]
fn a_block_with_any_byte_changed_is_refused_and_one_that_was_sealed_again_never_panics() {
    let columns: Vec<Column> = named_columns(10 * 30, 4)
        .into_iter()
        .map(|(_, c)| c)
        .collect();
    let bytes = block_of(columns, 30, true).encode();
    flips(&bytes, |changed, at| {
        assert!(BucketBlock::decode(changed).is_err(), "byte {at}");
        let mut sealed = changed.to_vec();
        let end = sealed.len() - 4;
        let checksum = crc32c(&sealed[..end]);
        sealed[end..].copy_from_slice(&checksum.to_le_bytes());
        let _ = BucketBlock::decode(&sealed);
    });
    for cut in 0..bytes.len() {
        assert!(BucketBlock::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn changed_log_rows_never_panic() {
    let mut bytes = Vec::new();
    encode_rows(&rows_of(40, 7, |i| i as i64 * 1000), &mut bytes);
    flips(&bytes, |bytes, _| {
        let _ = decode_rows(&mut Cursor::new(bytes));
    });
    for cut in 0..bytes.len() {
        assert!(
            decode_rows(&mut Cursor::new(&bytes[..cut])).is_err(),
            "cut at {cut}"
        );
    }
}
