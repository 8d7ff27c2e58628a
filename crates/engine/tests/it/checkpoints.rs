//! Checkpoints of a segment's index: what is read with them is what is read without, what a reader
//! fetches does not grow with what a segment holds, and a damaged one costs no answer.

use crate::support::Dice;
use headwater_engine::{
    AggregateSpec, Bins, Database, DeleteSpec, Options, RepairMode, ScanSpec, SummarySpec, check,
    repair,
};
use headwater_io::{Env, FaultyFiles, MemoryFiles};
use headwater_types::{Batch, ClosedRange, Level, StreamName, Timestamp, Value};
use std::path::PathBuf;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;
/// A multiple of large buckets.
const START: i64 = (1_622 << 20) * SECOND;

fn channel() -> StreamName {
    StreamName::new("channel", [("id", "1")])
}

/// One partition of small leaves, and pages of so many entries.
fn options(index_page_entries: usize) -> Options {
    Options {
        shards: 1,
        leaf_events: 16,
        bucket_events: 4,
        late_runs_max: 2,
        groups_max: 10_000,
        index_page_entries,
        ..Options::new("/db")
    }
}

fn write(db: &Database, seconds: impl Iterator<Item = i64>) {
    let mut batch = Batch::new();
    for second in seconds {
        let value = Value::F64((second * 37 % 1_009) as f64);
        batch
            .stream(&channel())
            .row(START + second * SECOND, [("v", value)])
            .unwrap();
    }
    db.commit(batch).unwrap();
}

fn close(db: Database) {
    db.close().unwrap();
}

/// Writes seconds, flushed after every so many.
fn fill(env: &Env, options: &Options, seconds: i64, every: i64) {
    let db = Database::open_in(env.clone(), options.clone()).unwrap();
    for from in (0..seconds).step_by(every as usize) {
        write(&db, from..(from + every).min(seconds));
        db.flush().unwrap();
    }
    close(db);
}

/// Where the footers of a segment lie that name a checkpoint, and how long it is; see
/// docs/format/segment.md.
fn checkpoints(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let varint = |at: &mut usize| {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value as usize
    };
    let magic = b"HWFOOT\x00\x01";
    let ends = bytes.windows(8).enumerate().filter(|(_, w)| w == magic);
    let of_footer = ends.filter_map(|(at, _)| {
        let length = u32::from_le_bytes(bytes[at - 8..at - 4].try_into().unwrap());
        let start = at + 8 - length as usize;
        let mut at = start + 1;
        let _: [usize; 4] = std::array::from_fn(|_| varint(&mut at));
        let table = varint(&mut at);
        at += table;
        let length = varint(&mut at) + varint(&mut at);
        (bytes[start] == 2 && length > 0).then(|| start - length..start)
    });
    of_footer.collect()
}

fn segments(disk: &FaultyFiles) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|p| p.starts_with("/db/segment")).collect()
}

fn env_of(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}

/// Everything that can be asked of the channel, as text.
fn answers(db: &Database) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let name = channel();
    let mut out = Vec::new();
    for level in (-2..20).step_by(3) {
        let level = Level::new(level).unwrap();
        let bins = Bins::Level(level);
        for range in [
            ClosedRange::ALL,
            ClosedRange::nanos(START + 777 * SECOND + 5, START + 2_222 * SECOND),
        ] {
            let spec = AggregateSpec {
                range,
                bins,
                first_last: false,
            };
            out.push(format!("{:?}", snapshot.aggregate(&name, "v", &spec)));
            let spec = ScanSpec {
                range,
                ..ScanSpec::default()
            };
            let rows: Vec<_> = snapshot.scan(&name, &spec).unwrap().collect();
            out.push(format!("{rows:?}"));
            let mut seen = Vec::new();
            let visited = snapshot.visit(&name, &spec, |rows| seen.extend_from_slice(rows.times()));
            out.push(format!("{visited:?} {seen:?}"));
        }
        let tile = (START / SECOND) >> (level.get() + 9).max(0);
        out.push(format!("{:?}", snapshot.tile(&name, "v", level, tile)));
    }
    for range in [
        ClosedRange::ALL,
        ClosedRange::nanos(START + 900 * SECOND, START + 1_500 * SECOND),
        ClosedRange::nanos(i64::MIN, START + 1_500 * SECOND - 1),
    ] {
        out.push(format!("{:?}", snapshot.first_in(&name, "v", range)));
        out.push(format!("{:?}", snapshot.last_in(&name, "v", range)));
        out.push(format!("{:?}", snapshot.first_row_in(&name, range)));
        out.push(format!("{:?}", snapshot.last_row_in(&name, range)));
        let spec = SummarySpec {
            range,
            bins: Bins::Whole,
            fields: Vec::new(),
        };
        out.push(format!("{:?}", snapshot.summary(&name, &spec)));
    }
    out.push(format!("{:?}", snapshot.last(&name)));
    out.push(format!("{:?}", snapshot.stream_info(&name)));
    out
}

/// Appends, late rows, merges, deletes and compactions, with a look at all of it in between.
fn run_workload(db: &Database, looks: &mut Vec<Vec<String>>) {
    let mut dice = Dice::new(7);
    let mut end = 0;
    for round in 0..40 {
        let count = 40 + dice.below(120) as i64;
        write(db, end..end + count);
        end += count;
        if round % 5 == 3 {
            let late = dice.below(end as u64) as i64;
            write(db, (late..late + 30).map(|second| second.min(end)));
        }
        if round % 11 == 9 {
            let from = dice.below(end as u64) as i64;
            let range = ClosedRange::nanos(START + from * SECOND, START + (from + 70) * SECOND);
            db.delete(&DeleteSpec {
                table: "channel".into(),
                tags: Vec::new(),
                range,
            })
            .unwrap();
        }
        db.flush().unwrap();
        if round == 30 {
            db.compact().unwrap();
        }
        if round % 4 == 1 {
            looks.push(answers(db));
        }
    }
}

#[test]
fn what_is_read_with_checkpoints_is_what_is_read_without() {
    let mut all = Vec::new();
    for entries in [4096, 4, 16] {
        let disk = FaultyFiles::new(1);
        let env = env_of(&disk);
        let options = options(entries);
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        let mut looks = Vec::new();
        run_workload(&db, &mut looks);
        looks.push(answers(&db));
        close(db);
        // From the medium alone, in parts.
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        looks.push(answers(&db));
        close(db);
        let found: usize = segments(&disk)
            .iter()
            .map(|path| checkpoints(&disk.read_file(path).unwrap()).len())
            .sum();
        assert_eq!(found > 0, entries < 4096, "{found} checkpoints");
        let report = check(env, options).unwrap();
        assert!(report.is_sound(), "{:#?}", report.damages);
        all.push(looks);
    }
    for looks in &all[1..] {
        for (a, b) in all[0].iter().flatten().zip(looks.iter().flatten()) {
            assert_eq!(a, b);
        }
        assert_eq!(looks.len(), all[0].len());
    }
}

/// Bytes read from segments by one overview right after the opening.
fn bytes_of_an_overview(entries: usize, seconds: i64) -> u64 {
    let env = Env {
        files: Arc::new(MemoryFiles::new()),
        ..Env::memory()
    };
    let options = options(entries);
    fill(&env, &options, seconds, 500);
    let db = Database::open_in(env, options).unwrap();
    let before = db.stats().unwrap().bytes_read;
    let level = Level::new(seconds.ilog2() as i32 - 3).unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Level(level),
        first_last: false,
    };
    let bins = db
        .snapshot()
        .unwrap()
        .aggregate(&channel(), "v", &spec)
        .unwrap();
    let count: u64 = bins.iter().map(|bin| bin.aggregate.count).sum();
    assert_eq!(count as i64, seconds);
    db.stats().unwrap().bytes_read - before
}

#[test]
fn what_an_overview_reads_does_not_grow_with_what_the_segment_holds() {
    let small = bytes_of_an_overview(64, 5_000);
    let large = bytes_of_an_overview(64, 80_000);
    let without = bytes_of_an_overview(4096, 80_000);
    // Sixteen times as many rows; the root has a line for each page.
    assert!(large < small * 5, "{small} bytes, then {large}");
    assert!(large < without / 3, "{large} bytes, without {without}");
}

#[test]
fn a_group_has_leaves_then_base_blocks_then_others_then_its_checkpoint() {
    // Were it otherwise, the step would refuse to write: see `layout::in_order`.
    let disk = FaultyFiles::new(1);
    fill(&env_of(&disk), &options(16), 6_000, 1_000);
    let [path] = &segments(&disk)[..] else {
        panic!("one partition");
    };
    let bytes = disk.read_file(path).unwrap();
    assert!(!checkpoints(&bytes).is_empty());
}

#[test]
fn a_damaged_checkpoint_costs_no_answer_and_is_reported_and_repaired() {
    let disk = FaultyFiles::new(1);
    let options = options(16);
    let env = env_of(&disk);
    fill(&env, &options, 4_000, 250);
    let expected = {
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        let expected = answers(&db);
        close(db);
        expected
    };
    let [path] = &segments(&disk)[..] else {
        panic!("one partition");
    };
    let bytes = disk.read_file(path).unwrap();
    let newest = checkpoints(&bytes).pop().expect("a checkpoint");
    let mut dice = Dice::new(3);
    for _ in 0..12 {
        let at = newest.start + dice.below(newest.len() as u64) as usize;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << dice.below(8);
        let disk = disk.after_crash(1);
        disk.write_file(path, damaged).unwrap();
        let env = env_of(&disk);
        let report = check(env.clone(), options.clone()).unwrap();
        assert_eq!(report.damages.len(), 1, "byte {at}: {:#?}", report.damages);
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        assert_eq!(answers(&db), expected, "byte {at}");
        // Life goes on beside it.
        write(&db, 4_000..4_100);
        db.flush().unwrap();
        close(db);
        let found = repair(&env, &options, RepairMode::Act).unwrap();
        assert!(found.after.is_sound(), "byte {at}: {found:#?}");
        assert!(found.lost.is_empty(), "byte {at}: {:?}", found.lost);
        let db = Database::open_in(env.clone(), options.clone()).unwrap();
        let last = db.snapshot().unwrap().last(&channel()).unwrap();
        let newest = Timestamp::from_nanos(START + 4_099 * SECOND);
        assert_eq!(last[0].time, newest);
        // New checkpoints count again.
        for round in 0..16 {
            write(&db, 5_000 + round * 250..5_250 + round * 250);
            db.flush().unwrap();
        }
        close(db);
        let report = check(env, options.clone()).unwrap();
        assert!(report.is_sound(), "byte {at}: {:#?}", report.damages);
    }
}

#[test]
fn damage_of_footers_that_a_checkpoint_stands_for_hides_no_row() {
    let disk = FaultyFiles::new(1);
    let options = options(16);
    fill(&env_of(&disk), &options, 4_000, 250);
    let [path] = &segments(&disk)[..] else {
        panic!("one partition");
    };
    let bytes = disk.read_file(path).unwrap();
    let magic = b"HWFOOT\x00\x01";
    let first = bytes.windows(8).position(|w| w == magic).unwrap();
    let mut damaged = bytes;
    damaged[first - 20] ^= 1;
    disk.write_file(path, damaged).unwrap();
    let db = Database::open_in(env_of(&disk), options.clone()).unwrap();
    let rows: usize = db
        .snapshot()
        .unwrap()
        .scan(&channel(), &ScanSpec::default())
        .unwrap()
        .map(|chunk| chunk.unwrap().times.len())
        .sum();
    assert_eq!(rows, 4_000);
    close(db);
    // It is damage all the same, and nothing is lost with it.
    let report = check(env_of(&disk), options.clone()).unwrap();
    assert_eq!(report.damages.len(), 1, "{:#?}", report.damages);
    let found = repair(&env_of(&disk), &options, RepairMode::Act).unwrap();
    assert!(found.lost.is_empty(), "{:?}", found.lost);
    assert!(found.after.is_sound(), "{found:#?}");
    let db = Database::open_in(env_of(&disk), options.clone()).unwrap();
    assert_eq!(
        counts_by_pyramid_and_rows(&db, 9)
            .1
            .iter()
            .map(|(_, n)| n)
            .sum::<u64>(),
        4_000
    );
    write(&db, 4_000..4_500);
    db.flush().unwrap();
    close(db);
    let report = check(env_of(&disk), options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
}

/// Partitions of a few hundred rows, so that one step stores rows in several.
fn narrow() -> Options {
    Options {
        partition_target_bytes: 4 << 10,
        partition_bytes_max: 1 << 20,
        ..options(256)
    }
}

/// Rows by bucket.
type Counts = Vec<(i64, u64)>;

/// The rows of each bucket of a level as the pyramid says, and from rows alone.
fn counts_by_pyramid_and_rows(db: &Database, level: i32) -> (Counts, Counts) {
    let level = Level::new(level).unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Level(level),
        first_last: false,
    };
    let snapshot = db.snapshot().unwrap();
    let bins = snapshot.aggregate(&channel(), "v", &spec).unwrap();
    let stored = bins
        .iter()
        .map(|b| (level.bucket_of(b.start), b.aggregate.count));
    let mut counted: std::collections::BTreeMap<i64, u64> = Default::default();
    for chunk in snapshot.scan(&channel(), &ScanSpec::default()).unwrap() {
        for time in chunk.unwrap().times {
            let bucket = level.bucket_of(Timestamp::from_nanos(time));
            *counted.entry(bucket).or_default() += 1;
        }
    }
    (stored.collect(), counted.into_iter().collect())
}

#[test]
fn a_partition_that_is_left_behind_is_seen_by_its_coarsest_blocks() {
    let disk = FaultyFiles::new(1);
    let options = narrow();
    fill(&env_of(&disk), &options, 40_000, 4_000);
    let db = Database::open_in(env_of(&disk), options.clone()).unwrap();
    let partitions = db.partitions();
    assert!(partitions.len() > 4, "{}", partitions.len());
    let last = partitions.last().unwrap();
    let level = Level::new(9).unwrap();
    let spec = AggregateSpec {
        range: ClosedRange::new(Timestamp::MIN, last.range.first.previous().unwrap()),
        bins: Bins::Level(level),
        first_last: false,
    };
    let bins = db
        .snapshot()
        .unwrap()
        .aggregate(&channel(), "v", &spec)
        .unwrap();
    assert!(bins.len() > 30, "{}", bins.len());
    // Of each partition a block of one level, or two where it has more than 64 buckets.
    let read = db.stats().unwrap().blocks_read;
    let most = 2 * partitions.len() as u64;
    assert!(
        read <= most,
        "{read} blocks of {} partitions",
        partitions.len()
    );
    drop(db);
    let report = check(env_of(&disk), options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
}

#[test]
fn what_is_appended_to_a_closed_partition_is_counted_once() {
    let disk = FaultyFiles::new(1);
    let options = narrow();
    fill(&env_of(&disk), &options, 20_000, 4_000);
    let db = Database::open_in(env_of(&disk), options.clone()).unwrap();
    let partitions = db.partitions();
    let middle = &partitions[partitions.len() / 2];
    // Everything behind the middle of a closed partition goes, and comes again.
    let from = START + (middle.range.first.as_nanos() - START) / 2;
    let from = from.max(middle.range.first.as_nanos() + 100 * SECOND);
    let begin = (from - START) / SECOND + 1;
    let range = ClosedRange::nanos(START + begin * SECOND, i64::MAX);
    db.delete(&DeleteSpec {
        table: "channel".into(),
        tags: Vec::new(),
        range,
    })
    .unwrap();
    db.flush().unwrap();
    for round in 0..6 {
        write(&db, begin + round * 150..begin + (round + 1) * 150);
        db.flush().unwrap();
        for level in 2..16 {
            let (stored, counted) = counts_by_pyramid_and_rows(&db, level);
            assert_eq!(stored, counted, "round {round} level {level}");
        }
    }
    close(db);
    let report = check(env_of(&disk), options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damages);
}
