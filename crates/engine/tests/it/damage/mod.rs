//! Flipped bits and files cut short, in every kind of file. What is damaged is named, with file and
//! offset; whatever is returned is right; everything that is not damaged stays readable; nothing
//! panics; `check` reports what reading met. Only a damaged log or damaged metadata keep a database
//! from opening.

mod metadata;

use crate::support::{
    Action, Dice, Event, Fields, Maker, Model, Run, START, Step, batch_of, check, collect,
    read_back, small_options, steps, workload,
};
use headwater_engine::{
    AggregateSpec, Bins, Database, Error, ErrorKind, FlushRule, Options, ScanSpec,
};
use headwater_io::FaultyFiles;
use headwater_types::{ClosedRange, Extremes, Level, StreamName, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database at rest, and what it holds.
pub(crate) struct Victim {
    pub(crate) disk: FaultyFiles,
    pub(crate) options: Options,
    pub(crate) actions: Vec<Action>,
    /// Steps that a flush has stored.
    flushed: usize,
}

/// A power cut after the last acknowledgement: segments and metadata as of the last flush, the rest
/// in the log.
fn victim(options: Options, mut actions: Vec<Action>, tail: Vec<Action>) -> Victim {
    let disk = FaultyFiles::new(1);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let db = run.open().unwrap();
    let db = run.play_on(db, &actions).unwrap();
    db.flush().unwrap();
    let flushed = run.progress.acknowledged;
    let db = run.play_on(db, &tail).unwrap();
    disk.crash_now();
    drop(db);
    actions.extend(tail);
    Victim {
        disk: disk.after_crash(1),
        options,
        actions,
        flushed,
    }
}

/// Everything there is: late runs, pyramids of several levels, shared leaves, several groups, a log
/// with records.
pub(crate) fn rich_victim() -> Victim {
    let options = Options {
        partition_target_bytes: 24 << 10,
        partition_bytes_max: 48 << 10,
        ..small_options()
    };
    let mut actions = workload(31, 60, 9, 0, 0);
    // One stream dense enough for a pyramid of several levels.
    let mut clock = START;
    for batch in 0..12 {
        let name = StreamName::new("dense", [("id", "1")]);
        let event = |clock: i64| {
            let value = Value::I64(clock / 1_000_000 % 1000);
            Event {
                stream: name.clone(),
                time: clock,
                fields: Fields::from([("n".to_owned(), value)]),
            }
        };
        let events = (0..150)
            .map(|_| {
                clock += 1_000_000_000;
                event(clock)
            })
            .collect();
        actions.push(Action::Write(events));
        if batch % 3 == 2 {
            actions.push(Action::Flush);
        }
    }
    actions.push(Action::Write(vec![Event {
        stream: StreamName::new("dense", [("id", "1")]),
        time: START + 17,
        fields: Fields::from([("n".to_owned(), Value::I64(-7))]),
    }]));
    let mut maker = Maker::new(32);
    let tail = (0..14)
        .map(|_| Action::Write(maker.events(7, 90)))
        .collect();
    victim(options, actions, tail)
}

impl Victim {
    /// The same, opened and closed.
    pub(crate) fn closed(self) -> Victim {
        let run = Run::new(Arc::new(self.disk.clone()), &self.options);
        run.open().unwrap().close().unwrap();
        let flushed = self.steps().len();
        Victim { flushed, ..self }
    }

    pub(crate) fn steps(&self) -> Vec<Step<'_>> {
        steps(&self.actions)
    }

    pub(crate) fn files(&self, kind: &str) -> Vec<(PathBuf, u64)> {
        self.disk
            .files()
            .into_iter()
            .filter(|(path, _)| path.to_string_lossy().contains(kind))
            .collect()
    }

    fn model(&self) -> Model {
        Model::after(&self.steps(), usize::MAX)
    }
}

pub(crate) fn assert_located(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
    let damage = error
        .damaged()
        .unwrap_or_else(|| panic!("{what}: {error:?} names no place"));
    assert!(
        !damage.file.as_os_str().is_empty() && !damage.expected.is_empty(),
        "{what}: {damage:?}"
    );
    assert!(
        error.to_string().contains(&*damage.file.to_string_lossy()),
        "{what}: {error}"
    );
}

/// What reading a damaged database gave.
#[derive(Debug, Default)]
struct Reading {
    errors: Vec<Error>,
    changed_rows: usize,
}

/// Every value ever written, by stream, time and field.
pub(crate) fn values_ever(steps: &[Step<'_>]) -> BTreeMap<(StreamName, i64, String), Vec<Value>> {
    let mut out: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    for step in steps {
        if let Step::Write(events) = step {
            for event in *events {
                for (field, value) in &event.fields {
                    out.entry((event.stream.clone(), event.time, field.clone()))
                        .or_default()
                        .push(value.clone());
                }
            }
        }
    }
    out
}

/// Reads everything in every way. What comes back has to be what the model holds; where a scan has
/// met damage, rows may be missing, or lack what the damaged part held.
fn read_damaged(
    db: &Database,
    model: &Model,
    ever: &BTreeMap<(StreamName, i64, String), Vec<Value>>,
    what: &str,
) -> Reading {
    let mut reading = Reading::default();
    let snapshot = db.snapshot().unwrap();
    let partitions = db.partitions().into_iter();
    let unreadable: BTreeSet<PathBuf> = partitions
        .filter(|p| p.unreadable.is_some())
        .map(|p| p.file)
        .collect();
    for (name, expected) in model.streams() {
        let (rows, errors) = match snapshot.scan(name, &ScanSpec::default()) {
            Ok(scan) => collect(scan),
            Err(error) => (Vec::new(), vec![error]),
        };
        if errors.is_empty() {
            assert_eq!(rows.len(), expected.len(), "{what}: rows of {name}");
            for (found, expected) in rows.iter().zip(expected) {
                assert!(
                    same_row(found, expected),
                    "{what}: {name}: {found:?}, expected {expected:?}"
                );
            }
        } else {
            assert!(
                rows.is_sorted_by_key(|(t, _)| *t),
                "{what}: {name} out of order"
            );
            for (time, fields) in &rows {
                for (field, value) in fields {
                    let known = ever.get(&(name.clone(), *time, field.clone()));
                    let written = known.is_some_and(|k| k.iter().any(|v| same_value(value, v)));
                    assert!(
                        written,
                        "{what}: {name} at {time}: {field} = {value:?} was never written"
                    );
                }
            }
            assert!(
                rows.len() <= expected.len(),
                "{what}: {name} has {} rows of {}",
                rows.len(),
                expected.len()
            );
            let changed = expected
                .iter()
                .filter(|e| !rows.iter().any(|r| same_row(r, e)))
                .count();
            // A leaf holds up to 16 rows; without the footers a whole partition cannot be read.
            let leaves = errors.iter().all(|e| {
                let file = e.damaged().is_some_and(|d| unreadable.contains(&d.file));
                !e.to_string().contains("footer") && !file
            });
            assert!(
                !leaves || changed <= 16 * errors.len(),
                "{what}: {name}: {changed} rows lost by {errors:?}"
            );
            reading.changed_rows += changed;
        }
        check_aggregates(&snapshot, name, expected, what, &mut reading.errors);
        match snapshot.last(name) {
            Ok(last) => {
                for found in last {
                    let newest = expected
                        .iter()
                        .rev()
                        .find_map(|(t, f)| Some((*t, f.get(&found.field)?)));
                    let (time, value) = newest.unwrap_or_else(|| panic!("{what}: last {found:?}"));
                    assert!(
                        found.time.as_nanos() == time && same_value(&found.value, value),
                        "{what}: {name} {found:?}"
                    );
                }
            }
            Err(error) => reading.errors.push(error),
        }
        reading.errors.extend(errors);
    }
    for error in &reading.errors {
        assert_located(error, what);
    }
    reading
}

fn check_aggregates(
    snapshot: &headwater_engine::Snapshot,
    name: &StreamName,
    expected: &[(i64, Fields)],
    what: &str,
    errors: &mut Vec<Error>,
) {
    let fields: BTreeSet<&String> = expected.iter().flat_map(|(_, f)| f.keys()).collect();
    for field in fields {
        let numbers: Vec<(i64, f64)> = expected
            .iter()
            .filter_map(|(t, f)| match f.get(field)? {
                Value::F64(v) => Some((*t, *v)),
                Value::I64(v) => Some((*t, *v as f64)),
                Value::U64(v) => Some((*t, *v as f64)),
                _ => None,
            })
            .collect();
        if numbers.is_empty() {
            continue;
        }
        for level in [0, 6, 20] {
            let spec = AggregateSpec {
                range: ClosedRange::ALL,
                bins: Bins::Level(Level::new(level).unwrap()),
                first_last: false,
            };
            match snapshot.aggregate(name, field, &spec) {
                Err(error) => errors.push(error),
                Ok(bins) => {
                    let count: u64 = bins.iter().map(|b| b.aggregate.count).sum();
                    assert_eq!(
                        count,
                        numbers.len() as u64,
                        "{what}: count of {name}.{field} at level {level}"
                    );
                    let highest = bins
                        .iter()
                        .map(|b| highest(b.aggregate.extremes))
                        .fold(f64::MIN, f64::max);
                    let expected = numbers.iter().map(|(_, v)| *v).fold(f64::MIN, f64::max);
                    assert!(
                        highest == expected,
                        "{what}: maximum of {name}.{field}: {highest}, expected {expected}"
                    );
                }
            }
        }
    }
}

fn highest(extremes: Extremes) -> f64 {
    match extremes {
        Extremes::F64(_, high) => high,
        Extremes::I64(_, high) => high as f64,
        Extremes::U64(_, high) => high as f64,
        Extremes::None => f64::MIN,
    }
}

fn same_value(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::F64(f), Value::I64(e)) => *f == *e as f64,
        (f, e) => f.as_ref().same_bits(&e.as_ref()),
    }
}

fn same_row((t, f): &(i64, Fields), (u, g): &(i64, Fields)) -> bool {
    t == u
        && f.len() == g.len()
        && f.iter()
            .all(|(k, v)| g.get(k).is_some_and(|w| same_value(v, w)))
}

/// How a damaged database behaved.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Outcome {
    /// Nothing of it shows.
    Harmless,
    /// The newest acknowledged steps are gone, and the opening says that the log has a torn tail.
    TornTail,
    /// Reading reports it.
    Reported,
    /// Nothing of a partition can be read, and reading reports it.
    Unreadable,
    /// The database does not open.
    Refused,
}

/// The log and the segments, byte for byte.
fn data_files(disk: &FaultyFiles) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    paths
        .filter(|p| p.starts_with("/db/log") || p.starts_with("/db/segment"))
        .map(|p| (p.clone(), disk.read_file(&p).unwrap()))
        .collect()
}

/// Opens and reads a damaged copy of the victim, and checks everything that must hold, whatever is
/// damaged.
fn examine(victim: &Victim, disk: &FaultyFiles, what: &str) -> Outcome {
    let steps = victim.steps();
    let run = Run::new(Arc::new(disk.clone()), &victim.options);
    // On a copy: a check opens the database, which settles files.
    let report = check(Arc::new(disk.after_crash(1)), &victim.options);
    let before = data_files(disk);
    let db = match run.open() {
        Err(error) => {
            assert!(
                data_files(disk) == before,
                "{what}: refused, and yet files were changed"
            );
            assert_located(&error, what);
            assert!(
                !report.is_sound(),
                "{what}: refused, but the check finds nothing: {error}"
            );
            return Outcome::Refused;
        }
        Ok(db) => db,
    };
    if db.recovery().torn_tail && report.is_sound() {
        let found = read_back(&db).steps_found(&steps, victim.flushed, steps.len());
        let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
        return if found == steps.len() {
            Outcome::Harmless
        } else {
            Outcome::TornTail
        };
    }
    let reading = read_damaged(&db, &victim.model(), &values_ever(&steps), what);
    if reading.errors.is_empty() {
        return Outcome::Harmless;
    }
    assert!(
        !report.is_sound(),
        "{what}: the check finds nothing, reading finds {:?}",
        reading.errors
    );
    match db.partitions_unreadable() {
        0 => Outcome::Reported,
        _ => Outcome::Unreadable,
    }
}

fn flipped(victim: &Victim, path: &Path, offset: u64, bit: u8) -> FaultyFiles {
    let disk = victim.disk.after_crash(1);
    disk.flip_bit(path, offset, bit).unwrap();
    disk
}

/// Flips bits all over the files of a kind; counts what came of it.
fn flips(victim: &Victim, kind: &str, stride: u64) -> BTreeMap<String, usize> {
    let mut dice = Dice::new(stride);
    let mut outcomes = BTreeMap::new();
    for (path, len) in victim.files(kind) {
        let mut offset = dice.below(stride);
        while offset < len {
            let bit = dice.below(8) as u8;
            let what = format!("{} bit {bit} of byte {offset} of {len}", path.display());
            let outcome = examine(victim, &flipped(victim, &path, offset, bit), &what);
            *outcomes.entry(format!("{outcome:?}")).or_default() += 1;
            offset += 1 + dice.below(2 * stride - 1);
        }
    }
    outcomes
}

/// The log file that was begun last.
pub(crate) fn newest_log(disk: &FaultyFiles) -> PathBuf {
    let generation = |path: &PathBuf| {
        let header = disk.read_file(path).unwrap();
        header[8..16]
            .iter()
            .rev()
            .fold(0u64, |n, b| n << 8 | u64::from(*b))
    };
    let files = disk.files().into_iter().map(|(path, _)| path);
    files
        .filter(|p| p.starts_with("/db/log"))
        .max_by_key(generation)
        .unwrap()
}

/// Where the footers of a segment lie.
fn footers(bytes: &[u8]) -> Vec<std::ops::Range<u64>> {
    let magic = b"HWFOOT\x00\x01";
    let ends = bytes.windows(8).enumerate().filter(|(_, w)| w == magic);
    ends.map(|(at, _)| {
        let length = u32::from_le_bytes(bytes[at - 8..at - 4].try_into().unwrap());
        let end = at as u64 + 8;
        end - u64::from(length)..end
    })
    .collect()
}

#[test]
fn flipped_bits_in_segments() {
    let victim = rich_victim();
    let mut dice = Dice::new(150);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for (path, len) in victim.files("/segment/") {
        let bytes = victim.disk.read_file(&path).unwrap();
        let footers = footers(&bytes);
        // A checkpoint, which a footer of version 2 names, stands for the footers before it.
        let newest = footers.iter().rposition(|f| bytes[f.start as usize] == 2);
        let stood_for = &footers[..newest.unwrap_or(0)];
        let mut places: Vec<u64> = (0..len / 150).map(|_| dice.below(len)).collect();
        places.push(dice.below(64));
        places.extend(
            footers
                .iter()
                .map(|f| f.start + dice.below(f.end - f.start)),
        );
        for offset in places {
            let bit = dice.below(8) as u8;
            let what = format!("{} bit {bit} of byte {offset} of {len}", path.display());
            let outcome = examine(&victim, &flipped(&victim, &path, offset, bit), &what);
            let part = match offset {
                0..64 => "header",
                _ if footers.iter().any(|f| f.contains(&offset)) => "footer",
                _ => "group",
            };
            let expected: &[Outcome] = match part {
                "header" => &[Outcome::Unreadable],
                // Of a partition that the log has nothing for footers are read when somebody asks
                // for it.
                "footer" if !stood_for.iter().any(|f| f.contains(&offset)) => {
                    &[Outcome::Unreadable, Outcome::Reported]
                }
                "footer" => &[Outcome::Unreadable, Outcome::Reported, Outcome::Harmless],
                // What was merged away is not read any more.
                _ => &[Outcome::Reported, Outcome::Harmless],
            };
            assert!(expected.contains(&outcome), "{what}: {part}: {outcome:?}");
            *outcomes.entry(format!("{part} {outcome:?}")).or_default() += 1;
        }
    }
    assert!(outcomes["header Unreadable"] > 3, "{outcomes:?}");
    assert!(outcomes["footer Unreadable"] > 3, "{outcomes:?}");
    assert!(outcomes["group Reported"] > 50, "{outcomes:?}");
}

#[test]
fn a_damaged_leaf_stops_neither_writing_nor_storing() {
    let victim = rich_victim().closed();
    let mut dice = Dice::new(77);
    let mut reported = 0;
    for (path, len) in victim.files("/segment/") {
        for _ in 0..6 {
            let offset = dice.below(len);
            let what = format!("{} byte {offset} of {len}", path.display());
            let disk = flipped(&victim, &path, offset, 3);
            let outcome = examine(&victim, &disk.after_crash(1), &what);
            if !matches!(outcome, Outcome::Reported | Outcome::Unreadable) {
                continue;
            }
            let mut maker = Maker::new(31);
            let more: Vec<Action> = (0..8).map(|_| Action::Write(maker.events(9, 90))).collect();
            let mut run = Run::new(Arc::new(disk.clone()), &victim.options);
            let db = run.open().unwrap();
            let mut steps = victim.steps();
            steps.extend(self::steps(&more));
            let db = run
                .play_on(db, &more)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            reported += 1;
            db.flush().unwrap_or_else(|e| panic!("{what}: {e}"));
            db.compact().unwrap_or_else(|e| panic!("{what}: {e}"));
            db.close().unwrap();
            drop(db);
            let db = run.open().unwrap();
            let ever = values_ever(&steps);
            let model = Model::after(&steps, usize::MAX);
            read_damaged(&db, &model, &ever, &what);
            let written = Model::after(&self::steps(&more), usize::MAX);
            let snapshot = db.snapshot().unwrap();
            for (name, rows) in written.streams() {
                let (found, _) = collect(snapshot.scan(name, &ScanSpec::default()).unwrap());
                for (time, fields) in rows {
                    let kept = found.iter().any(|(t, f)| {
                        t == time
                            && fields
                                .iter()
                                .all(|(k, v)| f.get(k).is_some_and(|w| same_value(w, v)))
                    });
                    assert!(
                        kept,
                        "{what}: {name} at {time} was written after the damage and is gone"
                    );
                }
            }
        }
    }
    assert!(reported > 8, "{reported}");
}

#[test]
fn events_in_memory_outlive_the_footer_of_their_partition() {
    let options = small_options();
    let name = StreamName::new("dense", [("id", "1")]);
    let event = |time: i64| Event {
        stream: name.clone(),
        time,
        fields: Fields::from([("n".to_owned(), Value::I64(time / 1_000_000_000))]),
    };
    let far = START + (1 << 58);
    let actions = [
        Action::Write((0..400).map(|i| event(START + i * 1_000_000_000)).collect()),
        Action::Flush,
        Action::Write((0..20).map(|i| event(far + i)).collect()),
    ];
    let disk = FaultyFiles::new(1);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    run.play(&actions).unwrap();
    let mut met = 0;
    for (path, len) in disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("/db/segment"))
    {
        let disk = disk.after_crash(1);
        disk.flip_bit(&path, len - 3, 0).unwrap();
        let db = Run::new(Arc::new(disk), &options).open().unwrap();
        let late = START + 7;
        db.commit(batch_of(&[event(late)])).unwrap();
        let (rows, errors) = collect(
            db.snapshot()
                .unwrap()
                .scan(&name, &ScanSpec::default())
                .unwrap(),
        );
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_located(&errors[0], "footer");
        assert!(
            rows.iter().any(|(t, _)| *t == late),
            "{} has {} rows",
            path.display(),
            rows.len()
        );
        met += 1;
    }
    assert!(met > 0);
}

#[test]
fn flipped_bits_in_the_log() {
    let victim = rich_victim();
    let outcomes = flips(&victim, "/log/", 40);
    assert!(outcomes["Refused"] > 10, "{outcomes:?}");
}

#[test]
fn the_last_record_is_missed_when_a_step_has_been_committed_since() {
    let options = Options {
        flush_rule: FlushRule::LabExact { memory_events: 16 },
        ..small_options()
    };
    let disk = FaultyFiles::new(1);
    let mut run = Run::new(Arc::new(disk.clone()), &options);
    let mut db = run.open().unwrap();
    let mut maker = Maker::new(3);
    let (mut flushes, mut met) = (0, 0);
    for _ in 0..60 {
        db = run
            .play_on(db, &[Action::Write(maker.events(1, 0))])
            .unwrap();
        let stats = db.stats().unwrap();
        if std::mem::replace(&mut flushes, stats.flushes) == stats.flushes
            || stats.events_in_memory == 0
        {
            continue;
        }
        // What other shards hold in memory is only in the log.
        let disk = disk.after_crash(0);
        let newest = newest_log(&disk);
        let last = disk
            .read_file(&newest)
            .unwrap()
            .iter()
            .rposition(|b| *b != 0)
            .unwrap();
        disk.flip_bit(&newest, last as u64, 0).unwrap();
        let error = Run::new(Arc::new(disk), &options).open().unwrap_err();
        assert_located(&error, "the last record");
        met += 1;
    }
    assert!(met > 2);
}

#[test]
fn a_database_that_does_not_open_keeps_what_it_might_be_repaired_from() {
    let victim = rich_victim();
    let segments = victim.files("/segment/");
    let longer = &segments[0].0;
    // What a crash leaves: a tail behind the committed length, and a file that no commit names.
    let crashed = victim.disk.after_crash(1);
    let mut content = crashed.read_file(longer).unwrap();
    content.extend([7; 100]);
    crashed.write_file(longer, content).unwrap();
    crashed.write_file("/db/segment/999.seg", [7; 100]).unwrap();
    let open = |disk: &FaultyFiles| Run::new(Arc::new(disk.clone()), &victim.options).open();
    // Settled when all else is in order.
    let disk = crashed.after_crash(1);
    let recovery = open(&disk).unwrap().recovery().clone();
    assert_eq!((recovery.files_removed, recovery.files_truncated), (1, 1));
    let damages: [&dyn Fn(&FaultyFiles); 2] = [
        &|disk| disk.flip_bit(newest_log(disk), 70, 1).unwrap(),
        &|disk| disk.truncate_file(newest_log(disk), 1000).unwrap(),
    ];
    for (which, damage) in damages.iter().enumerate() {
        let disk = crashed.after_crash(1);
        damage(&disk);
        let before = data_files(&disk);
        let error = open(&disk).expect_err(&format!("damage {which}"));
        assert_located(&error, "refused");
        assert!(
            data_files(&disk) == before,
            "refused, and yet files were changed"
        );
    }
}

#[test]
fn files_cut_short() {
    let victim = rich_victim();
    let mut dice = Dice::new(5);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for (path, len) in victim.disk.files() {
        let lengths = [
            0,
            1,
            63,
            64,
            len / 2,
            len - 1,
            dice.below(len),
            dice.below(len),
        ];
        for length in lengths.into_iter().filter(|l| (0..len).contains(l)) {
            let disk = victim.disk.after_crash(1);
            disk.truncate_file(&path, length).unwrap();
            let what = format!("{} cut to {length} of {len}", path.display());
            let outcome = examine(&victim, &disk, &what);
            if path.starts_with("/db/segment") {
                assert_eq!(outcome, Outcome::Unreadable, "{what}");
            }
            *outcomes.entry(format!("{outcome:?}")).or_default() += 1;
        }
    }
    assert!(outcomes["Refused"] > 10, "{outcomes:?}");
}
