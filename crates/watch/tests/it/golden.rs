//! Bytes as they were released: they are read for ever, and written the same.

use crate::support::{match_of, round, step};
use headwater_io::{Files, MemoryFiles, OpenMode};
use headwater_watch::{
    Change, Definition, Delivery, Persisted, Store, decode, decode_definitions, encode_definitions,
    hex,
};
use std::path::Path;
use std::sync::Arc;

const DEFINITIONS: &str = include_str!("../golden/definitions.hex");
const FILE: &str = include_str!("../golden/file.hex");

fn definitions() -> Vec<Definition> {
    let one = Definition {
        id: 0x0102_0304_0506_0708,
        name: "dry".to_owned(),
        owner: Some("a1b2".to_owned()),
        created_ns: 1_700_000_000_000_000_000,
        since_ns: i64::MIN,
        table: "pumps".to_owned(),
        rights: "00ff".to_owned(),
        statement: "CREATE WATCH dry AS ABSENCE OF pumps FOR INTERVAL '5 minutes'".to_owned(),
    };
    let other = Definition {
        id: 9,
        name: "Übung".to_owned(),
        owner: None,
        ..one.clone()
    };
    vec![one, other]
}

/// Writes or compares: `UPDATE_GOLDEN=1` writes what is not there yet.
fn compare(name: &str, known: &str, made: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() && known.trim().is_empty() {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, format!("{made}\n")).unwrap();
        return;
    }
    assert_eq!(made, known.trim(), "{name}");
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.trim().chars().collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs
        .map(|pair| u8::from_str_radix(&pair, 16).unwrap())
        .collect()
}

#[test]
fn definitions_keep_their_bytes() {
    compare(
        "definitions.hex",
        DEFINITIONS,
        &hex(&encode_definitions(&definitions())),
    );
    if !DEFINITIONS.trim().is_empty() {
        assert_eq!(
            decode_definitions(&bytes(DEFINITIONS)).unwrap(),
            definitions()
        );
    }
    let all = encode_definitions(&definitions());
    for cut in 0..all.len() {
        assert!(
            decode_definitions(all.get(..cut).unwrap()).is_err(),
            "{cut}"
        );
        let mut damaged = all.clone();
        *damaged.get_mut(cut).unwrap() ^= 1;
        assert!(decode_definitions(&damaged).is_err(), "{cut}");
    }
}

#[test]
fn a_file_keeps_its_bytes() {
    let files = Arc::new(MemoryFiles::new());
    let dir = Path::new("/w");
    let new = || Persisted::new(77, -5);
    let opened = Store::open(Arc::clone(&files) as Arc<dyn Files>, dir, 3, new).unwrap();
    let (mut store, mut kept) = (opened.store, opened.state);
    let first = step(
        &kept,
        &round(9, vec![match_of("[\"a\"]", 1, 4, "{\"n\":1}")]),
    );
    let event = first.events.first().unwrap().clone();
    let changes = [
        Change::Step(first.clone()),
        Change::Died(Delivery::dead_of(event, 8, "no answer")),
        Change::Buried(1),
    ];
    for change in changes {
        store.append(&kept, &change).unwrap();
        kept.apply(&change);
    }
    let second = step(&kept, &round(50, vec![match_of("[\"b\"]", 30, 31, "{}")]));
    for change in [Change::Step(second), Change::Delivered(3)] {
        store.append(&kept, &change).unwrap();
        kept.apply(&change);
    }
    let file = files
        .open(&dir.join("0000000000000003.1"), OpenMode::Read)
        .unwrap();
    let mut made = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut made).unwrap();
    compare("file.hex", FILE, &hex(&made));
    let decoded = decode(&made, 3).unwrap();
    assert_eq!((decoded.state, decoded.damage), (kept, None));
    // Bytes that are cut or damaged are read without a panic, and never as something else.
    for cut in 0..made.len() {
        let _ = decode(made.get(..cut).unwrap(), 3);
        let mut damaged = made.clone();
        *damaged.get_mut(cut).unwrap() ^= 0x10;
        let _ = decode(&damaged, 3);
    }
}
