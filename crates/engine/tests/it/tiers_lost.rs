//! A fast tier that is lost: what its log held behind its copy in bulk is lost and named, and
//! nothing else, whenever the tier goes; a log file that is gone in a tier is missed.

use crate::cuts::{cuts, seeds};
use crate::pump::{times, write};
use crate::support::small_options;
use headwater_engine::{
    Database, Error, ErrorKind, Options, RepairMode, RepairReport, check, fast_tier,
    repair_without_fast_tier, use_fast_tier,
};
use headwater_io::{Env, FaultyFiles, ManualClock, SeededChance};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

fn mirrored() -> Options {
    Options {
        fast_dir: Some("/fast".into()),
        log_mirror: Some(INTERVAL),
        ..small_options()
    }
}

fn not_mirrored() -> Options {
    Options {
        log_mirror: None,
        ..mirrored()
    }
}

/// A disk, and the clock of the machine.
struct Machine {
    disk: FaultyFiles,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine::with(FaultyFiles::new(seed))
    }

    fn with(disk: FaultyFiles) -> Machine {
        Machine {
            disk,
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
        }
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.disk.clone()),
            clock: Arc::<ManualClock>::clone(&self.clock),
            chance: Arc::new(SeededChance::new(self.disk.operations() + 1)),
            ..Env::memory()
        }
    }

    fn open(&self, options: Options) -> Result<Database, Error> {
        Database::open_in(self.env(), options)
    }

    /// The machine after its power was cut.
    fn after_cut(&self, seed: u64) -> Machine {
        self.disk.crash_now();
        Machine::with(self.disk.after_crash(seed))
    }

    /// The fast medium is gone.
    fn lose_tier(&self) {
        for path in self.files_below("/fast") {
            self.disk.vanish(&path).unwrap();
        }
    }

    fn files_below(&self, folder: &str) -> Vec<PathBuf> {
        let all = self.disk.files().into_iter().map(|(path, _)| path);
        all.filter(|path| path.starts_with(folder)).collect()
    }

    /// What a repair says is lost, which says it before as well.
    fn go_on_without(&self) -> RepairReport {
        let options = small_options();
        let told = repair_without_fast_tier(&self.env(), &options, RepairMode::DryRun).unwrap();
        let done = repair_without_fast_tier(&self.env(), &options, RepairMode::Act).unwrap();
        assert_eq!(told.lost, done.lost);
        assert!(done.after.is_sound(), "{done:#?}");
        done
    }

    fn found(&self) -> i64 {
        let db = self.open(small_options()).unwrap();
        let found = times(&db);
        let all: Vec<i64> = (0..found.len() as i64).collect();
        assert_eq!(found, all);
        db.close().unwrap();
        assert!(check(self.env(), small_options()).unwrap().is_sound());
        found.len() as i64
    }
}

#[test]
fn what_the_copy_of_the_log_has_is_not_lost_with_the_tier_and_what_is_lost_is_named() {
    let machine = Machine::new(1);
    let db = machine.open(mirrored()).unwrap();
    write(&db, 0..400).unwrap();
    db.flush().unwrap();
    for row in 400..500 {
        write(&db, row..row + 1).unwrap();
    }
    machine.clock.advance(INTERVAL);
    write(&db, 500..501).unwrap();
    assert_eq!(db.stats().unwrap().log_mirror_behind_bytes, 0);
    for row in 501..520 {
        write(&db, row..row + 1).unwrap();
    }
    let stats = db.stats().unwrap();
    assert!(stats.log_mirror_behind_bytes > 19 * 32, "{stats:?}");
    assert!(stats.fast_written_bytes > 0 && stats.bulk_written_bytes > 0);
    let killed = machine.after_cut(1);
    drop(db);
    killed.lose_tier();
    let report = killed.go_on_without();
    assert_eq!(report.lost.len(), 1, "{report:#?}");
    let lost = &report.lost[0];
    assert!(
        lost.contains("/fast") && lost.contains("after log record "),
        "{lost}"
    );
    assert_eq!(killed.found(), 501);
}

#[test]
fn without_a_copy_the_loss_is_named_though_no_file_is_missed() {
    let machine = Machine::new(2);
    let db = machine.open(not_mirrored()).unwrap();
    write(&db, 0..100).unwrap();
    db.close().unwrap();
    // Nothing is lost with a tier that holds nothing.
    let closed = Machine::with(machine.disk.after_crash(1));
    closed.lose_tier();
    assert_eq!(closed.go_on_without().lost, Vec::<String>::new());
    assert_eq!(closed.found(), 100);
    // No commit knows of the file of the log that is begun now.
    let machine = Machine::with(machine.disk.after_crash(1));
    let db = machine.open(small_options()).unwrap();
    write(&db, 100..120).unwrap();
    let killed = machine.after_cut(1);
    drop(db);
    killed.lose_tier();
    let report = killed.go_on_without();
    assert_eq!(report.lost.len(), 1, "{report:#?}");
    assert!(report.lost[0].contains("of the fast tier /fast"));
    assert_eq!(killed.found(), 100);
}

#[test]
fn a_log_file_that_is_gone_in_the_tier_is_missed() {
    for keep in [0, 1, 2] {
        let machine = Machine::new(3);
        let db = machine.open(not_mirrored()).unwrap();
        for row in 0..400 {
            write(&db, row..row + 1).unwrap();
        }
        let killed = machine.after_cut(0);
        drop(db);
        let generation = |path: &PathBuf| {
            let bytes = killed.disk.read_file(path).unwrap();
            u64::from_le_bytes(bytes[8..16].try_into().unwrap())
        };
        let mut logs = killed.files_below("/fast/log");
        logs.sort_by_key(generation);
        assert!(logs.len() > 3, "{logs:?}");
        for path in &logs[keep..] {
            killed.disk.vanish(path).unwrap();
        }
        let error = killed.open(small_options()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("/fast/log"), "{error}");
    }
}

#[test]
fn the_copy_takes_no_more_room_than_the_log_and_none_when_it_is_not_wanted() {
    let machine = Machine::new(4);
    let db = machine.open(mirrored()).unwrap();
    for row in 0..650 {
        machine.clock.advance(INTERVAL);
        write(&db, row..row + 1).unwrap();
        if row % 100 == 99 {
            db.flush().unwrap();
        }
        let (copied, there) = (
            machine.files_below("/db/log").len(),
            machine.files_below("/fast/log").len(),
        );
        assert!(copied > 0 && copied <= there, "{copied} of {there}");
    }
    // It goes on where it was.
    let machine = machine.after_cut(1);
    drop(db);
    let before = machine.files_below("/db/log");
    let db = machine.open(mirrored()).unwrap();
    machine.clock.advance(INTERVAL);
    write(&db, 650..651).unwrap();
    assert!(
        before
            .iter()
            .all(|path| machine.disk.read_file(path).is_ok())
    );
    assert_eq!(db.stats().unwrap().log_mirror_behind_bytes, 0);
    db.close().unwrap();
    drop(db);
    assert_eq!(machine.files_below("/db/log"), Vec::<PathBuf>::new());
    // An old one is worth nothing.
    let db = machine.open(mirrored()).unwrap();
    write(&db, 651..652).unwrap();
    let machine = machine.after_cut(1);
    drop(db);
    assert_ne!(machine.files_below("/db/log"), Vec::<PathBuf>::new());
    let db = machine.open(not_mirrored()).unwrap();
    assert_eq!(machine.files_below("/db/log"), Vec::<PathBuf>::new());
    assert_eq!(times(&db).len(), 652);
}

#[test]
fn a_tier_with_a_copy_of_its_log_is_left_and_taken_again() {
    let mut machine = Machine::new(5);
    let mut written = 0;
    for options in [mirrored(), small_options(), mirrored(), not_mirrored()] {
        let db = machine.open(options).unwrap();
        assert_eq!(times(&db).len() as i64, written);
        for _ in 0..40 {
            machine.clock.advance(INTERVAL);
            write(&db, written..written + 5).unwrap();
            written += 5;
        }
        let killed = machine.after_cut(1);
        drop(db);
        use_fast_tier(&killed.env(), &small_options(), None).unwrap();
        assert_eq!(killed.found(), written);
        let left = killed.files_below("/fast");
        assert!(left.iter().all(|path| path.ends_with("lock")), "{left:?}");
        machine = killed;
    }
}

/// Writes until power is cut. Gives how many rows were acknowledged, and how many of them bulk must
/// have.
fn run_workload(machine: &Machine) -> (i64, i64, Result<(), Error>) {
    let (mut written, mut safe) = (0, 0);
    let mut live = || {
        for is_closed in [true, false] {
            let db = machine.open(mirrored())?;
            for round in 0..14 {
                if round % 3 == 2 {
                    machine.clock.advance(INTERVAL);
                }
                write(&db, written..written + 9)?;
                written += 9;
                if round == 8 {
                    db.flush()?;
                    safe = written;
                }
                if db.stats()?.log_mirror_behind_bytes == 0 {
                    safe = written;
                }
            }
            if is_closed {
                db.close()?;
                safe = written;
            } else {
                machine.disk.crash_now();
            }
        }
        Ok(())
    };
    let ended = live();
    (written, safe, ended)
}

#[test]
fn after_a_power_cut_that_takes_the_tier_too_what_bulk_has_is_found() {
    let machine = Machine::new(6);
    let (written, safe, ended) = run_workload(&machine);
    ended.unwrap();
    assert!(safe > 100 && written > safe, "{safe} of {written}");
    let operations = machine.disk.operations();
    let (mut cut_off, mut lost) = (0, 0);
    for cut in cuts(operations, 3) {
        let machine = Machine::new(6);
        machine.disk.crash_at(cut);
        let (written, safe, ended) = run_workload(&machine);
        cut_off += usize::from(ended.is_err());
        for seed in seeds(3) {
            let after = machine.after_cut(seed);
            // With the tier nothing is lost.
            let kept = Machine::with(after.disk.after_crash(1));
            let opened = kept.open(mirrored());
            let db = opened.unwrap_or_else(|error| panic!("cut {cut}, seed {seed}: {error}"));
            let found = times(&db).len() as i64;
            assert!(
                (written..=written + 9).contains(&found),
                "cut {cut}, seed {seed}: {found} of {written}"
            );
            after.lose_tier();
            let is_in_use = fast_tier(&after.env(), Path::new("/db")).unwrap().is_some();
            let is_made = after.files_below("/db").contains(&"/db/meta.redb".into());
            if !is_in_use || !is_made {
                assert_eq!(written, 0, "cut {cut}, seed {seed}");
                continue;
            }
            let report = after.go_on_without();
            let found = after.found();
            assert!(
                found >= safe && found <= written + 9,
                "cut {cut}, seed {seed}: {found} of {written}, {safe} safe\n{report:#?}"
            );
            assert!(
                found >= written || !report.lost.is_empty(),
                "cut {cut}, seed {seed}"
            );
            lost += usize::from(found < written);
        }
    }
    assert!(cut_off > 50 && lost > 50, "{cut_off} {lost}");
}
