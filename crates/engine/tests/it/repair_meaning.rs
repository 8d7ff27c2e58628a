//! What a repair keeps means what it meant: values end when they were to end, what refers to a
//! table or a field refers to the one it was made for, and a repair that was cut short is either
//! done again or makes no difference.

use crate::cuts::{cuts, variable};
use crate::support::{Mortal, START, small_options};
use headwater_engine::{
    Database, FastTier, FieldSpec, IndexBudget, IndexPolicy, IndexSpec, Options, RepairMode,
    ScanSpec, TableSpec, check, repair, repair_without_fast_tier,
};
use headwater_io::{Env, FaultKind, FaultyFiles, Files, ManualClock, SeededChance, Survival};
use headwater_types::{Batch, FieldType, StreamName, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

fn env_of(disk: &FaultyFiles, files: Arc<dyn Files>, now: i64) -> Env {
    Env {
        files,
        clock: Arc::new(ManualClock::new(Timestamp::from_nanos(now))),
        chance: Arc::new(SeededChance::new(disk.operations() + 1)),
        ..Env::memory()
    }
}

fn env_at(disk: &FaultyFiles, now: i64) -> Env {
    env_of(disk, Arc::new(disk.clone()), now)
}

fn env(disk: &FaultyFiles) -> Env {
    env_at(disk, START)
}

fn options() -> Options {
    Options {
        log_file_bytes: 64 << 10,
        ..small_options()
    }
}

fn stream(id: &str) -> StreamName {
    StreamName::new("m", [("id", id)])
}

fn put(db: &Database, id: &str, second: i64, fields: &[&str], expires: Option<i64>) {
    let mut batch = Batch::new();
    if let Some(at) = expires {
        batch.expire_at(Timestamp::from_nanos(START + at * SECOND));
    }
    let row = fields.iter().map(|field| (*field, (second as f64).into()));
    let rows = batch.stream(&stream(id));
    rows.row(START + second * SECOND, row).unwrap();
    db.commit(batch).unwrap();
}

/// Rows, and what cannot be read.
fn read_rows(db: &Database, id: &str) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    match snapshot.scan(&stream(id), &ScanSpec::default()) {
        Ok(scan) => scan.map(|chunk| format!("{chunk:?}")).collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn logs(disk: &FaultyFiles, folder: &str) -> Vec<PathBuf> {
    let all = disk.files().into_iter().map(|(path, _)| path);
    all.filter(|path| path.starts_with(folder) && path.extension().is_some_and(|e| e == "log"))
        .collect()
}

/// Where the newest log file differs from what it was.
fn changed(before: &[u8], after: &[u8]) -> u64 {
    let at = before.iter().zip(after).position(|(a, b)| a != b);
    at.unwrap() as u64
}

#[test]
fn values_that_lie_in_a_damaged_log_end_as_they_were_to_end() {
    let disk = FaultyFiles::new(1);
    let db = Database::open_in(env(&disk), options()).unwrap();
    put(&db, "1", 0, &["a", "b"], None);
    db.flush().unwrap();
    put(&db, "1", 1, &["a"], None);
    let [log] = &logs(&disk, "/db/log")[..] else {
        panic!("{:?}", logs(&disk, "/db/log"));
    };
    let before = disk.read_file(log).unwrap();
    put(&db, "1", 2, &["a"], None);
    let at = changed(&before, &disk.read_file(log).unwrap());
    put(&db, "1", 3, &["a", "b"], Some(100));
    put(&db, "1", 4, &["b"], Some(200));
    put(&db, "1", 5, &["a", "b"], None);
    // Without the row that is damaged, at every later instant as before.
    disk.crash_now();
    drop(db);
    let disk = disk.after_crash(1);
    let undamaged = disk.after_crash(1);
    disk.flip_bit(log, at + 40, 3).unwrap();
    let report = repair(&env(&disk), &options(), RepairMode::Act).unwrap();
    assert!(
        !report.findings.is_empty() && report.after.is_sound(),
        "{report:#?}"
    );
    assert!(
        !report
            .lost
            .iter()
            .any(|lost| lost.contains("definitions are lost")),
        "{report:#?}"
    );
    for later in [0, 50, 101, 201, 1000] {
        let rows = |disk: &FaultyFiles, is_repaired: bool| -> Vec<(i64, String)> {
            let env = env_at(disk, START + later * SECOND);
            let db = Database::open_in(env, options()).unwrap();
            let snapshot = db.snapshot().unwrap();
            let scan = snapshot.scan(&stream("1"), &ScanSpec::default()).unwrap();
            let (rows, errors) = crate::support::collect(scan);
            assert!(errors.is_empty());
            let is_damaged = |time: i64| time == START + 2 * SECOND;
            let rows = rows
                .into_iter()
                .map(|(time, row)| (time, format!("{row:?}")));
            rows.filter(|(time, _)| is_repaired || !is_damaged(*time))
                .collect()
        };
        // Each opening looks at a disk of its own: the clock goes on.
        let (repaired, before) = (disk.after_crash(1), undamaged.after_crash(1));
        assert_eq!(
            rows(&repaired, true),
            rows(&before, false),
            "{later} s later"
        );
    }
}

/// How the log, or what only it held, is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// All files of the log.
    Files,
    /// The tier with the log.
    Tier,
}

/// Gives the disk after a repair.
fn without_log(disk: &FaultyFiles, loss: Loss) -> FaultyFiles {
    let disk = disk.after_crash(1);
    let report = match loss {
        Loss::Files => {
            for path in logs(&disk, "/db/log") {
                disk.vanish(&path).unwrap();
            }
            repair(&env(&disk), &options(), RepairMode::Act).unwrap()
        }
        Loss::Tier => {
            for (path, _) in disk.files() {
                if path.starts_with("/fast") {
                    disk.vanish(&path).unwrap();
                }
            }
            repair_without_fast_tier(&env(&disk), &options(), RepairMode::Act).unwrap()
        }
    };
    assert!(report.after.is_sound(), "{report:#?}");
    assert!(!report.lost.is_empty(), "{report:#?}");
    disk
}

fn index(name: &str, table: &str, field: &str) -> IndexSpec {
    IndexSpec {
        name: name.into(),
        table: table.into(),
        fields: vec![field.into()],
    }
}

fn table(name: &str, field: &str) -> TableSpec {
    TableSpec {
        fields: vec![FieldSpec {
            name: field.into(),
            field_type: FieldType::F64,
        }],
        ..TableSpec::new(name)
    }
}

#[test]
fn what_referred_to_a_table_or_field_that_is_lost_goes_with_it() {
    for loss in [Loss::Files, Loss::Tier] {
        let disk = FaultyFiles::new(1);
        let db = Database::open_in(env(&disk), options()).unwrap();
        db.create_table(&table("m", "a")).unwrap();
        put(&db, "1", 0, &["a"], None);
        db.create_index(&index("stays", "m", "a")).unwrap();
        if loss == Loss::Tier {
            let tier = FastTier {
                folder: "/fast".into(),
                parts: "log".parse().unwrap(),
            };
            db.move_tier(Some(&tier)).unwrap();
        }
        db.flush().unwrap();
        // In the log alone.
        put(&db, "1", 1, &["c"], None);
        db.create_table(&table("gone", "x")).unwrap();
        db.create_index(&index("on_field", "m", "c")).unwrap();
        db.create_index(&index("on_table", "gone", "x")).unwrap();
        let policy = IndexPolicy {
            auto: true,
            budget: Some(IndexBudget::Percent(7)),
        };
        db.set_index_policy("gone", &policy).unwrap();
        disk.crash_now();
        drop(db);
        let disk = without_log(&disk, loss);
        let db = Database::open_in(env(&disk), options()).unwrap();
        let names = |db: &Database| -> Vec<(String, String, Vec<String>)> {
            let all = db.indexes().into_iter();
            all.map(|index| (index.name, index.table, index.fields))
                .collect()
        };
        let stays = ("stays".to_owned(), "m".to_owned(), vec!["a".to_owned()]);
        assert_eq!(names(&db), std::slice::from_ref(&stays), "{loss:?}");
        // The next table and the next field are not those.
        db.create_table(&table("other", "y")).unwrap();
        put(&db, "1", 2, &["d"], None);
        assert_eq!(names(&db), [stays], "{loss:?}");
        assert_eq!(db.index_policy("other").unwrap(), IndexPolicy::default());
        db.create_index(&index("on_table", "other", "y")).unwrap();
        db.create_index(&index("on_field", "m", "d")).unwrap();
        db.flush().unwrap();
        assert_eq!(names(&db).len(), 3, "{loss:?}");
        db.drop_index("on_table").unwrap();
        assert_eq!(read_rows(&db, "1").len(), 1);
        db.close().unwrap();
        drop(db);
        assert!(check(env(&disk), options()).unwrap().is_sound());
        let again = repair(&env(&disk), &options(), RepairMode::DryRun).unwrap();
        assert_eq!(again.findings, Vec::new());
    }
}

#[test]
fn numbers_of_producers_that_the_log_kept_hold_and_those_it_lost_come_again() {
    let disk = FaultyFiles::new(1);
    let db = Database::open_in(env(&disk), options()).unwrap();
    let numbered = |db: &Database, number: u64| {
        let mut batch = Batch::new();
        let row = [("a", (number as f64).into())];
        let rows = batch.stream(&stream("1"));
        rows.row(START + number as i64 * SECOND, row).unwrap();
        batch.set_producer("p", number);
        db.commit(batch).map(drop)
    };
    numbered(&db, 1).unwrap();
    db.flush().unwrap();
    numbered(&db, 2).unwrap();
    let [log] = &logs(&disk, "/db/log")[..] else {
        panic!("{:?}", logs(&disk, "/db/log"));
    };
    let before = disk.read_file(log).unwrap();
    put(&db, "2", 1, &["a"], None);
    let at = changed(&before, &disk.read_file(log).unwrap());
    numbered(&db, 3).unwrap();
    disk.crash_now();
    drop(db);
    let disk = disk.after_crash(1);
    disk.flip_bit(log, at + 40, 3).unwrap();
    let report = repair(&env(&disk), &options(), RepairMode::Act).unwrap();
    assert!(
        !report.findings.is_empty() && report.after.is_sound(),
        "{report:#?}"
    );
    let db = Database::open_in(env(&disk), options()).unwrap();
    let rows = read_rows(&db, "1");
    for number in 1..=3 {
        drop(numbered(&db, number));
    }
    assert_eq!(read_rows(&db, "1"), rows);
}

/// A database with segments, a snapshot that keeps some of them, and rows in the log alone.
fn victim() -> FaultyFiles {
    let disk = FaultyFiles::new(1);
    let db = Database::open_in(env(&disk), options()).unwrap();
    for second in 0..40 {
        put(&db, "1", second, &["a", "b"], None);
        put(&db, "2", second, &["a"], None);
    }
    db.flush().unwrap();
    db.create_snapshot("early").unwrap();
    for second in 20..60 {
        put(&db, "1", second, &["b"], None);
    }
    db.flush().unwrap();
    for second in 60..70 {
        put(&db, "2", second, &["a"], None);
    }
    disk.crash_now();
    drop(db);
    disk.after_crash(1)
}

/// What is damaged.
#[derive(Clone, Copy, Debug)]
enum Harm {
    NoMetadata,
    Leaf,
    Header,
    Log,
    /// With metadata that are gone, a segment that has to be mended as well.
    LeafAndNoMetadata,
}

impl Harm {
    const ALL: [Harm; 5] = [
        Harm::NoMetadata,
        Harm::Leaf,
        Harm::Header,
        Harm::Log,
        Harm::LeafAndNoMetadata,
    ];

    fn act(self, disk: &FaultyFiles) {
        let segment = disk.files().into_iter().map(|(path, _)| path);
        let segment = segment.filter(|path| path.extension().is_some_and(|e| e == "seg"));
        let segment = segment.min().unwrap();
        match self {
            Harm::NoMetadata => disk.vanish(Path::new("/db/meta.redb")).unwrap(),
            Harm::Leaf => disk.flip_bit(&segment, 100, 2).unwrap(),
            Harm::Header => disk.flip_bit(&segment, 20, 2).unwrap(),
            Harm::Log => {
                let log = logs(disk, "/db/log").into_iter().max().unwrap();
                disk.flip_bit(&log, 300, 2).unwrap();
            }
            Harm::LeafAndNoMetadata => {
                disk.flip_bit(&segment, 100, 2).unwrap();
                disk.vanish(Path::new("/db/meta.redb")).unwrap();
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Fault(FaultKind, u64),
    Kill(u64),
}

/// False when the trouble was not met.
fn repair_in_trouble(harm: Harm, trouble: Trouble, is_repaired_again: bool) -> bool {
    let what = &format!("{harm:?}, {trouble:?}, again {is_repaired_again}");
    let disk = victim();
    harm.act(&disk);
    let process = Mortal::new(&disk, u64::MAX / 2);
    match trouble {
        Trouble::Fault(kind, at) => disk.fail_next(kind, at),
        Trouble::Kill(at) => process.kill_after(at),
    }
    let env_of_first = env_of(&disk, Arc::new(process.clone()), START);
    let first = repair(&env_of_first, &options(), RepairMode::Act);
    let is_met = match trouble {
        Trouble::Fault(..) => disk.heal() == 0,
        Trouble::Kill(_) => process.is_dead(),
    };
    if !is_met {
        return false;
    }
    if first.is_err() && is_repaired_again {
        let second = repair(&env(&disk), &options(), RepairMode::Act);
        let second = second.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(second.after.is_sound(), "{what}: {second:#?}");
    }
    // Left as it is, it may be as damaged as it was.
    let Ok(db) = Database::open_in(env(&disk), options()) else {
        assert!(!is_repaired_again, "{what}");
        return true;
    };
    if db.recovery().partitions_unreadable > 0 {
        assert!(!is_repaired_again, "{what}");
        return true;
    }
    put(&db, "1", 500, &["a"], None);
    put(&db, "2", 500, &["a"], None);
    let before = (read_rows(&db, "1"), read_rows(&db, "2"));
    let snapshots: Vec<String> = db.snapshots().into_iter().map(|s| s.name).collect();
    disk.crash_now();
    drop(db);
    let after = disk.after_crash_with(Survival::Nothing);
    let db = Database::open_in(env(&after), options());
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((read_rows(&db, "1"), read_rows(&db, "2")), before, "{what}");
    let kept: Vec<String> = db.snapshots().into_iter().map(|s| s.name).collect();
    assert_eq!(kept, snapshots, "{what}");
    db.close().unwrap();
    drop(db);
    let found = check(env(&after), options()).unwrap();
    if is_repaired_again {
        assert!(found.is_sound(), "{what}: {found:#?}");
    }
    true
}

#[test]
fn a_repair_that_was_cut_short_leaves_nothing_that_is_believed_and_may_vanish() {
    let is_full = variable("HEADWATER_CRASH_EVERY").is_some();
    let kinds = [
        Some(FaultKind::SyncError),
        Some(FaultKind::SyncErrorReverting),
        Some(FaultKind::SyncFull),
        Some(FaultKind::WriteError),
        Some(FaultKind::CreateError),
        Some(FaultKind::RemoveError),
        None,
    ];
    let mut met = 0;
    for harm in Harm::ALL {
        for kind in kinds {
            for is_again in [true, false] {
                for at in cuts(10_000, 6) {
                    let at = if is_full { at } else { at / 2 };
                    let trouble = kind.map_or(Trouble::Kill(at), |kind| Trouble::Fault(kind, at));
                    if !repair_in_trouble(harm, trouble, is_again) {
                        break;
                    }
                    met += 1;
                }
            }
        }
    }
    assert!(met > 50, "{met}");
}

/// The metadata remember what time it was. Without them the events do: a clock that is years ahead
/// ends nothing because nobody remembers that it is wrong.
#[test]
fn a_wrong_clock_ends_nothing_where_the_metadata_are_made_anew() {
    const YEAR: i64 = 365 * 86_400;
    for in_segments in [true, false] {
        let disk = FaultyFiles::new(1);
        let db = Database::open_in(env(&disk), options()).unwrap();
        for second in 0..100 {
            put(&db, "1", second, &["a"], Some(YEAR));
        }
        // A few events of a future that no clock has shown.
        put(&db, "1", 3 * YEAR, &["a"], Some(YEAR));
        let rows = read_rows(&db, "1");
        match in_segments {
            true => db.close().unwrap(),
            false => {
                disk.crash_now();
                drop(db);
            }
        }
        let disk = disk.after_crash(1);
        disk.remove(Path::new("/db/meta.redb")).unwrap();
        let wrong = START + 5 * YEAR * SECOND;
        let report = repair(&env_at(&disk, wrong), &options(), RepairMode::Act).unwrap();
        assert!(report.after.is_sound(), "{report:#?}");
        for _ in 0..2 {
            let db = Database::open_in(env_at(&disk, wrong), options()).unwrap();
            db.compact().unwrap();
            assert_eq!(read_rows(&db, "1"), rows, "in segments: {in_segments}");
            db.close().unwrap();
        }
        // When it is right again, all ends when it was to end.
        let db = Database::open_in(env_at(&disk, START + 200 * SECOND), options()).unwrap();
        assert_eq!(read_rows(&db, "1"), rows);
        db.close().unwrap();
    }
}
