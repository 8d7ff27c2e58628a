//! Files of watches on disks that lose power, and that are full.

use crate::support::{match_of, round, step};
use headwater_io::{FaultKind, FaultyFiles, Files, Survival};
use headwater_watch::{Change, OpenWatch, Persisted, Store};
use std::path::Path;
use std::sync::Arc;

fn open_store(disk: &FaultyFiles) -> std::io::Result<OpenWatch> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    Store::open(files, Path::new("/watches"), 3, || Persisted::new(1, 0))
}

/// The next change of a life that takes matches back now and then.
fn next(kept: &Persisted, at: i64) -> Change {
    match at % 5 {
        4 => Change::Delivered(kept.state.sequence()),
        part => {
            let row = format!("{{\"at\":{}}}", part / 2);
            let mut all = vec![match_of("[\"a\"]", at - 3, at, &row)];
            if part != 2 {
                all.push(match_of("[\"b\"]", at / 10 * 10, at, &"x".repeat(400)));
            }
            let all = all
                .into_iter()
                .filter(|f| f.key.first.time_ns >= kept.state.settled_ns());
            Change::Step(step(kept, &round(at, all.collect())))
        }
    }
}

#[test]
fn what_was_acknowledged_is_found_after_a_power_cut_at_every_operation() {
    const CHANGES: i64 = 400;
    let mut cut = 1;
    let mut ended = false;
    while !ended {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut states = Vec::new();
        if let Ok(opened) = open_store(&disk) {
            let (mut store, mut kept) = (opened.store, opened.state);
            states.push(kept.clone());
            for at in 0..CHANGES {
                let change = next(&kept, at);
                let mut after = kept.clone();
                after.apply(&change);
                states.push(after.clone());
                match store.append(&kept, &change) {
                    Ok(()) => kept = after,
                    Err(_) => break,
                }
            }
            ended = !disk.crashed();
        }
        for survival in [Survival::Nothing, Survival::Everything, Survival::Seed(cut)] {
            let after = disk.after_crash_with(survival);
            let found = open_store(&after).unwrap();
            assert_eq!(
                found.damage.filter(|_| states.len() > 2),
                None,
                "cut at {cut}"
            );
            let state = found.state.state;
            // The change that was under way may be there or not.
            let newest = states.iter().rev().take(2);
            let known = newest.map(|kept| &kept.state).any(|known| *known == state);
            assert!(known || states.is_empty(), "cut at {cut}, {survival:?}");
        }
        // Each operation at the beginning, and some of those that follow.
        cut += if cut < 60 { 1 } else { 37 };
    }
    assert!(cut > 300, "the file was begun anew within the life");
}

#[test]
fn what_a_full_disk_did_not_take_is_taken_later() {
    for kind in [
        FaultKind::WriteError,
        FaultKind::SyncError,
        FaultKind::SyncErrorReverting,
        FaultKind::SyncFull,
    ] {
        let disk = FaultyFiles::new(1);
        let opened_store = open_store(&disk).unwrap();
        let (mut store, mut kept) = (opened_store.store, opened_store.state);
        for at in 0..30 {
            let change = next(&kept, at);
            if at % 7 == 3 {
                disk.fail_next(kind, 0);
                let before = kept.clone();
                assert!(store.append(&kept, &change).is_err(), "{kind:?} at {at}");
                assert_eq!(kept, before);
                disk.heal();
            }
            store.append(&kept, &change).unwrap();
            kept.apply(&change);
        }
        let after = disk.after_crash_with(Survival::Nothing);
        assert_eq!(
            open_store(&after).unwrap().state.state,
            kept.state,
            "{kind:?}"
        );
    }
}

#[test]
fn behind_damaged_bytes_no_number_is_used_again() {
    let disk = FaultyFiles::new(1);
    let first = open_store(&disk).unwrap();
    let (mut store, mut kept) = (first.store, first.state);
    let mut lengths = Vec::new();
    let path = Path::new("/watches/0000000000000003.1");
    for at in 0..8 {
        let change = next(&kept, at);
        store.append(&kept, &change).unwrap();
        kept.apply(&change);
        lengths.push(disk.read_file(path).unwrap().len() as u64);
    }
    // A bit of the third change, with others behind it.
    disk.flip_bit(path, lengths[1] + 12, 1).unwrap();
    let found = open_store(&disk).unwrap();
    assert!(
        found
            .damage
            .unwrap()
            .contains("does not match its checksum")
    );
    assert!(found.state.state.sequence() > kept.state.sequence());
    let (mut store, mut kept) = (found.store, found.state);
    let change = next(&kept, 9);
    store.append(&kept, &change).unwrap();
    kept.apply(&change);
    let again = open_store(&disk).unwrap();
    assert_eq!((again.damage, again.state.state), (None, kept.state));
}

#[test]
fn a_watch_that_is_dropped_leaves_nothing() {
    let disk = FaultyFiles::new(1);
    let first = open_store(&disk).unwrap();
    let (mut store, kept) = (first.store, first.state);
    store.append(&kept, &next(&kept, 0)).unwrap();
    assert_eq!(disk.files().len(), 1);
    store.remove().unwrap();
    assert_eq!(disk.files().len(), 0);
}
