//! An index in the fast tier that is missing, behind, damaged, of another segment, or cut off.

use super::*;
use crate::cuts::{cuts, seeds};
use crate::support::Dice;

#[test]
fn one_that_is_missing_or_behind_is_made_up_for() {
    let disks = filled(4);
    for path in index_files(&disks) {
        disks.fast.vanish(&path).unwrap();
    }
    answers_as_ever(&disks, 0, "missing");

    // Older files of the same segments: what they hold is true, and the rest is added.
    let disks = Disks::new(5);
    let db = open(&disks);
    let mut older = Vec::new();
    for from in (0..2000).step_by(200) {
        write(&db, from..from + 200).unwrap();
        db.flush().unwrap();
        if from == 800 {
            let files = index_files(&disks).into_iter();
            older = files
                .map(|path| (path.clone(), disks.fast.read_file(&path).unwrap()))
                .collect();
        }
    }
    db.close().unwrap();
    drop(db);
    let mut changed = 0;
    for (path, bytes) in older {
        let Ok(now) = disks.fast.read_file(&path) else {
            continue;
        };
        assert!(now.starts_with(&bytes));
        changed += usize::from(now != bytes);
        disks.fast.write_file(&path, &bytes).unwrap();
    }
    assert!(changed > 0);
    answers_as_ever(&disks, 0, "behind");
}

#[test]
fn one_that_is_damaged_or_not_its_own_is_dropped_and_made_anew() {
    // Each line of 64 bytes of a file in turn, as a medium loses them.
    let disks = filled(6);
    let path = index_files(&disks).remove(0);
    let bytes = disks.fast.read_file(&path).unwrap();
    for at in cuts(bytes.len() as u64 / 64, 9) {
        disks.fast.write_file(&path, &bytes).unwrap();
        disks.fast.decay(&path, at * 64, &[0x5a; 64]).unwrap();
        answers_as_ever(&disks, 0, &format!("line {at}"));
    }
    // Cut short, or with something behind it.
    for len in [0, 10, 63, 64, 65, bytes.len() / 2, bytes.len() - 1] {
        disks.fast.write_file(&path, &bytes[..len]).unwrap();
        answers_as_ever(&disks, 1, &format!("{len} bytes"));
    }
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(&bytes[64..]);
    disks.fast.write_file(&path, &longer).unwrap();
    answers_as_ever(&disks, 1, "longer");
    // That of another segment.
    let paths = index_files(&disks);
    let (one, other) = (&paths[0], &paths[1]);
    let (first, second) = (disks.fast.read_file(one), disks.fast.read_file(other));
    disks.fast.write_file(one, second.unwrap()).unwrap();
    disks.fast.write_file(other, first.unwrap()).unwrap();
    answers_as_ever(&disks, 2, "exchanged");
    // That of another database with the same segments.
    let (disks, strange) = (filled(6), Disks::new(7));
    // Its numbers are drawn by what was done to the medium.
    strange.fast.create_dir_all(Path::new("/other")).unwrap();
    let strange = filled_on(strange);
    for path in index_files(&disks) {
        let bytes = strange.fast.read_file(&path).unwrap();
        disks.fast.write_file(&path, bytes).unwrap();
    }
    answers_as_ever(
        &disks,
        index_files(&disks).len() as u64,
        "of another database",
    );
}

#[test]
fn one_that_is_newer_than_its_segment_is_dropped() {
    // Bulk as it was before, with the files of the tier as they are now: only who says that both
    // are of one time can come by it.
    let disks = Disks::new(8);
    let db = open(&disks);
    fill(&db, 2000);
    db.close().unwrap();
    drop(db);
    let before: Vec<_> = disks.bulk.files();
    let before: Vec<_> = before
        .into_iter()
        .map(|(path, _)| (path.clone(), disks.bulk.read_file(&path).unwrap()))
        .collect();
    let tier: Vec<_> = disks.fast.files();
    let tier: Vec<_> = tier
        .into_iter()
        .map(|(path, _)| (path.clone(), disks.fast.read_file(&path).unwrap()))
        .collect();
    let db = open(&disks);
    write(&db, 2000..2200).unwrap();
    db.close().unwrap();
    drop(db);
    for (disk, files) in [(&disks.bulk, before), (&disks.fast, tier)] {
        for (path, _) in disk.files() {
            let is_known = files.iter().any(|(known, _)| *known == path);
            if !is_known && !path.starts_with("/fast/index") {
                disk.vanish(&path).unwrap();
            }
        }
        for (path, bytes) in files {
            let is_index = path.starts_with("/fast/index");
            if !is_index && !path.ends_with("lock") {
                disk.write_file(&path, bytes).unwrap();
            }
        }
    }
    answers_as_ever(&disks, 1, "newer");
}

#[test]
fn a_page_that_cannot_be_read_is_read_in_bulk() {
    let disks = filled(9);
    let (base, outlines_in_bulk, _) = in_bulk(&disks);
    let db = open(&disks);
    let reads = db.stats().unwrap().fast_index_reads;
    let needed = {
        outlines(&db, base);
        db.stats().unwrap().fast_index_reads - reads
    };
    drop(db);
    let mut dropped = 0;
    for after in cuts(needed, 7) {
        let db = open(&disks);
        disks.fast.fail_next(FaultKind::ReadError, after);
        assert_eq!(outlines(&db, base), outlines_in_bulk, "read {after}");
        disks.fast.heal();
        dropped += db.stats().unwrap().fast_index_dropped;
        db.maintain().unwrap();
    }
    assert!(dropped > 0);
}

#[test]
fn a_segment_whose_file_is_not_its_own_gives_no_rows_although_the_index_is_in_order() {
    let disks = filled(10);
    let segments: Vec<PathBuf> = disks
        .bulk
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("/db/segment"))
        .collect();
    let longest = |path: &PathBuf| disks.bulk.read_file(path).unwrap().len();
    let other = segments.iter().max_by_key(|path| longest(path)).unwrap();
    let shortest = segments.iter().min_by_key(|path| longest(path)).unwrap();
    let bytes = disks.bulk.read_file(other).unwrap();
    disks.bulk.write_file(shortest, bytes).unwrap();
    let db = open(&disks);
    let snapshot = db.snapshot().unwrap();
    let failed = (0..STREAMS).any(|id| {
        let scan = snapshot.scan(&stream(id), &ScanSpec::default());
        scan.is_err() || scan.unwrap().any(|chunk| chunk.is_err())
    });
    assert!(failed);
    assert!(!check(disks.env(), options()).unwrap().is_sound());
}

#[test]
fn a_repair_makes_it_anew() {
    let disks = filled(15);
    let segment = Path::new("/db/segment").join(format!(
        "{}.seg",
        index_files(&disks)[0]
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
    ));
    // The last footer is damaged, which the tier still has.
    let len = disks.bulk.read_file(&segment).unwrap().len() as u64;
    disks.bulk.decay(&segment, len - 40, &[0x5a; 40]).unwrap();
    let report = repair(&disks.env(), &options(), RepairMode::Act).unwrap();
    assert!(!report.findings.is_empty());
    assert!(report.after.is_sound(), "{report:#?}");
    let db = open(&disks);
    db.maintain().unwrap();
    assert_eq!(db.stats().unwrap().fast_index_dropped, 0);
    assert_eq!(index_files(&disks).len(), disks.segments());
    let found = (outlines(&db, -2), rows(&db));
    drop(db);
    for path in index_files(&disks) {
        disks.fast.vanish(&path).unwrap();
    }
    let db = open(&disks);
    assert_eq!((outlines(&db, -2), rows(&db)), found);
}

/// Steps, merges, deletes and rewritings, with restarts. Gives how many seconds were acknowledged.
fn run_workload(disks: &Disks) -> (i64, Result<(), Error>) {
    let mut written = 0;
    let mut live = || {
        let mut dice = Dice::new(3);
        for _ in 0..3 {
            let db = disks.open(options())?;
            for round in 0..6 {
                write(&db, written..written + 40)?;
                written += 40;
                if round % 2 == 1 {
                    let late = dice.below(written as u64) as i64;
                    write(&db, late..(late + 5).min(written))?;
                }
                if round != 2 {
                    db.flush()?;
                }
            }
            db.compact()?;
            db.maintain()?;
            db.close()?;
        }
        Ok(())
    };
    let ended = live();
    (written, ended)
}

#[test]
fn wherever_a_power_cut_falls_answers_are_those_of_the_rows() {
    let disks = Disks::new(16);
    let (written, ended) = run_workload(&disks);
    ended.unwrap();
    assert_eq!(written, 720);
    let operations = disks.fast.operations();
    let mut cut_off = 0;
    for cut in cuts(operations, 5) {
        let disks = Disks::new(16);
        disks.fast.crash_at(cut);
        let (written, ended) = run_workload(&disks);
        cut_off += usize::from(ended.is_err());
        disks.bulk.crash_now();
        for seed in seeds(2) {
            let after = Disks::of(
                disks.bulk.after_crash(seed + cut),
                disks.fast.after_crash(seed),
            );
            let db = open(&after);
            let found = rows(&db);
            let with = outlines(&db, -2);
            db.maintain().unwrap();
            assert_eq!(outlines(&db, -2), with, "cut {cut}, seed {seed}");
            let snapshot = db.snapshot().unwrap();
            let spec = ScanSpec::default();
            let scan = snapshot.scan(&stream(0), &spec).map(|scan| {
                let chunks = scan.map(|chunk| chunk.unwrap().times.len());
                chunks.sum::<usize>() as i64
            });
            let rows_found = scan.unwrap_or(0);
            assert!(
                (written..=written + 40).contains(&rows_found),
                "cut {cut}, seed {seed}: {rows_found} of {written}"
            );
            drop(snapshot);
            db.close().unwrap();
            drop(db);
            for path in index_files(&after) {
                after.fast.vanish(&path).unwrap();
            }
            let db = open(&after);
            assert_eq!(rows(&db), found, "cut {cut}, seed {seed}");
            assert_eq!(outlines(&db, -2), with, "cut {cut}, seed {seed}");
            drop(db);
            assert!(check(after.env(), options()).unwrap().is_sound());
        }
    }
    assert!(cut_off > 20, "{cut_off}");
}
