//! The crash sweep: the power fails, or the process is killed, at every write, sync and change of a
//! name; law 1 must hold.
//!
//! A first run counts the operations, later runs cut at each of them, take several states of the
//! disk that such a cut can leave, open the database there, and look for the number of steps that
//! it holds: at least the acknowledged ones, at most those begun.

use crate::cuts::{cuts, variable};
use crate::support::{
    Action, Content, Dice, Event, Fields, Maker, Mortal, Progress, Run, START, Step, assert_sound,
    batch_of, check, keeping_table, read_back, small_options, steps, workload,
};
use headwater_engine::{
    Database, Durability, FlushRule, IndexSpec, LatePolicy, Options, ScanSpec, Stats, TierParts,
};
use headwater_io::{
    Env, FaultyFiles, File, Files, OpenMode, SeededChance, SystemClock, SystemThreads,
};
use headwater_types::{StreamName, Value};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What a workload is supposed to make happen, so that the sweep proves something.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    merges: bool,
    late_runs: bool,
    folds: bool,
    compactions: bool,
    splits: bool,
    recycling: bool,
}

struct Sweep {
    name: String,
    options: Options,
    actions: Vec<Action>,
    expected: Expected,
    /// Cuts at every so many operations, if nothing else is asked for.
    stride: u64,
    /// States of the disk looked at for each cut, beyond "nothing unsynced" and "everything".
    mixtures: u64,
}

/// What the cut run and the database after it have to agree on.
fn least_steps(durability: Durability, progress: &Progress) -> usize {
    match durability {
        Durability::Synced => progress.acknowledged,
        Durability::Every(_) | Durability::Written => progress.flushed,
    }
}

impl Sweep {
    fn run(&self) {
        let steps = steps(&self.actions);
        let operations = self.uncut(&steps);
        let mut dice = Dice::new(operations);
        for cut in cuts(operations, self.stride) {
            let disk = FaultyFiles::new(cut);
            disk.crash_at(cut);
            let mut run = Run::new(Arc::new(disk.clone()), &self.options);
            let ended = run.play(&self.actions);
            if !disk.crashed() {
                assert!(ended.is_ok(), "{}: {ended:?}", self.name);
                continue;
            }
            for state in 0..2 + self.mixtures {
                let seed = if state < 2 {
                    state
                } else {
                    2 + dice.below(1 << 32)
                };
                let at = format!(
                    "{}, cut at {cut} ({}), seed {seed}",
                    self.name,
                    disk.interrupted().unwrap_or_default()
                );
                let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    self.recover(&disk, seed, &steps, &run.progress, &mut dice.clone());
                }));
                dice.next();
                if let Err(panic) = found {
                    eprintln!("^ {at}, {:?}", run.progress);
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// Plays the whole workload and checks that it does what it is for; gives the number of
    /// operations.
    fn uncut(&self, steps: &[Step<'_>]) -> u64 {
        let disk = FaultyFiles::new(1);
        let mut run = Run::new(Arc::new(disk.clone()), &self.options);
        run.play(&self.actions).unwrap();
        let operations = disk.operations();
        let db = run.open().unwrap();
        let content = read_back(&db);
        assert_eq!(
            content.steps_found(steps, steps.len(), steps.len()),
            Ok(steps.len())
        );
        let stats = db.stats().unwrap();
        db.close().unwrap();
        drop(db);
        assert_sound(&disk, &self.options);
        self.expect(&stats, &disk);
        operations
    }

    fn expect(&self, stats: &Stats, disk: &FaultyFiles) {
        let Expected {
            merges,
            late_runs,
            folds,
            compactions,
            splits,
            recycling,
        } = self.expected;
        let name = &self.name;
        assert!(!merges || stats.events_merge > 0, "{name}: {stats:?}");
        assert!(!late_runs || stats.events_late_run > 0, "{name}: {stats:?}");
        assert!(!folds || stats.events_fold > 0, "{name}: {stats:?}");
        assert!(
            !compactions || stats.events_compaction > 0,
            "{name}: {stats:?}"
        );
        assert!(!splits || stats.partitions > 6, "{name}: {stats:?}");
        let logs = disk
            .files()
            .iter()
            .filter(|(p, _)| p.starts_with("/db/log"))
            .count() as u64;
        assert!(
            !recycling || stats.bytes_log > 2 * logs * self.options.log_file_bytes,
            "{name}: {logs} {stats:?}"
        );
    }

    fn recover(
        &self,
        cut: &FaultyFiles,
        seed: u64,
        steps: &[Step<'_>],
        progress: &Progress,
        dice: &mut Dice,
    ) {
        let mut disk = cut.after_crash(seed);
        // Often the power fails again while the database is put right, or while it is closed after
        // that, and again.
        while dice.chance(40) {
            let depth = [12, 40, 200][dice.below(3) as usize];
            disk.crash_at(dice.below(depth));
            if let Ok(db) = Run::new(Arc::new(disk.clone()), &self.options).open() {
                drop(db);
            }
            disk.crash_now();
            disk = disk.after_crash(if dice.chance(30) {
                dice.below(2)
            } else {
                dice.next()
            });
        }
        let least = least_steps(self.options.durability, progress);
        let run = Run::new(Arc::new(disk.clone()), &self.options);
        let db = run.open().unwrap();
        let found = read_back(&db).steps_found(steps, least, progress.submitted);
        let found = found.unwrap_or_else(|e| panic!("{e}\n{:?}", db.recovery()));
        crate::indexes::assert_agree(&db);
        self.go_on(&disk, run, db, steps, found, dice);
    }

    /// Life goes on after the crash: what was there stays, what is written is there too, the files
    /// are sound.
    fn go_on(
        &self,
        disk: &FaultyFiles,
        mut run: Run<'_>,
        db: Database,
        steps: &[Step<'_>],
        found: usize,
        dice: &mut Dice,
    ) {
        let mut maker = Maker::new(dice.next());
        let more: Vec<Action> = [keeping_table()]
            .into_iter()
            .filter(|_| found == 0)
            .chain((0..3).map(|_| Action::Write(maker.events(9, 90))))
            .collect();
        let mut all = steps[..found].to_vec();
        all.extend(self::steps(&more));
        let db = run.play_on(db, &more).unwrap();
        assert_eq!(
            read_back(&db).steps_found(&all, all.len(), all.len()),
            Ok(all.len())
        );
        crate::indexes::assert_agree(&db);
        db.close().unwrap();
        drop(db);
        let report = check(Arc::new(disk.clone()), &self.options);
        assert!(report.is_sound(), "{:#?}", report.damages);
        let db = run.open().unwrap();
        assert_eq!(
            read_back(&db).steps_found(&all, all.len(), all.len()),
            Ok(all.len())
        );
    }
}

#[test]
fn every_operation_of_a_short_life() {
    Sweep {
        name: "short".into(),
        options: small_options(),
        actions: workload(1, 26, 6, 13, 20),
        expected: Expected {
            compactions: true,
            ..Expected::default()
        },
        stride: 1,
        mixtures: 2,
    }
    .run();
}

#[test]
fn a_long_life_with_flushes_and_compactions() {
    Sweep {
        name: "long".into(),
        options: small_options(),
        actions: workload(2, 260, 9, 40, 70),
        expected: Expected {
            merges: true,
            late_runs: true,
            folds: true,
            compactions: true,
            splits: true,
            recycling: true,
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

#[test]
fn a_long_life_under_the_papers_rule() {
    Sweep {
        name: "papers".into(),
        options: Options {
            flush_rule: FlushRule::LabExact { memory_events: 48 },
            late_policy: LatePolicy::separate(0.6).into(),
            late_runs_max: 0,
            partition_target_bytes: u64::MAX,
            partition_bytes_max: u64::MAX,
            ..small_options()
        },
        actions: workload(3, 160, 0, 0, 50),
        expected: Expected {
            merges: true,
            recycling: true,
            ..Expected::default()
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

#[test]
fn a_log_in_a_fast_tier() {
    Sweep {
        name: "tier".into(),
        options: Options {
            fast_dir: Some("/fast".into()),
            fast_parts: TierParts {
                log: true,
                index: true,
                ..TierParts::NONE
            },
            // What is asked for ahead, and queues, make nothing else of a cut.
            queue_sets: 2,
            read_ahead: 4,
            ..small_options()
        },
        actions: workload(6, 120, 30, 50, 40),
        expected: Expected {
            recycling: true,
            ..Expected::default()
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

#[test]
fn one_buffer_flushed_when_it_is_full() {
    Sweep {
        name: "conventional".into(),
        options: Options {
            flush_rule: FlushRule::LabExact { memory_events: 40 },
            late_policy: LatePolicy::conventional().into(),
            ..small_options()
        },
        actions: workload(4, 120, 0, 0, 60),
        expected: Expected {
            late_runs: true,
            folds: true,
            recycling: true,
            ..Expected::default()
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

#[test]
fn indexes_that_are_made_merged_and_dropped() {
    let spec = |name: &str, table: &str, fields: &[&str]| {
        Action::CreateIndex(IndexSpec {
            name: name.into(),
            table: table.into(),
            fields: fields.iter().map(|f| (*f).to_owned()).collect(),
        })
    };
    let mut actions = Vec::new();
    for (index, action) in workload(7, 130, 6, 29, 50).into_iter().enumerate() {
        actions.push(action);
        match index {
            20 => actions.push(spec("one", "m", &["n"])),
            24 | 60 | 100 => actions.push(Action::BuildIndex("one")),
            40 => actions.push(spec("two", "m", &["v", "n"])),
            70 => actions.push(Action::BuildIndex("two")),
            80 => actions.push(Action::DropIndex("two")),
            _ => {}
        }
    }
    Sweep {
        name: "indexes".into(),
        options: small_options(),
        actions,
        expected: Expected {
            compactions: true,
            ..Expected::default()
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

#[test]
fn policies_that_change_in_between() {
    let policies = crate::model::policies();
    let mut dice = Dice::new(11);
    let mut actions = Vec::new();
    for (index, action) in workload(5, 160, 0, 0, 50).into_iter().enumerate() {
        actions.push(action);
        if index % 5 == 4 {
            let policy = policies[dice.below(policies.len() as u64) as usize];
            actions.push(Action::Policy(policy.into()));
        }
    }
    Sweep {
        name: "policies".into(),
        options: Options {
            flush_rule: FlushRule::LabExact { memory_events: 44 },
            late_policy: LatePolicy::separate(0.5).into(),
            ..small_options()
        },
        actions,
        expected: Expected {
            merges: true,
            late_runs: true,
            folds: true,
            recycling: true,
            ..Expected::default()
        },
        stride: 10,
        mixtures: 1,
    }
    .run();
}

/// Batches of long text, so that memory is used up and writers store what is due.
fn heavy_workload() -> Vec<Action> {
    let mut maker = Maker::new(9);
    let mut actions = vec![keeping_table()];
    for age in 0..90 {
        let mut events = maker.events(7, age);
        for event in events.iter_mut().filter(|e| e.stream.table() == "m") {
            let text = (0..260)
                .map(|_| format!("{:08x}", maker.dice.next() >> 32))
                .collect();
            event.fields.insert("text".into(), Value::String(text));
        }
        actions.push(Action::Write(events));
    }
    actions
}

#[test]
fn memory_that_is_used_up() {
    let options = Options {
        late_policy: LatePolicy {
            retain_events: 6,
            ..LatePolicy::separate(0.5)
        }
        .into(),
        log_file_bytes: 64 << 10,
        partition_target_bytes: 64 << 10,
        partition_bytes_max: 256 << 10,
        ..small_options()
    };
    Sweep {
        name: "heavy".into(),
        options,
        actions: heavy_workload(),
        expected: Expected {
            late_runs: true,
            ..Expected::default()
        },
        stride: 9,
        mixtures: 1,
    }
    .run();
}

#[test]
fn what_was_only_written_is_lost_from_the_end() {
    Sweep {
        name: "written".into(),
        options: Options {
            durability: Durability::Written,
            ..small_options()
        },
        actions: workload(5, 150, 12, 50, 60),
        expected: Expected {
            recycling: true,
            ..Expected::default()
        },
        stride: 9,
        mixtures: 3,
    }
    .run();
}

#[test]
fn what_was_synced_now_and_then_is_lost_from_the_end() {
    Sweep {
        name: "every 20 ms".into(),
        options: Options {
            durability: Durability::Every(std::time::Duration::from_millis(20)),
            ..small_options()
        },
        actions: workload(6, 100, 20, 0, 60),
        expected: Expected::default(),
        stride: 7,
        mixtures: 2,
    }
    .run();
}

#[test]
fn workloads_of_any_seed_cut_now_and_then() {
    let first = variable("HEADWATER_CRASH_FIRST_SEED").unwrap_or(100);
    for seed in first..first + variable("HEADWATER_CRASH_SEEDS").unwrap_or(6) {
        let mut dice = Dice::new(seed);
        let mut pick = |of: &[u64]| of[dice.below(of.len() as u64) as usize];
        let length = pick(&[30, 60, 120]);
        let actions = workload(
            seed,
            length,
            pick(&[0, 7, 15]),
            pick(&[0, 20, 50]),
            pick(&[0, 25, 60]),
        );
        let target = pick(&[2 << 10, 16 << 10]);
        let options = Options {
            shards: pick(&[1, 2]) as u16,
            late_runs_max: pick(&[0, 2, 16]) as usize,
            groups_max: pick(&[3, 6, 12]) as u32,
            partition_target_bytes: target,
            partition_bytes_max: 2 * target,
            log_file_bytes: pick(&[4096, 16 << 10]),
            flush_rule: match pick(&[0, 1]) {
                0 => FlushRule::Production,
                _ => FlushRule::LabExact { memory_events: 40 },
            },
            ..small_options()
        };
        Sweep {
            name: format!("seed {seed}"),
            options,
            actions,
            expected: Expected::default(),
            stride: 20,
            mixtures: 2,
        }
        .run();
    }
}

/// A process is killed, another one goes on with what the operating system has, and then the power
/// fails.
fn killed_then_cut(name: &str, options: &Options, actions: &[Action], stride: u64) {
    let all = steps(actions);
    let mut dice = Dice::new(99);
    let counting = FaultyFiles::new(1);
    let first = Mortal::new(&counting, u64::MAX / 2);
    Run::new(Arc::new(first), options).play(actions).unwrap();
    let operations = counting.operations();
    for kill in cuts(operations, stride) {
        let at = format!("{name}, killed at {kill}");
        let disk = FaultyFiles::new(kill);
        let process = Mortal::new(&disk, kill);
        let mut run = Run::new(Arc::new(process.clone()), options);
        if run.play(actions).is_ok() {
            continue;
        }
        assert!(process.is_dead(), "{at}");
        // A killed process loses nothing that it acknowledged, whatever the durability.
        let mut next = Run::new(Arc::new(disk.clone()), options);
        let db = next.open().unwrap_or_else(|e| panic!("{at}: {e}"));
        let content = read_back(&db);
        let found = content.steps_found(&all, run.progress.acknowledged, run.progress.submitted);
        let found = found.unwrap_or_else(|e| panic!("{at}: {e}"));
        // The next process writes a little, then the power fails.
        let mut maker = Maker::new(dice.next());
        let more: Vec<Action> = [keeping_table()]
            .into_iter()
            .filter(|_| found == 0)
            .chain((0..1 + dice.below(3)).map(|_| Action::Write(maker.events(5, 90))))
            .chain(dice.chance(50).then_some(Action::Flush))
            .collect();
        let mut both = all[..found].to_vec();
        both.extend(steps(&more));
        let db = next
            .play_on(db, &more)
            .unwrap_or_else(|e| panic!("{at}: {e}"));
        disk.crash_now();
        drop(db);
        for seed in [0, 1, 2 + dice.next() / 2] {
            let after = disk.after_crash(seed);
            let at = format!("{at}, then cut, seed {seed}");
            let last = Run::new(Arc::new(after.clone()), options);
            let db = last.open().unwrap_or_else(|e| panic!("{at}: {e}"));
            let least = match options.durability {
                Durability::Synced => both.len(),
                _ if next.progress.flushed > 0 => both.len(),
                _ => run.progress.flushed,
            };
            let found = read_back(&db).steps_found(&both, least, both.len());
            found.unwrap_or_else(|e| panic!("{at}: {e}"));
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_and_leaves_nothing_unsafe() {
    let options = small_options();
    killed_then_cut("synced", &options, &workload(7, 24, 7, 15, 18), 1);
    let options = Options {
        durability: Durability::Written,
        ..small_options()
    };
    killed_then_cut("written", &options, &workload(8, 60, 20, 35, 50), 2);
}

const WRITERS: u64 = 4;
const BATCHES: u64 = 50;

/// What one writer does: batches over two streams of its own, in a table of its own, and the stream
/// that all share.
fn batches_of(writer: u64, seed: u64) -> Vec<Vec<Event>> {
    let mut dice = Dice::new(seed ^ (writer << 32));
    let own = |part: u64| StreamName::new(format!("w{writer}"), [("part", part.to_string())]);
    let shared = StreamName::new("k", [("device", "shared")]);
    let mut clock = START;
    let mut batch = |number: u64| {
        let mut events = Vec::new();
        for row in 0..4 {
            clock += 1 + dice.below(1_000_000_000) as i64;
            let late = if dice.chance(20) {
                dice.below(30_000_000_000) as i64
            } else {
                0
            };
            let value = if number < BATCHES / 2 {
                Value::I64(number as i64)
            } else {
                Value::F64(number as f64 + 0.5)
            };
            let fields = Fields::from([("n".to_owned(), value)]);
            events.push(Event {
                stream: own(row % 2),
                time: clock - late,
                fields,
            });
        }
        let fields = Fields::from([("id".to_owned(), Value::U64(id(writer, number)))]);
        events.push(Event {
            stream: shared.clone(),
            time: clock,
            fields,
        });
        events
    };
    (0..BATCHES).map(&mut batch).collect()
}

fn id(writer: u64, number: u64) -> u64 {
    writer * 1000 + number
}

/// The part of the content that a writer wrote.
fn part_of(content: &Content, writer: u64) -> Content {
    let mut part = content.clone();
    let own = format!("w{writer}");
    part.streams
        .retain(|name, _| name.table() == own || name.table() == "k");
    for (_, rows) in part
        .streams
        .iter_mut()
        .filter(|(name, _)| name.table() == "k")
    {
        rows.retain(|(_, f)| matches!(f.get("id"), Some(Value::U64(n)) if n / 1000 == writer));
    }
    part.streams.retain(|_, rows| !rows.is_empty());
    part
}

/// Writes with up to three batches in flight; gives how many were begun and how many of them
/// acknowledged.
fn write_all(db: &Database, batches: &[Vec<Event>]) -> (usize, usize) {
    let (mut begun, mut acknowledged) = (0, 0);
    let mut flying = VecDeque::new();
    for events in batches {
        begun += 1;
        let Ok(ticket) = db.write(batch_of(events)) else {
            return (begun, acknowledged);
        };
        flying.push_back(ticket);
        if flying.len() > begun % 4 {
            if flying.pop_front().is_some_and(|t| t.wait().is_err()) {
                return (begun, acknowledged);
            }
            acknowledged += 1;
        }
    }
    for ticket in flying {
        if ticket.wait().is_err() {
            break;
        }
        acknowledged += 1;
    }
    (begun, acknowledged)
}

/// The numbers in the shared stream, as a reader sees them.
fn visible_numbers(db: &Database) -> BTreeSet<u64> {
    let snapshot = db.snapshot().unwrap();
    let Ok(scan) = snapshot.scan(
        &StreamName::new("k", [("device", "shared")]),
        &ScanSpec::default(),
    ) else {
        return BTreeSet::new();
    };
    let numbers = scan.filter_map(Result::ok).flat_map(|chunk| {
        let column = chunk
            .columns
            .first()
            .map(headwater_types::Column::to_values)
            .unwrap_or_default();
        column.into_iter().filter_map(|v| {
            if let Some(Value::U64(n)) = v {
                Some(n)
            } else {
                None
            }
        })
    });
    numbers.collect()
}

fn run_concurrent_workload(seed: u64, options: &Options) {
    let mut dice = Dice::new(seed);
    let disk = FaultyFiles::new(seed);
    let env = Env {
        files: Arc::new(disk.clone()),
        media: headwater_io::Media::default(),
        clock: Arc::new(SystemClock::new()),
        chance: Arc::new(SeededChance::new(seed)),
        threads: Arc::new(SystemThreads),
    };
    let all: Vec<Vec<Vec<Event>>> = (0..WRITERS).map(|w| batches_of(w, seed)).collect();
    let db = Database::open_in(env, options.clone()).unwrap();
    let Action::Create(table) = keeping_table() else {
        panic!("a table")
    };
    db.create_table(&table).unwrap();
    disk.crash_at(disk.operations() + dice.below(200));
    let done = AtomicBool::new(false);
    let (counts, seen) = std::thread::scope(|scope| {
        let writers: Vec<_> = all
            .iter()
            .map(|batches| scope.spawn(|| write_all(&db, batches)))
            .collect();
        let reader = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Acquire) {
                let now = visible_numbers(&db);
                if disk.crashed() {
                    break;
                }
                assert!(
                    now.is_superset(&seen),
                    "a reader lost {:?}",
                    seen.difference(&now).collect::<Vec<_>>()
                );
                seen = now;
            }
            seen
        });
        let tidier = scope.spawn(|| {
            while !done.load(Ordering::Acquire) && db.flush().is_ok() && db.compact().is_ok() {
                std::thread::yield_now();
            }
        });
        let counts: Vec<(usize, usize)> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        tidier.join().unwrap();
        (counts, reader.join().unwrap())
    });
    disk.crash_now();
    drop(db.close());
    for seed in [0, 1, dice.next(), dice.next(), dice.next()] {
        let after = disk.after_crash(seed);
        let run = Run::new(Arc::new(after.clone()), options);
        let db = run
            .open()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\ncut at {:?}", disk.interrupted()));
        let content = read_back(&db);
        for ((writer, batches), (begun, acknowledged)) in (0..).zip(&all).zip(&counts) {
            let create = std::iter::once(Step::Create(&table));
            let steps: Vec<Step<'_>> = create
                .chain(batches.iter().map(|b| Step::Write(b)))
                .collect();
            let least = if options.durability == Durability::Synced {
                1 + *acknowledged
            } else {
                0
            };
            let found = part_of(&content, writer).steps_found(&steps, least, 1 + *begun);
            found.unwrap_or_else(|e| {
                panic!(
                    "writer {writer}, seed {seed}: {e}\ncut at {:?}",
                    disk.interrupted()
                )
            });
        }
        if options.durability == Durability::Synced {
            let now = visible_numbers(&db);
            assert!(
                now.is_superset(&seen),
                "read before the crash, then lost: {:?}",
                seen.difference(&now)
            );
        }
        db.close().unwrap();
        drop(db);
        assert_sound(&after, options);
    }
}

#[test]
fn concurrent_writers_readers_and_steps() {
    for seed in 0..30 {
        let durability = if seed % 4 == 3 {
            Durability::Written
        } else {
            Durability::Synced
        };
        run_concurrent_workload(
            seed,
            &Options {
                durability,
                ..small_options()
            },
        );
    }
}

/// Files on which the log cannot be written while the gate is shut; whoever tries waits.
#[derive(Clone, Debug)]
struct Gated {
    disk: FaultyFiles,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
    metadata_synced: AtomicUsize,
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn File>,
    gate: Arc<Gate>,
    is_log: bool,
    is_metadata: bool,
}

impl File for GatedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_log {
            let shut = self.gate.shut.lock().unwrap();
            drop(self.gate.opened.wait_while(shut, |shut| *shut).unwrap());
        }
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        let result = self.file.sync_data();
        if self.is_metadata {
            self.gate.metadata_synced.fetch_add(1, Ordering::AcqRel);
        }
        result
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl Files for Gated {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        let (is_log, is_metadata) = (path.starts_with("/db/log"), path.ends_with("meta.redb"));
        let gate = Arc::clone(&self.gate);
        Ok(Arc::new(GatedFile {
            file,
            gate,
            is_log,
            is_metadata,
        }))
    }

    headwater_io::pass_on_files!(disk; remove list create_dir_all sync_dir exists lock lock_file);
}

#[test]
fn no_row_is_stored_in_a_type_whose_definition_may_still_be_lost() {
    let options = Options {
        shards: 1,
        log_file_bytes: 4 << 20,
        ..small_options()
    };
    let disk = FaultyFiles::new(1);
    let gate = Arc::new(Gate::default());
    let env = Env {
        media: headwater_io::Media::default(),
        files: Arc::new(Gated {
            disk: disk.clone(),
            gate: Arc::clone(&gate),
        }),
        clock: Arc::new(SystemClock::new()),
        chance: Arc::new(SeededChance::new(1)),
        threads: Arc::new(SystemThreads),
    };
    let db = Database::open_in(env, options.clone()).unwrap();
    let event = |time: i64, fields: &[(&str, Value)]| Event {
        stream: StreamName::new("m", [("device", "1")]),
        time,
        fields: fields
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone()))
            .collect(),
    };
    let integers: Vec<Event> = (0..40)
        .map(|t| event(START + t, &[("n", Value::I64(t))]))
        .collect();
    let widening = [event(
        START + 50,
        &[
            ("n", Value::F64(0.5)),
            ("text", Value::String("x".repeat(700 << 10))),
        ],
    )];
    db.commit(batch_of(&integers)).unwrap();
    *gate.shut.lock().unwrap() = true;
    // The definition is in force, but stays in front of the gate; the memory used up makes a worker
    // store what came before.
    let ticket = db.write(batch_of(&widening)).unwrap();
    let before = gate.metadata_synced.load(Ordering::Acquire);
    let patience = std::time::Instant::now();
    while gate.metadata_synced.load(Ordering::Acquire) == before
        && patience.elapsed().as_millis() < 300
    {
        std::thread::yield_now();
    }
    disk.crash_now();
    *gate.shut.lock().unwrap() = false;
    gate.opened.notify_all();
    assert!(ticket.wait().is_err());
    drop(db);
    let steps = [Step::Write(&integers), Step::Write(&widening)];
    for seed in [0, 1, 2, 3] {
        let db = Run::new(Arc::new(disk.after_crash(seed)), &options)
            .open()
            .unwrap();
        read_back(&db).steps_found(&steps, 1, 2).unwrap();
    }
}
