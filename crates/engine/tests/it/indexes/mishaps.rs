//! Indexes whose making is ended, whose files are damaged or gone, whose table is dropped.

use super::{
    SECOND, assert_agree, build, equal, filter, found, index, run, scan, scattered, spec, stream,
    write,
};
use crate::support::{assert_sound, check, small_options};
use headwater_engine::{
    Comparison, Database, ErrorKind, IndexBudget, IndexPolicy, Options, Reader, RepairMode,
    TableSpec, backup, repair, restore,
};
use headwater_io::FaultyFiles;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn an_index_that_a_full_disk_stopped_goes_on_when_there_is_room() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        reserve_bytes: 64 << 10,
        ..small_options()
    };
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..3000).map(|n| (n * SECOND, vec![("a", scattered(n, 3000).into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    let used: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
    disk.capacity(used + 2048);
    let failed = db
        .build_index("a", &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Full, "{failed}");
    // What is kept for writes is still there: they go on.
    write(
        &db,
        &name,
        [(5000 * SECOND, vec![("a", 1i64.into())])].into_iter(),
    );
    assert_agree(&db);
    disk.capacity(u64::MAX);
    build(&db, "a");
    assert_agree(&db);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn an_index_goes_with_its_table_also_while_it_is_made() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    let rows =
        |from: i64| (from..from + 500).map(|n| (n * SECOND, vec![("a", scattered(n, 500).into())]));
    write(&db, &stream("1"), rows(0));
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    let mut asked = 0;
    let ended = db.build_index("a", &mut |_| {
        asked += 1;
        if asked == 2 {
            db.drop_table("t").unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(db.indexes().is_empty());
    // Another of the same name is another one.
    write(&db, &stream("1"), rows(7));
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    assert_agree(&db);
    assert_eq!(index(&db, "a").entries, 500);
    db.drop_index("a").unwrap();
    assert_eq!(db.drop_index("a").unwrap_err().kind(), ErrorKind::NotFound);
    db.maintain().unwrap();
    db.close().unwrap();
    drop(db);
    let left = runs_on(&disk);
    assert!(left.is_empty(), "{left:?}");
}

fn runs_on(disk: &FaultyFiles) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files
        .filter(|path| path.extension().is_some_and(|e| e == "idx"))
        .collect()
}

#[test]
fn what_was_begun_goes_on_later_also_after_reopening() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    for id in ["1", "2", "3"] {
        write(
            &db,
            &stream(id),
            (0..900).map(|n| (n * 60 * SECOND, vec![("a", scattered(n, 900).into())])),
        );
    }
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    let mut asked = 0;
    let mut two = |_: &_| {
        asked += 1;
        if asked > 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    assert!(!db.build_index("a", &mut two).unwrap());
    let begun = index(&db, "a");
    assert!(begun.progress.partitions_complete > 0, "{begun:?}");
    assert!(
        begun.progress.partitions_complete < begun.progress.partitions,
        "{begun:?}"
    );
    assert_agree(&db);
    drop(db);
    let db = run(&disk, &options).open().unwrap();
    assert_eq!(index(&db, "a").name, "a");
    build(&db, "a");
    let whole = index(&db, "a");
    assert_eq!(whole.entries, 2700);
    assert_agree(&db);
    // Nothing is left to do: nothing is written.
    let operations = disk.operations();
    build(&db, "a");
    assert_eq!(disk.operations(), operations);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &options);
}

#[test]
fn a_damaged_run_changes_no_answer_and_is_made_again() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..800).map(|n| (n * SECOND, vec![("a", scattered(n, 800).into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    db.close().unwrap();
    drop(db);
    let files = runs_on(&disk);
    assert!(files.len() > 2, "{files:?}");
    // The first block of one, the front of another; a third is gone.
    disk.flip_bit(&files[0], 30, 3).unwrap();
    let len = disk.read_file(&files[1]).unwrap().len() as u64;
    disk.flip_bit(&files[1], len - 4, 3).unwrap();
    disk.vanish(&files[2]).unwrap();
    let report = check(Arc::new(disk.clone()), &options);
    assert_eq!(report.damages.len(), 2, "{:?}", report.damages);
    let db = run(&disk, &options).open().unwrap();
    let snapshot = db.snapshot().unwrap();
    for value in [1i64, 77, 799] {
        assert_eq!(found(&db, &snapshot, &name, &equal("a", value)), 1);
    }
    let all = vec![filter("a", Comparison::GreaterOrEqual, 0i64)];
    assert_eq!(found(&db, &snapshot, &name, &all), 800);
    build(&db, "a");
    assert_agree(&db);
    assert_eq!(index(&db, "a").entries, 800);
    db.close().unwrap();
    drop((db, snapshot));
    assert_sound(&disk, &options);
}

#[test]
fn a_run_that_says_something_untrue_is_told_by_a_check() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let make = |value: i64| {
        let disk = FaultyFiles::new(1);
        let db = run(&disk, &options).open().unwrap();
        let rows = (0..50).map(|n| (n * SECOND, vec![("a", (n + value).into())]));
        write(&db, &stream("1"), rows);
        db.flush().unwrap();
        db.create_index(&spec("a", &["a"])).unwrap();
        build(&db, "a");
        db.close().unwrap();
        drop(db);
        disk
    };
    // The run of another database with the same leaves and other values: only its front is the
    // same.
    let (mine, other) = (make(100), make(101));
    drop(disk);
    let file = runs_on(&mine).remove(0);
    mine.write_file(&file, other.read_file(&file).unwrap())
        .unwrap();
    let report = check(Arc::new(mine.clone()), &options);
    assert!(!report.is_sound());
    // A repair has it made again.
    let env = run(&mine, &options).env;
    let told = repair(&env, &options, RepairMode::DryRun).unwrap();
    assert!(
        !told.findings.is_empty() && told.after.is_sound(),
        "{told:?}"
    );
    let done = repair(&env, &options, RepairMode::Act).unwrap();
    assert!(done.after.is_sound() && done.lost.is_empty(), "{done:?}");
    let db = run(&mine, &options).open().unwrap();
    assert_eq!(index(&db, "a").entries, 0);
    build(&db, "a");
    assert_agree(&db);
    db.close().unwrap();
    drop(db);
    assert_sound(&mine, &options);
}

#[test]
fn a_backup_has_the_definitions_and_what_is_restored_makes_the_runs() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..500).map(|n| (n * SECOND, vec![("a", scattered(n, 500).into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    let env = run(&disk, &options).env;
    backup(&env, &options, Path::new("/kept")).unwrap();
    db.close().unwrap();
    drop(db);
    let again = Options {
        dir: "/again".into(),
        ..options.clone()
    };
    restore(&env, Path::new("/kept"), &again).unwrap();
    let report = headwater_engine::check(env.clone(), again.clone()).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let db = Database::open_in(env, again.clone()).unwrap();
    assert_eq!(index(&db, "a").entries, 0);
    assert_agree(&db);
    build(&db, "a");
    assert_eq!(index(&db, "a").entries, 500);
    assert_agree(&db);
    db.close().unwrap();
    drop(db);
    assert_sound(&disk, &again);
}

#[test]
fn readers_beside_the_owner_find_the_same() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let run = run(&disk, &options);
    let db = run.open().unwrap();
    let name = stream("1");
    write(
        &db,
        &name,
        (0..500).map(|n| (n * SECOND, vec![("a", scattered(n, 500).into())])),
    );
    db.flush().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    let reader = Reader::open_in(run.env.clone(), options.clone()).unwrap();
    assert_eq!(scan(&reader.snapshot(), &name, &equal("a", 42i64)).len(), 1);
    // The owner lets go of what the reader looked at.
    db.drop_index("a").unwrap();
    assert_eq!(scan(&reader.snapshot(), &name, &equal("a", 43i64)).len(), 1);
}

/// Rows beside one segment, whose index got runs after each third of them.
fn built_in_thirds(disk: &FaultyFiles, options: &Options, rows: i64) -> Database {
    let db = run(disk, options).open().unwrap();
    db.create_table(&TableSpec::new("t")).unwrap();
    for part in 0..3 {
        let rows = part * rows / 3..(part + 1) * rows / 3;
        let row = |n: i64| (n * 1000, vec![("a", scattered(n, 3000).into())]);
        write(&db, &stream("1"), rows.map(row));
        db.flush().unwrap();
        if part == 0 {
            db.create_index(&spec("a", &["a"])).unwrap();
        }
        build(&db, "a");
    }
    let info = index(&db, "a");
    assert!(info.runs >= 3 && info.progress.partitions == 1, "{info:?}");
    db
}

#[test]
fn what_a_missing_run_held_is_read_after_every_reopening_until_it_is_made_again() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    drop(built_in_thirds(&disk, &options, 30));
    disk.vanish(&runs_on(&disk)[0]).unwrap();
    // It is forgotten at the first opening; what the others say must not stand for it later.
    for opening in 0..3 {
        let db = run(&disk, &options).open().unwrap();
        let snapshot = db.snapshot().unwrap();
        for n in 0..30 {
            let asked = equal("a", scattered(n, 3000));
            assert_eq!(
                found(&db, &snapshot, &stream("1"), &asked),
                1,
                "{opening} {n}"
            );
        }
        drop(snapshot);
        drop(db);
        assert_sound(&disk, &options);
    }
}

#[test]
fn what_a_damaged_run_held_is_read_when_its_making_again_is_ended_half_way() {
    let disk = FaultyFiles::new(1);
    let options = Options {
        memory_budget_bytes: 64 << 20,
        partition_target_bytes: 64 << 20,
        partition_bytes_max: 64 << 20,
        shards: 1,
        ..Options::new("/db")
    };
    // More rows than are taken in at once.
    let rows = 900_000;
    drop(built_in_thirds(&disk, &options, rows));
    for file in runs_on(&disk).iter().take(2) {
        let len = disk.read_file(file).unwrap().len() as u64;
        disk.flip_bit(file, len - 4, 3).unwrap();
    }
    let db = run(&disk, &options).open().unwrap();
    let snapshot = db.snapshot().unwrap();
    let _tells_the_damage = scan(&snapshot, &stream("1"), &equal("a", 0i64));
    drop(snapshot);
    let mut pieces = 0;
    let mut one = |_: &_| {
        pieces += 1;
        match pieces {
            1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    assert!(!db.build_index("a", &mut one).unwrap());
    let begun = index(&db, "a");
    assert_eq!(begun.progress.partitions_complete, 0, "{begun:?}");
    drop(db);
    let db = run(&disk, &options).open().unwrap();
    let snapshot = db.snapshot().unwrap();
    for value in [7i64, 1234] {
        let asked = equal("a", value);
        assert_eq!(found(&db, &snapshot, &stream("1"), &asked), 300);
    }
}

#[test]
fn a_reader_takes_no_run_for_another_that_got_its_number() {
    let (disk, options) = (FaultyFiles::new(1), small_options());
    let options = Options {
        partition_target_bytes: 4 << 20,
        partition_bytes_max: 8 << 20,
        shards: 1,
        ..options
    };
    let db = run(&disk, &options).open().unwrap();
    let name = stream("1");
    let row = |n: i64| {
        let a = scattered(n, 5000);
        (n * 1000, vec![("a", a.into()), ("b", (4999 - a).into())])
    };
    write(&db, &name, (0..5000).map(row));
    db.compact().unwrap();
    db.create_index(&spec("a", &["a"])).unwrap();
    build(&db, "a");
    let before = runs_on(&disk);
    let run_again = run(&disk, &options);
    let reader = Reader::open_in(run_again.env.clone(), options.clone()).unwrap();
    let snapshot = reader.snapshot();
    // The reader knows the run now, and a block of it.
    assert_eq!(scan(&snapshot, &name, &equal("a", 3i64)).len(), 1);
    db.drop_index("a").unwrap();
    drop(db);
    let db = run(&disk, &options).open().unwrap();
    db.create_index(&spec("b", &["b"])).unwrap();
    build(&db, "b");
    assert_eq!(
        runs_on(&disk),
        before,
        "the new run has the number of the old"
    );
    for value in (0i64..5000).step_by(250) {
        assert_eq!(
            scan(&snapshot, &name, &equal("a", value)).len(),
            1,
            "{value}"
        );
    }
}

/// The number of an index is never given again: what the table remembers of one that it made by
/// itself says nothing of another one.
#[test]
fn an_index_in_the_place_of_one_that_the_table_made_is_not_the_tables() {
    for reopens in [false, true] {
        let options = Options {
            partition_target_bytes: 64 << 10,
            partition_bytes_max: 128 << 10,
            shards: 1,
            ..small_options()
        };
        let disk = FaultyFiles::new(8);
        let run = run(&disk, &options);
        let mut db = run.open().unwrap();
        let rows = (0..8_000).map(|n| (n * SECOND, vec![("a", scattered(n, 8_000).into())]));
        write(&db, &stream("1"), rows);
        db.flush().unwrap();
        let policy = IndexPolicy {
            auto: true,
            budget: Some(IndexBudget::Percent(400)),
        };
        db.set_index_policy("t", &policy).unwrap();
        let snapshot = db.snapshot().unwrap();
        for value in 2_000i64..2_400 {
            scan(&snapshot, &stream("1"), &equal("a", value));
        }
        drop(snapshot);
        db.maintain().unwrap();
        let made = db.indexes();
        assert!(made.len() == 1 && made[0].automatic, "{made:?}");
        let name = made[0].name.clone();
        db.drop_index(&name).unwrap();
        if reopens {
            db.close().unwrap();
            drop(db);
            db = run.open().unwrap();
        }
        db.create_index(&spec(&name, &["a"])).unwrap();
        assert!(!index(&db, &name).automatic, "reopens {reopens}");
        let none = IndexPolicy {
            auto: false,
            budget: None,
        };
        db.set_index_policy("t", &none).unwrap();
        db.maintain().unwrap();
        index(&db, &name);
    }
}
