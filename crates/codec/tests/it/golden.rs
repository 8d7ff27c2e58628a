//! Golden bytes: fixed input covering every codec, against files that are checked in.
//!
//! Today's decoder must read them, and today's encoder must still write them. To add a file for a
//! new format version, run the tests once with `HEADWATER_WRITE_GOLDEN=1`; files of older versions
//! stay and stay readable.

use crate::block::{assert_same as assert_same_block, block_of};
use crate::shapes::{Noise, assert_same, named_columns, rows_of, with_gaps};
use headwater_codec::Cursor;
use headwater_codec::block::BucketBlock;
use headwater_codec::entries::Entries;
use headwater_codec::leaf::{EncodingCache, Leaf, encode_leaf};
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_types::{Column, FieldId, Rows};
use std::collections::BTreeSet;
use std::path::PathBuf;

const CHANGED: &str = "the encoder writes other bytes than the golden file: if the layout changed, raise the format version, keep reading the \
old one, document both in docs/format, and add a golden file beside the old; if only a choice of the encoder changed, replace the file";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The file, after writing it when asked to.
fn golden(name: &str, today: &[u8]) -> Vec<u8> {
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path("")).unwrap();
        std::fs::write(path(name), today).unwrap();
    }
    std::fs::read(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn check_leaf(name: &str, rows: &Rows) -> Leaf {
    let today = encode_leaf(rows, &mut EncodingCache::default());
    let file = golden(name, &today);
    let leaf = Leaf::open(file.clone().into()).unwrap();
    leaf.verify().unwrap();
    assert_same(&leaf.read(0..rows.len(), None).unwrap(), rows);
    assert!(file == today, "{name}: {CHANGED}");
    leaf
}

#[test]
fn index_entries_version_1_are_read_and_still_written() {
    let texts = [
        ("", 7),
        ("alpha", 1),
        ("alpha", 900),
        ("alphabet", 2),
        ("beta", 0),
    ];
    let mut of_texts = Entries::new();
    for (key, row) in texts {
        assert!(of_texts.push(key.as_bytes(), row));
    }
    let mut of_numbers = Entries::new();
    for number in 0u64..300 {
        let key = (number / 3 * 1_000_003 + (1 << 63)).to_be_bytes();
        assert!(of_numbers.push(&key, 5 * (number % 3) as u32 + 2));
    }
    for (name, entries) in [
        ("entries-v1-texts.bin", of_texts),
        ("entries-v1-numbers.bin", of_numbers),
    ] {
        let file = golden(name, &entries.encode());
        assert_eq!(Entries::decode(&file).unwrap(), entries);
        assert!(file == entries.encode(), "{name}: {CHANGED}");
    }
}

/// Times with jitter, so that they need bit packing or pco.
fn jittered(rows: usize, f: impl Fn(&mut Noise) -> i64) -> Vec<i64> {
    let mut noise = Noise(99);
    (0..rows as i64)
        .map(|i| 1_700_000_000_000_000_000 + i * 1_000_000_000 + f(&mut noise))
        .collect()
}

#[test]
fn leaf_version_1_reads_and_is_still_written() {
    let regular = |i: usize| 1_700_000_000_000_000_000 + i as i64 * 1_000_000_000;
    check_leaf("leaf-v1-empty.bin", &Rows::default());
    check_leaf("leaf-v1-one-row.bin", &rows_of(1, 1, regular));
    let all = check_leaf("leaf-v1-all-codecs.bin", &rows_of(600, 2, regular));
    let codecs: BTreeSet<&str> = all.columns().map(|c| c.codec).collect();
    let expected = [
        "arithmetic",
        "bits",
        "constant",
        "decimal arithmetic",
        "decimal constant",
        "decimal packed",
        "decimal pco",
        "dictionary",
        "packed",
        "pco",
        "raw",
        "zstd",
    ];
    assert_eq!(codecs, expected.into());
    let presences: BTreeSet<&str> = all.columns().map(|c| c.presence).collect();
    assert_eq!(presences, ["all", "bitmap", "runs"].into());
    let mut rows = rows_of(0, 0, regular);
    rows.times = jittered(300, |n| 1 << n.below(25));
    rows.columns = vec![];
    check_leaf("leaf-v1-pco-times.bin", &rows);
    rows.times = jittered(300, |n| n.below(1000) as i64 * 1_000_000);
    check_leaf("leaf-v1-packed-times.bin", &rows);
}

#[test]
fn light_rows_version_1_read_and_are_still_written() {
    let mut all = Vec::new();
    let sets = [
        Rows::default(),
        rows_of(1, 3, |_| -1),
        rows_of(300, 4, |i| i as i64 * 1_000_000),
        Rows {
            times: vec![i64::MAX, i64::MIN, 0],
            columns: named_columns(3, 5)
                .into_iter()
                .enumerate()
                .map(|(at, (_, c))| (FieldId(at as u32), with_gaps(&c, |row| row == at % 4)))
                .collect(),
        },
    ];
    for rows in &sets {
        encode_rows(rows, &mut all);
    }
    let file = golden("light-v1.bin", &all);
    let mut cursor = Cursor::new(&file);
    for rows in &sets {
        assert_same(&decode_rows(&mut cursor).unwrap(), rows);
    }
    cursor.finish().unwrap();
    assert!(file == all, "light-v1.bin: {CHANGED}");
}

#[test]
fn block_version_1_reads_and_is_still_written() {
    for (name, settled) in [("block-v1-settled.bin", true), ("block-v1.bin", false)] {
        let columns: Vec<Column> = named_columns(20 * 40, 6)
            .into_iter()
            .flat_map(|(_, c)| [with_gaps(&c, |row| row % 9 > 2 && row / 40 % 4 != 1), c])
            .collect();
        let block = block_of(columns, 40, settled);
        let today = block.encode();
        let file = golden(name, &today);
        assert_same_block(&BucketBlock::decode(&file).unwrap(), &block);
        assert!(file == today, "{name}: {CHANGED}");
    }
}
