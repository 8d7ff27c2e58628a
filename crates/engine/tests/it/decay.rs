//! Backups whose files decay, and backups of databases whose files are damaged: what can be put
//! right is, and a good copy is never given up for damaged bytes.

use crate::support::{
    Action, Content, Dice, Model, Run, START, read_back, small_options, steps, workload,
};
use headwater_engine::{
    BackupOptions, BackupReport, Database, Options, RepairMode, Result, backup_with, check, repair,
    restore, verify_backup,
};
use headwater_io::{Env, FaultyFiles, Files};
use headwater_types::{Batch, StreamName, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const VERIFY: BackupOptions = BackupOptions { verify: true };

fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

fn at(dir: &str) -> Options {
    Options {
        dir: dir.into(),
        ..small_options()
    }
}

fn back_up(disk: &FaultyFiles, how: &BackupOptions) -> Result<BackupReport> {
    backup_with(&env(disk), &small_options(), Path::new("/backup"), how)
}

/// A database that is closed, its workload, and one backup of it.
fn backed_up() -> (FaultyFiles, Vec<Action>) {
    let options = small_options();
    let actions = workload(91, 70, 9, 0, 0);
    let disk = FaultyFiles::new(1);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let db = run.play_on(db, &actions).unwrap();
    db.close().unwrap();
    let report = back_up(&disk, &BackupOptions::default()).unwrap();
    assert_eq!((report.files_mended, &*report.damages), (0, &[][..]));
    (disk, actions)
}

/// Files in a folder, but for manifests and locks.
fn files_in(disk: &FaultyFiles, folder: &str) -> Vec<(PathBuf, u64)> {
    let all = disk.files().into_iter();
    all.filter(|(path, _)| path.starts_with(folder)).collect()
}

fn restored(disk: &FaultyFiles, dir: &str) -> Content {
    let report = restore(&env(disk), Path::new("/backup"), &at(dir)).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
    let options = at(dir);
    let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    read_back(&db)
}

fn is_sound(disk: &FaultyFiles) -> bool {
    verify_backup(&env(disk), Path::new("/backup"))
        .unwrap()
        .is_sound()
}

fn decay(disk: &FaultyFiles, path: &Path, len: u64, how: usize) {
    match how {
        0 => disk.flip_bit(path, len / 2, 3).unwrap(),
        1 => disk.flip_bit(path, len - 5, 1).unwrap(),
        2 => disk.truncate_file(path, len / 3).unwrap(),
        _ => disk.remove(path).unwrap(),
    }
}

#[test]
fn a_backup_that_verifies_puts_right_what_has_decayed() {
    let (disk, actions) = backed_up();
    let model = Model::after(&steps(&actions), usize::MAX);
    let (segments, logs) = ("/backup/segment", "/backup/log");
    let files = [files_in(&disk, segments), files_in(&disk, logs)].concat();
    for (number, (path, len)) in files.iter().enumerate() {
        let disk = disk.after_crash(1);
        decay(&disk, path, *len, number % 4);
        assert!(!is_sound(&disk), "{}", path.display());
        let report = back_up(&disk, &VERIFY).unwrap();
        assert_eq!(report.files_mended, 1, "{}: {report:?}", path.display());
        assert_eq!(report.files_verified, report.files - 1, "{report:?}");
        assert!(report.damages.is_empty(), "{report:?}");
        assert!(is_sound(&disk), "{}", path.display());
        let content = restored(&disk, "/restored");
        assert_eq!(content.difference(&model), None);
    }
}

/// A database with segments of which a backup compares only a part with what it copied, closed and
/// backed up.
fn large_backed_up() -> (FaultyFiles, Options) {
    let options = Options {
        shards: 1,
        reserve_bytes: 0,
        ..Options::new("/db")
    };
    let disk = FaultyFiles::new(1);
    let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    for part in 0..3 {
        write_large(&db, part);
    }
    db.close().unwrap();
    backup_large(&disk, &options, &BackupOptions::default());
    (disk, options)
}

/// Rows that no compression makes smaller.
fn write_large(db: &Database, part: i64) {
    let mut dice = Dice::new(part.unsigned_abs() + 1);
    let mut batch = Batch::new();
    let name = StreamName::new("large", [("id", "1")]);
    for row in 0..200 {
        let text: String = (0..60).map(|_| format!("{:016x}", dice.next())).collect();
        let time = START + (part * 200 + row) * 1_000_000_000;
        let fields = [("text", Value::String(text))];
        batch.stream(&name).row(time, fields).unwrap();
    }
    db.commit(batch).unwrap();
    db.flush().unwrap();
}

fn backup_large(disk: &FaultyFiles, options: &Options, how: &BackupOptions) -> BackupReport {
    backup_with(&env(disk), options, Path::new("/backup"), how).unwrap()
}

#[test]
fn eight_backups_look_at_every_file_that_was_there() {
    let (disk, options) = large_backed_up();
    let files = files_in(&disk, "/backup/segment");
    assert_eq!(files.len(), 1);
    let (path, len) = &files[0];
    assert!(*len > 200 << 10, "{len}");
    disk.flip_bit(path, 9_000, 3).unwrap();
    assert!(!is_sound(&disk));
    let reports = (0..8).map(|_| backup_large(&disk, &options, &BackupOptions::default()));
    let mended: Vec<u64> = reports.map(|r| r.files_mended).collect();
    assert_eq!(mended.iter().sum::<u64>(), 1, "{mended:?}");
    assert!(is_sound(&disk));
    // All at once, when asked to.
    let (path, _) = &files_in(&disk, "/backup/segment")[0];
    disk.flip_bit(path, 9_000, 3).unwrap();
    assert_eq!(backup_large(&disk, &options, &VERIFY).files_mended, 1);
    assert!(is_sound(&disk));
}

#[test]
fn nothing_is_put_behind_bytes_that_have_decayed() {
    let (disk, options) = large_backed_up();
    let (path, _) = &files_in(&disk, "/backup/segment")[0];
    disk.flip_bit(path, 9_000, 3).unwrap();
    let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    write_large(&db, 3);
    let content = read_back(&db);
    let report = backup_large(&disk, &options, &BackupOptions::default());
    assert_eq!(report.files_mended, 1, "{report:?}");
    drop(db);
    assert!(is_sound(&disk));
    let to = Options {
        dir: "/restored".into(),
        ..options
    };
    restore(&env(&disk), Path::new("/backup"), &to).unwrap();
    let db = Run::new(Arc::new(disk.clone()), &to).open().unwrap();
    assert_eq!(read_back(&db).streams, content.streams);
}

/// Damages a file of the database: header, footer, in the middle, cut short, gone.
fn damage(disk: &FaultyFiles, path: &Path, len: u64, how: usize) {
    match how {
        0 => disk.flip_bit(path, 20, 3).unwrap(),
        1 => disk.flip_bit(path, len - 5, 1).unwrap(),
        2 => disk.flip_bit(path, 64 + (len - 64) / 3, 1).unwrap(),
        3 => disk.truncate_file(path, len / 3).unwrap(),
        _ => disk.remove(path).unwrap(),
    }
}

#[test]
fn a_damaged_segment_does_not_replace_a_good_copy() {
    let (disk, actions) = backed_up();
    let model = Model::after(&steps(&actions), usize::MAX);
    let mut told = 0;
    for (number, (path, len)) in files_in(&disk, "/db/segment").iter().enumerate() {
        for how in [number % 5, (number + 2) % 5] {
            let disk = disk.after_crash(1);
            damage(&disk, path, *len, how);
            for round in 0..3 {
                let what = format!("{} {how} {round}", path.display());
                let report = back_up(&disk, &VERIFY).unwrap();
                assert_eq!(report.files_mended, 0, "{what}: {report:?}");
                let named = report.damages.iter().all(|d| d.file == *path);
                assert!(named, "{what}: {report:?}");
                // What nothing refers to any more may be damaged without anybody knowing.
                assert!(how == 2 || report.damages.len() == 1, "{what}: {report:?}");
                told += report.damages.len();
                assert!(is_sound(&disk), "{what}");
            }
            assert_eq!(restored(&disk, "/restored").difference(&model), None);
        }
    }
    assert!(told > 20);
}

#[test]
fn a_backup_of_a_damaged_database_says_what_is_not_in_it() {
    let (disk, actions) = backed_up();
    let model = Model::after(&steps(&actions), usize::MAX);
    for (path, _) in files_in(&disk, "/backup") {
        disk.remove(&path).unwrap();
    }
    for (number, (path, len)) in files_in(&disk, "/db/segment").iter().enumerate() {
        let how = [0, 1, 3, 4][number % 4];
        let what = format!("{} {how}", path.display());
        let disk = disk.after_crash(1);
        damage(&disk, path, *len, how);
        let report = back_up(&disk, &BackupOptions::default()).unwrap();
        assert_eq!(report.damages.len(), 1, "{what}: {report:?}");
        assert_eq!(report.damages[0].file, *path, "{what}");
        assert!(!is_sound(&disk), "{what}");
        // It restores all the same, to what opens and can be repaired.
        let options = at("/restored");
        let report = restore(&env(&disk), Path::new("/backup"), &options).unwrap();
        assert!(!report.is_sound(), "{what}");
        let report = repair(&env(&disk), &options, RepairMode::Act).unwrap();
        assert!(report.after.is_sound(), "{what}: {report:#?}");
        assert!(check(env(&disk), options.clone()).unwrap().is_sound());
        if how == 0 {
            assert_eq!(report.lost, Vec::<String>::new(), "{what}");
            let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
            assert_eq!(read_back(&db).difference(&model), None, "{what}");
        }
    }
}
