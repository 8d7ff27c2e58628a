//! What a disk needs: a small database takes little of it, files of the log grow with what is
//! written, and a small disk that was full is of use again when its rows are gone.

use crate::cuts::{cuts, seeds};
use crate::model::Random;
use crate::support::{Run, START};
use headwater_engine::{Database, DeleteSpec, ErrorKind, Options, RepairMode, ScanSpec, repair};
use headwater_io::{Env, FaultyFiles, Files};
use headwater_types::{Batch, ClosedRange, StreamName, StreamRows, Values};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn stream() -> StreamName {
    StreamName::new("m", [("device", "1")])
}

/// Rows of one device, a second apart, with so many fields of noise.
fn rows(first: i64, count: i64, fields: usize, random: &mut Random) -> Batch {
    let mut entry = StreamRows::new(stream());
    entry.times = (first..first + count).map(|n| START + n * SECOND).collect();
    for field in 0..fields {
        let noise = |_| random.below(1 << 52) as f64;
        let values = (0..count).map(noise).collect();
        entry = entry.with_column(format!("f{field}"), Values::F64(values));
    }
    let mut batch = Batch::new();
    batch.push(entry);
    batch
}

fn bytes_below(disk: &FaultyFiles, folder: &str) -> u64 {
    let files = disk.files().into_iter();
    let below = files.filter(|(path, _)| path.starts_with(folder));
    below.map(|(_, bytes)| bytes).sum()
}

fn log_sizes(disk: &FaultyFiles) -> Vec<u64> {
    let mut files: Vec<(u64, u64)> = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("/db/log"))
        .map(|(path, bytes)| (number(&path), bytes))
        .collect();
    files.sort_unstable();
    files.into_iter().map(|(_, bytes)| bytes).collect()
}

fn number(path: &Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn count(db: &Database) -> usize {
    let snapshot = db.snapshot().unwrap();
    let Ok(chunks) = snapshot.scan(&stream(), &ScanSpec::default()) else {
        return 0;
    };
    chunks.map(|chunk| chunk.unwrap().times.len()).sum()
}

fn delete_all(db: &Database) {
    let spec = DeleteSpec {
        table: "m".into(),
        tags: Vec::new(),
        range: ClosedRange::ALL,
    };
    db.delete(&spec).unwrap();
}

#[test]
fn a_database_of_fifty_thousand_values_takes_two_mebibytes_beside_them() {
    let options = Options::new("/db");
    let disk = FaultyFiles::new(1);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let mut random = Random::new(1);
    let mut db = run.open().unwrap();
    for n in 0..50 {
        db.commit(rows(n * 100, 100, 10, &mut random)).unwrap();
    }
    let open = bytes_below(&disk, "/db");
    assert!(open <= 4 * MIB, "{open}: {:?}", disk.files());
    for opened in 0..3 {
        db.close().unwrap();
        drop(db);
        let segments = bytes_below(&disk, "/db/segment");
        assert!(segments < 50_000 * 10, "{segments}");
        let beside = bytes_below(&disk, "/db") - segments;
        let what = format!("{opened}: {beside} of {:?}", disk.files());
        assert!(beside <= 2 * MIB, "{what}");
        db = run.open().unwrap();
        assert_eq!(count(&db), 5_000 + opened, "{what}");
        let first = 5_000 + i64::try_from(opened).unwrap();
        db.commit(rows(first, 1, 10, &mut random)).unwrap();
    }
}

/// Each file is four times as large as the one before, and a large group gets a large file at once:
/// steady writing soon has files of the size that is set.
#[test]
fn files_of_the_log_grow_until_they_are_as_large_as_is_set() {
    let options = Options {
        log_file_bytes: 2 * MIB,
        reserve_bytes: 0,
        ..Options::new("/db")
    };
    let disk = FaultyFiles::new(2);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let mut random = Random::new(2);
    let db = run.open().unwrap();
    for n in 0..80 {
        db.commit(rows(n * 1_000, 1_000, 10, &mut random)).unwrap();
    }
    let sizes = [256 * KIB, MIB, 2 * MIB, 2 * MIB];
    assert_eq!(log_sizes(&disk)[..4], sizes, "{:?}", log_sizes(&disk));
    db.close().unwrap();
    drop(db);
    // Of free files a few small ones stay.
    assert!(bytes_below(&disk, "/db/log") <= 512 * KIB);
    let db = run.open().unwrap();
    assert_eq!(count(&db), 80_000);
    db.commit(rows(80_000, 15_000, 10, &mut random)).unwrap();
    let largest = log_sizes(&disk).into_iter().max();
    assert_eq!(largest, Some(2 * MIB), "for a group of more than one");
}

/// A power cut at every operation while files of the log grow, also while rests give them back.
#[test]
fn a_power_cut_while_files_of_the_log_grow_takes_nothing_that_was_acknowledged() {
    let options = Options {
        log_file_bytes: MIB,
        reserve_bytes: 2 * MIB,
        shards: 1,
        idle_after: Some(Duration::from_secs(30)),
        ..Options::new("/db")
    };
    let life = |disk: &FaultyFiles| -> (i64, i64) {
        let run = Run::new(Arc::new(disk.clone()), &options);
        let mut random = Random::new(3);
        let (mut submitted, mut acknowledged) = (0, 0);
        let mut write = |db: &Database, count: i64| {
            let batch = rows(submitted, count, 10, &mut random);
            submitted += count;
            db.commit(batch).map(|_| acknowledged = submitted)
        };
        let played = || -> Result<(), headwater_engine::Error> {
            for _ in 0..2 {
                let db = run.open()?;
                for _ in 0..6 {
                    write(&db, 2_500)?;
                }
                run.clock.advance(Duration::from_secs(1));
                db.maintain()?;
                run.clock.advance(Duration::from_secs(40));
                db.maintain()?;
                write(&db, 2_500)?;
                db.close()?;
            }
            Ok(())
        };
        let mut played = played;
        drop(played());
        (submitted, acknowledged)
    };
    let whole = FaultyFiles::new(3);
    assert_eq!(life(&whole), (35_000, 35_000));
    let mut met = 0;
    for cut in cuts(whole.operations(), 17) {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let (submitted, acknowledged) = life(&disk);
        for seed in seeds(3) {
            let what = format!("cut at {cut}, seed {seed}");
            let after = disk.after_crash(seed);
            if !after.exists(Path::new("/db/meta.redb")).unwrap() {
                assert_eq!(acknowledged, 0, "{what}");
                continue;
            }
            let run = Run::new(Arc::new(after.clone()), &options);
            let db = run.open().unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = i64::try_from(count(&db)).unwrap();
            assert!(
                (acknowledged..=submitted).contains(&found),
                "{what}: {found} of {acknowledged} to {submitted}"
            );
            drop(db);
            let env = Env {
                files: Arc::new(after),
                ..Env::memory()
            };
            let report = repair(&env, &options, RepairMode::DryRun).unwrap();
            assert!(report.findings.is_empty(), "{what}: {report:#?}");
            met += 1;
        }
    }
    assert!(met > 10, "{met}");
}

/// Rows until the disk is full: how many there were.
fn fill(db: &Database, first: i64, flushes: bool, random: &mut Random) -> i64 {
    let mut next = first;
    loop {
        match db.commit(rows(next, 1_000, 10, random)) {
            Ok(_) => next += 1_000,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                return next - first;
            }
        }
        // A flush that finds no space is given up.
        if flushes && next % 10_000 == 0 && db.flush().is_err() {
            continue;
        }
        assert!(next - first < 1_000_000, "the disk never was full");
    }
}

#[test]
fn a_small_disk_that_was_full_takes_rows_again_when_its_rows_are_gone() {
    for flushes in [false, true] {
        for drops in [false, true] {
            let options = Options::new("/db");
            let disk = FaultyFiles::new(4);
            disk.capacity(24 * MIB);
            let run = Run::new(Arc::new(disk.clone()), &options);
            let mut random = Random::new(4);
            let mut db = run.open().unwrap();
            let mut next = 0;
            for round in 0..4 {
                let what = format!("drops {drops}, flushes {flushes}, round {round}");
                let written = fill(&db, next, flushes, &mut random);
                // 80 bytes a row.
                assert!(written >= 60_000, "{what}: {written}");
                next += written;
                assert_eq!(count(&db) as i64, written, "{what}");
                match drops {
                    true => db.drop_table("m").unwrap(),
                    false => delete_all(&db),
                }
                db.maintain().unwrap_or_else(|e| panic!("{what}: {e}"));
                run.clock.advance(Duration::from_secs(1));
                db.commit(rows(next, 1, 10, &mut random))
                    .unwrap_or_else(|e| panic!("{what}: {e}: {:?}", disk.files()));
                delete_all(&db);
                db.maintain().unwrap();
                let taken = bytes_below(&disk, "/db");
                assert!(taken < 8 * MIB, "{what}: {taken}: {:?}", disk.files());
                if round == 1 {
                    db.close().unwrap();
                    drop(db);
                    db = run.open().unwrap();
                }
            }
        }
    }
}

/// The same with workers, which see to it by themselves.
#[test]
fn a_small_disk_that_was_full_takes_rows_again_without_being_asked() {
    let disk = FaultyFiles::new(5);
    disk.capacity(24 * MIB);
    let env = Env {
        files: Arc::new(disk.clone()),
        ..Env::system()
    };
    let mut random = Random::new(5);
    let db = Database::open_in(env, Options::new("/db")).unwrap();
    let mut next = fill(&db, 0, false, &mut random);
    assert!(next >= 60_000, "{next}");
    delete_all(&db);
    let begun = std::time::Instant::now();
    while let Err(error) = db.commit(rows(next, 1, 10, &mut random)) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays full");
        std::thread::sleep(Duration::from_millis(20));
        next += 1;
    }
    assert_eq!(count(&db), 1);
}

/// The reserve is as large as what the log holds, and no larger than is set; what was taken in
/// finds its space in it. It goes back when the log does.
#[test]
fn the_reserve_grows_with_the_log() {
    let options = Options {
        idle_after: Some(Duration::from_secs(30)),
        ..Options::new("/db")
    };
    let disk = FaultyFiles::new(6);
    let run = Run::new(Arc::new(disk.clone()), &options);
    let reserve = || bytes_below(&disk, "/db/reserve");
    let mut random = Random::new(6);
    let db = run.open().unwrap();
    assert_eq!(reserve(), MIB);
    let mut sizes = vec![reserve()];
    for n in 0..160 {
        db.commit(rows(n * 1_000, 1_000, 10, &mut random)).unwrap();
        sizes.push(reserve());
    }
    sizes.dedup();
    assert_eq!(sizes, [MIB, 2 * MIB, 4 * MIB, 8 * MIB]);
    run.clock.advance(Duration::from_secs(1));
    db.maintain().unwrap();
    run.clock.advance(Duration::from_secs(40));
    db.maintain().unwrap();
    // Some 12 MiB of segments: an eighth of them, by doubles.
    assert_eq!(reserve(), 2 * MIB);
    // No space for a larger one: the log holds what the smaller one has space for.
    disk.capacity(bytes_below(&disk, "/db") + 3 * MIB);
    let written = fill(&db, 160_000, false, &mut random);
    assert_eq!(reserve(), 2 * MIB, "it is not given up for itself");
    assert_eq!(count(&db) as i64, 160_000 + written);
    db.flush().unwrap();
    assert_eq!(count(&db) as i64, 160_000 + written);
    disk.capacity(u64::MAX);
    run.clock.advance(Duration::from_secs(1));
    db.commit(rows(-1, 1, 10, &mut random)).unwrap();
    db.close().unwrap();
    drop(db);
    // One that an earlier version made, or another setting, is taken as it is.
    let file = disk.open(Path::new("/db/reserve"), headwater_io::OpenMode::Write);
    file.unwrap().set_len(8 * MIB).unwrap();
    let db = run.open().unwrap();
    assert_eq!(reserve(), 8 * MIB);
    db.close().unwrap();
    drop(db);
    assert_eq!(reserve(), 2 * MIB);
    let less = Options {
        reserve_bytes: 64 * KIB,
        ..options.clone()
    };
    drop(Run::new(Arc::new(disk.clone()), &less).open().unwrap());
    assert_eq!(reserve(), 64 * KIB);
    drop(run.open().unwrap());
    assert_eq!(reserve(), MIB);
}
