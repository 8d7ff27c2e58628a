//! Log files that are damaged, cut short, emptied or gone. Whatever was acknowledged is found, or
//! opening refuses and names the place, and a repair says what is lost. Only what stands at the
//! very end, with nothing whole behind it, looks like a write that was cut short. What a power cut
//! leaves of a file that is being begun is no damage.

use crate::damage::{assert_located, newest_log};
use crate::support::{
    Action, Dice, Event, Fields, Run, START, batch_of, collect, read_back, small_options, steps,
    workload,
};
use headwater_engine::{Database, Options, RepairMode, ScanSpec, repair};
use headwater_io::{Env, FaultyFiles, Files};
use headwater_types::{StreamName, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database whose power was cut, and where in the log each of its rows stands.
struct CrashedDatabase {
    disk: FaultyFiles,
    options: Options,
    rows: i64,
    newest: PathBuf,
    /// Of the rows in the newest file: where what was written with them and before ends.
    ends: Vec<(i64, u64)>,
}

fn event(time: i64, dice: &mut Dice) -> Event {
    let text: String = (0..2 + dice.below(14))
        .map(|_| format!("{:08x}", dice.next() >> 32))
        .collect();
    Event {
        stream: StreamName::new("m", [("device", "1")]),
        time: START + time,
        fields: Fields::from([("text".to_owned(), Value::String(text))]),
    }
}

/// Some rows in segments, the others in several log files, each acknowledged by itself; freed files
/// beside them.
fn crashed_database(log_file_bytes: u64) -> CrashedDatabase {
    let options = Options {
        log_file_bytes,
        ..small_options()
    };
    let disk = FaultyFiles::new(1);
    let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    let mut dice = Dice::new(log_file_bytes);
    let rows = 260;
    let mut ends: Vec<(PathBuf, i64, u64)> = Vec::new();
    for time in 0..rows {
        db.commit(batch_of(&[event(time, &mut dice)])).unwrap();
        let newest = newest_log(&disk);
        let content = disk.read_file(&newest).unwrap();
        let end = content.iter().rposition(|b| *b != 0).unwrap() as u64 + 1;
        ends.push((newest, time, end));
        if time == 100 {
            db.flush().unwrap();
        }
    }
    disk.crash_now();
    drop(db);
    let newest = newest_log(&disk);
    let ends = ends
        .into_iter()
        .filter(|(path, _, _)| *path == newest)
        .map(|(_, time, end)| (time, end))
        .collect();
    CrashedDatabase {
        disk: disk.after_crash(0),
        options,
        rows,
        newest,
        ends,
    }
}

impl CrashedDatabase {
    fn logs(&self) -> Vec<(PathBuf, u64)> {
        let files = self.disk.files().into_iter();
        files.filter(|(p, _)| p.starts_with("/db/log")).collect()
    }

    fn found(&self, db: &Database) -> BTreeSet<i64> {
        let name = StreamName::new("m", [("device", "1")]);
        let snapshot = db.snapshot().unwrap();
        let (rows, errors) = collect(snapshot.scan(&name, &ScanSpec::default()).unwrap());
        assert!(errors.is_empty(), "{errors:?}");
        rows.into_iter().map(|(time, _)| time - START).collect()
    }

    fn missing(&self, db: &Database) -> Vec<i64> {
        let found = self.found(db);
        (0..self.rows).filter(|t| !found.contains(t)).collect()
    }

    /// Opens a damaged copy. What is refused names its place and is left as it is, and a repair
    /// tells what it lost; gives the rows that are missing where it opens.
    fn examine(&self, disk: &FaultyFiles, what: &str) -> Option<Vec<i64>> {
        let before: Vec<_> = log_bytes(disk);
        match Run::new(Arc::new(disk.clone()), &self.options).open() {
            Ok(db) => Some(self.missing(&db)),
            Err(error) => {
                assert_located(&error, what);
                assert!(log_bytes(disk) == before, "{what}: files were changed");
                let env = Env {
                    files: Arc::new(disk.clone()),
                    ..Env::memory()
                };
                let report = repair(&env, &self.options, RepairMode::Act).unwrap();
                assert!(report.after.is_sound(), "{what}: {report:#?}");
                assert!(!report.findings.is_empty(), "{what}: {report:#?}");
                let run = Run::new(Arc::new(disk.clone()), &self.options);
                let db = run.open().unwrap_or_else(|e| panic!("{what}: {e}"));
                let missing = self.missing(&db);
                assert!(
                    missing.is_empty() || !report.lost.is_empty(),
                    "{what}: {missing:?} are lost, and the repair does not say so"
                );
                None
            }
        }
    }
}

fn log_bytes(disk: &FaultyFiles) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    paths
        .filter(|p| p.starts_with("/db/log"))
        .map(|p| (p.clone(), disk.read_file(&p).unwrap()))
        .collect()
}

#[test]
fn a_bad_block_of_a_log_file_takes_nothing_in_silence() {
    let mut dice = Dice::new(5);
    for log_file_bytes in [4096, 16384] {
        let life = crashed_database(log_file_bytes);
        let (mut refused, mut begun) = (0, 0);
        for (path, len) in life.logs() {
            for size in [512, 4096] {
                for at in (0..len).step_by(size) {
                    for garbled in [false, true] {
                        let disk = life.disk.after_crash(1);
                        let mut content = disk.read_file(&path).unwrap();
                        let end = content.len().min(at as usize + size);
                        let block = &mut content[at as usize..end];
                        let old = block.to_vec();
                        block.fill_with(|| if garbled { dice.next() as u8 } else { 0 });
                        if block == old {
                            continue;
                        }
                        disk.write_file(&path, content).unwrap();
                        let what = format!("{} {at}+{size} garbled {garbled}", path.display());
                        let Some(missing) = life.examine(&disk, &what) else {
                            refused += 1;
                            begun += usize::from(at == 0 && path == life.newest);
                            continue;
                        };
                        if missing.is_empty() {
                            continue;
                        }
                        // Only the end of the newest file can go like that, with nothing whole
                        // behind it.
                        assert_eq!(path, life.newest, "{what}: {missing:?}");
                        let last_start = life.ends[life.ends.len() - 2].1.next_multiple_of(8);
                        assert!(last_start < end as u64, "{what}: {missing:?}");
                        for (time, row_end) in &life.ends {
                            let is_before = row_end + 16 <= at;
                            assert!(!is_before || !missing.contains(time), "{what}: {time}");
                        }
                        let first = life.ends[0].0;
                        assert!(missing.iter().all(|t| *t >= first), "{what}: {missing:?}");
                    }
                }
            }
        }
        assert!(refused > 20 && begun > 1, "{refused} {begun}");
    }
}

#[test]
fn a_log_file_that_is_gone_emptied_or_cut_is_missed() {
    let life = crashed_database(4096);
    let mut refused = 0;
    type Harm<'a> = &'a dyn Fn(&FaultyFiles, &Path, u64);
    let harms: [(&str, Harm<'_>); 8] = [
        ("gone", &|disk, path, _| disk.remove(path).unwrap()),
        ("zeros", &|disk, path, len| {
            disk.write_file(path, vec![0; len as usize]).unwrap();
        }),
        ("other bytes", &|disk, path, len| {
            disk.write_file(path, vec![0xa5; len as usize]).unwrap();
        }),
        ("empty", &|disk, path, _| {
            disk.truncate_file(path, 0).unwrap()
        }),
        ("a byte", &|disk, path, _| {
            disk.truncate_file(path, 1).unwrap()
        }),
        ("no header", &|disk, path, _| {
            disk.truncate_file(path, 63).unwrap();
        }),
        ("a header", &|disk, path, _| {
            disk.truncate_file(path, 64).unwrap();
        }),
        ("a half", &|disk, path, len| {
            disk.truncate_file(path, len / 2).unwrap();
        }),
    ];
    for (path, len) in life.logs() {
        for (name, harm) in &harms {
            let disk = life.disk.after_crash(1);
            harm(&disk, &path, len);
            let what = format!("{}: {name}", path.display());
            match life.examine(&disk, &what) {
                None => refused += 1,
                Some(missing) => {
                    assert!(missing.is_empty(), "{what}: {missing:?}");
                    assert_ne!(path, life.newest, "{what}");
                }
            }
        }
    }
    // All at once.
    let disk = life.disk.after_crash(1);
    for (path, _) in life.logs() {
        disk.remove(&path).unwrap();
    }
    assert_eq!(life.examine(&disk, "all gone"), None);
    assert!(refused > 16, "{refused}");
}

/// A header is the first that a new use of a file gets, and nothing is acknowledged from the file
/// before it is on the medium.
#[test]
fn a_header_of_which_a_power_cut_left_the_front_is_that_of_a_file_that_was_not_begun() {
    let options = small_options();
    let mut dice = Dice::new(3);
    let actions: Vec<Action> = (0..70)
        .map(|time| match time % 23 {
            22 => Action::Flush,
            _ => Action::Write((0..6).map(|i| event(6 * time + i, &mut dice)).collect()),
        })
        .collect();
    let steps = steps(&actions);
    let mut met = 0;
    for cut in 0.. {
        let disk = FaultyFiles::new(cut);
        disk.crash_at(cut);
        let mut run = Run::new(Arc::new(disk.clone()), &options);
        drop(run.play(&actions));
        if !disk.crashed() {
            break;
        }
        if !disk.interrupted().unwrap().starts_with("sync_data /db/log") {
            continue;
        }
        let rest = disk.after_crash(0);
        let path = PathBuf::from(
            disk.interrupted()
                .unwrap()
                .trim_start_matches("sync_data ")
                .to_owned(),
        );
        let (Ok(new), Ok(old)) = (disk.read_file(&path), rest.read_file(&path)) else {
            continue;
        };
        if old.len() < 64 || new[..64] == old[..64] {
            continue;
        }
        for count in 0..=64 {
            let what = format!("cut at {cut}, {count} bytes of {}", path.display());
            let disk = rest.after_crash(1);
            let mut content = old.clone();
            content[..count].copy_from_slice(&new[..count]);
            disk.write_file(&path, &content).unwrap();
            if count % 9 == 5 {
                let env = Env {
                    files: Arc::new(disk.clone()),
                    ..Env::memory()
                };
                let report = repair(&env, &options, RepairMode::DryRun).unwrap();
                assert!(report.findings.is_empty(), "{what}: {report:#?}");
            }
            let run_after = Run::new(Arc::new(disk), &options);
            let db = run_after.open().unwrap_or_else(|e| panic!("{what}: {e}"));
            let (least, most) = (run.progress.acknowledged, run.progress.submitted);
            let found = read_back(&db).steps_found(&steps, least, most);
            found.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        met += 1;
    }
    assert!(met > 5, "{met}");
}

/// The bytes of a header say a version only if they are one.
#[test]
fn a_flipped_version_is_damage_and_no_other_version() {
    let life = crashed_database(4096);
    for (path, _) in life.logs() {
        for bit in 0..8 {
            let disk = life.disk.after_crash(1);
            disk.flip_bit(&path, 7, bit).unwrap();
            let what = format!("{} bit {bit} of the version", path.display());
            if let Some(missing) = life.examine(&disk, &what) {
                assert!(missing.is_empty() && path != life.newest, "{what}");
            }
        }
    }
}

#[test]
fn a_file_that_was_made_but_never_begun_is_not_used() {
    let options = small_options();
    let disk = FaultyFiles::new(1);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    run.play(&workload(4, 12, 0, 0, 0)).unwrap();
    let left = Path::new("/db/log/77.log");
    disk.write_file(left, [0; 4096]).unwrap();
    let db = run.open().unwrap();
    assert!(!disk.exists(left).unwrap(), "it is removed");
    drop(
        run.play_on(db, &[Action::Write(vec![event(0, &mut Dice::new(1))])])
            .unwrap(),
    );
}

/// Definitions that the metadata hold already stand in the log of a process that was killed; a
/// close stores them once more, and leaves nothing that an opening would read.
#[test]
fn a_close_leaves_nothing_to_read_in_the_log_also_after_a_process_that_was_killed() {
    let disk = FaultyFiles::new(5);
    let options = small_options();
    let db = Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    let mut dice = Dice::new(5);
    for time in 0..20 {
        db.commit(batch_of(&[event(time, &mut dice)])).unwrap();
    }
    db.flush().unwrap();
    disk.crash_now();
    drop(db);
    let disk = disk.after_crash(1);
    let open = || Run::new(Arc::new(disk.clone()), &options).open().unwrap();
    let db = open();
    assert!(db.recovery().log_records > 0);
    db.close().unwrap();
    drop(db);
    let db = open();
    assert_eq!(db.recovery().log_records, 0);
    assert_eq!(db.stats().unwrap().events, 20);
}
