//! Repair: damage of every kind in every file, the metadata gone, a repair cut short. Afterwards
//! the database is sound, everything that could be read before is there, nothing is there that was
//! never written, and life goes on.

use crate::damage::{Victim, rich_victim, values_ever};
use crate::support::{
    Action, Content, Dice, Maker, Run, check, collect, read_back, small_options, steps, workload,
};
use headwater_engine::{ErrorKind, Options, Reader, RepairMode, RepairReport, ScanSpec, repair};
use headwater_io::{Env, FaultyFiles};
use headwater_types::{StreamName, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

type Cells = BTreeSet<(StreamName, i64, String, String)>;

fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

/// Every value that can be read, however damaged the rest.
fn readable(disk: &FaultyFiles, options: &Options) -> Cells {
    let mut cells = Cells::new();
    let Ok(reader) = Reader::open_in(env(disk), options.clone()) else {
        return cells;
    };
    let snapshot = reader.snapshot();
    for table in reader.tables() {
        for name in snapshot.streams(&table.name, &[]).unwrap_or_default() {
            let Ok(scan) = snapshot.scan(&name, &ScanSpec::default()) else {
                continue;
            };
            for (time, fields) in collect(scan).0 {
                for (field, value) in fields {
                    cells.insert((name.clone(), time, field, format!("{value:?}")));
                }
            }
        }
    }
    cells
}

fn cells_of(content: &Content) -> Cells {
    let mut cells = Cells::new();
    for (name, rows) in &content.streams {
        for (time, fields) in rows {
            for (field, value) in fields {
                cells.insert((name.clone(), *time, field.clone(), format!("{value:?}")));
            }
        }
    }
    cells
}

fn run_repair(disk: &FaultyFiles, options: &Options, mode: RepairMode) -> RepairReport {
    repair(&env(disk), options, mode).unwrap()
}

/// Repairs, and looks at everything a repair promises. Gives what it found.
fn repaired(
    disk: &FaultyFiles,
    options: &Options,
    ever: &BTreeMap<(StreamName, i64, String), Vec<Value>>,
    what: &str,
) -> (RepairReport, Cells) {
    let before = readable(disk, options);
    let dry_disk = disk.after_crash(1);
    let files = dry_disk.files();
    let dry = run_repair(&dry_disk, options, RepairMode::DryRun);
    let without_lock = |files: Vec<(std::path::PathBuf, u64)>| -> Vec<_> {
        files
            .into_iter()
            .filter(|(p, _)| !p.ends_with("lock"))
            .collect()
    };
    assert_eq!(
        without_lock(dry_disk.files()),
        without_lock(files),
        "{what}"
    );
    assert!(dry.after.is_sound(), "{what}: {dry:#?}");
    let report = run_repair(disk, options, RepairMode::Act);
    assert_eq!(
        (&dry.findings, &dry.lost),
        (&report.findings, &report.lost),
        "{what}"
    );
    assert!(report.after.is_sound(), "{what}: {report:#?}");
    for path in &report.quarantined {
        let kept = Path::new("/db/quarantine").join(path.file_name().unwrap());
        assert!(disk.read_file(&kept).is_ok(), "{what}: {}", kept.display());
    }
    let run = Run::new(Arc::new(disk.clone()), options);
    let db = run.open().unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = cells_of(&read_back(&db));
    let lost: Vec<_> = before.difference(&after).take(3).collect();
    // What damage hid can come to light, an older value of the same field and time: it was written
    // once.
    let unexplained: Vec<_> = lost
        .iter()
        .filter(|(name, time, field, _)| {
            !after
                .iter()
                .any(|(n, t, f, _)| n == name && t == time && f == field)
        })
        .collect();
    assert!(
        unexplained.is_empty(),
        "{what}: lost {unexplained:?}\n{report:#?}"
    );
    for (name, time, field, value) in &after {
        let known = ever.get(&(name.clone(), *time, field.clone()));
        let known = known.is_some_and(|values| {
            values.iter().any(|v| {
                format!("{v:?}") == *value
                    || matches!(v, Value::I64(i) if format!("{:?}", Value::F64(*i as f64)) == *value)
            })
        });
        assert!(
            known,
            "{what}: {name} {time} {field} = {value} was never written"
        );
    }
    // Life goes on.
    let mut run = run;
    let mut maker = Maker::new(99);
    let more: Vec<Action> = (0..3)
        .map(|_| Action::Write(maker.events(5, 95)))
        .chain([Action::Flush, Action::Compact])
        .collect();
    let can_write = db.tables().iter().any(|t| t.name == "k");
    if can_write {
        let db = run
            .play_on(db, &more)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        db.close().unwrap();
    } else {
        db.close().unwrap();
    }
    let sound = check(Arc::new(disk.clone()), options);
    assert!(sound.is_sound(), "{what}: {:#?}", sound.damages);
    (report, after)
}

fn all_cells(victim: &Victim) -> Cells {
    let disk = victim.disk.after_crash(1);
    readable(&disk, &victim.options)
}

#[test]
fn a_sound_database_needs_no_repair() {
    let victim = rich_victim();
    let report = run_repair(&victim.disk, &victim.options, RepairMode::Act);
    assert_eq!(
        (report.findings.len(), report.lost.len()),
        (0, 0),
        "{report:#?}"
    );
    let nothing = FaultyFiles::new(1);
    let error = repair(&env(&nothing), &victim.options, RepairMode::DryRun).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let run = Run::new(Arc::new(victim.disk.clone()), &victim.options);
    let db = run.open().unwrap();
    let error = repair(&env(&victim.disk), &victim.options, RepairMode::DryRun).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    drop(db);
}

#[test]
fn flipped_bits_anywhere_are_repaired() {
    let victim = rich_victim();
    let ever = values_ever(&victim.steps());
    let whole = all_cells(&victim);
    let mut dice = Dice::new(3);
    let (mut repairs, mut lossless) = (0, 0);
    for kind in ["segment", "log", "meta.redb"] {
        for round in 0..60 {
            let files = victim.files(kind);
            let (path, len) = &files[dice.below(files.len() as u64) as usize];
            // Log files are mostly empty.
            let offset = match kind {
                "log" => dice.below((*len).min(1600)),
                _ => dice.below(*len),
            };
            let disk = victim.disk.after_crash(1);
            disk.flip_bit(path, offset, dice.below(8) as u8).unwrap();
            let what = format!("{} bit at {offset}, round {round}", path.display());
            let sound = check(Arc::new(disk.clone()), &victim.options).is_sound();
            let (report, after) = repaired(&disk, &victim.options, &ever, &what);
            assert!(
                sound || !report.findings.is_empty(),
                "{what}: nothing found"
            );
            repairs += usize::from(!report.findings.is_empty());
            let lost = whole.difference(&after).count();
            if !report.findings.is_empty() {
                assert!(
                    lost == 0 || !report.lost.is_empty(),
                    "{what}: {lost} values lost without a word {report:#?}"
                );
            }
            lossless += usize::from(lost == 0);
        }
    }
    assert!(repairs > 70 && lossless > 40, "{repairs} {lossless}");
}

#[test]
fn files_that_are_gone_or_cut_short_are_repaired() {
    let victim = rich_victim();
    let ever = values_ever(&victim.steps());
    let mut dice = Dice::new(4);
    for (path, len) in victim.files("/db/") {
        if path.ends_with("lock") || len == 0 {
            continue;
        }
        for cut in [None, Some(dice.below(len)), Some(len - 1)] {
            let disk = victim.disk.after_crash(1);
            match cut {
                None => headwater_io::Files::remove(&disk, &path).unwrap(),
                Some(at) => disk.truncate_file(&path, at).unwrap(),
            }
            let disk = disk.after_crash(1);
            repaired(
                &disk,
                &victim.options,
                &ever,
                &format!("{} cut to {cut:?}", path.display()),
            );
        }
    }
}

#[test]
fn without_metadata_everything_comes_back() {
    let mut exact = 0;
    for (seed, every) in [(90, 7), (91, 11), (92, 0)] {
        let options = small_options();
        let actions = workload(seed, 150, every, 37, 60);
        let all = steps(&actions);
        for closed in [true, false] {
            let disk = FaultyFiles::new(seed);
            let mut run = Run::new(Arc::new(disk.clone()), &options);
            let db = run.open().unwrap();
            let db = run.play_on(db, &actions).unwrap();
            if closed {
                db.close().unwrap();
            } else {
                disk.crash_now();
            }
            drop(db);
            let disk = disk.after_crash(1);
            headwater_io::Files::remove(&disk, Path::new("/db/meta.redb")).unwrap();
            let what = format!("seed {seed} closed {closed}");
            let report = run_repair(&disk, &options, RepairMode::Act);
            assert!(report.after.is_sound(), "{what}: {report:#?}");
            // Of streams that were dropped the log may still have rows, and nothing else tells of
            // them.
            assert!(
                report.lost.iter().all(|l| l.ends_with("or it was dropped")),
                "{what}: {report:#?}"
            );
            let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
            let found = read_back(&db).steps_found(&all, all.len(), all.len());
            // Rows that were only in the log, of streams that no segment names: the metadata alone
            // may have known what they were.
            if closed || report.lost.is_empty() {
                assert_eq!(found, Ok(all.len()), "{what}: {report:#?}");
                exact += 1;
            }
        }
    }
    assert!(exact >= 4, "{exact}");
}

/// The power fails at any operation of a life; then the metadata are lost too. Rewrites that were
/// not finished, and segments that were not removed in time, are lying about.
#[test]
fn after_a_power_cut_and_without_metadata_nothing_is_lost_or_doubled() {
    let options = small_options();
    let actions = workload(93, 120, 6, 13, 0);
    let all = steps(&actions);
    let counting = FaultyFiles::new(1);
    Run::new(Arc::new(counting.clone()), &options)
        .play(&actions)
        .unwrap();
    let mut dice = Dice::new(9);
    let mut superseded = 0;
    let mut cut = 40;
    while cut < counting.operations() {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut run = Run::new(Arc::new(disk.clone()), &options);
        let ended = run.play(&actions);
        if ended.is_ok() {
            break;
        }
        for seed in [0, 1, 2 + dice.next() / 2] {
            let disk = disk.after_crash(seed);
            let _ = headwater_io::Files::remove(&disk, Path::new("/db/meta.redb"));
            let what = format!("cut {cut} seed {seed} {:?}", disk.interrupted());
            let report = run_repair(&disk, &options, RepairMode::Act);
            assert!(report.after.is_sound(), "{what}: {report:#?}");
            superseded += report
                .findings
                .iter()
                .filter(|f| f.damage.expected == "a current segment")
                .count();
            let run2 = Run::new(Arc::new(disk.clone()), &options);
            let db = run2.open().unwrap();
            let found =
                read_back(&db).steps_found(&all, run.progress.acknowledged, run.progress.submitted);
            found.unwrap_or_else(|e| panic!("{what}: {e}\n{report:#?}"));
        }
        cut += 1 + dice.below(19);
    }
    assert!(superseded > 2, "{superseded}");
}

#[test]
fn a_repair_that_a_power_cut_ended_is_run_again() {
    let victim = rich_victim();
    let ever = values_ever(&victim.steps());
    let segment = victim
        .files("segment")
        .into_iter()
        .max_by_key(|(_, len)| *len)
        .unwrap();
    let log = victim.files("log").into_iter().next_back().unwrap();
    let mut dice = Dice::new(6);
    for meta_too in [false, true] {
        let damage = || {
            let disk = victim.disk.after_crash(1);
            disk.flip_bit(&segment.0, segment.1 / 3, 1).unwrap();
            disk.flip_bit(&log.0, 90, 1).unwrap();
            if meta_too {
                disk.flip_bit("/db/meta.redb", 100, 1).unwrap();
                disk.truncate_file("/db/meta.redb", 5000).unwrap();
            }
            disk
        };
        let whole = damage();
        let before = whole.operations();
        let (report, expected) = repaired(&damage(), &victim.options, &ever, "uncut");
        assert!(!report.findings.is_empty());
        run_repair(&whole, &victim.options, RepairMode::Act);
        let operations = whole.operations() - before;
        assert!(operations > 20);
        for cut in 0..operations {
            let disk = damage();
            disk.crash_at(disk.operations() + cut);
            let _ = repair(&env(&disk), &victim.options, RepairMode::Act);
            for seed in [0, 1, 2 + dice.next() / 2] {
                let disk = disk.after_crash(seed);
                let what = format!(
                    "meta {meta_too} cut {cut} seed {seed} {:?}",
                    disk.interrupted()
                );
                let report = run_repair(&disk, &victim.options, RepairMode::Act);
                assert!(report.after.is_sound(), "{what}: {report:#?}");
                let db = Run::new(Arc::new(disk.clone()), &victim.options)
                    .open()
                    .unwrap();
                let after = cells_of(&read_back(&db));
                let lost: Vec<_> = expected.difference(&after).take(3).collect();
                assert!(lost.is_empty(), "{what}: {lost:?}");
            }
        }
    }
}
