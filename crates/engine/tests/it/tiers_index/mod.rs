//! The index of segments, kept in a fast tier: no read of the large medium to open, to find where
//! rows lie, or for a tile; the same answers whatever becomes of it; and nothing that fails because
//! of it.

mod doubts;

use crate::disks::Disks;
use headwater_engine::{
    AggregateSpec, BackupOptions, Bin, Bins, Database, DeleteSpec, Error, ErrorKind, FastTier,
    Options, ReadStats, RepairMode, ScanChunk, ScanSpec, TierParts, backup_with, check, repair,
    use_fast_tier,
};
use headwater_io::{Env, FaultKind, Files, SystemThreads};
use headwater_types::{Aggregate, Batch, ClosedRange, Level, StreamName, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SECOND: i64 = 1_000_000_000;
/// A multiple of large buckets.
pub(crate) const START: i64 = (1_622 << 20) * SECOND;
const INDEX: TierParts = TierParts {
    index: true,
    ..TierParts::NONE
};

fn open(disks: &Disks) -> Database {
    disks.open(options()).unwrap()
}

/// The files of the index.
fn index_files(disks: &Disks) -> Vec<PathBuf> {
    disks.in_fast("index")
}

pub(crate) fn options() -> Options {
    Options {
        fast_dir: Some("/fast".into()),
        fast_parts: TierParts { log: true, ..INDEX },
        memory_budget_bytes: 1 << 20,
        shards: 2,
        leaf_events: 16,
        bucket_events: 4,
        late_runs_max: 2,
        groups_max: 200,
        partition_target_bytes: 4 << 10,
        partition_bytes_max: 16 << 10,
        log_file_bytes: 64 << 10,
        reserve_bytes: 0,
        index_page_entries: 4,
        idle_after: None,
        ..Options::new("/db")
    }
}

pub(crate) fn stream(id: i64) -> StreamName {
    StreamName::new("channel", [("id", id.to_string())])
}

pub(crate) const STREAMS: i64 = 3;

pub(crate) fn write(db: &Database, seconds: std::ops::Range<i64>) -> Result<(), Error> {
    let mut batch = Batch::new();
    for second in seconds {
        for id in 0..STREAMS {
            // Nothing that would fit into a few bits, and sums that are exact in any order.
            let value = (second + id).wrapping_mul(0x5851_f42d_4c95_7f2d) >> 44;
            let row = [("v", Value::F64(value as f64))];
            let of_stream = batch.stream(&stream(id));
            of_stream.row(START + second * SECOND, row).unwrap();
        }
    }
    db.commit(batch).map(drop)
}

/// Some groups in order, in several partitions; everything is stored.
pub(crate) fn fill(db: &Database, seconds: i64) {
    for from in (0..seconds).step_by(200) {
        write(db, from..from + 200).unwrap();
        db.flush().unwrap();
    }
}

pub(crate) fn level(number: i32) -> Level {
    Level::new(number).unwrap()
}

/// Everything but the last digits of means, which depend on the order in which buckets are put
/// together.
fn shown(of: &Aggregate) -> String {
    // Sums are of whole numbers.
    let sum = of.mean().unwrap() * of.count as f64;
    format!("{} {:?} {sum:.0} {}", of.count, of.extremes, of.time_sum)
}

/// All tiles and other answers that need no row, from a level on.
pub(crate) fn outlines(db: &Database, from: i32) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let mut out = Vec::new();
    for id in 0..STREAMS {
        let name = stream(id);
        for number in from..22 {
            let tile = (START / SECOND) >> (number + 9).max(0);
            for tile in tile..tile + 3 {
                let found = snapshot.tile(&name, "v", level(number), tile);
                let found = found.map(|tile| {
                    let of_bucket = |(bucket, of): (i64, Aggregate)| (bucket, shown(&of));
                    tile.into_iter().map(of_bucket).collect::<Vec<_>>()
                });
                out.push(format!("{found:?}"));
            }
            let spec = AggregateSpec {
                range: ClosedRange::ALL,
                bins: Bins::Level(level(number)),
                first_last: false,
            };
            let found = snapshot.aggregate(&name, "v", &spec).map(|bins| {
                let of_bin = |bin: Bin| (bin.start, shown(&bin.aggregate));
                bins.into_iter().map(of_bin).collect::<Vec<_>>()
            });
            out.push(format!("{found:?}"));
        }
        // Rows that were written again count twice until they are merged.
        let info = snapshot.stream_info(&name);
        out.push(format!("{:?}", info.map(|info| (info.first, info.last))));
    }
    out
}

pub(crate) fn rows(db: &Database) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let rows = |id| {
        let scan = snapshot.scan(&stream(id), &ScanSpec::default());
        let rows = scan.map(|scan| {
            let row = |chunk: ScanChunk| {
                let values = (0..chunk.times.len()).map(|at| chunk.columns[0].get(at));
                let values: Vec<_> = values.map(|value| format!("{value:?}")).collect();
                chunk.times.into_iter().zip(values).collect::<Vec<_>>()
            };
            scan.map(Result::unwrap).flat_map(row).collect::<Vec<_>>()
        });
        format!("{rows:?}")
    };
    (0..STREAMS).map(rows).collect()
}

/// The first level at which no row is needed.
fn base(db: &Database) -> i32 {
    let rows_of = |number: i32| {
        let before = ReadStats::by_this_thread();
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Level(level(number)),
            first_last: false,
        };
        for id in 0..STREAMS {
            let snapshot = db.snapshot().unwrap();
            snapshot.aggregate(&stream(id), "v", &spec).unwrap();
        }
        (ReadStats::by_this_thread() - before).leaves
    };
    let base = (-4..22).find(|number| rows_of(*number) == 0).unwrap();
    assert!(base < 8 && (base..22).all(|number| rows_of(number) == 0));
    base
}

/// What the database answers without any index in the tier, and from which level on tiles need no
/// row. In the end the index is there again.
fn in_bulk(disks: &Disks) -> (i32, Vec<String>, Vec<String>) {
    for path in index_files(disks) {
        disks.fast.vanish(&path).unwrap();
    }
    let db = open(disks);
    let base = base(&db);
    let (reads, outlines) = disks.looks.of(|| outlines(&db, base));
    assert!(reads > 0, "without the index these are read in bulk");
    let rows = rows(&db);
    db.maintain().unwrap();
    assert_eq!(index_files(disks).len(), disks.segments());
    (base, outlines, rows)
}

/// A database with its index in the tier, closed.
fn filled(seed: u64) -> Disks {
    filled_on(Disks::new(seed))
}

fn filled_on(disks: Disks) -> Disks {
    let db = open(&disks);
    fill(&db, 2000);
    db.close().unwrap();
    drop(db);
    assert!(disks.segments() > 3, "{}", disks.segments());
    assert_eq!(index_files(&disks).len(), disks.segments());
    disks
}

/// Answers are those without the index, whatever has become of it, and then everything is kept
/// again.
fn answers_as_ever(disks: &Disks, dropped: u64, what: &str) {
    let db = open(disks);
    let base = base(&db);
    let found = (outlines(&db, base), rows(&db));
    db.maintain().unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.fast_index_dropped >= dropped, "{what}: {stats:?}");
    drop(db);
    assert_eq!(index_files(disks).len(), disks.segments(), "{what}");
    let db = open(disks);
    let (reads, again) = disks.looks.of(|| outlines(&db, base));
    assert_eq!(reads, 0, "{what}: made anew");
    assert_eq!(again, found.0, "{what}: made anew");
    assert_eq!(db.stats().unwrap().fast_index_dropped, 0, "{what}");
    drop(db);
    let (_, outlines, rows) = in_bulk(disks);
    assert_eq!(found, (outlines, rows), "{what}");
}

#[test]
fn nothing_is_read_in_bulk_to_open_to_find_rows_or_for_a_tile() {
    let disks = filled(1);
    let (base, outlines_in_bulk, rows_in_bulk) = in_bulk(&disks);
    let (reads, db) = disks.looks.of(|| open(&disks));
    assert_eq!(reads, 0, "to open");
    let (reads, found) = disks.looks.of(|| outlines(&db, base));
    assert_eq!(reads, 0, "for tiles from level {base} on");
    assert_eq!(found, outlines_in_bulk);
    let stats = db.stats().unwrap();
    assert!(stats.fast_index_reads > 0 && stats.fast_index_dropped == 0);
    // To write beside what is stored nobody needs bulk either.
    let (reads, ()) = disks.looks.of(|| write(&db, 2000..2100).unwrap());
    assert_eq!(reads, 0, "to find the newest time of a stream");
    // Rows lie in bulk, and are read there, nothing else.
    let (reads, _) = disks.looks.of(|| {
        let snapshot = db.snapshot().unwrap();
        let range = ClosedRange::nanos(START + 900 * SECOND, START + 904 * SECOND);
        let spec = ScanSpec {
            range,
            ..ScanSpec::default()
        };
        snapshot.scan(&stream(1), &spec).unwrap().count()
    });
    assert!((1..8).contains(&reads), "{reads}");
    drop(db);
    assert_eq!(rows(&open(&filled(1))), rows_in_bulk);
}

#[test]
fn what_a_tile_and_an_opening_need_is_there_while_bulk_stalls() {
    let disks = filled(2);
    let (base, outlines_in_bulk, _) = in_bulk(&disks);
    disks.looks.stall(true);
    let env = Env {
        threads: Arc::new(SystemThreads),
        ..disks.env()
    };
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let db = Database::open_in(env, options()).unwrap();
            let found = outlines(&db, base);
            write(&db, 2000..2001).unwrap();
            done.send((found, db)).unwrap();
        });
        let answered = is_done.recv_timeout(Duration::from_secs(300));
        disks.looks.stall(false);
        let (found, db) = answered.expect("nobody waits for bulk");
        assert_eq!(found, outlines_in_bulk);
        db.close().unwrap();
    });
}

#[test]
fn its_bytes_are_told_and_count_as_written_to_the_tier() {
    let disks = filled(3);
    let kept: u64 = disks
        .fast
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("/fast/index"))
        .map(|(_, len)| len)
        .sum();
    let db = open(&disks);
    let stats = db.stats().unwrap();
    assert_eq!(stats.fast_index_bytes, kept);
    assert_eq!(stats.fast_bytes, kept + stats.log_bytes);
    assert!(stats.disk_bytes > stats.segment_bytes + stats.fast_bytes);
    write(&db, 2000..2300).unwrap();
    db.flush().unwrap();
    let after = db.stats().unwrap();
    let grown = after.fast_index_bytes - stats.fast_index_bytes;
    let written = after.fast_written_bytes - stats.fast_written_bytes;
    let log = after.bytes_log - stats.bytes_log;
    assert!(grown > 100 && written >= grown + log, "{stats:?} {after:?}");
}

#[test]
fn a_full_tier_keeps_no_more_of_it_and_what_must_be_written_comes_first() {
    let disks = Disks::new(11);
    let options = Options {
        reserve_bytes: 32 << 10,
        log_file_bytes: 16 << 10,
        ..options()
    };
    let db = disks.open(options.clone()).unwrap();
    write(&db, 0..200).unwrap();
    db.flush().unwrap();
    // Room for the log, and for a little of the index.
    disks.fast.capacity(disks.fast_bytes() + (48 << 10));
    for from in (200..2000).step_by(200) {
        let mut refused = 0;
        while let Err(error) = write(&db, from..from + 200) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            disks.clock.advance(Duration::from_secs(1));
            refused += 1;
            assert!(refused < 5, "the index goes first: {error}");
        }
        db.flush().unwrap();
    }
    let stats = db.stats().unwrap();
    assert!(stats.fast_index_refused > 0, "{stats:?}");
    let found = (outlines(&db, -2), rows(&db));
    // With room again it is kept again.
    disks.fast.capacity(u64::MAX);
    disks.clock.advance(Duration::from_secs(3600));
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
    assert_eq!((outlines(&db, -2), rows(&db)), found);
    drop(db);
    answers_as_ever(&disks, 0, "with room again");
}

#[test]
fn it_takes_no_more_than_it_may() {
    let disks = Disks::new(12);
    let most = 20_000;
    let options = Options {
        fast_index_bytes: Some(most),
        ..options()
    };
    let db = disks.open(options).unwrap();
    fill(&db, 2000);
    let stats = db.stats().unwrap();
    assert!(stats.fast_index_bytes <= most && stats.fast_index_bytes > most / 4);
    assert!(stats.fast_index_refused > 0, "{stats:?}");
    drop(db);
    answers_as_ever(&disks, 0, "with all the room there is");
}

#[test]
fn it_goes_with_its_segment_and_what_nobody_names_is_removed() {
    let disks = filled(13);
    let strange = Path::new("/fast/index/9999.idx");
    disks.fast.write_file(strange, b"left by a crash").unwrap();
    let other = Path::new("/fast/index/notes.txt");
    disks.fast.write_file(other, b"of somebody else").unwrap();
    let db = open(&disks);
    assert!(disks.fast.read_file(strange).is_err());
    assert!(disks.fast.read_file(other).is_ok());
    disks.fast.vanish(other).unwrap();
    let before = index_files(&disks);
    let snapshot = db.snapshot().unwrap();
    let of_table = |range| DeleteSpec {
        table: "channel".into(),
        tags: Vec::new(),
        range,
    };
    let half = ClosedRange::nanos(START, START + 1000 * SECOND);
    db.delete(&of_table(half)).unwrap();
    db.compact().unwrap();
    db.maintain().unwrap();
    // The snapshot still reads the segments that were rewritten.
    assert!(before.iter().all(|path| disks.fast.read_file(path).is_ok()));
    drop(snapshot);
    assert_eq!(index_files(&disks).len(), disks.segments());
    db.delete(&of_table(ClosedRange::ALL)).unwrap();
    db.maintain().unwrap();
    assert_eq!((index_files(&disks).len(), disks.segments()), (0, 0));
}

#[test]
fn no_backup_has_it_and_a_tier_that_is_left_is_rid_of_it() {
    let disks = filled(14);
    let (base, outlines_in_bulk, _) = in_bulk(&disks);
    let to = Path::new("/backup");
    backup_with(&disks.env(), &options(), to, &BackupOptions::default()).unwrap();
    let has_it = |(path, _): (PathBuf, u64)| path.to_string_lossy().contains("idx");
    assert!(!disks.bulk.files().into_iter().any(has_it));
    let use_parts = |parts| {
        let tier = FastTier {
            folder: "/fast".into(),
            parts,
        };
        let as_it_is = Options {
            fast_dir: None,
            ..options()
        };
        use_fast_tier(&disks.env(), &as_it_is, Some(&tier)).unwrap();
        Database::open_in(disks.env(), as_it_is).unwrap()
    };
    let db = use_parts(TierParts {
        index: false,
        ..options().fast_parts
    });
    assert_eq!(index_files(&disks).len(), 0);
    assert_eq!(outlines(&db, base), outlines_in_bulk);
    drop(db);
    // The index alone, and the log in bulk.
    let db = use_parts(INDEX);
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
    let (reads, found) = disks.looks.of(|| outlines(&db, base));
    assert_eq!((reads, found), (0, outlines_in_bulk));
    drop(db);
    let as_it_is = Options {
        fast_dir: None,
        ..options()
    };
    use_fast_tier(&disks.env(), &as_it_is, None).unwrap();
    assert_eq!(disks.fast.files().len(), 1, "{:?}", disks.fast.files());
}

#[test]
fn workers_make_up_for_what_is_missing() {
    let disks = filled(17);
    for path in index_files(&disks) {
        disks.fast.vanish(&path).unwrap();
    }
    let env = Env {
        threads: Arc::new(SystemThreads),
        ..disks.env()
    };
    let db = Database::open_in(env, options()).unwrap();
    // Nobody asks for anything: the workers find it by themselves.
    while index_files(&disks).len() < disks.segments() {
        std::thread::yield_now();
    }
    db.close().unwrap();
    drop(db);
    answers_as_ever(&disks, 0, "made by workers");
}
