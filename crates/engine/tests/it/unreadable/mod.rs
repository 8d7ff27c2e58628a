//! Segment files damaged in every part: the database opens all the same, everything outside of the
//! partition is as it was, nothing is told wrong, writes go on, and a repair loses what it says it
//! loses and nothing else.

mod waiting;

use crate::support::{Run, check, collect};
use headwater_engine::{
    AggregateSpec, Bins, Database, Duplicates, Error, ErrorKind, Options, RepairMode, ScanSpec,
    TableSpec, repair,
};
use headwater_io::{Env, FaultyFiles, Files};
use headwater_types::{Batch, ClosedRange, StreamName, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
const STREAMS: i64 = 7;

/// What should be there, by stream and time.
type Rows = BTreeMap<(StreamName, i64), i64>;

fn options() -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        partition_target_bytes: 3 << 10,
        partition_bytes_max: 8 << 10,
        leaf_events: 32,
        groups_max: 100,
        log_file_bytes: 16 << 10,
        reserve_bytes: 0,
        ..Options::new("/db")
    }
}

fn stream(number: i64) -> StreamName {
    StreamName::new("m", [("device", number.to_string())])
}

fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

fn open(disk: &FaultyFiles, options: &Options) -> Result<Database, Error> {
    Run::new(Arc::new(disk.clone()), options).open()
}

/// Writes one row to each stream, at about the same time.
fn write_at(db: &Database, rows: &mut Rows, times: &[i64]) -> Result<(), Error> {
    let mut batch = Batch::new();
    for time in times {
        for number in 0..STREAMS {
            let (name, time) = (stream(number), time + number);
            let value = time / 7;
            let row = [("n", Value::I64(value))];
            batch.stream(&name).row(time, row).unwrap();
            rows.insert((name, time), value);
        }
    }
    let written = db.commit(batch)?;
    assert_eq!(written.refused, []);
    Ok(())
}

struct Victim {
    disk: FaultyFiles,
    rows: Rows,
    /// Segment files with the spans of their partitions, the oldest span first.
    files: Vec<(PathBuf, ClosedRange)>,
}

/// A database after a power cut, with several groups in each segment. With `unflushed` the log has
/// rows for the newest partitions and for older ones that no segment holds.
fn victim(unflushed: bool) -> Victim {
    let disk = FaultyFiles::new(1);
    let options = options();
    let db = open(&disk, &options).unwrap();
    // What is counted twice shows.
    let spec = TableSpec {
        duplicates: Duplicates::Keep,
        ..TableSpec::new("m")
    };
    db.create_table(&spec).unwrap();
    let mut rows = Rows::new();
    let last = 900;
    for second in 0..last {
        write_at(&db, &mut rows, &[START + second * SECOND]).unwrap();
        if second % 100 == 99 {
            // Late by some minutes: merges and late runs in partitions that had been stored.
            let late = |n: i64| START + (second - 60 - n) * SECOND + SECOND / 2;
            write_at(&db, &mut rows, &[late(0), late(1), late(17)]).unwrap();
            db.flush().unwrap();
        }
    }
    if unflushed {
        for n in 0..40 {
            let late = START + (n * 29 % last) * SECOND + SECOND / 4;
            write_at(&db, &mut rows, &[START + (last + n) * SECOND, late]).unwrap();
        }
    }
    let files = db.partitions().into_iter().map(|p| (p.file, p.range));
    let mut files: Vec<(PathBuf, ClosedRange)> = files.collect();
    files.sort_by_key(|(path, range)| (range.first, path.clone()));
    disk.crash_now();
    drop(db);
    Victim {
        disk: disk.after_crash(1),
        rows,
        files,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Missing,
    Empty,
    Shorter(u64),
    LastByteMissing,
    /// The bytes of another segment.
    Misdirected,
    /// So many zeros, or other bytes, there.
    Zeroed(DamageSite, usize),
    Garbled(DamageSite, usize),
    Bit(DamageSite),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DamageSite {
    Header,
    FirstFooter,
    LastFooter,
    Middle,
}

const DAMAGES: [Damage; 15] = [
    Damage::Missing,
    Damage::Empty,
    Damage::Shorter(30),
    Damage::Shorter(700),
    Damage::LastByteMissing,
    Damage::Misdirected,
    Damage::Zeroed(DamageSite::Header, 512),
    Damage::Zeroed(DamageSite::LastFooter, 512),
    Damage::Zeroed(DamageSite::Middle, 4096),
    Damage::Garbled(DamageSite::Header, 4096),
    Damage::Garbled(DamageSite::FirstFooter, 512),
    Damage::Garbled(DamageSite::Middle, 512),
    Damage::Bit(DamageSite::Header),
    Damage::Bit(DamageSite::FirstFooter),
    Damage::Bit(DamageSite::LastFooter),
];

/// Where footers end.
fn footer_ends(bytes: &[u8]) -> Vec<usize> {
    let magic = b"HWFOOT\x00\x01";
    let ends = bytes.windows(8).enumerate();
    ends.filter(|(_, w)| w == magic)
        .map(|(at, _)| at + 8)
        .collect()
}

impl DamageSite {
    fn offset(self, bytes: &[u8]) -> usize {
        let ends = footer_ends(bytes);
        match self {
            DamageSite::Header => 0,
            DamageSite::FirstFooter => ends[0] - 20,
            DamageSite::LastFooter => ends[ends.len() - 1] - 20,
            DamageSite::Middle => bytes.len() / 2,
        }
    }
}

impl Damage {
    fn inflict(self, disk: &FaultyFiles, path: &Path, other: &Path) {
        let mut bytes = disk.read_file(path).unwrap();
        let mut overwrite = |place: DamageSite, len: usize, with: &dyn Fn(usize) -> u8| {
            let at = place.offset(&bytes) / 512 * 512;
            let at = if place == DamageSite::Header { 0 } else { at };
            for (n, byte) in bytes.iter_mut().skip(at).take(len).enumerate() {
                *byte = with(n);
            }
        };
        match self {
            Damage::Missing => return disk.remove(path).unwrap(),
            Damage::Empty => bytes.clear(),
            Damage::Shorter(len) => bytes.truncate(len as usize),
            Damage::LastByteMissing => drop(bytes.pop()),
            Damage::Misdirected => bytes = disk.read_file(other).unwrap(),
            Damage::Zeroed(place, len) => overwrite(place, len, &|_| 0),
            Damage::Garbled(place, len) => overwrite(place, len, &|n| (n * 151 + 77) as u8),
            Damage::Bit(place) => {
                let at = place.offset(&bytes) + if place == DamageSite::Header { 30 } else { 0 };
                bytes[at] ^= 4;
            }
        }
        disk.write_file(path, bytes).unwrap();
    }

    /// All of the partition is hit, and not only leaves or blocks of it.
    fn hits_all(self) -> bool {
        match self {
            Damage::Zeroed(place, _) | Damage::Garbled(place, _) | Damage::Bit(place) => {
                place != DamageSite::Middle
            }
            _ => true,
        }
    }
}

fn around(spans: &[ClosedRange]) -> Vec<ClosedRange> {
    let mut out = Vec::new();
    let mut next = Some(i64::MIN);
    for span in spans {
        if let Some(from) = next.filter(|from| *from < span.first.as_nanos()) {
            out.push(ClosedRange::nanos(from, span.first.as_nanos() - 1));
        }
        // Those of different shards may overlap.
        let behind = span.last.as_nanos().checked_add(1);
        next = next.and_then(|from| Some(from.max(behind?)));
    }
    out.extend(next.map(|from| ClosedRange::nanos(from, i64::MAX)));
    out
}

fn of_stream(rows: &Rows, name: &StreamName, range: &ClosedRange) -> Vec<(i64, i64)> {
    rows.iter()
        .filter(|((n, t), _)| {
            n == name && range.first.as_nanos() <= *t && *t <= range.last.as_nanos()
        })
        .map(|((_, t), v)| (*t, *v))
        .collect()
}

fn scan(db: &Database, name: &StreamName, range: &ClosedRange) -> (Vec<(i64, i64)>, Vec<Error>) {
    let spec = ScanSpec {
        range: *range,
        ..ScanSpec::default()
    };
    let (rows, errors) = match db.snapshot().unwrap().scan(name, &spec) {
        Ok(scan) => collect(scan),
        Err(error) => (Vec::new(), vec![error]),
    };
    let rows = rows.into_iter().map(|(time, fields)| match fields["n"] {
        Value::I64(n) => (time, n),
        ref other => panic!("{other:?}"),
    });
    (rows.collect(), errors)
}

/// Everything outside of the spans is there; inside nothing is told wrong. True when anything could
/// not be read.
fn assert_as_written(
    db: &Database,
    rows: &Rows,
    hit: &[(PathBuf, ClosedRange)],
    what: &str,
) -> bool {
    let spans: Vec<ClosedRange> = hit.iter().map(|(_, span)| *span).collect();
    let assert_located = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        let file = error.damaged().map(|d| d.file.clone());
        assert!(
            hit.iter().any(|(path, _)| Some(path) == file.as_ref()),
            "{what}: {error:?}"
        );
    };
    let mut met = false;
    for number in 0..STREAMS {
        let name = stream(number);
        for range in around(&spans) {
            let (found, errors) = scan(db, &name, &range);
            assert!(errors.is_empty(), "{what}: {name} {range:?}: {errors:?}");
            assert!(
                found == of_stream(rows, &name, &range),
                "{what}: {name} {range:?}"
            );
        }
        let expected = of_stream(rows, &name, &ClosedRange::ALL);
        let (found, errors) = scan(db, &name, &ClosedRange::ALL);
        assert!(found.is_sorted(), "{what}: {name}");
        let inside = found.iter().all(|row| expected.contains(row));
        assert!(inside, "{what}: {name} has rows that were never written");
        assert!(
            !errors.is_empty() || found == expected,
            "{what}: {name} has {} rows of {}, and no error",
            found.len(),
            expected.len()
        );
        errors.iter().for_each(assert_located);
        met |= !errors.is_empty();
        // A sum over everything is right, or it is an error.
        for bins in [
            Bins::Whole,
            Bins::Level(headwater_types::Level::new(4).unwrap()),
        ] {
            let spec = AggregateSpec {
                range: ClosedRange::ALL,
                bins,
                first_last: false,
            };
            match db.snapshot().unwrap().aggregate(&name, "n", &spec) {
                Err(error) => assert_located(&error),
                Ok(bins) => {
                    let count: u64 = bins.iter().map(|b| b.aggregate.count).sum();
                    assert_eq!(count, expected.len() as u64, "{what}: count of {name}");
                }
            }
        }
        match db.snapshot().unwrap().last(&name) {
            Err(error) => assert_located(&error),
            Ok(last) => {
                let newest = expected.last().map(|(t, _)| *t);
                let found = last.first().map(|l| l.time.as_nanos());
                assert_eq!(found, newest, "{what}: last of {name}");
            }
        }
    }
    met
}

/// Rows of a repaired database that are missing.
fn missing(db: &Database, rows: &Rows, what: &str) -> Vec<(StreamName, i64)> {
    let mut out = Vec::new();
    for number in 0..STREAMS {
        let name = stream(number);
        let (found, errors) = scan(db, &name, &ClosedRange::ALL);
        assert!(errors.is_empty(), "{what}: {errors:?}");
        let expected = of_stream(rows, &name, &ClosedRange::ALL);
        assert!(
            found.iter().all(|row| expected.contains(row)),
            "{what}: {name} has rows that were never written, or twice"
        );
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{what}: {name}");
        let gone = expected.into_iter().filter(|row| !found.contains(row));
        out.extend(gone.map(|(time, _)| (name.clone(), time)));
    }
    out
}

/// What a repair says it lost at most: the numbers of its lines.
fn reported_lost(lost: &[String]) -> usize {
    lost.iter()
        .map(|line| {
            let line = line.strip_prefix("up to ").unwrap_or(line);
            let number = line.split(' ').next().unwrap();
            number.parse::<usize>().unwrap_or_else(|_| panic!("{line}"))
        })
        .sum()
}

fn content(disk: &FaultyFiles, path: &Path) -> Option<Vec<u8>> {
    disk.read_file(path).ok()
}

/// One damage, from the first opening to the repair.
fn endure(victim: &Victim, hit: &[(PathBuf, ClosedRange)], damage: Damage, what: &str) {
    let options = options();
    let disk = victim.disk.after_crash(1);
    let other = victim
        .files
        .iter()
        .find(|(p, _)| hit.iter().all(|(h, _)| h != p));
    for (path, _) in hit {
        damage.inflict(&disk, path, &other.unwrap().0);
    }
    let left: Vec<_> = hit.iter().map(|(path, _)| content(&disk, path)).collect();
    let unchanged = |disk: &FaultyFiles| {
        for ((path, _), left) in hit.iter().zip(&left) {
            assert!(
                content(disk, path) == *left,
                "{what}: {} was changed",
                path.display()
            );
        }
    };
    let named = |disk: &FaultyFiles| {
        let report = check(Arc::new(disk.clone()), &options);
        for (path, _) in hit.iter().filter(|_| damage.hits_all()) {
            assert!(
                report.damages.iter().any(|d| d.file == *path),
                "{what}: the check does not name {}: {report:#?}",
                path.display()
            );
        }
    };
    named(&disk);
    let mut rows = victim.rows.clone();
    let db = open(&disk, &options).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let met = assert_as_written(&db, &rows, hit, what);
    assert!(met || !damage.hits_all(), "{what}: nobody met the damage");
    // Writes go on, also where the damage is.
    let mut times: Vec<i64> = (0..30)
        .map(|n| START + (n * 41 + 7) * SECOND + SECOND / 3)
        .collect();
    times.extend((0..20).map(|n| START + (2000 + n) * SECOND));
    for times in times.chunks(10) {
        write_at(&db, &mut rows, times).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    }
    db.flush().unwrap_or_else(|e| panic!("{what}: {e:?}"));
    db.compact().unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_as_written(&db, &rows, hit, what);
    if damage.hits_all() {
        unchanged(&disk);
        let told = db.stats().unwrap().partitions_unreadable;
        assert_eq!(told, hit.len() as u64, "{what}");
        for info in db.partitions() {
            let is_hit = hit.iter().any(|(path, _)| *path == info.file);
            assert_eq!(info.unreadable.is_some(), is_hit, "{what}: {info:?}");
        }
    }
    let gone_cleanly = matches!(
        damage,
        Damage::Bit(_) | Damage::Missing | Damage::Shorter(_)
    );
    let disk = if gone_cleanly {
        db.close().unwrap();
        drop(db);
        disk
    } else {
        disk.crash_now();
        drop(db);
        disk.after_crash(1)
    };
    named(&disk);
    let db = open(&disk, &options).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let met = assert_as_written(&db, &rows, hit, what);
    assert!(met || !damage.hits_all(), "{what}: nobody met the damage");
    db.close().unwrap();
    drop(db);
    if damage.hits_all() {
        unchanged(&disk);
    }
    let report = repair(&env(&disk), &options, RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{what}: {report:#?}");
    let db = open(&disk, &options).unwrap();
    assert_eq!(db.stats().unwrap().partitions_unreadable, 0, "{what}");
    let missing = missing(&db, &rows, what);
    let told = reported_lost(&report.lost);
    assert!(
        missing.len() <= told,
        "{what}: {} rows are missing, the repair tells of {told}: {report:#?}",
        missing.len()
    );
    for (name, time) in &missing {
        let inside =
            |span: &ClosedRange| span.contains(headwater_types::Timestamp::from_nanos(*time));
        assert!(
            hit.iter().any(|(_, span)| inside(span)),
            "{what}: {name} {time} was elsewhere"
        );
        let kept = victim.rows.contains_key(&(name.clone(), *time));
        assert!(kept, "{what}: {name} {time} was accepted after the damage");
    }
}

/// Damages of every kind in the newest partitions, in an older one, and in two at once.
fn endure_all(unflushed: bool) {
    let victim = victim(unflushed);
    let count = victim.files.len();
    assert!(count >= 5, "{:?}", victim.files);
    let newest = &victim.files[count - 1..];
    let older = &victim.files[1..2];
    for damage in DAMAGES {
        for hit in [newest, older] {
            endure(&victim, hit, damage, &format!("{damage:?} of {hit:?}"));
        }
    }
    let two = [victim.files[0].clone(), victim.files[count - 2].clone()];
    for damage in [Damage::Missing, Damage::Zeroed(DamageSite::Header, 512)] {
        endure(&victim, &two, damage, &format!("{damage:?} of {two:?}"));
    }
}

#[test]
fn a_database_opens_without_a_damaged_partition() {
    endure_all(false);
}

#[test]
fn a_damaged_partition_takes_no_rows_of_the_log_with_it() {
    endure_all(true);
}
