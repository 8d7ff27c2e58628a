//! Copies of the newest segments, kept in a fast tier: no read of the large medium for the newest
//! rows, no more of them than there is to be, older ones let go; the same rows whatever becomes of
//! the copies and whenever power is cut; and nothing that fails, or is lost, because of them.

use crate::cuts::{cuts, seeds};
use crate::disks::Disks;
use crate::support::Dice;
use crate::tiers_index::{self, SECOND, START, STREAMS, fill, outlines, rows, stream, write};
use headwater_engine::{
    BackupOptions, Database, DeleteSpec, Error, ErrorKind, FastTier, Options, RepairMode, ScanSpec,
    TierParts, backup_with, check, repair, repair_without_fast_tier, use_fast_tier,
};
use headwater_io::{Env, FaultKind, Files, SystemThreads};
use headwater_types::{ClosedRange, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const NEWEST: TierParts = TierParts {
    newest: true,
    ..TierParts::NONE
};

fn options() -> Options {
    Options {
        fast_parts: TierParts {
            log: true,
            ..NEWEST
        },
        ..tiers_index::options()
    }
}

/// So much is kept at the most.
fn up_to(bytes: u64) -> Options {
    Options {
        fast_newest_bytes: Some(bytes),
        ..options()
    }
}

fn index_files(disks: &Disks) -> Vec<PathBuf> {
    disks.in_fast("newest")
}

fn index_bytes(disks: &Disks) -> u64 {
    let len = |path: &PathBuf| disks.fast.read_file(path).unwrap().len() as u64;
    index_files(disks).iter().map(len).sum()
}

/// A database with copies of all segments in the tier, closed.
fn filled(seed: u64) -> Disks {
    filled_on(Disks::new(seed))
}

fn filled_on(disks: Disks) -> Disks {
    let db = disks.open(options()).unwrap();
    fill(&db, 2000);
    db.close().unwrap();
    drop(db);
    assert!(disks.segments() > 3, "{}", disks.segments());
    assert_eq!(index_files(&disks).len(), disks.segments());
    disks
}

/// How often bulk is read for the rows of these seconds, of all streams, in an opening of its own.
fn reads_for(disks: &Disks, options: Options, seconds: (i64, i64)) -> u64 {
    let db = disks.open(options).unwrap();
    let range = ClosedRange::nanos(START + seconds.0 * SECOND, START + seconds.1 * SECOND);
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let (reads, found) = disks.looks.of(|| {
        let snapshot = db.snapshot().unwrap();
        let of_stream = |id| {
            let scan = snapshot.scan(&stream(id), &spec).unwrap();
            scan.map(|chunk| chunk.unwrap().times.len()).sum::<usize>()
        };
        (0..STREAMS).map(of_stream).sum::<usize>()
    });
    let each = usize::try_from(seconds.1 - seconds.0 + 1).unwrap();
    assert_eq!(found, each * 3);
    reads
}

/// What the database answers without any copy; in the end there are copies again.
fn in_bulk(disks: &Disks) -> (Vec<String>, Vec<String>) {
    for path in index_files(disks) {
        disks.fast.vanish(&path).unwrap();
    }
    let db = disks.open(options()).unwrap();
    let (reads, found) = disks.looks.of(|| (outlines(&db, -2), rows(&db)));
    assert!(reads > 0, "without copies these are read in bulk");
    db.maintain().unwrap();
    assert_eq!(index_files(disks).len(), disks.segments());
    found
}

/// Answers are those without the copies, whatever has become of them, and then all are there again.
fn answers_as_ever(disks: &Disks, dropped: u64, what: &str) {
    let db = disks.open(options()).unwrap();
    let found = (outlines(&db, -2), rows(&db));
    db.maintain().unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.fast_newest_dropped >= dropped, "{what}: {stats:?}");
    drop(db);
    assert_eq!(index_files(disks).len(), disks.segments(), "{what}");
    let db = disks.open(options()).unwrap();
    let (reads, again) = disks.looks.of(|| (outlines(&db, -2), rows(&db)));
    assert_eq!(reads, 0, "{what}: made anew");
    assert_eq!(again, found, "{what}: made anew");
    assert_eq!(db.stats().unwrap().fast_newest_dropped, 0, "{what}");
    drop(db);
    assert_eq!(found, in_bulk(disks), "{what}");
}

#[test]
fn nothing_is_read_in_bulk_for_rows_of_which_there_are_copies() {
    let disks = filled(1);
    let in_bulk = in_bulk(&disks);
    let (reads, db) = disks.looks.of(|| disks.open(options()).unwrap());
    assert_eq!(reads, 0, "to open");
    let (reads, found) = disks.looks.of(|| (outlines(&db, -2), rows(&db)));
    assert_eq!(reads, 0, "for rows, tiles and aggregates");
    assert_eq!(found, in_bulk);
    let stats = db.stats().unwrap();
    assert!(stats.fast_newest_reads > 0 && stats.fast_newest_dropped == 0);
    assert_eq!(stats.fast_newest_bytes, index_bytes(&disks));
    assert_eq!(stats.fast_newest_segments, disks.segments() as u64);
    assert_eq!(stats.fast_bytes, stats.fast_newest_bytes + stats.log_bytes);
    assert!(stats.fast_newest_bytes > stats.segment_bytes);
    // What is flushed is there at once.
    write(&db, 2000..2100).unwrap();
    db.flush().unwrap();
    assert!(db.stats().unwrap().fast_newest_bytes > stats.fast_newest_bytes);
    drop(db);
    assert_eq!(reads_for(&disks, options(), (1900, 2099)), 0);
}

#[test]
fn rows_are_read_while_bulk_stalls() {
    let disks = filled(2);
    let in_bulk = in_bulk(&disks);
    disks.looks.stall(true);
    let env = Env {
        threads: Arc::new(SystemThreads),
        ..disks.env()
    };
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let db = Database::open_in(env, options()).unwrap();
            let found = (outlines(&db, -2), rows(&db));
            done.send((found, db)).unwrap();
        });
        let answered = is_done.recv_timeout(Duration::from_secs(300));
        disks.looks.stall(false);
        let (found, db) = answered.expect("nobody waits for bulk");
        assert_eq!(found, in_bulk);
        db.close().unwrap();
    });
}

#[test]
fn the_newest_have_the_room_there_is_and_older_ones_move_out() {
    let disks = Disks::new(3);
    let most = 100_000;
    let db = disks.open(up_to(most)).unwrap();
    let mut moved_out = 0;
    let mut before = Vec::new();
    for from in (0..3000).step_by(200) {
        write(&db, from..from + 200).unwrap();
        db.flush().unwrap();
        let now = index_files(&disks);
        moved_out += before.iter().filter(|path| !now.contains(path)).count();
        before = now;
        let stats = db.stats().unwrap();
        assert!(stats.fast_newest_bytes <= most, "{stats:?}");
        assert_eq!(stats.fast_newest_bytes, index_bytes(&disks));
    }
    assert!(moved_out > 2, "{moved_out}");
    assert!(index_files(&disks).len() < disks.segments());
    assert!(index_bytes(&disks) > most / 4);
    let found = rows(&db);
    db.close().unwrap();
    drop(db);
    assert_eq!(reads_for(&disks, up_to(most), (2900, 2999)), 0);
    assert!(reads_for(&disks, up_to(most), (0, 99)) > 0);
    // Less room, and more: what is to be kept follows at the opening, and in the background.
    drop(disks.open(up_to(most / 2)).unwrap());
    assert!(index_bytes(&disks) <= most / 2);
    let db = disks.open(options()).unwrap();
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
    assert_eq!(rows(&db), found);
    drop(db);
    assert_eq!(reads_for(&disks, options(), (0, 99)), 0);
}

#[test]
fn what_has_become_old_moves_out_by_time_alone() {
    let disks = Disks::new(4);
    let options = Options {
        fast_newest_age: Some(Duration::from_secs(3000)),
        ..options()
    };
    let at = |seconds: i64| Timestamp::from_nanos(START + seconds * SECOND);
    disks.clock.set(at(2000));
    let db = disks.open(options.clone()).unwrap();
    fill(&db, 2000);
    assert_eq!(index_files(&disks).len(), disks.segments());
    let found = rows(&db);
    // A snapshot goes on with what it has.
    let snapshot = db.snapshot().unwrap();
    let last = snapshot.last(&stream(1)).unwrap();
    disks.clock.set(at(4000));
    db.maintain().unwrap();
    let left = index_files(&disks).len();
    assert!(left > 0 && left < disks.segments(), "{left}");
    assert_eq!(reads_for_open(&disks, &db, 1990), 0);
    disks.clock.set(at(1 << 26));
    db.maintain().unwrap();
    // What has no end yet stays: of each shard the last partition, at the most.
    assert!(index_files(&disks).len() <= 2, "{:?}", index_files(&disks));
    assert_eq!(rows(&db), found);
    assert_eq!(snapshot.last(&stream(1)).unwrap(), last);
    // A clock that goes back brings them back: they are copies.
    disks.clock.set(at(2000));
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
}

/// How often bulk is read for the rows of one second.
fn reads_for_open(disks: &Disks, db: &Database, second: i64) -> u64 {
    let at = START + second * SECOND;
    let spec = ScanSpec {
        range: ClosedRange::nanos(at, at),
        ..ScanSpec::default()
    };
    let (reads, found) = disks.looks.of(|| {
        let snapshot = db.snapshot().unwrap();
        snapshot.scan(&stream(0), &spec).unwrap().count()
    });
    assert_eq!(found, 1);
    reads
}

#[test]
fn a_full_tier_has_fewer_copies_and_what_must_be_written_comes_first() {
    let disks = Disks::new(5);
    let options = Options {
        reserve_bytes: 32 << 10,
        log_file_bytes: 16 << 10,
        ..options()
    };
    let db = disks.open(options).unwrap();
    write(&db, 0..200).unwrap();
    db.flush().unwrap();
    // Room for the log, and for a few copies.
    disks.fast.capacity(disks.fast_bytes() + (48 << 10));
    for from in (200..3000).step_by(200) {
        let mut refused = 0;
        while let Err(error) = write(&db, from..from + 200) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            disks.clock.advance(Duration::from_secs(1));
            refused += 1;
            assert!(refused < 5, "copies go first: {error}");
        }
        db.flush().unwrap();
        disks.clock.advance(Duration::from_secs(61));
        db.maintain().unwrap();
    }
    let stats = db.stats().unwrap();
    assert!(stats.fast_newest_refused > 0, "{stats:?}");
    let found = (outlines(&db, -2), rows(&db));
    drop(db);
    disks.fast.capacity(u64::MAX);
    let db = disks.open(self::options()).unwrap();
    db.maintain().unwrap();
    assert_eq!((outlines(&db, -2), rows(&db)), found);
    drop(db);
    answers_as_ever(&disks, 0, "with room again");
}

#[test]
fn copies_that_are_missing_damaged_or_not_their_own_are_dropped_and_made_anew() {
    let disks = filled(6);
    for path in index_files(&disks) {
        disks.fast.vanish(&path).unwrap();
    }
    answers_as_ever(&disks, 0, "missing");
    let path = index_files(&disks).remove(0);
    let bytes = disks.fast.read_file(&path).unwrap();
    for at in cuts(bytes.len() as u64 / 64, 40) {
        disks.fast.write_file(&path, &bytes).unwrap();
        disks.fast.decay(&path, at * 64, &[0x5a; 64]).unwrap();
        answers_as_ever(&disks, 0, &format!("line {at}"));
    }
    for len in [0, 63, 64, bytes.len() / 2, bytes.len() - 1] {
        disks.fast.write_file(&path, &bytes[..len]).unwrap();
        answers_as_ever(&disks, 1, &format!("{len} bytes"));
    }
    let paths = index_files(&disks);
    let (one, other) = (&paths[0], &paths[1]);
    let (first, second) = (disks.fast.read_file(one), disks.fast.read_file(other));
    disks.fast.write_file(one, second.unwrap()).unwrap();
    disks.fast.write_file(other, first.unwrap()).unwrap();
    answers_as_ever(&disks, 2, "exchanged");
    // Those of a clone, another database with the same segments.
    let (disks, strange) = (filled(6), Disks::new(7));
    strange.fast.create_dir_all(Path::new("/other")).unwrap();
    let strange = filled_on(strange);
    for path in index_files(&disks) {
        let bytes = strange.fast.read_file(&path).unwrap();
        disks.fast.write_file(&path, bytes).unwrap();
    }
    answers_as_ever(
        &disks,
        index_files(&disks).len() as u64,
        "of another database",
    );
}

#[test]
fn a_page_of_a_copy_that_cannot_be_read_is_read_in_bulk() {
    let disks = filled(8);
    let in_bulk = in_bulk(&disks);
    let db = disks.open(options()).unwrap();
    let before = db.stats().unwrap().fast_newest_reads;
    assert_eq!(rows(&db), in_bulk.1);
    let needed = db.stats().unwrap().fast_newest_reads - before;
    drop(db);
    let mut dropped = 0;
    for after in cuts(needed, 9) {
        let db = disks.open(options()).unwrap();
        disks.fast.fail_next(FaultKind::ReadError, after);
        assert_eq!(rows(&db), in_bulk.1, "read {after}");
        disks.fast.heal();
        dropped += db.stats().unwrap().fast_newest_dropped;
        db.maintain().unwrap();
    }
    assert!(dropped > 0);
}

#[test]
fn a_lost_tier_with_copies_alone_costs_nothing_and_is_said_so() {
    let disks = Disks::new(9);
    let options = Options {
        fast_parts: NEWEST,
        ..options()
    };
    let db = disks.open(options).unwrap();
    fill(&db, 2000);
    write(&db, 2000..2100).unwrap();
    let found = rows(&db);
    // Power goes, and the fast medium with it.
    disks.bulk.crash_now();
    drop(db);
    let disks = Disks::of(disks.bulk.after_crash(1), headwater_io::FaultyFiles::new(1));
    let plain = Options {
        fast_dir: None,
        ..self::options()
    };
    let error = disks.open(plain.clone()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier, "{error}");
    let report = repair_without_fast_tier(&disks.env(), &plain, RepairMode::Act).unwrap();
    assert!(report.after.is_sound(), "{report:#?}");
    assert!(report.lost.is_empty(), "{:?}", report.lost);
    let db = disks.open(plain).unwrap();
    assert_eq!(rows(&db), found);
}

#[test]
fn no_backup_has_copies_a_repair_and_a_change_of_parts_remove_them() {
    let disks = filled(10);
    let in_bulk = in_bulk(&disks);
    let to = Path::new("/backup");
    backup_with(&disks.env(), &options(), to, &BackupOptions::default()).unwrap();
    let has_it = |(path, _): (PathBuf, u64)| path.to_string_lossy().contains("copy");
    assert!(!disks.bulk.files().into_iter().any(has_it));
    assert!(check(disks.env(), options()).unwrap().is_sound());
    let as_it_is = Options {
        fast_dir: None,
        ..options()
    };
    let use_parts = |parts| {
        let tier = FastTier {
            folder: "/fast".into(),
            parts,
        };
        use_fast_tier(&disks.env(), &as_it_is, Some(&tier)).unwrap();
        disks.open(as_it_is.clone()).unwrap()
    };
    let db = use_parts(TierParts {
        newest: false,
        ..options().fast_parts
    });
    assert_eq!(index_files(&disks).len(), 0);
    assert_eq!(rows(&db), in_bulk.1);
    drop(db);
    let db = use_parts(TierParts {
        index: true,
        ..NEWEST
    });
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
    assert_eq!(disks.in_fast("index").len(), disks.segments());
    drop(db);
    // A repair that changes segments.
    let segment = Path::new("/db/segment").join(format!(
        "{}.seg",
        index_files(&disks)[0]
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
    ));
    let len = disks.bulk.read_file(&segment).unwrap().len() as u64;
    disks.bulk.decay(&segment, len - 40, &[0x5a; 40]).unwrap();
    let report = repair(&disks.env(), &as_it_is, RepairMode::Act).unwrap();
    assert!(!report.findings.is_empty() && report.after.is_sound());
    let db = disks.open(as_it_is.clone()).unwrap();
    db.maintain().unwrap();
    assert_eq!(index_files(&disks).len(), disks.segments());
    let found = rows(&db);
    drop(db);
    use_fast_tier(&disks.env(), &as_it_is, None).unwrap();
    assert_eq!(disks.fast.files().len(), 1, "{:?}", disks.fast.files());
    assert_eq!(rows(&disks.open(as_it_is).unwrap()), found);
}

#[test]
fn workers_make_copies_of_what_there_was_before() {
    let disks = filled(11);
    for path in index_files(&disks) {
        disks.fast.vanish(&path).unwrap();
    }
    let env = Env {
        threads: Arc::new(SystemThreads),
        ..disks.env()
    };
    let db = Database::open_in(env, options()).unwrap();
    while index_files(&disks).len() < disks.segments() {
        std::thread::yield_now();
    }
    db.close().unwrap();
    drop(db);
    answers_as_ever(&disks, 0, "made by workers");
}

#[test]
fn a_copy_stays_with_its_segment_for_whoever_reads_it() {
    let disks = filled(12);
    let db = disks.open(options()).unwrap();
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
    assert!(before.iter().all(|path| disks.fast.read_file(path).is_ok()));
    let spec = ScanSpec::default();
    let (reads, found) = disks.looks.of(|| {
        let scan = snapshot.scan(&stream(0), &spec).unwrap();
        scan.map(|chunk| chunk.unwrap().times.len()).sum::<usize>()
    });
    assert_eq!((reads, found), (0, 2000));
    drop(snapshot);
    assert_eq!(index_files(&disks).len(), disks.segments());
    db.delete(&of_table(ClosedRange::ALL)).unwrap();
    db.maintain().unwrap();
    assert_eq!((index_files(&disks).len(), disks.segments()), (0, 0));
}

/// Steps, merges, deletes and rewritings with little room for copies, and restarts with more or
/// less of it, by chance. Gives how many seconds were acknowledged.
fn run_workload(disks: &Disks, seed: u64) -> (i64, Result<(), Error>) {
    let mut written = 0;
    let mut live = || {
        let mut dice = Dice::new(seed);
        for _ in 0..3 {
            let db = disks.open(up_to(20_000 + dice.below(60_000)))?;
            for round in 0..6 {
                write(&db, written..written + 40)?;
                written += 40;
                if dice.below(2) == 1 {
                    let late = dice.below(written as u64) as i64;
                    write(&db, late..(late + 5).min(written))?;
                }
                if round != 2 {
                    db.flush()?;
                }
            }
            if dice.below(3) > 0 {
                db.compact()?;
            }
            db.maintain()?;
            db.close()?;
        }
        Ok(())
    };
    let ended = live();
    (written, ended)
}

/// Rows are those that were acknowledged, once each, with the copies and without.
fn all_there(after: &Disks, written: i64, what: &str) {
    let db = after.open(up_to(50_000)).unwrap();
    let found = (outlines(&db, -2), rows(&db));
    db.maintain().unwrap();
    assert_eq!((outlines(&db, -2), rows(&db)), found, "{what}");
    let snapshot = db.snapshot().unwrap();
    let times: Vec<i64> = match snapshot.scan(&stream(0), &ScanSpec::default()) {
        Ok(scan) => scan.flat_map(|chunk| chunk.unwrap().times).collect(),
        Err(_) => Vec::new(),
    };
    let each = |second| START + second * SECOND;
    let all: Vec<i64> = (0..times.len() as i64).map(each).collect();
    assert_eq!(times, all, "{what}");
    let rows_found = times.len() as i64;
    assert!(
        (written..=written + 40).contains(&rows_found),
        "{what}: {rows_found} of {written}"
    );
    drop(snapshot);
    db.close().unwrap();
    drop(db);
    for path in index_files(after) {
        after.fast.vanish(&path).unwrap();
    }
    let db = after.open(options()).unwrap();
    assert_eq!((outlines(&db, -2), rows(&db)), found, "{what}");
    drop(db);
    assert!(check(after.env(), options()).unwrap().is_sound());
}

#[test]
fn random_lives_answer_as_they_would_without_copies() {
    for seed in 0..12 {
        let disks = Disks::new(100 + seed);
        let (written, ended) = run_workload(&disks, seed);
        ended.unwrap();
        assert_eq!(written, 720);
        all_there(&disks, written, &format!("seed {seed}"));
    }
}

#[test]
fn wherever_a_power_cut_falls_no_row_is_lost_and_none_doubled() {
    let whole = Disks::new(13);
    let (written, ended) = run_workload(&whole, 3);
    ended.unwrap();
    assert_eq!(written, 720);
    let mut cut_off = 0;
    // Either medium dies first.
    let of_fast = cuts(whole.fast.operations(), 11).map(|cut| (true, cut));
    let of_bulk = cuts(whole.bulk.operations(), 31).map(|cut| (false, cut));
    for (is_fast, cut) in of_fast.chain(of_bulk) {
        let disks = Disks::new(13);
        match is_fast {
            true => disks.fast.crash_at(cut),
            false => disks.bulk.crash_at(cut),
        }
        let (written, ended) = run_workload(&disks, 3);
        cut_off += usize::from(ended.is_err());
        disks.bulk.crash_now();
        disks.fast.crash_now();
        for seed in seeds(2) {
            let after = Disks::of(
                disks.bulk.after_crash(seed + cut),
                disks.fast.after_crash(seed),
            );
            let what = format!("fast {is_fast}, cut {cut}, seed {seed}");
            all_there(&after, written, &what);
        }
    }
    assert!(cut_off > 20, "{cut_off}");
}
