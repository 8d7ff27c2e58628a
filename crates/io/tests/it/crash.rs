//! What the simulated disk loses in a power cut, and what it never loses.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use headwater_io::{FaultyFiles, File, Files, OpenMode, SECTOR_BYTES};

const SECTOR: usize = SECTOR_BYTES as usize;
const SEEDS: std::ops::Range<u64> = 0..2_000;

/// A disk with the durable file `/db/a`, open to write.
fn disk_with(content: &[u8]) -> (FaultyFiles, Arc<dyn File>) {
    let disk = FaultyFiles::new(7);
    disk.write_file("/db/a", content).unwrap();
    let file = disk.open(Path::new("/db/a"), OpenMode::Write).unwrap();
    (disk, file)
}

/// The distinct states of `/db/a` over many seeds; `None` where the name is gone.
fn states(disk: &FaultyFiles) -> BTreeSet<Option<Vec<u8>>> {
    SEEDS
        .map(|seed| disk.after_crash(seed).read_file("/db/a").ok())
        .collect()
}

fn set<const N: usize>(states: [Option<&[u8]>; N]) -> BTreeSet<Option<Vec<u8>>> {
    states
        .into_iter()
        .map(|state| state.map(<[u8]>::to_vec))
        .collect()
}

fn names(disk: &FaultyFiles) -> Vec<String> {
    disk.list(Path::new("/db")).unwrap()
}

#[test]
fn synced_content_and_length_survive_every_crash() {
    let (disk, file) = disk_with(b"old");
    file.write_all_at(0, b"newer").unwrap();
    file.set_len(7).unwrap();
    file.sync_data().unwrap();
    assert_eq!(states(&disk), set([Some(b"newer\0\0")]));
}

#[test]
fn a_sync_through_another_handle_counts() {
    let (disk, file) = disk_with(b"old");
    file.write_all_at(0, b"new").unwrap();
    disk.open(Path::new("/db/a"), OpenMode::Read)
        .unwrap()
        .sync_data()
        .unwrap();
    assert_eq!(states(&disk), set([Some(b"new")]));
}

#[test]
fn a_sync_of_another_file_does_not_count() {
    let (disk, file) = disk_with(b"old");
    disk.write_file("/db/b", b"").unwrap();
    file.write_all_at(0, b"NEW").unwrap();
    disk.open(Path::new("/db/b"), OpenMode::Write)
        .unwrap()
        .sync_data()
        .unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"old");
}

#[test]
fn the_fixed_seeds_are_the_extremes() {
    let (disk, file) = disk_with(&[b'o'; 2_000]);
    file.write_all_at(100, &[b'1'; 1_500]).unwrap();
    file.set_len(50).unwrap();
    file.write_all_at(3_000, b"end").unwrap();
    disk.open(Path::new("/db/b"), OpenMode::CreateNew)
        .unwrap()
        .write_all_at(0, b"b")
        .unwrap();
    let live = disk.read_file("/db/a").unwrap();
    let (none, all) = (disk.after_crash(0), disk.after_crash(1));
    assert_eq!(none.read_file("/db/a").unwrap(), [b'o'; 2_000]);
    assert_eq!(names(&none), ["a"]);
    assert_eq!(all.read_file("/db/a").unwrap(), live);
    assert_eq!(all.read_file("/db/b").unwrap(), b"b");
}

#[test]
fn unsynced_writes_survive_in_any_subset_of_sectors() {
    let (disk, file) = disk_with(&[b'.'; 3 * SECTOR]);
    file.write_all_at(0, &[b'1'; 3 * SECTOR]).unwrap();
    // With torn sectors left aside, every subset of the three sectors occurs.
    let whole: BTreeSet<Vec<u8>> = states(&disk)
        .into_iter()
        .flatten()
        .filter(|state| {
            state
                .chunks(SECTOR)
                .all(|sector| sector.iter().all(|byte| Some(byte) == sector.first()))
        })
        .map(|state| {
            state
                .chunks(SECTOR)
                .map(|sector| *sector.first().unwrap())
                .collect()
        })
        .collect();
    assert_eq!(whole.len(), 8, "{whole:?}");
}

#[test]
fn at_most_one_sector_is_torn_into_a_front_and_a_back() {
    let (disk, file) = disk_with(&[b'.'; 4 * SECTOR]);
    // Two writes of two sectors each: tearing follows the borders of the medium, not of the calls.
    file.write_all_at(100, &[b'1'; SECTOR]).unwrap();
    file.write_all_at(2 * SECTOR as u64, &[b'2'; 2 * SECTOR])
        .unwrap();
    let mut torn = 0;
    for state in states(&disk).into_iter().flatten() {
        assert_eq!(state.len(), 4 * SECTOR);
        let pieces = [
            100..SECTOR,
            SECTOR..SECTOR + 100,
            2 * SECTOR..3 * SECTOR,
            3 * SECTOR..4 * SECTOR,
        ];
        let changes: Vec<usize> = pieces
            .into_iter()
            .map(|piece| {
                state
                    .get(piece)
                    .unwrap()
                    .windows(2)
                    .filter(|pair| pair.first() != pair.last())
                    .count()
            })
            .collect();
        assert!(changes.iter().all(|count| *count <= 1), "{changes:?}");
        assert!(changes.iter().sum::<usize>() <= 1, "{changes:?}");
        torn += changes.iter().sum::<usize>();
    }
    assert!(torn > 20, "{torn}");
}

#[test]
fn a_later_write_may_survive_an_earlier_one() {
    let (disk, file) = disk_with(&[b'.'; 2 * SECTOR]);
    file.write_all_at(0, b"1").unwrap();
    file.write_all_at(SECTOR as u64, b"2").unwrap();
    file.write_all_at(1, b"3").unwrap();
    let found: BTreeSet<Vec<u8>> = states(&disk)
        .into_iter()
        .flatten()
        .map(|state| vec![state[0], state[1], state[SECTOR]])
        .collect();
    assert_eq!(found.len(), 8, "{found:?}");
}

#[test]
fn an_overwritten_unsynced_write_may_come_back() {
    let (disk, file) = disk_with(b".");
    file.write_all_at(0, b"1").unwrap();
    file.write_all_at(0, b"2").unwrap();
    assert_eq!(states(&disk), set([Some(b"."), Some(b"1"), Some(b"2")]));
}

#[test]
fn unsynced_growth_may_be_there_without_its_data() {
    let (disk, file) = disk_with(b"..");
    file.write_all_at(2, b"xy").unwrap();
    let found = states(&disk);
    for wanted in [
        b"..".as_slice(),
        b"...".get(..2).unwrap(),
        b"..\0",
        b"..\0\0",
        b"..x",
        b"..xy",
    ] {
        assert!(found.contains(&Some(wanted.to_vec())), "{wanted:?}");
    }
    for state in found.into_iter().flatten() {
        assert!(
            (2..=4).contains(&state.len()) && state.starts_with(b".."),
            "{state:?}"
        );
        assert!(
            state
                .iter()
                .skip(2)
                .zip(b"xy")
                .all(|(found, new)| found == new || *found == 0),
            "{state:?}"
        );
    }
}

#[test]
fn growth_by_set_len_reads_zeros_whatever_survives() {
    let (disk, file) = disk_with(b"ab");
    file.set_len(5).unwrap();
    assert_eq!(
        states(&disk),
        set([
            Some(b"ab"),
            Some(b"ab\0"),
            Some(b"ab\0\0"),
            Some(b"ab\0\0\0")
        ]),
        "old, new and every length between"
    );
}

#[test]
fn a_cut_that_did_not_survive_gives_the_old_bytes_back() {
    let (disk, file) = disk_with(b"abcd");
    file.set_len(2).unwrap();
    assert_eq!(
        states(&disk),
        set([Some(b"ab"), Some(b"abc"), Some(b"abcd")])
    );
    file.sync_data().unwrap();
    file.set_len(4).unwrap();
    assert_eq!(
        states(&disk),
        set([Some(b"ab"), Some(b"ab\0"), Some(b"ab\0\0")])
    );
}

#[test]
fn a_new_file_vanishes_until_its_directory_is_synced() {
    let disk = FaultyFiles::new(7);
    disk.create_dir_all(Path::new("/db")).unwrap();
    let file = disk.open(Path::new("/db/a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(0, b"x").unwrap();
    file.sync_data().unwrap();
    assert_eq!(
        states(&disk),
        set([None, Some(b"x")]),
        "a synced file without a name"
    );
    disk.create_dir_all(Path::new("/db/sub")).unwrap();
    disk.sync_dir(Path::new("/db/sub")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(
        states(&disk),
        set([None, Some(b"x")]),
        "after syncs of other directories"
    );
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(states(&disk), set([Some(b"x")]));
}

#[test]
fn a_directory_sync_does_not_save_the_bytes() {
    let disk = FaultyFiles::new(7);
    disk.create_dir_all(Path::new("/db")).unwrap();
    disk.open(Path::new("/db/a"), OpenMode::CreateNew)
        .unwrap()
        .write_all_at(0, b"x")
        .unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(states(&disk), set([Some(b""), Some(b"\0"), Some(b"x")]));
}

#[test]
fn a_removed_file_may_come_back_with_its_durable_bytes() {
    let (disk, file) = disk_with(b"durable");
    disk.remove(Path::new("/db/a")).unwrap();
    assert_eq!(states(&disk), set([None, Some(b"durable")]));
    assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"durable");
    file.write_all_at(0, b"D").unwrap();
    assert_eq!(
        states(&disk),
        set([None, Some(b"durable"), Some(b"Durable")])
    );
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(states(&disk), set([None]));
}

#[test]
fn a_name_stands_for_one_of_the_files_it_stood_for() {
    let (disk, _old) = disk_with(b"old");
    disk.remove(Path::new("/db/a")).unwrap();
    let new = disk.open(Path::new("/db/a"), OpenMode::CreateNew).unwrap();
    new.write_all_at(0, b"new").unwrap();
    new.sync_data().unwrap();
    assert_eq!(states(&disk), set([Some(b"old"), None, Some(b"new")]));
}

#[test]
fn names_survive_independently_of_each_other() {
    let disk = FaultyFiles::new(7);
    disk.create_dir_all(Path::new("/db")).unwrap();
    for name in ["a", "b", "c"] {
        disk.open(&Path::new("/db").join(name), OpenMode::CreateNew)
            .unwrap();
    }
    let found: BTreeSet<Vec<String>> = SEEDS.map(|seed| names(&disk.after_crash(seed))).collect();
    assert_eq!(found.len(), 8, "{found:?}");
}

#[test]
fn created_directories_survive() {
    let disk = FaultyFiles::new(7);
    disk.create_dir_all(Path::new("/db/log/deep")).unwrap();
    assert_eq!(disk.operations(), 3);
    disk.create_dir_all(Path::new("/db/log")).unwrap();
    assert_eq!(disk.operations(), 3);
    assert!(
        disk.after_crash(0)
            .exists(Path::new("/db/log/deep"))
            .unwrap()
    );
}

#[test]
fn an_interrupted_creation_of_directories_leaves_a_front_part() {
    let mut found = BTreeSet::new();
    for at in 0..4 {
        let disk = FaultyFiles::new(7);
        disk.crash_at(at);
        assert_eq!(disk.create_dir_all(Path::new("/a/b/c")).is_ok(), at == 3);
        for seed in 0..20 {
            let after = disk.after_crash(seed);
            let exists = |path: &str| after.exists(Path::new(path)).unwrap();
            found.insert((at, exists("/a"), exists("/a/b"), exists("/a/b/c")));
        }
    }
    let (yes, no) = (true, false);
    let wanted = [
        (0, no, no, no),
        (0, yes, no, no),
        (1, yes, no, no),
        (1, yes, yes, no),
        (2, yes, yes, no),
        (2, yes, yes, yes),
        (3, yes, yes, yes),
    ];
    assert_eq!(found, wanted.into_iter().collect());
}

/// One of each operation; stops at the first error.
fn one_of_each(disk: &FaultyFiles) -> std::io::Result<()> {
    let file = disk.open(Path::new("/db/new"), OpenMode::CreateNew)?;
    file.write_all_at(0, b"abc")?;
    file.set_len(2)?;
    file.sync_data()?;
    disk.remove(Path::new("/db/a"))?;
    disk.sync_dir(Path::new("/db"))
}

#[test]
fn the_power_fails_at_the_chosen_operation_and_stays_off() {
    let (disk, _) = disk_with(b"a");
    one_of_each(&disk).unwrap();
    assert_eq!(disk.operations(), 6);
    assert!(!disk.crashed());
    let mut interrupted = Vec::new();
    for at in 0..6 {
        let (disk, file) = disk_with(b"a");
        let lock = disk.lock(Path::new("/db/lock"), "x").unwrap();
        disk.crash_at(at);
        let error = one_of_each(&disk).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Other, "simulated power cut")
        );
        assert!(disk.crashed());
        interrupted.push(disk.interrupted().unwrap());
        let dir = Path::new("/db");
        assert!(file.read_at(0, &mut [0]).is_err());
        assert!(file.len().is_err());
        assert!(file.write_all_at(0, b"x").is_err());
        assert!(file.set_len(0).is_err());
        assert!(file.sync_data().is_err());
        assert!(disk.open(Path::new("/db/a"), OpenMode::Read).is_err());
        assert!(disk.open(Path::new("/db/z"), OpenMode::CreateNew).is_err());
        assert!(disk.remove(Path::new("/db/a")).is_err());
        assert!(disk.list(dir).is_err());
        assert!(disk.create_dir_all(dir).is_err());
        assert!(disk.sync_dir(dir).is_err());
        assert!(disk.exists(dir).is_err());
        assert!(disk.lock(Path::new("/db/lock2"), "x").is_err());
        // A lock of the dead machine does not hold on the next one.
        disk.after_crash(1)
            .lock(Path::new("/db/lock"), "y")
            .unwrap();
        drop(lock);
        assert_eq!(disk.operations(), at + 1);
    }
    let wanted = [
        "create /db/new",
        "write /db/new",
        "set_len /db/new",
        "sync_data /db/new",
        "remove /db/a",
        "sync_dir /db",
    ];
    assert_eq!(interrupted, wanted);
}

#[test]
fn an_invalid_call_at_the_cut_hears_of_the_power_cut_too() {
    let (disk, _file) = disk_with(b"a");
    disk.crash_at(0);
    let error = disk
        .open(Path::new("/db/a"), OpenMode::CreateNew)
        .unwrap_err();
    assert_eq!(error.to_string(), "simulated power cut");
}

#[test]
fn a_number_that_is_past_cuts_the_next_operation() {
    let (disk, file) = disk_with(b"a");
    for _ in 0..5 {
        file.sync_data().unwrap();
    }
    disk.crash_at(2);
    assert!(file.len().is_ok());
    assert!(file.sync_data().is_err());
}

#[test]
fn an_interrupted_operation_may_or_may_not_survive() {
    // A write.
    let (disk, file) = disk_with(&[b'.'; 2 * SECTOR]);
    disk.crash_at(0);
    file.write_all_at(0, &[b'1'; 2 * SECTOR]).unwrap_err();
    let found = states(&disk);
    let half = [[b'1'; SECTOR], [b'.'; SECTOR]].concat();
    for wanted in [
        [b'.'; 2 * SECTOR].to_vec(),
        [b'1'; 2 * SECTOR].to_vec(),
        half,
    ] {
        assert!(found.contains(&Some(wanted)));
    }
    // A sync: nothing is promised, and nothing is lost that was durable before.
    let (disk, file) = disk_with(b".");
    disk.crash_at(1);
    file.write_all_at(0, b"1").unwrap();
    file.sync_data().unwrap_err();
    assert_eq!(states(&disk), set([Some(b"."), Some(b"1")]));
    // A removal.
    let (disk, _file) = disk_with(b".");
    disk.crash_at(0);
    disk.remove(Path::new("/db/a")).unwrap_err();
    assert_eq!(states(&disk), set([None, Some(b".")]));
    // A creation.
    let disk = FaultyFiles::new(7);
    disk.create_dir_all(Path::new("/db")).unwrap();
    disk.crash_at(0);
    disk.open(Path::new("/db/a"), OpenMode::CreateNew)
        .unwrap_err();
    assert_eq!(states(&disk), set([None, Some(b"")]));
    // A directory sync.
    let (disk, _file) = disk_with(b".");
    disk.crash_at(1);
    disk.remove(Path::new("/db/a")).unwrap();
    disk.sync_dir(Path::new("/db")).unwrap_err();
    assert_eq!(states(&disk), set([None, Some(b".")]));
}

#[test]
fn a_crash_leaves_the_old_disk_and_other_futures_alone() {
    let (disk, file) = disk_with(b"old");
    file.write_all_at(0, b"new").unwrap();
    let after = disk.after_crash(0);
    after
        .open(Path::new("/db/a"), OpenMode::Write)
        .unwrap()
        .write_all_at(0, b"xxx")
        .unwrap();
    assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"old");
    assert_eq!(disk.read_file("/db/a").unwrap(), b"new");
    assert!(!after.crashed());
    assert_eq!(after.operations(), 1);
    // What a crash left is at rest: the next crash cannot take it away.
    let twice = disk.after_crash(1).after_crash(0);
    assert_eq!(twice.read_file("/db/a").unwrap(), b"new");
}

#[test]
fn a_long_growth_may_be_there_in_full_without_any_data() {
    let (disk, file) = disk_with(b"");
    file.write_all_at(0, &[b'1'; 20 * SECTOR]).unwrap();
    assert!(states(&disk).contains(&Some(vec![0; 20 * SECTOR])));
}

#[test]
fn a_write_is_split_at_the_sectors_of_the_file_and_not_of_the_call() {
    let (disk, file) = disk_with(&[b'.'; 2 * SECTOR]);
    file.write_all_at(100, &[b'1'; SECTOR]).unwrap();
    let (front, back) = (vec![b'1'; SECTOR - 100], vec![b'1'; 100]);
    let (before, after) = (vec![b'.'; 100], vec![b'.'; SECTOR - 100]);
    let found = states(&disk);
    assert!(
        found.contains(&Some([before, front, vec![b'.'; SECTOR]].concat())),
        "the front sector alone"
    );
    assert!(
        found.contains(&Some([vec![b'.'; SECTOR], back, after].concat())),
        "the back sector alone"
    );
    // Tearing cuts anywhere; the border itself is hit far more often.
    let at_border = SEEDS.filter(|seed| {
        let state = disk.after_crash(*seed).read_file("/db/a").unwrap();
        state[SECTOR - 1] != state[SECTOR]
    });
    assert!(at_border.count() > 200);
}
