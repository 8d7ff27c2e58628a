//! Copies that keep what their source has cut away: whatever the source forgets because of its age
//! stays in the copy, and what users delete goes there, too.

use super::edge::{options, streams, tiles};
use crate::support::{Dice, collect};
use headwater_engine::{
    Database, DeleteSpec, ErrorKind, PinnedState, RemoteCopy, ReplicationRules, ScanSpec, Snapshot,
    State, TableSpec,
};
use headwater_io::{Env, FaultyFiles, ManualClock, NoThreads, SeededChance};
use headwater_types::{Aggregate, Batch, ClosedRange, Level, StreamName, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: Duration = Duration::from_secs(3600);
const DIR: &str = "/copies/1";
const TABLES: [&str; 3] = ["plain", "ages", "forgets"];

/// A source, and a database with the same rows and deletes that forgets nothing.
struct Pair {
    source: Database,
    twin: Database,
    clock: Arc<ManualClock>,
    dice: Dice,
    newest: i64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        let open = |seed| {
            let env = Env {
                clock: Arc::clone(&clock) as _,
                chance: Arc::new(SeededChance::new(seed)),
                threads: Arc::new(NoThreads),
                ..Env::memory()
            };
            Database::open_in(env, options()).unwrap()
        };
        let (source, twin) = (open(seed), open(seed + 1000));
        let spec = |table| TableSpec::new(table);
        for table in TABLES {
            twin.create_table(&spec(table)).unwrap();
        }
        source.create_table(&spec("plain")).unwrap();
        let ages = TableSpec {
            raw_for: Some(HOUR),
            ..spec("ages")
        };
        let forgets = TableSpec {
            retention: Some(HOUR),
            ..spec("forgets")
        };
        for table in [ages, forgets] {
            source.create_table(&table).unwrap();
        }
        Pair {
            source,
            twin,
            clock,
            dice: Dice::new(seed),
            newest: Env::MEMORY_START.as_nanos(),
        }
    }

    fn stream(&mut self) -> StreamName {
        let table = TABLES[self.dice.below(3) as usize];
        StreamName::new(table, [("id", self.dice.below(2).to_string())])
    }

    fn write(&mut self) {
        let stream = self.stream();
        let dice = &mut self.dice;
        let is_late = dice.chance(10);
        let late = dice.below(15 * MINUTE as u64) as i64;
        let mut time = self.newest - if is_late { late } else { 0 };
        let mut rows = Vec::new();
        for _ in 0..1 + dice.below(if is_late { 6 } else { 90 }) {
            time += SECOND / 2 + dice.below(2 * SECOND as u64) as i64;
            rows.push((time, dice.below(1000) as f64 / 8.0));
        }
        for db in [&self.source, &self.twin] {
            let mut batch = Batch::new();
            let of_stream = batch.stream(&stream);
            for (time, value) in &rows {
                of_stream.row(*time, [("v", Value::F64(*value))]).unwrap();
            }
            db.commit(batch).unwrap();
        }
        let passed = time - self.newest;
        if passed > 0 {
            self.newest = time;
            self.clock.advance(Duration::from_nanos(passed as u64));
        }
    }

    fn delete(&mut self, range: ClosedRange) {
        let stream = self.stream();
        let spec = DeleteSpec {
            table: stream.table().to_owned(),
            tags: match self.dice.chance(50) {
                true => stream.tags().to_vec(),
                false => Vec::new(),
            },
            range,
        };
        for db in [&self.source, &self.twin] {
            db.delete(&spec).unwrap();
        }
    }

    /// A range of what there was so far.
    fn some_range(&mut self) -> ClosedRange {
        let start = Env::MEMORY_START.as_nanos();
        let first = start + self.dice.below((self.newest - start) as u64) as i64;
        let last = first + self.dice.below(10 * MINUTE as u64) as i64;
        ClosedRange::nanos(first, last)
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=84 => self.write(),
            85..=92 => self.source.flush().unwrap(),
            93..=96 => self.source.maintain().unwrap(),
            _ => self.source.compact().unwrap(),
        }
    }

    fn stored(&self, before: Option<&State>) -> PinnedState {
        self.source.flush().unwrap();
        self.source.hold_state(before).unwrap()
    }

    /// Time passes without rows.
    fn pass(&mut self, passed: Duration) {
        self.clock.advance(passed);
        self.newest += passed.as_nanos() as i64;
    }
}

/// A copy that keeps what its source cuts away.
struct Keeper {
    disk: FaultyFiles,
    rules: ReplicationRules,
    copy: RemoteCopy,
}

fn env(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

fn fetch(copy: &RemoteCopy, held: &PinnedState) {
    loop {
        let missing = copy.missing(u64::MAX);
        if missing.is_empty() {
            return;
        }
        for one in missing {
            let bytes = u32::try_from(one.range.bytes).unwrap();
            let found = held.read(one.segment, one.range.offset, bytes).unwrap();
            copy.put(one.segment, one.range.offset, &found).unwrap();
        }
        copy.commit().unwrap();
    }
}

impl Keeper {
    fn new(pair: &Pair, rules: ReplicationRules) -> Keeper {
        pair.source.add_copy("far").unwrap();
        let held = pair.stored(None);
        let disk = FaultyFiles::new(7);
        let to = Path::new(DIR);
        let copy = RemoteCopy::begin(env(&disk), to, held.state(), rules.clone()).unwrap();
        let keeper = Keeper { disk, rules, copy };
        fetch(&keeper.copy, &held);
        keeper
    }

    /// Takes what the source has now, as it would come over a wire.
    fn follow(&self, pair: &Pair) {
        let known = self.copy.state();
        let held = pair.stored(Some(&known));
        let bytes = held.state().encode_after(&known);
        let state = State::decode(&bytes, Some(&known)).unwrap();
        self.copy.take_state(state).unwrap();
        fetch(&self.copy, &held);
        pair.source.confirm_copy("far", &self.copy.state().name());
    }

    fn cut(&mut self, seed: u64) {
        let before = self.copy.progress();
        self.disk.crash_now();
        self.disk = self.disk.after_crash(seed);
        let to = Path::new(DIR);
        self.copy = RemoteCopy::open(env(&self.disk), to, self.rules.clone()).unwrap();
        assert_eq!(self.copy.progress(), before);
    }

    fn snapshot(&self) -> Snapshot {
        self.copy.reader(options()).unwrap().snapshot()
    }
}

type Rows = BTreeMap<StreamName, Vec<i64>>;

/// Instants of all rows, by stream.
fn rows(snapshot: &Snapshot) -> Rows {
    let of = |stream: StreamName| {
        let (rows, errors) = collect(snapshot.scan(&stream, &ScanSpec::default()).unwrap());
        assert!(errors.is_empty(), "{stream}: {errors:?}");
        (stream, rows.into_iter().map(|row| row.0).collect())
    };
    streams(snapshot).into_iter().map(of).collect()
}

fn count(rows: &Rows, table: &str) -> usize {
    let of = rows.iter().filter(|(stream, _)| stream.table() == table);
    of.map(|(_, rows)| rows.len()).sum()
}

/// What does not depend on the order in which rows were put together: of buckets their numbers,
/// events, extremes and times, and means to nine digits.
pub(super) fn plain(tile: &[(i64, Aggregate)]) -> Vec<(i64, u64, String)> {
    let bucket = |(number, a): &(i64, Aggregate)| {
        let mean = a.mean().map(|mean| format!("{mean:.9e}"));
        let rest = format!("{:?} {:?} {mean:?}", a.extremes, a.mean_time());
        (*number, a.count, rest)
    };
    tile.iter().map(bucket).collect()
}

/// Everything that can be asked is as in a database that forgets nothing.
fn compare(copy: &Snapshot, twin: &Snapshot, pair: &Pair, from: Level) {
    let span = ClosedRange::nanos(Env::MEMORY_START.as_nanos() - 30 * MINUTE, pair.newest);
    for stream in streams(twin) {
        for above in [0, 2, 5] {
            let level = Level::clamped(from.get() + above);
            for offset in tiles(level, &span) {
                let found = copy.tile(&stream, "v", level, offset).unwrap();
                let expected = twin.tile(&stream, "v", level, offset).unwrap();
                let (found, expected) = (plain(&found), plain(&expected));
                assert_eq!(found, expected, "{stream}, {level:?}, tile {offset}");
            }
        }
    }
}

fn compare_rows(copy: &Snapshot, twin: &Snapshot) {
    assert_eq!(rows(copy), rows(twin));
    for stream in streams(twin) {
        assert_eq!(copy.last(&stream).unwrap(), twin.last(&stream).unwrap());
    }
    for table in TABLES {
        let rows = |s: &Snapshot| s.row_count(table, ClosedRange::ALL, &mut || true).unwrap();
        assert_eq!(rows(copy), rows(twin), "{table}");
    }
}

fn forever() -> ReplicationRules {
    ReplicationRules::default().keeping(Duration::MAX)
}

/// Some hours of rows, each part of which the copy had before the source forgot it.
fn some_hours(pair: &mut Pair, keeper: &Keeper) {
    for _ in 0..14 {
        for _ in 0..12 {
            pair.step();
        }
        keeper.follow(pair);
        pair.pass(Duration::from_secs(600));
        pair.source.maintain().unwrap();
        keeper.follow(pair);
    }
}

#[test]
fn what_a_source_forgets_because_of_its_age_stays_in_its_copy() {
    for seed in 1..=4 {
        let mut pair = Pair::new(seed);
        let keeper = Keeper::new(&pair, forever());
        some_hours(&mut pair, &keeper);
        let (copy, twin) = (keeper.snapshot(), pair.twin.snapshot().unwrap());
        let source = rows(&pair.source.snapshot().unwrap());
        let kept = rows(&copy);
        for table in ["ages", "forgets"] {
            let (left, all) = (count(&source, table), count(&kept, table));
            assert!(
                left < all,
                "{table}: {left} of {all} are left at the source"
            );
        }
        compare_rows(&copy, &twin);
        compare(&copy, &twin, &pair, Level::clamped(-2));
        assert!(keeper.copy.progress().retained > 0);
    }
}

#[test]
fn a_copy_of_summaries_keeps_the_overview() {
    for seed in 11..=13 {
        let mut pair = Pair::new(seed);
        let level = Level::clamped(5);
        let keeper = Keeper::new(&pair, ReplicationRules::from(level).keeping(Duration::MAX));
        some_hours(&mut pair, &keeper);
        compare(
            &keeper.snapshot(),
            &pair.twin.snapshot().unwrap(),
            &pair,
            level,
        );
        assert!(keeper.copy.progress().retained > 0);
    }
}

#[test]
fn a_delete_reaches_what_is_kept_also_when_it_was_carried_out_before_the_copy_asked() {
    for seed in 21..=24 {
        let mut pair = Pair::new(seed);
        let mut keeper = Keeper::new(&pair, forever());
        some_hours(&mut pair, &keeper);
        for round in 0..6 {
            let range = pair.some_range();
            pair.delete(range);
            if round % 2 == 0 {
                pair.source.maintain().unwrap();
                pair.source.flush().unwrap();
            }
            keeper.follow(&pair);
            let twin = pair.twin.snapshot().unwrap();
            compare_rows(&keeper.snapshot(), &twin);
            keeper.cut(seed + round);
            compare(&keeper.snapshot(), &twin, &pair, Level::clamped(-1));
        }
    }
}

#[test]
fn where_the_rows_are_not_here_a_delete_takes_out_whole_buckets_it_meets() {
    let mut gone = 0;
    for seed in 31..=34 {
        let mut pair = Pair::new(seed);
        let level = Level::clamped(5);
        let keeper = Keeper::new(&pair, ReplicationRules::from(level).keeping(Duration::MAX));
        some_hours(&mut pair, &keeper);
        let start = Env::MEMORY_START.as_nanos();
        let range = ClosedRange::nanos(start + 7 * MINUTE + 1, start + 48 * MINUTE - 5);
        let spec = DeleteSpec {
            table: "forgets".into(),
            tags: Vec::new(),
            range,
        };
        let before = pair.twin.snapshot().unwrap();
        pair.source.delete(&spec).unwrap();
        keeper.follow(&pair);
        let copy = keeper.snapshot();
        pair.twin.delete(&spec).unwrap();
        let after = pair.twin.snapshot().unwrap();
        for stream in streams(&before) {
            for offset in tiles(level, &ClosedRange::nanos(start - MINUTE, pair.newest)) {
                let was = before.tile(&stream, "v", level, offset).unwrap();
                let is: BTreeMap<_, _> = copy
                    .tile(&stream, "v", level, offset)
                    .unwrap()
                    .into_iter()
                    .collect();
                for (bucket, aggregate) in was {
                    let span = level.bucket_span(bucket);
                    let now = is.get(&bucket);
                    if stream.table() == "forgets" && span.overlaps(&range) {
                        // At an end of the range, where rows happen to be here, those go.
                        let left = after.tile(&stream, "v", level, offset).unwrap();
                        let left = left.into_iter().find(|(of, _)| *of == bucket);
                        let now = now.map(|now| plain(&[(bucket, *now)]));
                        let left = left.map(|left| plain(&[left]));
                        let is_rest = now.is_some() && now == left;
                        assert!(
                            is_rest || now.is_none(),
                            "{stream}: {span:?} has deleted rows"
                        );
                        gone += usize::from(now.is_none());
                    } else if stream.table() != "forgets"
                        || span.last.as_nanos() < range.first.as_nanos() - 9 * MINUTE
                        || span.first.as_nanos() > range.last.as_nanos() + 9 * MINUTE
                    {
                        let now = now.map(|now| plain(&[(bucket, *now)]));
                        let was = plain(&[(bucket, aggregate)]);
                        assert_eq!(now, Some(was), "{stream}: {span:?}");
                    }
                }
            }
        }
    }
    assert!(gone > 0);
}

#[test]
fn what_may_have_been_deleted_is_not_kept_where_nobody_said_that_there_is_a_copy() {
    let mut pair = Pair::new(41);
    let keeper = Keeper::new(&pair, forever());
    some_hours(&mut pair, &keeper);
    pair.source.remove_copy("far").unwrap();
    let start = Env::MEMORY_START.as_nanos();
    let spec = DeleteSpec {
        table: "forgets".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(start, start + 9 * MINUTE),
    };
    for db in [&pair.source, &pair.twin] {
        db.delete(&spec).unwrap();
    }
    pair.source.maintain().unwrap();
    keeper.follow(&pair);
    let (kept, source) = (
        rows(&keeper.snapshot()),
        rows(&pair.source.snapshot().unwrap()),
    );
    assert_eq!(count(&kept, "forgets"), count(&source, "forgets"));
    let twin = rows(&pair.twin.snapshot().unwrap());
    assert_eq!(count(&kept, "ages"), count(&twin, "ages"));
}

#[test]
fn a_dropped_table_is_kept_nowhere() {
    let mut pair = Pair::new(51);
    let keeper = Keeper::new(&pair, forever());
    some_hours(&mut pair, &keeper);
    let bytes = keeper.copy.progress().bytes;
    for table in TABLES {
        pair.source.drop_table(table).unwrap();
    }
    pair.source.maintain().unwrap();
    keeper.follow(&pair);
    let progress = keeper.copy.progress();
    assert_eq!(
        (progress.retained, progress.bytes),
        (0, 0),
        "of {bytes} bytes"
    );
    assert!(keeper.snapshot().table_names().is_empty());
}

#[test]
fn what_is_kept_goes_when_its_time_has_come_here_too() {
    let mut pair = Pair::new(61);
    let keeper = Keeper::new(&pair, forever());
    some_hours(&mut pair, &keeper);
    let all = rows(&keeper.snapshot());
    let copy = &keeper.copy;
    copy.set_rules(ReplicationRules::default().keeping(Duration::from_secs(1800)))
        .unwrap();
    let some = rows(&keeper.snapshot());
    copy.set_rules(ReplicationRules::default()).unwrap();
    let (none, source) = (
        rows(&keeper.snapshot()),
        rows(&pair.source.snapshot().unwrap()),
    );
    for table in ["ages", "forgets"] {
        let counts = [&none, &some, &all].map(|rows| count(rows, table));
        assert!(
            counts[0] < counts[1] && counts[1] < counts[2],
            "{table}: {counts:?}"
        );
    }
    assert_eq!(none, source);
    assert_eq!(copy.progress().retained, 0);
    compare(
        &keeper.snapshot(),
        &pair.source.snapshot().unwrap(),
        &pair,
        Level::clamped(-2),
    );
}

/// A life in which the copy is told now and then only: what it once had stays, unless a user
/// deleted it, and nothing is there that never was.
fn live(seed: u64) -> usize {
    let mut pair = Pair::new(seed);
    let mut keeper = Keeper::new(&pair, forever());
    let mut had: BTreeMap<StreamName, BTreeSet<i64>> = BTreeMap::new();
    for _ in 0..90 {
        match pair.dice.below(100) {
            0..=49 => {
                for _ in 0..1 + pair.dice.below(15) {
                    pair.step();
                }
            }
            50..=64 => {
                let minutes = pair.dice.below(40);
                pair.pass(Duration::from_secs(60 * minutes));
                pair.source.maintain().unwrap();
            }
            65..=71 => {
                let range = pair.some_range();
                pair.delete(range);
            }
            72..=77 => {
                let seed = pair.dice.next();
                keeper.cut(seed);
            }
            _ => {
                keeper.follow(&pair);
                let copy = keeper.snapshot();
                let now = rows(&copy);
                let twin = rows(&pair.twin.snapshot().unwrap());
                for (stream, times) in &now {
                    let all: BTreeSet<i64> = twin[stream].iter().copied().collect();
                    let now: BTreeSet<i64> = times.iter().copied().collect();
                    assert_eq!(
                        now.len(),
                        times.len(),
                        "{stream}: rows twice, or out of order"
                    );
                    assert!(times.is_sorted());
                    assert!(
                        now.is_subset(&all),
                        "{stream}: rows that were deleted, or never were"
                    );
                    let had = had.entry(stream.clone()).or_default();
                    had.retain(|time| all.contains(time));
                    let lost: Vec<_> = had.difference(&now).collect();
                    assert!(lost.is_empty(), "{stream}: {} rows are lost", lost.len());
                    had.extend(now);
                    let level = Level::clamped(4);
                    let span = ClosedRange::nanos(Env::MEMORY_START.as_nanos(), pair.newest);
                    for offset in tiles(level, &span) {
                        let tile = copy.tile(stream, "v", level, offset);
                        let counted: u64 = tile.unwrap().iter().map(|(_, a)| a.count).sum();
                        let tile = level.tile_buckets(offset).unwrap();
                        let tile = level.span(*tile.start(), *tile.end());
                        let inside =
                            |t: &&i64| tile.first.as_nanos() <= **t && **t <= tile.last.as_nanos();
                        let rows = times.iter().filter(inside).count() as u64;
                        // Buckets of rows that had gone before they were fetched count more.
                        assert!(counted >= rows, "{stream}: {counted} of {rows}");
                    }
                }
            }
        }
    }
    keeper.copy.progress().retained
}

#[test]
fn random_lives_of_a_copy_that_keeps_lose_nothing_and_resurrect_nothing() {
    let first = crate::cuts::variable("HEADWATER_MODEL_FIRST_SEED").unwrap_or(1);
    let seeds = crate::cuts::variable("HEADWATER_MODEL_SEEDS").unwrap_or(10);
    let mut kept = 0;
    for seed in first..first + seeds {
        let lived = std::panic::catch_unwind(|| live(seed));
        kept += lived.unwrap_or_else(|panic| {
            eprintln!("seed {seed}: HEADWATER_MODEL_FIRST_SEED={seed} HEADWATER_MODEL_SEEDS=1");
            std::panic::resume_unwind(panic)
        });
    }
    assert!(kept > 0);
}

#[test]
fn a_hole_in_what_is_kept_is_elsewhere_and_cannot_be_asked_for() {
    let mut pair = Pair::new(71);
    let keeper = Keeper::new(
        &pair,
        ReplicationRules::from(Level::clamped(5)).keeping(Duration::MAX),
    );
    some_hours(&mut pair, &keeper);
    let copy = keeper.snapshot();
    let stream = StreamName::new("forgets", [("id", "0")]);
    let error = copy
        .scan(&stream, &ScanSpec::default())
        .and_then(|mut scan| scan.find_map(|chunk| chunk.err()).map_or(Ok(()), Err))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Elsewhere);
    let missed = keeper.copy.take_missed();
    assert!(!missed.is_empty());
    for one in missed {
        assert!(
            !keeper
                .copy
                .request_range(one.segment, one.offset, one.bytes)
        );
    }
    let coverage = copy.coverage(&stream, ClosedRange::ALL, None).unwrap();
    assert!(coverage.iter().any(|part| !part.is_here));
    let coverage = copy
        .coverage(&stream, ClosedRange::ALL, Some(Level::clamped(5)))
        .unwrap();
    assert!(coverage.iter().all(|part| part.is_here), "{coverage:?}");
}
