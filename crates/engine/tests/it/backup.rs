//! Backup and restore: at every point of an owner's life, cut at every operation, into older
//! backups, after a restore.

use crate::cuts::cuts;
use crate::reader::Hooked;
use crate::support::{
    Action, Content, Dice, Maker, Run, check, read_back, small_options, steps, workload,
};
use headwater_engine::{BackupReport, ErrorKind, Options, Result, backup, restore, verify_backup};
use headwater_io::{Env, FaultyFiles, Files};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn env(files: Arc<dyn Files>) -> Env {
    Env {
        files,
        ..Env::memory()
    }
}

fn back_up(disk: &FaultyFiles) -> Result<BackupReport> {
    backup(
        &env(Arc::new(disk.clone())),
        &small_options(),
        Path::new("/backup"),
    )
}

fn at(dir: &str) -> Options {
    Options {
        dir: dir.into(),
        ..small_options()
    }
}

/// Restores the backup, checks it, and reads what it holds.
fn restored(disk: &FaultyFiles, dir: &str) -> Content {
    let env = env(Arc::new(disk.clone()));
    let report = verify_backup(&env, Path::new("/backup")).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
    let report = restore(&env, Path::new("/backup"), &at(dir)).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
    let options = at(dir);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let content = read_back(&db);
    db.close().unwrap();
    content
}

/// Steps acknowledged and begun when it was taken, and what it gave.
type BackupOutcome = (usize, usize, BackupReport, Content);

#[test]
fn a_backup_at_every_point_of_an_owners_life_holds_what_was_acknowledged() {
    let options = small_options();
    let actions = workload(71, 60, 7, 17, 25);
    let all = steps(&actions);
    let disk = FaultyFiles::new(1);
    let done = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let results: Arc<Mutex<Vec<BackupOutcome>>> = Arc::default();
    let hook = {
        let (disk, done, results) = (disk.clone(), Arc::clone(&done), Arc::clone(&results));
        let operations = AtomicUsize::new(0);
        Arc::new(move || {
            let number = operations.fetch_add(1, Ordering::AcqRel);
            let least = done[0].load(Ordering::Acquire);
            if number.is_multiple_of(7) && least > 0 {
                let most = done[1].load(Ordering::Acquire);
                let report = back_up(&disk).unwrap();
                let content = restored(&disk, &format!("/restored/{number}"));
                results.lock().unwrap().push((least, most, report, content));
            }
        })
    };
    let files = Hooked {
        disk: Arc::new(disk.clone()),
        before_change: Some(hook),
        before_look: None,
    };
    let mut run = Run::new(Arc::new(files), &options);
    let mut db = run.open().unwrap();
    for action in &actions {
        let action = std::slice::from_ref(action);
        done[1].fetch_add(steps(action).len(), Ordering::AcqRel);
        db = run.play_on(db, action).unwrap();
        done[0].fetch_add(steps(action).len(), Ordering::AcqRel);
    }
    // From within the owner, and without the hook.
    done[0].store(0, Ordering::Release);
    let report = db.backup(Path::new("/backup")).unwrap();
    let content = restored(&disk, "/restored/last");
    assert_eq!(
        content.steps_found(&all, all.len(), all.len()),
        Ok(all.len())
    );
    let results = std::mem::take(&mut *results.lock().unwrap());
    assert!(results.len() > 60, "{}", results.len());
    let (mut copied, mut held, mut newest) = (0, 0, 0);
    for (number, (least, most, report, content)) in (1..).zip(results) {
        assert_eq!(report.number, number);
        newest = content.steps_found(&all, least.max(newest), most).unwrap();
        copied += report.bytes_copied;
        held += report.bytes;
    }
    assert_eq!(newest.max(all.len()), all.len());
    // Nothing happened since the last but the metadata are copied whole.
    let again = db.backup(Path::new("/backup")).unwrap();
    assert_eq!(again.number, report.number + 1);
    assert!(again.bytes_copied < again.bytes, "{again:?}");
    assert!(copied < held, "{copied} {held}");
}

#[test]
fn a_power_cut_in_a_backup_leaves_the_older_one() {
    let options = small_options();
    let actions = workload(72, 70, 9, 30, 0);
    let all = steps(&actions);
    let (first, rest) = actions.split_at(40);
    let prepare = |seed: u64, with_older: bool| {
        let disk = FaultyFiles::new(seed);
        let mut run = Run::new(Arc::new(disk.clone()), &options);
        let db = run.open().unwrap();
        let db = run.play_on(db, first).unwrap();
        if with_older {
            back_up(&disk).unwrap();
        }
        let db = run.play_on(db, rest).unwrap();
        (disk, db)
    };
    let mut dice = Dice::new(5);
    for with_older in [false, true] {
        let (disk, db) = prepare(1, with_older);
        let before = disk.operations();
        back_up(&disk).unwrap();
        let operations = disk.operations() - before;
        drop(db);
        assert!(operations > 30);
        for cut in cuts(operations, if with_older { 1 } else { 5 }) {
            let (disk, db) = prepare(1, with_older);
            disk.crash_at(disk.operations() + cut);
            let cut_short = back_up(&disk);
            assert!(cut_short.is_err(), "cut {cut}");
            drop(db);
            for state in [0, 1, 2 + dice.next() / 2] {
                let disk = disk.after_crash(state);
                let what = format!("cut {cut} seed {state} {:?}", disk.interrupted());
                let older = steps(first).len();
                if with_older {
                    let found = restored(&disk, "/old").steps_found(&all, older, all.len());
                    let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert!(found == older || found == all.len(), "{what}: {found}");
                }
                // The next backup is whole.
                back_up(&disk).unwrap_or_else(|e| panic!("{what}: {e}"));
                let found = restored(&disk, "/new").steps_found(&all, all.len(), all.len());
                assert_eq!(found, Ok(all.len()), "{what}");
            }
        }
    }
}

#[test]
fn after_a_power_cut_a_restore_does_not_open_and_the_source_stays_as_it_is() {
    let options = small_options();
    let actions = workload(73, 50, 9, 30, 0);
    let disk = FaultyFiles::new(1);
    Run::new(Arc::new(disk.clone()), &options)
        .play(&actions)
        .unwrap();
    let before = disk.files();
    back_up(&disk).unwrap();
    let of_db = |files: Vec<(std::path::PathBuf, u64)>| -> Vec<_> {
        files
            .into_iter()
            .filter(|(p, _)| p.starts_with("/db"))
            .collect()
    };
    assert_eq!(of_db(disk.files()), of_db(before));
    let disk = disk.after_crash(1);
    let base = disk.operations();
    let whole = disk.after_crash(1);
    restored(&whole, "/restored");
    let operations = whole.operations() - base;
    for cut in 0..operations {
        let disk = disk.after_crash(1);
        disk.crash_at(disk.operations() + cut);
        let options = at("/restored");
        if restore(&env(Arc::new(disk.clone())), Path::new("/backup"), &options).is_ok() {
            continue;
        }
        let disk = disk.after_crash(cut);
        let run = Run::new(Arc::new(disk.clone()), &options);
        // Either nothing is there yet, or it does not open, or all of it is there.
        match run.open() {
            Ok(db) => {
                let found = read_back(&db).steps_found(&steps(&actions), 0, usize::MAX);
                let all = steps(&actions).len();
                assert!(found == Ok(all) || found == Ok(0), "cut {cut}: {found:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "cut {cut}: {error}"),
        }
    }
}

#[test]
fn an_owner_that_goes_on_in_the_midst_of_a_backup() {
    let options: &'static Options = Box::leak(Box::new(small_options()));
    for seed in 0..6 {
        let actions = workload(80 + seed, 120, 6, 25, 0);
        let all = steps(&actions);
        let disk = FaultyFiles::new(seed);
        let mut run = Run::new(Arc::new(disk.clone()), options);
        let db = run.open().unwrap();
        let db = run.play_on(db, &actions[..40]).unwrap();
        let state = Arc::new(Mutex::new((run, Some(db), 40, Dice::new(seed))));
        let hook = {
            let (state, actions) = (Arc::clone(&state), actions.clone());
            Arc::new(move || {
                let (run, db, at, dice) = &mut *state.lock().unwrap();
                if dice.chance(2) && *at < actions.len() {
                    let next = run
                        .play_on(db.take().unwrap(), &actions[*at..=*at])
                        .unwrap();
                    *db = Some(next);
                    *at += 1;
                }
            })
        };
        let files = Hooked {
            disk: Arc::new(disk.clone()),
            before_change: None,
            before_look: Some(hook),
        };
        for round in 0.. {
            let begun = state.lock().unwrap().2;
            if begun >= actions.len() || round > 40 {
                break;
            }
            let taken = backup(&env(Arc::new(files.clone())), options, Path::new("/backup"));
            match taken {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    continue;
                }
            }
            let ended = state.lock().unwrap().2;
            let content = restored(&disk, &format!("/restored/{round}"));
            let (least, most) = (
                steps(&actions[..begun]).len(),
                steps(&actions[..ended]).len(),
            );
            content
                .steps_found(&all, least, most)
                .unwrap_or_else(|e| panic!("seed {seed} round {round}: {e}"));
        }
    }
}

/// After a restore the database goes on in another way than the one that was lost: names are the
/// same, bytes are not.
#[test]
fn a_restored_database_goes_on_and_is_backed_up_into_the_same_folder() {
    let disk = FaultyFiles::new(2);
    let options = small_options();
    let actions = workload(74, 60, 9, 30, 0);
    let (first, rest) = actions.split_at(30);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let db = run.play_on(db, first).unwrap();
    back_up(&disk).unwrap();
    let env = env(Arc::new(disk.clone()));
    let restored_options = at("/restored");
    assert!(
        restore(&env, Path::new("/backup"), &restored_options)
            .unwrap()
            .is_sound()
    );
    let db = run.play_on(db, rest).unwrap();
    back_up(&disk).unwrap();
    drop(db);
    let mut maker = Maker::new(9);
    let other: Vec<Action> = (0..20)
        .map(|i| match i % 5 {
            4 => Action::Flush,
            _ => Action::Write(maker.events(6, 80)),
        })
        .collect();
    let mut second = Run::new(Arc::new(disk.clone()), &restored_options);
    let db = second.open().unwrap();
    let db = second.play_on(db, &other).unwrap();
    db.backup(Path::new("/backup")).unwrap();
    let mut all = steps(first);
    all.extend(steps(&other));
    let content = restored(&disk, "/again");
    assert_eq!(
        content.steps_found(&all, all.len(), all.len()),
        Ok(all.len())
    );
}

#[test]
fn what_is_no_backup_of_this_database_is_refused() {
    let disk = FaultyFiles::new(3);
    let options = small_options();
    assert_eq!(back_up(&disk).unwrap_err().kind(), ErrorKind::NotFound);
    let disk = FaultyFiles::new(3);
    Run::new(Arc::new(disk.clone()), &options)
        .play(&workload(75, 20, 6, 0, 0))
        .unwrap();
    let env = env(Arc::new(disk.clone()));
    let into = |dir: &str| backup(&env, &options, Path::new(dir)).map_err(|e| e.kind());
    assert_eq!(into("/db"), Err(ErrorKind::Invalid));
    disk.write_file("/other/file", b"text").unwrap();
    assert_eq!(into("/other"), Err(ErrorKind::Invalid));
    assert!(into("/backup").is_ok());
    // Another database, even with the same content.
    let mut other = Run::new(Arc::new(disk.clone()), &options);
    let other_options = at("/db2");
    other.options = &other_options;
    other.env.chance = Arc::new(headwater_io::SeededChance::new(99));
    other.play(&workload(75, 20, 6, 0, 0)).unwrap();
    let error = backup(&env, &other_options, Path::new("/backup")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("another database"), "{error}");
    let error = restore(&env, Path::new("/backup"), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let error = restore(&env, Path::new("/nothing"), &at("/new")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(check(Arc::new(disk), &options).is_sound());
}

#[test]
fn damage_of_a_backup_is_found() {
    let disk = FaultyFiles::new(4);
    let options = small_options();
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let db = run.play_on(db, &workload(76, 40, 6, 0, 0)).unwrap();
    back_up(&disk).unwrap();
    drop(db);
    let files: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(p, len)| p.starts_with("/backup") && !p.ends_with("lock") && *len > 0)
        .collect();
    assert!(files.len() > 4);
    for (number, (path, len)) in files.into_iter().enumerate() {
        let disk = disk.after_crash(1);
        disk.flip_bit(&path, len / 2, 3).unwrap();
        let env = env(Arc::new(disk.clone()));
        match verify_backup(&env, Path::new("/backup")) {
            Ok(report) => {
                assert!(!report.is_sound(), "{}", path.display());
                assert_eq!(report.damages[0].file, path);
            }
            // The only manifest.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
        let error = restore(&env, Path::new("/backup"), &at(&format!("/r{number}"))).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound),
            "{error}"
        );
    }
}
