//! One state: at one sequence the owner, a reader beside it and the next opening (after a kill, a
//! power cut, the loss of a tier, a repair) give the same answers.

use crate::cuts::cuts;
use crate::pump::{stream, times, write};
use crate::support::{START, small_options};
use headwater_engine::{
    Database, DeleteSpec, Durability, FastTier, Options, Reader, RepairMode, ScanSpec, TableChange,
    TableSpec, backup, check, repair_without_fast_tier, restore,
};
use headwater_io::{Env, FaultyFiles, ManualClock, Media, SeededChance, Survival};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const INTERVAL: Duration = Duration::from_secs(1);

/// A machine with a large medium and a fast one.
struct Machine {
    bulk: FaultyFiles,
    fast: FaultyFiles,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new() -> Machine {
        Machine::with(FaultyFiles::new(1), FaultyFiles::new(2), START)
    }

    fn with(bulk: FaultyFiles, fast: FaultyFiles, now: i64) -> Machine {
        Machine {
            bulk,
            fast,
            clock: Arc::new(ManualClock::new(Timestamp::from_nanos(now))),
        }
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.bulk.clone()),
            media: Media {
                fast: Some(Arc::new(self.fast.clone())),
                ..Media::default()
            },
            clock: Arc::<ManualClock>::clone(&self.clock),
            chance: Arc::new(SeededChance::new(self.bulk.operations() + 1)),
            ..Env::memory()
        }
    }

    fn open(&self, options: &Options) -> Database {
        Database::open_in(self.env(), options.clone()).unwrap()
    }

    /// The machine after a kill, or a cut of its power.
    fn next(&self, survives: (Survival, Survival)) -> Machine {
        use headwater_io::Clock;
        let bulk = self.bulk.after_crash_with(survives.0);
        let fast = self.fast.after_crash_with(survives.1);
        Machine::with(bulk, fast, self.clock.now().as_nanos())
    }

    fn killed(&self) -> Machine {
        self.next((Survival::Everything, Survival::Everything))
    }

    /// Ends the process that has the database.
    fn end(&self, db: Database) {
        self.bulk.crash_now();
        self.fast.crash_now();
        drop(db);
    }

    fn lose_tier(&self) {
        for (path, _) in self.fast.files() {
            self.fast.vanish(&path).unwrap();
        }
    }

    fn go_on_without_tier(&self) -> Vec<String> {
        self.lose_tier();
        let options = small_options();
        let done = repair_without_fast_tier(&self.env(), &options, RepairMode::Act).unwrap();
        assert!(done.after.is_sound(), "{done:#?}");
        done.lost
    }
}

fn mirrored() -> Options {
    Options {
        fast_dir: Some("/fast".into()),
        log_mirror: Some(INTERVAL),
        ..small_options()
    }
}

fn rows_of(reader: &Reader, name: &StreamName) -> Vec<i64> {
    match reader.snapshot().scan(name, &ScanSpec::default()) {
        Ok(scan) => scan.flat_map(|chunk| chunk.unwrap().times).collect(),
        Err(_) => Vec::new(),
    }
}

#[test]
fn after_each_move_the_owner_can_do_what_a_process_beside_it_can() {
    let tier = |folder: &str, parts: &str| {
        Some(FastTier {
            folder: folder.into(),
            parts: parts.parse().unwrap(),
        })
    };
    let layouts = [
        tier("/fast", "log,newest"),
        tier("/fast", "buffers"),
        tier("/other", "log,pins"),
        tier("/fast", "log"),
        None,
        tier("/fast", "index"),
        None,
    ];
    let options = small_options();
    // At the opening the log lies in bulk, or in a tier.
    for at_opening in [None, tier("/first", "log,pins")] {
        let machine = Machine::new();
        let db = machine.open(&options);
        db.move_tier(at_opening.as_ref()).unwrap();
        write(&db, 0..100).unwrap();
        db.close().unwrap();
        drop(db);
        let db = machine.open(&options);
        let mut rows = 100;
        for (number, wanted) in layouts.iter().enumerate() {
            let what = format!("{wanted:?}, at the opening {at_opening:?}");
            db.move_tier(wanted.as_ref()).unwrap();
            write(&db, rows..rows + 20).unwrap();
            rows += 20;
            let (own, beside) = (format!("/own{number}"), format!("/beside{number}"));
            let report = db.backup(Path::new(&own));
            report.unwrap_or_else(|error| panic!("{what}: {error}"));
            backup(&machine.env(), &options, Path::new(&beside)).unwrap();
            for from in [own, beside] {
                let restored = Options {
                    dir: format!("{from}-restored").into(),
                    ..options.clone()
                };
                restore(&machine.env(), Path::new(&from), &restored).unwrap();
                let found = times(&machine.open(&restored));
                assert_eq!(found, (0..rows).collect::<Vec<i64>>(), "{what}");
            }
            let reader = Reader::open_in(machine.env(), options.clone()).unwrap();
            assert_eq!(rows_of(&reader, &stream()), times(&db), "{what}");
            db.create_snapshot(&format!("s{number}")).unwrap();
            assert!(check(machine.env(), options.clone()).unwrap().is_sound());
        }
    }
}

/// Writes rows of one field at seconds.
fn put(db: &Database, name: &StreamName, field: &str, seconds: std::ops::Range<i64>) {
    let mut batch = Batch::new();
    for second in seconds {
        let row = [(field, (second as f64).into())];
        batch
            .stream(name)
            .row(START + second * SECOND, row)
            .unwrap();
    }
    let written = db.commit(batch).unwrap();
    assert!(written.refused.is_empty(), "{:?}", written.refused);
}

/// What owner, reader and the next openings see of a stream, all the same.
fn visible_to_all(machine: &Machine, db: &Database, options: &Options, what: &str) -> Vec<i64> {
    let name = StreamName::new("m", [("id", "1")]);
    let all = |db: &Database| -> Vec<String> {
        let snapshot = db.snapshot().unwrap();
        let chunks = snapshot.scan(&name, &ScanSpec::default());
        chunks.map_or_else(
            |_| Vec::new(),
            |scan| scan.map(|chunk| format!("{:?}", chunk.unwrap())).collect(),
        )
    };
    let own = all(db);
    let reader = Reader::open_in(machine.env(), options.clone()).unwrap();
    let beside = reader.snapshot().scan(&name, &ScanSpec::default());
    let beside: Vec<String> = beside.map_or_else(
        |_| Vec::new(),
        |scan| scan.map(|chunk| format!("{:?}", chunk.unwrap())).collect(),
    );
    let times = rows_of(&reader, &name);
    assert_eq!(beside.join(""), own.join(""), "{what}: a reader beside");
    for survives in [Survival::Everything, Survival::Nothing] {
        let next = machine.next((survives, survives));
        let found = all(&next.open(options));
        assert_eq!(found.join(""), own.join(""), "{what}: {survives:?}");
    }
    times
}

#[test]
fn what_retention_removed_stays_gone_for_everybody_when_the_retention_is_lifted() {
    let name = StreamName::new("m", [("id", "1")]);
    let day = Duration::from_secs(86_400);
    let options = Options {
        log_file_bytes: 1 << 20,
        // The next opening believes the clock as this one does.
        clock_jump_max: day * 100,
        ..small_options()
    };
    // What is old lies in segments, in memory, in both; the table is swept or not; the limit is
    // lifted, or goes back by less than it went ahead.
    for case in 0..24 {
        let (is_stored, is_both, is_swept) = (case & 1 == 1, case & 2 == 2, case & 4 == 4);
        let lifted = [None, Some(day * 4), Some(day / 2)][case / 8];
        let what = format!("case {case}");
        let machine = Machine::new();
        let db = machine.open(&options);
        let spec = TableSpec {
            retention: Some(day),
            ..TableSpec::new("m")
        };
        db.create_table(&spec).unwrap();
        put(&db, &name, "a", 0..60);
        if is_stored {
            db.flush().unwrap();
        }
        if is_both {
            put(&db, &name, "a", 60..90);
        }
        visible_to_all(&machine, &db, &options, &what);
        machine.clock.advance(day * 2);
        put(&db, &name, "a", 2 * 86_400..2 * 86_400 + 30);
        if is_swept {
            db.maintain().unwrap();
        }
        visible_to_all(&machine, &db, &options, &what);
        let change = TableChange {
            retention: Some(lifted),
            ..TableChange::default()
        };
        db.alter_table("m", &change).unwrap();
        let before = visible_to_all(&machine, &db, &options, &what);
        // Another field at the same instants: nothing old merges into it.
        if lifted != Some(day / 2) {
            put(&db, &name, "b", 0..10);
        }
        visible_to_all(&machine, &db, &options, &what);
        db.maintain().unwrap();
        let after = visible_to_all(&machine, &db, &options, &what);
        assert!(
            after.len() >= before.len() || lifted == Some(day / 2),
            "{what}"
        );
        db.flush().unwrap();
        visible_to_all(&machine, &db, &options, &what);
        db.close().unwrap();
        drop(db);
        let db = machine.open(&options);
        assert_eq!(
            visible_to_all(&machine, &db, &options, &what),
            after,
            "{what}"
        );
    }
}

#[test]
fn the_copy_of_a_log_that_lost_records_has_none_of_them_from_the_opening_on() {
    for unsynced in [3, 12, 60, 200] {
        let options = Options {
            durability: Durability::Written,
            ..mirrored()
        };
        let machine = Machine::new();
        let db = machine.open(&options);
        write(&db, 0..20).unwrap();
        db.flush().unwrap();
        let written = 20 + unsynced;
        for row in 20..written {
            write(&db, row..row + 1).unwrap();
        }
        machine.clock.advance(INTERVAL);
        write(&db, written..written + 1).unwrap();
        assert_eq!(db.stats().unwrap().log_mirror_behind_bytes, 0);
        let next = machine.next((Survival::Nothing, Survival::Nothing));
        machine.end(db);
        let db = next.open(&options);
        let found = times(&db);
        assert!((found.len() as i64) < written, "{found:?}");
        // Nothing was written since, and no round was made: now the tier is lost.
        let after = next.killed();
        next.end(db);
        after.go_on_without_tier();
        let rest = times(&after.open(&small_options()));
        assert!(rest.len() <= found.len(), "{rest:?} of {found:?}");
        assert_eq!(rest, found[..rest.len()]);
        assert!(rest.len() >= 20, "{rest:?}");
    }
}

#[test]
fn a_delete_before_a_flush_stays_carried_out_when_the_tier_is_lost() {
    for case in 0..8 {
        let (is_stored, is_copied, has_copy) = (case & 1 == 1, case & 2 == 2, case & 4 == 4);
        let options = Options {
            log_mirror: has_copy.then_some(INTERVAL),
            ..mirrored()
        };
        let machine = Machine::new();
        let db = machine.open(&options);
        write(&db, 0..50).unwrap();
        if is_stored {
            db.flush().unwrap();
        }
        if is_copied {
            machine.clock.advance(INTERVAL);
        }
        write(&db, 50..60).unwrap();
        let spec = DeleteSpec {
            table: "pumps".into(),
            tags: Vec::new(),
            range: ClosedRange::nanos(20, 54),
        };
        db.delete(&spec).unwrap();
        db.flush().unwrap();
        let expected = times(&db);
        assert_eq!(expected.len(), 25);
        let after = machine.killed();
        machine.end(db);
        after.go_on_without_tier();
        assert_eq!(times(&after.open(&small_options())), expected, "{case}");
    }
}

/// What the copy holds is a front part of the log whenever an opening is cut short.
#[test]
fn an_opening_that_a_power_cut_ends_leaves_a_copy_that_the_next_one_can_use() {
    let options = Options {
        durability: Durability::Written,
        ..mirrored()
    };
    let begin = || {
        let machine = Machine::new();
        let db = machine.open(&options);
        write(&db, 0..20).unwrap();
        db.flush().unwrap();
        for row in 20..60 {
            write(&db, row..row + 1).unwrap();
        }
        machine.clock.advance(INTERVAL);
        write(&db, 60..61).unwrap();
        let next = machine.next((Survival::Nothing, Survival::Nothing));
        machine.end(db);
        next
    };
    let counting = begin();
    drop(counting.open(&options));
    for cut in cuts(counting.bulk.operations(), 3) {
        let machine = begin();
        machine.bulk.crash_at(cut);
        let opened = Database::open_in(machine.env(), options.clone());
        machine.bulk.crash_now();
        machine.fast.crash_now();
        drop(opened);
        let next = machine.next((Survival::Seed(cut), Survival::Seed(cut)));
        let db = next.open(&options);
        let found = times(&db);
        assert!(found.len() >= 20, "cut {cut}: {found:?}");
        let after = next.killed();
        next.end(db);
        after.go_on_without_tier();
        let rest = times(&after.open(&small_options()));
        assert!(rest.len() >= 20 && rest == found[..rest.len()], "cut {cut}");
    }
}
