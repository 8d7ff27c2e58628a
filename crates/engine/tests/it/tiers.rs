//! A database with a fast tier: what was acknowledged is found however it was taken into use, left
//! or cut off meanwhile; a tier that is missing, of another database or of another time is refused;
//! and one that is lost for good costs what only it held, which is said.

use crate::cuts::{cuts, seeds};
use crate::pump::{stream, times, write};
use crate::support::small_options;
use headwater_engine::{
    Database, Error, ErrorKind, FastTier, Options, Reader, RepairMode, TierParts, adopt_fast_tier,
    backup, check, fast_tier, repair, repair_without_fast_tier, restore, use_fast_tier,
};
use headwater_io::{Env, FaultyFiles, Files, ManualClock, NoThreads, OpenMode, SeededChance};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOG: TierParts = TierParts {
    log: true,
    ..TierParts::NONE
};
const BUFFERS: TierParts = TierParts {
    pins: true,
    ..TierParts::NONE
};

fn env(disk: &FaultyFiles) -> Env {
    static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    Env {
        files: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
        // Every process draws other numbers.
        chance: Arc::new(SeededChance::new(
            LIVES.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        )),
        threads: Arc::new(NoThreads),
        ..Env::memory()
    }
}

fn plain() -> Options {
    small_options()
}

fn tiered() -> Options {
    Options {
        fast_dir: Some("/fast".into()),
        ..small_options()
    }
}

fn expect(db: &Database, range: std::ops::Range<i64>) {
    assert_eq!(times(db), range.collect::<Vec<i64>>());
}

/// The process dies, and its files stay as they are.
fn killed(disk: &FaultyFiles, db: Database) -> FaultyFiles {
    disk.crash_now();
    drop(db);
    disk.after_crash(7)
}

/// Files below a folder, without the lock.
fn files_below(disk: &FaultyFiles, folder: &str) -> Vec<PathBuf> {
    let all = disk.files().into_iter().map(|(path, _)| path);
    all.filter(|path| path.starts_with(folder) && !path.ends_with("lock"))
        .collect()
}

/// Copies a folder with everything in it, as `cp -r` does.
fn copy(disk: &FaultyFiles, from: &str, to: &str) {
    disk.create_dir_all(Path::new(to)).unwrap();
    for (path, _) in disk.files() {
        let Ok(inside) = path.strip_prefix(from) else {
            continue;
        };
        let target = Path::new(to).join(inside);
        disk.create_dir_all(target.parent().unwrap()).unwrap();
        disk.write_file(&target, disk.read_file(&path).unwrap())
            .unwrap();
    }
}

/// Removes everything below a folder.
fn lose(disk: &FaultyFiles, folder: &str) {
    for (path, _) in disk.files() {
        if path.starts_with(folder) {
            disk.vanish(&path).unwrap();
        }
    }
}

fn refused(opened: Result<Database, Error>, word: &str) {
    let error = opened.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

/// Rows 0 to 399 in segments, 400 to 499 in the log of the tier alone.
fn filled(disk: &FaultyFiles) -> Database {
    let db = Database::open_in(env(disk), tiered()).unwrap();
    write(&db, 0..400).unwrap();
    db.flush().unwrap();
    write(&db, 400..500).unwrap();
    db
}

#[test]
fn the_log_lies_in_the_tier_and_everything_else_in_bulk() {
    let disk = FaultyFiles::new(1);
    let db = filled(&disk);
    let fast = files_below(&disk, "/fast");
    assert!(fast.contains(&"/fast/tier".into()), "{fast:?}");
    assert!(fast.iter().any(|path| path.starts_with("/fast/log")));
    assert!(!fast.iter().any(|path| path.starts_with("/fast/segment")));
    let bulk = files_below(&disk, "/db");
    assert!(
        !bulk.iter().any(|path| path.starts_with("/db/log")),
        "{bulk:?}"
    );
    let stats = db.stats().unwrap();
    assert!(
        stats.fast_bytes >= 4096 && stats.fast_bytes == stats.log_bytes,
        "{stats:?}"
    );
    let tier = db.fast_tier().unwrap();
    assert_eq!(tier.folder, Path::new("/fast"));
    assert!(tier.parts.log && tier.parts.pins);
    // Beside the owner.
    let reader = Reader::open_in(env(&disk), plain()).unwrap();
    assert_eq!(
        reader.snapshot().last(&stream()).unwrap()[0]
            .time
            .as_nanos(),
        499
    );
    assert!(check(env(&disk), plain()).unwrap().is_sound());
    // The database knows its tier by itself.
    let disk = killed(&disk, db);
    let db = Database::open_in(env(&disk), plain()).unwrap();
    assert!(db.recovery().events_replayed >= 100);
    expect(&db, 0..500);
}

#[test]
fn a_tier_is_taken_into_use_changed_and_left_and_nothing_is_lost() {
    let disk = FaultyFiles::new(2);
    let db = Database::open_in(env(&disk), plain()).unwrap();
    write(&db, 0..400).unwrap();
    let disk = killed(&disk, db);
    let parts = |parts| FastTier {
        folder: "/fast".into(),
        parts,
    };
    let stays = [
        Some(parts(LOG)),
        Some(parts(BUFFERS)),
        Some(parts(TierParts {
            log: true,
            pins: true,
            index: true,
            newest: true,
        })),
        Some(FastTier {
            folder: "/other".into(),
            parts: LOG,
        }),
        None,
        None,
        Some(parts(LOG)),
    ];
    let mut written = 400;
    for tier in stays {
        use_fast_tier(&env(&disk), &plain(), tier.as_ref()).unwrap();
        assert_eq!(fast_tier(&env(&disk), Path::new("/db")).unwrap(), tier);
        let db = Database::open_in(env(&disk), plain()).unwrap();
        expect(&db, 0..written);
        write(&db, written..written + 50).unwrap();
        written += 50;
        let log = tier.as_ref().filter(|tier| tier.parts.log);
        let log = log.map_or(PathBuf::from("/db/log"), |tier| tier.folder.join("log"));
        for folder in ["/db/log", "/fast/log", "/other/log"] {
            let holds = !files_below(&disk, folder).is_empty();
            assert_eq!(holds, Path::new(folder) == log, "{folder}, {tier:?}");
        }
        db.close().unwrap();
    }
    assert!(check(env(&disk), plain()).unwrap().is_sound());
    let none = Options {
        dir: "/nothing".into(),
        ..plain()
    };
    let error = use_fast_tier(&env(&disk), &none, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Rows are written, the tier taken into use by an opening, and left; gives how many rows were
/// acknowledged when it ended.
fn run_workload(disk: &FaultyFiles) -> (i64, Result<(), Error>) {
    let mut written = 400;
    let mut live = || {
        let mut step = |options: Options| {
            let db = Database::open_in(env(disk), options)?;
            for _ in 0..3 {
                write(&db, written..written + 20)?;
                written += 20;
            }
            db.close()
        };
        step(tiered())?;
        step(plain())?;
        use_fast_tier(&env(disk), &plain(), None)?;
        step(plain())?;
        step(Options {
            fast_parts: LOG,
            ..tiered()
        })
    };
    let ended = live();
    (written, ended)
}

fn before_the_tier() -> FaultyFiles {
    let disk = FaultyFiles::new(3);
    let db = Database::open_in(env(&disk), plain()).unwrap();
    write(&db, 0..300).unwrap();
    db.flush().unwrap();
    write(&db, 300..400).unwrap();
    killed(&disk, db)
}

#[test]
fn wherever_a_power_cut_falls_what_was_acknowledged_is_found() {
    let disk = before_the_tier();
    let begun = disk.operations();
    let (written, ended) = run_workload(&disk);
    ended.unwrap();
    assert_eq!(written, 640);
    let mut cut_off = 0;
    for cut in cuts(disk.operations() - begun, 5) {
        for seed in seeds(3) {
            let disk = before_the_tier();
            disk.crash_at(disk.operations() + cut);
            // Files that are closed last need no operation each time.
            let (written, ended) = run_workload(&disk);
            cut_off += usize::from(ended.is_err());
            let after = disk.after_crash(seed);
            for options in [plain(), tiered()] {
                let db = Database::open_in(env(&after), options).unwrap();
                let found = times(&db);
                let all: Vec<i64> = (0..found.len() as i64).collect();
                assert_eq!(found, all, "cut {cut}, seed {seed}");
                assert!(
                    (written..=written + 20).contains(&(found.len() as i64)),
                    "cut {cut}, seed {seed}: {} of {written}",
                    found.len()
                );
                db.close().unwrap();
            }
            assert!(check(env(&after), plain()).unwrap().is_sound());
        }
    }
    assert!(cut_off > 100, "{cut_off}");
}

/// Parts are changed in the tier that is used; gives how many rows were acknowledged.
fn run_part_changes(disk: &FaultyFiles) -> (i64, Result<(), Error>) {
    let mut written = 400;
    let mut live = || {
        for parts in [BUFFERS, LOG, BUFFERS, tiered().fast_parts] {
            let db = Database::open_in(
                env(disk),
                Options {
                    fast_parts: parts,
                    ..tiered()
                },
            )?;
            write(&db, written..written + 20)?;
            written += 20;
            db.close()?;
        }
        Ok(())
    };
    let ended = live();
    (written, ended)
}

#[test]
fn wherever_a_power_cut_falls_while_parts_change_what_was_acknowledged_is_found() {
    let disk = before_the_tier();
    let begun = disk.operations();
    let (written, ended) = run_part_changes(&disk);
    ended.unwrap();
    assert_eq!(written, 480);
    for cut in cuts(disk.operations() - begun, 3) {
        for seed in seeds(3) {
            let disk = before_the_tier();
            disk.crash_at(disk.operations() + cut);
            let (written, _) = run_part_changes(&disk);
            let after = disk.after_crash(seed);
            let db = Database::open_in(env(&after), plain());
            let db = db.unwrap_or_else(|error| panic!("cut {cut}, seed {seed}: {error}"));
            let found = times(&db);
            let all: Vec<i64> = (0..found.len() as i64).collect();
            assert_eq!(found, all, "cut {cut}, seed {seed}");
            let found = found.len() as i64;
            assert!(
                (written..=written + 20).contains(&found),
                "cut {cut}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_tier_that_is_missing_or_not_its_own_is_refused_and_nothing_is_changed() {
    let disk = FaultyFiles::new(4);
    filled(&disk).close().unwrap();
    let moved = |disk: &FaultyFiles, from: &str, to: &str| {
        copy(disk, from, to);
        lose(disk, from);
    };
    // Missing, and back.
    moved(&disk, "/fast", "/away");
    refused(Database::open_in(env(&disk), plain()), "is missing");
    refused(Database::open_in(env(&disk), tiered()), "is missing");
    assert_eq!(
        check(env(&disk), plain()).unwrap_err().kind(),
        ErrorKind::Tier
    );
    let error = repair(&env(&disk), &plain(), RepairMode::Act).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    moved(&disk, "/away", "/fast");
    expect(&Database::open_in(env(&disk), plain()).unwrap(), 0..500);

    // Of another database.
    let other = Options {
        dir: "/other".into(),
        ..tiered()
    };
    refused(
        Database::open_in(env(&disk), other),
        "belongs to the database in /db",
    );

    // Older than bulk, and bulk older than it.
    copy(&disk, "/fast", "/fast_before");
    copy(&disk, "/db", "/db_before");
    let db = Database::open_in(env(&disk), plain()).unwrap();
    write(&db, 500..600).unwrap();
    drop(db);
    for (part, before) in [("/fast", "/fast_before"), ("/db", "/db_before")] {
        let kept = format!("{part}_now");
        moved(&disk, part, &kept);
        copy(&disk, before, part);
        refused(Database::open_in(env(&disk), plain()), "do not match");
        lose(&disk, part);
        moved(&disk, &kept, part);
    }
    // Both from the same time are one database.
    lose(&disk, "/db");
    lose(&disk, "/fast");
    moved(&disk, "/db_before", "/db");
    moved(&disk, "/fast_before", "/fast");
    let db = Database::open_in(env(&disk), plain()).unwrap();
    expect(&db, 0..500);
}

#[test]
fn a_copy_of_one_tier_or_both_does_not_pass_for_the_database() {
    let disk = FaultyFiles::new(5);
    filled(&disk).close().unwrap();
    copy(&disk, "/db", "/clone");
    let clone = |fast: Option<&str>| Options {
        dir: "/clone".into(),
        fast_dir: fast.map(Into::into),
        ..small_options()
    };
    // Of bulk alone: the tier is that of the database.
    refused(Database::open_in(env(&disk), clone(None)), "adopt");
    refused(Database::open_in(env(&disk), clone(Some("/fast"))), "adopt");
    let error = adopt_fast_tier(&env(&disk), &clone(Some("/fast"))).unwrap_err();
    assert!(error.to_string().contains("is a copy of /db"), "{error}");
    // Of both: not by itself either, since it still names the tier of the database.
    copy(&disk, "/fast", "/clone_fast");
    refused(Database::open_in(env(&disk), clone(None)), "adopt");
    expect(&Database::open_in(env(&disk), plain()).unwrap(), 0..500);

    // What was moved as a whole is taken up when that is said.
    copy(&disk, "/db", "/moved");
    copy(&disk, "/fast", "/moved_fast");
    lose(&disk, "/db");
    lose(&disk, "/fast");
    let moved = Options {
        dir: "/moved".into(),
        fast_dir: Some("/moved_fast".into()),
        ..small_options()
    };
    assert!(Database::open_in(env(&disk), moved.clone()).is_err());
    adopt_fast_tier(&env(&disk), &moved).unwrap();
    let db = Database::open_in(env(&disk), moved).unwrap();
    expect(&db, 0..500);
    write(&db, 500..600).unwrap();
}

#[test]
fn a_database_and_its_tier_have_one_owner() {
    let disk = FaultyFiles::new(6);
    let db = filled(&disk);
    let error = Database::open_in(env(&disk), plain())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    for wanted in [
        None,
        db.fast_tier().map(|mut tier| {
            tier.folder = "/second".into();
            tier
        }),
    ] {
        let error = use_fast_tier(&env(&disk), &plain(), wanted.as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    }
    disk.create_dir_all(Path::new("/second")).unwrap();
    let held = disk.lock(Path::new("/second/lock"), "pid 1").unwrap();
    drop(db);
    let second = FastTier {
        folder: "/second".into(),
        parts: LOG,
    };
    let error = use_fast_tier(&env(&disk), &plain(), Some(&second)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(held);
    use_fast_tier(&env(&disk), &plain(), Some(&second)).unwrap();
    expect(&Database::open_in(env(&disk), plain()).unwrap(), 0..500);
}

#[test]
fn what_a_lost_tier_held_is_lost_and_told_and_the_rest_goes_on_in_bulk() {
    let disk = FaultyFiles::new(8);
    let db = filled(&disk);
    let disk = killed(&disk, db);
    // It is there: nothing is given up.
    let given_up = repair_without_fast_tier(&env(&disk), &plain(), RepairMode::Act);
    assert_eq!(given_up.unwrap_err().kind(), ErrorKind::Invalid);
    copy(&disk, "/fast", "/found_again");
    lose(&disk, "/fast");
    for mode in [RepairMode::DryRun, RepairMode::Act] {
        let report = repair_without_fast_tier(&env(&disk), &plain(), mode).unwrap();
        assert!(
            report.lost[0].contains("of the fast tier /fast"),
            "{report:#?}"
        );
        assert!(report.after.is_sound(), "{report:#?}");
        let known = fast_tier(&env(&disk), Path::new("/db")).unwrap();
        assert_eq!(known.is_some(), mode == RepairMode::DryRun);
    }
    let db = Database::open_in(env(&disk), plain()).unwrap();
    expect(&db, 0..400);
    write(&db, 400..450).unwrap();
    drop(db);
    // Should it turn up again, it is not taken for the tier of this database.
    copy(&disk, "/found_again", "/fast");
    let db = Database::open_in(env(&disk), plain()).unwrap();
    expect(&db, 0..450);
    drop(db);
    let opened = Database::open_in(env(&disk), tiered());
    refused(opened, "cannot become a fast tier");

    // A tier in which nothing was that bulk does not have costs nothing.
    let disk = FaultyFiles::new(9);
    filled(&disk).close().unwrap();
    lose(&disk, "/fast");
    let report = repair_without_fast_tier(&env(&disk), &plain(), RepairMode::Act).unwrap();
    assert_eq!(
        (report.findings.len(), report.lost.len()),
        (0, 0),
        "{report:#?}"
    );
    expect(&Database::open_in(env(&disk), plain()).unwrap(), 0..500);
    let again = repair_without_fast_tier(&env(&disk), &plain(), RepairMode::Act);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_backup_of_a_database_with_a_tier_is_a_database_without() {
    let disk = FaultyFiles::new(10);
    let db = filled(&disk);
    db.backup(Path::new("/backup")).unwrap();
    write(&db, 500..550).unwrap();
    backup(&env(&disk), &plain(), Path::new("/backup")).unwrap();
    let disk = killed(&disk, db);
    lose(&disk, "/db");
    lose(&disk, "/fast");
    assert!(
        restore(&env(&disk), Path::new("/backup"), &plain())
            .unwrap()
            .is_sound()
    );
    assert_eq!(fast_tier(&env(&disk), Path::new("/db")).unwrap(), None);
    let db = Database::open_in(env(&disk), tiered()).unwrap();
    expect(&db, 0..550);
}

#[test]
fn a_damaged_tier_is_mended_by_a_repair_where_it_lies() {
    let disk = FaultyFiles::new(11);
    let db = filled(&disk);
    let disk = killed(&disk, db);
    let log = files_below(&disk, "/fast/log");
    let (path, len) = log
        .iter()
        .map(|path| (path, disk.read_file(path).unwrap()))
        .find_map(|(path, bytes)| Some((path, bytes.iter().rposition(|b| *b != 0)? as u64)))
        .unwrap();
    disk.flip_bit(path, len / 2, 1).unwrap();
    let opened = Database::open_in(env(&disk), plain());
    if let Err(error) = opened {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("/fast/log"), "{error}");
    }
    let report = repair(&env(&disk), &plain(), RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{report:#?}");
    let db = Database::open_in(env(&disk), plain()).unwrap();
    assert!(times(&db).starts_with(&(0..400).collect::<Vec<i64>>()));
}

#[test]
fn a_folder_that_cannot_be_a_tier_is_refused() {
    let disk = FaultyFiles::new(12);
    let same = Options {
        fast_dir: Some("/db".into()),
        ..small_options()
    };
    let error = Database::open_in(env(&disk), same).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    disk.create_dir_all(Path::new("/fast/log")).unwrap();
    disk.write_file("/fast/log/notes.txt", b"mine").unwrap();
    refused(Database::open_in(env(&disk), tiered()), "notes.txt");
    let file = disk.open(Path::new("/fast/log/notes.txt"), OpenMode::Read);
    assert_eq!(file.unwrap().len().unwrap(), 4);
}

/// Files of this machine, the tier's written through a mapping: a tmpfs stands in for persistent
/// memory, where there is one.
#[test]
fn a_tier_that_is_written_as_memory_is_holds_what_was_acknowledged() {
    let Ok(fast) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        dir: dir.path().join("db"),
        fast_dir: Some(fast.path().join("tier")),
        ..small_options()
    };
    let mut written = 0;
    for _ in 0..3 {
        let db = Database::open(options.clone()).unwrap();
        expect(&db, 0..written);
        for _ in 0..40 {
            write(&db, written..written + 25).unwrap();
            written += 25;
        }
        db.flush().unwrap();
        write(&db, written..written + 25).unwrap();
        written += 25;
        // What stands in the log of the tier now is read there by another.
        let reader = Reader::open(options.clone()).unwrap();
        let last = reader.snapshot().last(&stream()).unwrap();
        assert_eq!(last[0].time.as_nanos(), written - 1);
        assert!(check(Env::system(), options.clone()).unwrap().is_sound());
        drop(db);
    }
    assert!(check(Env::system(), options.clone()).unwrap().is_sound());
    expect(&Database::open(options).unwrap(), 0..written);
}
