//! The layout of tiers changed while the database is open: whoever reads or writes goes on, and
//! whenever power is cut or something fails, what was acknowledged is found once, in one of the two
//! layouts.

use crate::cuts::{cuts, seeds};
use crate::pump::{stream, times, write};
use crate::support::small_options;
use headwater_engine::{
    Database, Error, ErrorKind, FastTier, Options, ScanSpec, TierParts, check, fast_tier,
    use_fast_tier,
};
use headwater_io::{
    Env, FaultKind, FaultyFiles, Files, ManualClock, Media, NoThreads, SeededChance, SystemThreads,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

fn env(disk: &FaultyFiles) -> Env {
    static LIVES: AtomicU64 = AtomicU64::new(1);
    Env {
        files: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
        // Every process draws other numbers.
        chance: Arc::new(SeededChance::new(LIVES.fetch_add(1, Ordering::Relaxed))),
        threads: Arc::new(NoThreads),
        ..Env::memory()
    }
}

fn options() -> Options {
    small_options()
}

fn open(disk: &FaultyFiles) -> Database {
    Database::open_in(env(disk), options()).unwrap()
}

fn tier(folder: &str, parts: &str) -> Option<FastTier> {
    Some(FastTier {
        folder: folder.into(),
        parts: parts.parse().unwrap(),
    })
}

/// Every kind of change: into a tier, other parts of it, another one, and out of it.
fn layouts() -> Vec<Option<FastTier>> {
    vec![
        tier("/fast", "pins"),
        tier("/fast", "log,buffers"),
        tier("/fast", "log,index,newest"),
        tier("/other", "log,newest"),
        tier("/other", "newest"),
        tier("/other", "log,index"),
        None,
        tier("/fast", "log"),
        tier("/fast", "index,newest"),
        tier("/other", "newest"),
        None,
    ]
}

fn files_below(disk: &FaultyFiles, folder: &str) -> Vec<PathBuf> {
    let all = disk.files().into_iter().map(|(path, _)| path);
    all.filter(|path| path.starts_with(folder) && !path.ends_with("lock"))
        .collect()
}

fn expect(db: &Database, rows: i64) {
    assert_eq!(times(db), (0..rows).collect::<Vec<i64>>());
}

#[test]
fn a_running_database_goes_through_all_layouts_and_everybody_goes_on() {
    let disk = FaultyFiles::new(1);
    let db = open(&disk);
    write(&db, 0..300).unwrap();
    let mut written = 300;
    let mut snapshots = Vec::new();
    for wanted in layouts() {
        snapshots.push((written, db.snapshot().unwrap()));
        db.move_tier(wanted.as_ref()).unwrap();
        assert_eq!(db.fast_tier(), wanted);
        assert_eq!(fast_tier(&env(&disk), Path::new("/db")).unwrap(), wanted);
        // Once more is no change.
        db.move_tier(wanted.as_ref()).unwrap();
        expect(&db, written);
        write(&db, written..written + 50).unwrap();
        written += 50;
        expect(&db, written);
        db.maintain().unwrap();
        let has = |part: fn(TierParts) -> bool| {
            let tier = wanted.as_ref().filter(|tier| part(tier.parts));
            tier.map(|tier| tier.folder.clone())
        };
        let log = has(|parts| parts.log).unwrap_or_else(|| "/db".into());
        for folder in ["/db", "/fast", "/other"] {
            let of = |name: &str| !files_below(&disk, &format!("{folder}/{name}")).is_empty();
            let path = PathBuf::from(folder);
            assert_eq!(of("log"), path == log, "{folder}, {wanted:?}");
            let index = has(|parts| parts.index);
            assert_eq!(of("index"), Some(&path) == index.as_ref(), "{wanted:?}");
            let newest = has(|parts| parts.newest);
            assert_eq!(of("newest"), Some(&path) == newest.as_ref(), "{wanted:?}");
            if path != log && wanted.as_ref().is_none_or(|tier| tier.folder != path) {
                let left = files_below(&disk, folder);
                assert!(folder == "/db" || left.is_empty(), "{left:?}");
            }
        }
        let stats = db.stats().unwrap();
        assert_eq!(
            stats.fast_bytes > 0,
            wanted.is_some() && !only_pins(&wanted)
        );
        // Who had a look before sees what he saw.
        for (rows, snapshot) in &snapshots {
            let scan = snapshot.scan(&stream(), &ScanSpec::default()).unwrap();
            let found: usize = scan.map(|chunk| chunk.unwrap().times.len()).sum();
            assert_eq!(found as i64, *rows);
        }
    }
    drop(snapshots);
    // What was written last in the last layout is in the log alone.
    disk.crash_now();
    drop(db);
    let disk = disk.after_crash(3);
    let db = open(&disk);
    expect(&db, written);
    db.close().unwrap();
    assert!(check(env(&disk), options()).unwrap().is_sound());
}

fn only_pins(tier: &Option<FastTier>) -> bool {
    tier.as_ref()
        .is_some_and(|tier| tier.parts.to_string() == "pins")
}

#[test]
fn the_layout_that_an_opening_finds_is_the_last_and_can_be_changed_by_it() {
    for wanted in layouts() {
        let disk = FaultyFiles::new(2);
        let db = open(&disk);
        write(&db, 0..100).unwrap();
        db.move_tier(tier("/fast", "log,newest").as_ref()).unwrap();
        write(&db, 100..200).unwrap();
        db.move_tier(wanted.as_ref()).unwrap();
        write(&db, 200..300).unwrap();
        db.close().unwrap();
        drop(db);
        let db = open(&disk);
        assert_eq!(db.fast_tier(), wanted);
        expect(&db, 300);
        drop(db);
        use_fast_tier(&env(&disk), &options(), tier("/third", "log").as_ref()).unwrap();
        let db = open(&disk);
        expect(&db, 300);
        write(&db, 300..400).unwrap();
        db.move_tier(wanted.as_ref()).unwrap();
        expect(&db, 400);
    }
}

/// Gives how many rows were acknowledged.
fn run_workload(env: &Env) -> (i64, Result<(), Error>) {
    let mut written = 0;
    let mut live = || {
        let db = Database::open_in(env.clone(), options())?;
        for wanted in layouts() {
            for _ in 0..2 {
                write(&db, written..written + 20)?;
                written += 20;
            }
            db.move_tier(wanted.as_ref())?;
            write(&db, written..written + 20)?;
            written += 20;
        }
        db.close()
    };
    let ended = live();
    (written, ended)
}

/// What was acknowledged is there, once, and the database goes on in whichever layout it is.
fn goes_on(env: &dyn Fn() -> Env, written: i64, what: &str) {
    let db = Database::open_in(env(), options());
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = times(&db);
    let rows = found.len() as i64;
    assert_eq!(found, (0..rows).collect::<Vec<i64>>(), "{what}");
    assert!(
        (written..=written + 20).contains(&rows),
        "{what}: {rows} of {written}"
    );
    for wanted in [tier("/fast", "log,newest"), tier("/other", "log"), None] {
        db.move_tier(wanted.as_ref())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    write(&db, rows..rows + 20).unwrap();
    expect(&db, rows + 20);
    db.close().unwrap();
    drop(db);
    assert!(check(env(), options()).unwrap().is_sound(), "{what}");
}

#[test]
fn wherever_a_power_cut_falls_in_a_move_what_was_acknowledged_is_found_once() {
    let disk = FaultyFiles::new(3);
    let (written, ended) = run_workload(&env(&disk));
    ended.unwrap();
    let mut cut_off = 0;
    for cut in cuts(disk.operations(), 7) {
        for seed in seeds(2) {
            let disk = FaultyFiles::new(3);
            disk.crash_at(cut);
            let (written, ended) = run_workload(&env(&disk));
            cut_off += usize::from(ended.is_err());
            let after = disk.after_crash(seed + cut);
            goes_on(&|| env(&after), written, &format!("cut {cut}, seed {seed}"));
        }
    }
    assert!(cut_off > 100, "{cut_off} of {written}");
}

/// The tiers on a medium of their own.
fn on_two(bulk: &FaultyFiles, fast: &FaultyFiles) -> Env {
    Env {
        media: Media {
            fast: Some(Arc::new(fast.clone())),
            ..Media::default()
        },
        ..env(bulk)
    }
}

#[test]
fn after_a_power_cut_on_either_medium_first_what_was_acknowledged_is_found_once() {
    let disks = || (FaultyFiles::new(4), FaultyFiles::new(5));
    let (bulk, fast) = disks();
    run_workload(&on_two(&bulk, &fast)).1.unwrap();
    let of_fast = cuts(fast.operations(), 3).map(|cut| (true, cut));
    let of_bulk = cuts(bulk.operations(), 3).map(|cut| (false, cut));
    for (is_fast, cut) in of_fast.chain(of_bulk) {
        let (bulk, fast) = disks();
        match is_fast {
            true => fast.crash_at(cut),
            false => bulk.crash_at(cut),
        }
        let (written, _) = run_workload(&on_two(&bulk, &fast));
        bulk.crash_now();
        fast.crash_now();
        let (bulk, fast) = (bulk.after_crash(cut), fast.after_crash(cut + 1));
        let what = format!("fast {is_fast}, cut {cut}");
        goes_on(&|| on_two(&bulk, &fast), written, &what);
    }
}

#[test]
fn whatever_fails_in_a_move_the_layout_stays_or_nothing_is_written_any_more() {
    let before = || {
        let disk = FaultyFiles::new(6);
        let db = open(&disk);
        write(&db, 0..200).unwrap();
        db.move_tier(tier("/fast", "log,newest").as_ref()).unwrap();
        write(&db, 200..300).unwrap();
        (disk, db)
    };
    let (disk, db) = before();
    let begun = disk.operations();
    db.move_tier(tier("/other", "log,index").as_ref()).unwrap();
    let operations = disk.operations() - begun;
    let mut stayed = 0;
    for kind in [FaultKind::WriteError, FaultKind::SyncError] {
        for at in 0..operations {
            let (disk, db) = before();
            disk.fail_next(kind, at);
            let wanted = tier("/other", "log,index");
            let moved = db.move_tier(wanted.as_ref());
            disk.heal();
            let mut rows = 300;
            if write(&db, rows..rows + 20).is_ok() {
                rows += 20;
                let now = if moved.is_ok() {
                    wanted
                } else {
                    tier("/fast", "log,newest")
                };
                stayed += usize::from(moved.is_err());
                assert_eq!(db.fast_tier(), now, "{kind:?} at {at}");
                expect(&db, rows);
            } else if let Err(error) = &moved {
                assert!(
                    matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed),
                    "{kind:?} at {at}: {error}"
                );
            }
            disk.crash_now();
            drop(db);
            let after = disk.after_crash(at);
            let db = open(&after);
            let found = times(&db);
            assert!(found.len() as i64 >= rows, "{kind:?} at {at}");
            expect(&db, found.len() as i64);
        }
    }
    assert!(stayed > 0);
}

#[test]
fn a_tier_that_is_full_of_another_database_or_in_use_is_refused_and_everything_stays() {
    let (bulk, fast) = (FaultyFiles::new(7), FaultyFiles::new(8));
    let db = Database::open_in(on_two(&bulk, &fast), options()).unwrap();
    write(&db, 0..100).unwrap();
    let refused = |wanted: Option<FastTier>, kind: ErrorKind, word: &str| {
        let error = db.move_tier(wanted.as_ref()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(db.fast_tier(), None);
    };
    // Full.
    fast.capacity(12 << 10);
    refused(tier("/fast", "log,newest"), ErrorKind::Full, "no space");
    fast.capacity(u64::MAX);
    let left = files_below(&fast, "/fast");
    assert!(left.is_empty(), "{left:?}");
    // Of another database, which is open or not.
    let other = Options {
        dir: "/another".into(),
        fast_dir: Some("/taken".into()),
        ..options()
    };
    let open_other = || Database::open_in(on_two(&bulk, &fast), other.clone()).unwrap();
    let of_other = open_other();
    write(&of_other, 0..10).unwrap();
    refused(tier("/taken", "log"), ErrorKind::Locked, "in use");
    of_other.close().unwrap();
    drop(of_other);
    refused(tier("/taken", "log"), ErrorKind::Tier, "belongs to");
    expect(&open_other(), 10);
    // Not empty, and no folder of its own.
    fast.create_dir_all(Path::new("/full/log")).unwrap();
    fast.write_file(Path::new("/full/log/1.log"), b"rows")
        .unwrap();
    refused(tier("/full", "log"), ErrorKind::Tier, "empty folder");
    refused(tier("/db", "log"), ErrorKind::Invalid, "folder of its own");
    refused(tier("/", "log"), ErrorKind::Invalid, "folder of its own");
    // A folder that cannot be made.
    fast.write_file(Path::new("/file"), b"no folder").unwrap();
    refused(tier("/file", "log"), ErrorKind::Io, "/file");
    write(&db, 100..200).unwrap();
    expect(&db, 200);
    db.move_tier(tier("/fast", "log").as_ref()).unwrap();
    write(&db, 200..300).unwrap();
    // The next one is full: it stays in this one.
    let held: u64 = fast.files().iter().map(|(_, len)| len).sum();
    fast.capacity(held + 4096);
    let error = db.move_tier(tier("/second", "log").as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    fast.capacity(u64::MAX);
    assert_eq!(db.fast_tier(), tier("/fast", "log"));
    write(&db, 300..400).unwrap();
    expect(&db, 400);
}

#[test]
fn a_copy_of_the_log_is_made_where_it_moved_to_and_ends_where_it_left() {
    let disk = FaultyFiles::new(9);
    let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
    let env = Env {
        clock: Arc::<ManualClock>::clone(&clock),
        ..env(&disk)
    };
    let mirrored = Options {
        log_mirror: Some(Duration::from_secs(1)),
        ..options()
    };
    let db = Database::open_in(env, mirrored).unwrap();
    write(&db, 0..100).unwrap();
    db.move_tier(tier("/fast", "log").as_ref()).unwrap();
    write(&db, 100..150).unwrap();
    clock.advance(Duration::from_secs(1));
    write(&db, 150..200).unwrap();
    assert_eq!(db.stats().unwrap().log_mirror_behind_bytes, 0);
    assert!(!files_below(&disk, "/db/log").is_empty());
    db.move_tier(tier("/other", "log").as_ref()).unwrap();
    write(&db, 200..250).unwrap();
    clock.advance(Duration::from_secs(1));
    write(&db, 250..300).unwrap();
    assert_eq!(db.stats().unwrap().log_mirror_behind_bytes, 0);
    // The tier is lost with the power: the copy has all.
    disk.crash_now();
    drop(db);
    let after = disk.after_crash(1);
    for path in files_below(&after, "/other") {
        after.vanish(&path).unwrap();
    }
    let mode = headwater_engine::RepairMode::Act;
    headwater_engine::repair_without_fast_tier(&self::env(&after), &options(), mode).unwrap();
    let db = open(&after);
    expect(&db, 300);
    db.move_tier(tier("/other", "log").as_ref()).unwrap();
    db.move_tier(None).unwrap();
    write(&db, 300..310).unwrap();
    expect(&db, 310);
}

#[test]
fn writers_and_readers_on_threads_go_on_while_layouts_change() {
    let disk = FaultyFiles::new(10);
    let env = Env {
        threads: Arc::new(SystemThreads),
        ..env(&disk)
    };
    let db = Database::open_in(env, options()).unwrap();
    let (acknowledged, is_over) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let from = acknowledged.load(Ordering::Acquire);
                match write(&db, from..from + 5) {
                    Ok(()) => acknowledged.store(from + 5, Ordering::Release),
                    // Memory is short for a moment: nothing of it was taken in.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let known = acknowledged.load(Ordering::Acquire);
                let found = times(&db);
                assert!(found.len() as i64 >= known);
                assert_eq!(found, (0..found.len() as i64).collect::<Vec<i64>>());
            }
        });
        let moves = || {
            for wanted in layouts() {
                db.move_tier(wanted.as_ref())?;
            }
            Ok::<(), Error>(())
        };
        let moved = moves();
        is_over.store(true, Ordering::Release);
        moved.unwrap();
    });
    let rows = acknowledged.into_inner();
    disk.crash_now();
    drop(db);
    let db = open(&disk.after_crash(1));
    expect(&db, rows);
}
