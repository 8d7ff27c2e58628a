//! A fast tier on a medium of its own: full, with pages that cannot be read, and one of persistent
//! memory that dies at any fence.

use crate::cuts::{cuts, seeds};
use crate::disks::Disks;
use crate::pump::{times, write};
use crate::support::small_options;
use headwater_engine::{
    DeleteSpec, Error, ErrorKind, Options, RepairMode, TierParts, check, fast_tier, repair,
};
use headwater_io::{FaultKind, FaultyFiles, WORD_BYTES};
use headwater_types::ClosedRange;
use std::path::Path;
use std::time::Duration;

fn tiered() -> Options {
    Options {
        fast_dir: Some("/fast".into()),
        ..small_options()
    }
}

#[test]
fn a_full_tier_is_a_full_disk_and_writes_go_on_when_there_is_room_again() {
    let disks = Disks::new(1);
    let options = Options {
        reserve_bytes: 64 << 10,
        ..tiered()
    };
    let db = disks.open(options.clone()).unwrap();
    write(&db, 0..50).unwrap();
    disks.fast.capacity(disks.fast_bytes() + 8 * 4096);
    let mut written = 50;
    let refused = loop {
        match write(&db, written..written + 50) {
            Ok(()) => written += 50,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    // Reads and deletes go on, in the space of the tier's reserve.
    assert_eq!(times(&db), (0..written).collect::<Vec<i64>>());
    let first = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(0, 9),
    };
    db.delete(&first).unwrap();
    assert_eq!(times(&db), (10..written).collect::<Vec<i64>>());
    disks.fast.capacity(u64::MAX);
    disks.clock.advance(Duration::from_secs(1));
    write(&db, written..written + 50).unwrap();
    written += 50;
    db.close().unwrap();
    drop(db);
    let db = disks.open(options).unwrap();
    assert_eq!(times(&db), (10..written).collect::<Vec<i64>>());
}

#[test]
fn a_tier_on_a_medium_without_space_is_refused_and_everything_is_as_before() {
    let mut refused = 0;
    for bytes in [0, 1, 100, 300, 1_000, 4_000, 5_000, 9_000, 20_000] {
        let disks = Disks::new(7);
        let db = disks.open(small_options()).unwrap();
        write(&db, 0..200).unwrap();
        db.close().unwrap();
        drop(db);
        disks.fast.capacity(bytes);
        let all: Vec<i64> = (0..200).collect();
        match disks.open(tiered()) {
            Ok(db) => assert_eq!(times(&db), all, "{bytes} bytes"),
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Full, "{bytes} bytes: {error}");
            }
        }
        // Whatever was begun there, the rows are where they were, and when there is room the tier
        // is taken into use.
        match disks.open(small_options()) {
            Ok(db) => assert_eq!(times(&db), all, "{bytes} bytes"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{bytes} bytes: {error}"),
        }
        disks.fast.capacity(u64::MAX);
        let db = disks.open(tiered()).unwrap();
        assert_eq!(times(&db), all, "{bytes} bytes");
        write(&db, 200..250).unwrap();
        db.close().unwrap();
        drop(db);
        assert!(check(disks.env(), small_options()).unwrap().is_sound());
    }
    assert!(refused > 2, "{refused}");
}

#[test]
fn whichever_line_of_the_log_is_damaged_no_row_is_made_up_and_a_repair_mends_it() {
    let disks = persistent(8);
    let db = disks.open(tiered()).unwrap();
    write(&db, 0..100).unwrap();
    db.flush().unwrap();
    for part in 0..6 {
        write(&db, 100 + part * 25..125 + part * 25).unwrap();
    }
    disks.bulk.crash_now();
    disks.fast.crash_now();
    drop(db);
    let all: Vec<i64> = (0..250).collect();
    let stored: Vec<i64> = (0..100).collect();
    let log = disks.fast.after_crash(1);
    let files = log.files().into_iter().map(|(path, _)| path);
    let files: Vec<_> = files.filter(|path| path.starts_with("/fast/log")).collect();
    let (mut corrupt, mut opened_anyway) = (0, 0);
    for path in &files {
        let bytes = log.read_file(path).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        for line in 0..=used / 64 {
            let damaged = Disks::of(disks.bulk.after_crash(1), disks.fast.after_crash(1));
            let at = u64::try_from(line * 64 + line % 64).unwrap();
            damaged
                .fast
                .flip_bit(path, at.min(used as u64), line as u8 % 8)
                .unwrap();
            let what = format!("line {line} of {}", path.display());
            match damaged.open(small_options()) {
                // It was not needed any more, or the end of the log, which might have been torn.
                Ok(db) => {
                    opened_anyway += 1;
                    let found = times(&db);
                    assert!(all.starts_with(&found), "{what}: {found:?}");
                    assert!(found.starts_with(&stored), "{what}: {found:?}");
                    continue;
                }
                Err(error) => {
                    corrupt += 1;
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                    assert!(error.to_string().contains("/fast/log"), "{what}: {error}");
                }
            }
            let report = repair(&damaged.env(), &small_options(), RepairMode::Act).unwrap();
            assert!(report.after.is_sound(), "{what}: {report:#?}");
            let found = times(&damaged.open(small_options()).unwrap());
            assert!(found.starts_with(&stored), "{what}: {found:?}");
            assert!(
                found.iter().all(|time| all.contains(time)),
                "{what}: {found:?}"
            );
            assert!(found.is_sorted_by(|a, b| a < b), "{what}: {found:?}");
        }
    }
    assert!(
        corrupt > 5 && opened_anyway > 0,
        "{corrupt} {opened_anyway}"
    );
}

#[test]
fn a_page_of_the_tier_that_cannot_be_read_is_an_error_and_harms_nothing() {
    let disks = Disks::new(2);
    let db = disks.open(tiered()).unwrap();
    write(&db, 0..400).unwrap();
    disks.bulk.crash_now();
    disks.fast.crash_now();
    drop(db);
    let disks = Disks::of(disks.bulk.after_crash(1), disks.fast.after_crash(1));
    let mut refused = 0;
    for reads in 0.. {
        disks.fast.fail_next(FaultKind::ReadError, reads);
        let opened = disks.open(small_options());
        if disks.fast.heal() > 0 {
            assert_eq!(times(&opened.unwrap()), (0..400).collect::<Vec<i64>>());
            break;
        }
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "read {reads}: {error}");
        assert!(error.to_string().contains("/fast"), "read {reads}: {error}");
        refused += 1;
    }
    assert!(refused > 3, "{refused}");
    assert!(check(disks.env(), small_options()).unwrap().is_sound());
}

/// Gives how many rows were acknowledged until the tier died.
fn run_workload(disks: &Disks) -> (i64, Result<(), Error>) {
    let mut written = 0;
    let mut live = || {
        for _ in 0..3 {
            let db = disks.open(Options {
                log_mirror: Some(Duration::from_secs(1)),
                fast_parts: TierParts {
                    index: true,
                    ..tiered().fast_parts
                },
                ..tiered()
            })?;
            for round in 0..12 {
                disks.clock.advance(Duration::from_millis(400));
                write(&db, written..written + 7)?;
                written += 7;
                if round == 7 {
                    db.flush()?;
                }
            }
            db.close()?;
        }
        Ok(())
    };
    let ended = live();
    (written, ended)
}

fn persistent(seed: u64) -> Disks {
    let disks = Disks::new(seed);
    disks.fast.persistent_memory(WORD_BYTES);
    disks
}

#[test]
fn after_a_power_cut_at_any_fence_of_persistent_memory_what_was_acknowledged_is_found() {
    let disks = persistent(3);
    let (written, ended) = run_workload(&disks);
    ended.unwrap();
    assert_eq!(written, 252);
    let mut cut_off = 0;
    for cut in cuts(disks.fast.operations(), 3) {
        let disks = persistent(3);
        disks.fast.crash_at(cut);
        let (written, ended) = run_workload(&disks);
        cut_off += usize::from(ended.is_err());
        disks.bulk.crash_now();
        let states = match disks.fast.unsynced_units() {
            0..=16 => disks.fast.survivals(),
            _ => Vec::new(),
        };
        let mut fasts: Vec<FaultyFiles> = states
            .into_iter()
            .map(|survival| disks.fast.after_crash_with(survival))
            .collect();
        fasts.extend(seeds(3).map(|seed| disks.fast.after_crash(seed)));
        for (state, fast) in fasts.into_iter().enumerate() {
            let after = Disks::of(disks.bulk.after_crash(state as u64 % 5), fast);
            let is_in_use = fast_tier(&after.env(), Path::new("/db")).unwrap().is_some();
            let opened = after.open(tiered());
            let db = opened.unwrap_or_else(|error| {
                panic!("cut {cut}, state {state}, {written} rows, {is_in_use}: {error}")
            });
            let found = times(&db);
            let all: Vec<i64> = (0..found.len() as i64).collect();
            assert_eq!(found, all, "cut {cut}, state {state}");
            assert!(
                (written..=written + 7).contains(&(found.len() as i64)),
                "cut {cut}, state {state}: {} of {written}",
                found.len()
            );
        }
    }
    assert!(cut_off > 20, "{cut_off}");
}
