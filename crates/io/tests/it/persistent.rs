//! What a power cut leaves of persistent memory: words of 8 bytes in any order, until a sync.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use headwater_io::{
    FaultyFiles, File, Files, OpenMode, SECTOR_BYTES, Survival, WORD_BYTES, conformance,
};

const WORD: usize = WORD_BYTES as usize;

/// Persistent memory with the file `/log` of so many zeros, open to write.
fn memory(len: usize, unit_bytes: u64) -> (FaultyFiles, Arc<dyn File>) {
    let memory = FaultyFiles::new(3);
    memory.persistent_memory(unit_bytes);
    memory.write_file("/log", vec![0; len]).unwrap();
    let file = memory.open(Path::new("/log"), OpenMode::Write).unwrap();
    (memory, file)
}

/// The words of `/log` that survived, as a picture of zeros and ones.
fn picture(memory: &FaultyFiles, survival: Survival) -> String {
    let bytes = memory.after_crash_with(survival).read_file("/log").unwrap();
    bytes
        .chunks(WORD)
        .map(|word| {
            if word.iter().all(|byte| *byte == 0) {
                '0'
            } else {
                '1'
            }
        })
        .collect()
}

#[test]
fn every_word_survives_or_not_by_itself() {
    let (memory, file) = memory(32, WORD_BYTES);
    file.write_all_at(0, &[1; 32]).unwrap();
    memory.crash_now();
    assert_eq!(memory.unsynced_units(), 4);
    let pictures: Vec<String> = memory
        .survivals()
        .into_iter()
        .map(|survival| picture(&memory, survival))
        .collect();
    assert_eq!(
        pictures,
        [
            "0000", "1111", "1000", "1100", "1110", "0111", "1011", "1101", "1110", "1000", "0100",
            "0010", "0001"
        ]
    );
    let drawn: BTreeSet<String> = (0..1_000)
        .map(|seed| picture(&memory, Survival::Seed(seed)))
        .collect();
    assert_eq!(drawn.len(), 16, "{drawn:?}");
}

#[test]
fn no_word_is_torn() {
    let (memory, file) = memory(512, WORD_BYTES);
    let data: Vec<u8> = (0..500_u32).map(|at| (at % 250) as u8 + 1).collect();
    file.write_all_at(3, &data).unwrap();
    let mut whole = vec![0; 512];
    whole[3..503].copy_from_slice(&data);
    for seed in 0..1_000 {
        let found = memory.after_crash(seed).read_file("/log").unwrap();
        for (at, word) in found.chunks(WORD).enumerate() {
            let is_old = word.iter().all(|byte| *byte == 0);
            let is_new = word == &whole[at * WORD..][..word.len()];
            assert!(is_old || is_new, "word {at} with seed {seed}: {word:?}");
        }
    }
}

#[test]
fn what_was_synced_is_no_unit_any_more() {
    let (memory, file) = memory(64, WORD_BYTES);
    file.write_all_at(0, &[1; 32]).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(32, &[1; 8]).unwrap();
    assert_eq!(memory.unsynced_units(), 1);
    for (survival, wanted) in [
        (Survival::Nothing, "11110000"),
        (Survival::Alone(0), "11111000"),
        (Survival::Without(0), "11110000"),
    ] {
        assert_eq!(picture(&memory, survival), wanted, "{survival:?}");
    }
    // What came back from a cut is persistent memory, too.
    let after = memory.after_crash_with(Survival::Everything);
    let file = after.open(Path::new("/log"), OpenMode::Write).unwrap();
    file.write_all_at(0, &[2; 64]).unwrap();
    assert_eq!(after.unsynced_units(), 8);
}

#[test]
fn units_are_numbered_over_all_files_as_they_were_written() {
    let (memory, file) = memory(16, WORD_BYTES);
    memory.write_file("/other", [0; 8]).unwrap();
    let other = memory.open(Path::new("/other"), OpenMode::Write).unwrap();
    file.write_all_at(0, &[1; 8]).unwrap();
    other.write_all_at(0, &[1; 8]).unwrap();
    file.write_all_at(8, &[1; 8]).unwrap();
    let after = memory.after_crash_with(Survival::Front(2));
    assert_eq!(after.read_file("/log").unwrap(), [[1; 8], [0; 8]].concat());
    assert_eq!(after.read_file("/other").unwrap(), [1; 8]);
    let after = memory.after_crash_with(Survival::Without(1));
    assert_eq!(after.read_file("/log").unwrap(), [1; 16]);
    assert_eq!(after.read_file("/other").unwrap(), [0; 8]);
}

#[test]
fn words_under_one_checksum_may_count_as_one() {
    let (memory, file) = memory(256, 64);
    file.write_all_at(64, &[1; 130]).unwrap();
    assert_eq!(memory.unsynced_units(), 3);
    assert_eq!(
        picture(&memory, Survival::Without(1)),
        "00000000111111110000000010000000"
    );
}

#[test]
fn a_disk_is_no_persistent_memory_unless_it_is_said_to_be() {
    let disk = FaultyFiles::new(3);
    disk.write_file("/log", [0; 2_048]).unwrap();
    let file = disk.open(Path::new("/log"), OpenMode::Write).unwrap();
    file.write_all_at(0, &[1; 1_500]).unwrap();
    assert_eq!(disk.unsynced_units(), 3);
    let found = disk
        .after_crash_with(Survival::Alone(1))
        .read_file("/log")
        .unwrap();
    let sector = SECTOR_BYTES as usize;
    assert!(found[..sector].iter().all(|byte| *byte == 0));
    assert!(found[sector..2 * sector].iter().all(|byte| *byte == 1));
}

#[test]
fn persistent_memory_passes_the_conformance_tests() {
    conformance::check_files(
        || {
            let memory = FaultyFiles::new(1);
            memory.persistent_memory(WORD_BYTES);
            Arc::new(memory)
        },
        Path::new("/conformance"),
    )
    .unwrap();
}

/// A checksum that finds any few words that differ.
fn checksum(words: &[u8]) -> u64 {
    words.chunks(WORD).fold(0x9E37_79B9_7F4A_7C15, |sum, word| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        (sum ^ word)
            .wrapping_mul(0xFF51_AFD7_ED55_8CCD)
            .rotate_left(31)
    })
}

/// A record of four lines: a length, what it says, a checksum.
fn record(fill: u8) -> Vec<u8> {
    let mut record = vec![fill; 256];
    record[..WORD].copy_from_slice(&240_u64.to_le_bytes());
    let sum = checksum(&record[..248]);
    record[248..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// What a log of two records finds after a cut in the second one, over all states of its words.
fn found_in_all_states(recover: fn(&[u8]) -> Option<u8>) -> BTreeSet<Option<u8>> {
    let (memory, file) = memory(512, WORD_BYTES);
    file.write_and_sync(0, &record(7)).unwrap();
    file.write_all_at(256, &record(9)).unwrap();
    memory.crash_now();
    let survivals = memory.survivals();
    assert_eq!(survivals.len(), 2 + 31 + 32 + 32);
    let seeds = (2..200).map(Survival::Seed);
    survivals
        .into_iter()
        .chain(seeds)
        .map(|survival| {
            let log = memory.after_crash_with(survival).read_file("/log").unwrap();
            assert_eq!(log[..256], record(7), "{survival:?}");
            recover(&log[256..])
        })
        .collect()
}

#[test]
fn a_record_with_a_checksum_is_found_wholly_or_not_at_all() {
    let found = found_in_all_states(|record| {
        let sum = u64::from_le_bytes(record[248..].try_into().unwrap());
        (sum == checksum(&record[..248])).then(|| record[8])
    });
    assert_eq!(found, BTreeSet::from([None, Some(9)]));
}

#[test]
fn a_record_that_is_believed_for_its_length_is_found_to_be_wrong() {
    let found = found_in_all_states(|record| {
        let len = u64::from_le_bytes(record[..8].try_into().unwrap());
        (len == 240).then(|| record[8..248].iter().copied().min().unwrap())
    });
    assert_eq!(found, BTreeSet::from([None, Some(0), Some(9)]));
}
