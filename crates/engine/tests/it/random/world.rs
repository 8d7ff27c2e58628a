//! A database on a disk that can fail, and the plain rows beside it.
//!
//! Invariants: what was acknowledged stands in `now`; what a power cut may take back stands in
//! `ops` behind `base`. An operation that failed stands behind those that were acknowledged until
//! the database is open again: then it is there whole or not at all, and stays so.

use super::compare::{full, quick};
use super::plain::{Op, Plain};
use super::time::Time;
use super::transcript::Transcript;
use super::view::{Now, View, straddling};
use crate::model::Random;
use crate::support::{Event, Mortal, START};
use headwater_engine::{
    Database, Durability, Error, ErrorKind, FlushRule, IndexUse, LatePolicy, MergeScope, Options,
    REFUSED_ENDED, Snapshot, TableInfo, Ticket,
};
use headwater_io::{Clock, Env, FaultKind, FaultyFiles, NoThreads, SeededChance};
use headwater_types::{Batch, StreamName, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What may go wrong at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    None,
    /// The power fails, or the process is killed, at one of the next operations.
    Cut,
    Kill,
    /// An operation fails.
    Fault(FaultKind),
    /// The disk is full.
    Full,
}

/// A snapshot that is held over many steps, and what it showed at first.
pub(super) struct OpenSnapshot {
    pub(super) snapshot: Snapshot,
    infos: Vec<TableInfo>,
    view: View,
    /// Memory in use when it was taken.
    pub(super) memory: u64,
    pub(super) since: u64,
}

pub(super) struct World {
    pub(super) disk: FaultyFiles,
    pub(super) process: Mortal,
    pub(super) db: Option<Database>,
    pub(super) options: Options,
    pub(super) time: Time,
    pub(super) random: Random,
    pub(super) transcript: Transcript,
    pub(super) step: u64,
    pub(super) trouble: Trouble,
    /// An operation failed, or the database will take no more: it must be opened again.
    pub(super) must_reopen: bool,
    pub(super) open_snapshots: Vec<OpenSnapshot>,
    /// What is on the medium whatever happens, what came after it, and how much of that was
    /// acknowledged.
    pub(super) base: Plain,
    pub(super) ops: Vec<Op>,
    pub(super) acknowledged: usize,
    /// The disk was full: until a write is taken again the reserve may not be whole.
    pub(super) was_full: bool,
    /// Everything that was acknowledged.
    pub(super) now: Plain,
    /// The newest time of each stream.
    pub(super) newest: BTreeMap<StreamName, i64>,
    pub(super) written: u64,
    pub(super) backup: Option<super::copies::BackupContents>,
    /// Values expire in this world.
    pub(super) expires: bool,
    /// The clock may be wrong in this world.
    pub(super) wild: bool,
}

/// A database never needs so many operations to do what is due: it would not end.
const OPERATIONS_MAX: u64 = 30_000;

fn options(random: &mut Random) -> Options {
    let mut pick = |of: &[u64]| of[random.below(of.len() as u64) as usize];
    let target = pick(&[2 << 10, 8 << 10, 64 << 10]);
    let base = Options {
        memory_budget_bytes: 1 << 20,
        shards: pick(&[1, 2, 2]) as u16,
        late_runs_max: pick(&[0, 2, 16]) as usize,
        partition_target_bytes: target,
        partition_bytes_max: target * pick(&[2, 3]),
        leaf_events: pick(&[16, 32]) as u32,
        bucket_events: pick(&[4, 4, 8]) as u32,
        groups_max: pick(&[4, 12]) as u32,
        log_file_bytes: pick(&[4096, 4096, 32 << 10]),
        reserve_bytes: pick(&[0, 64 << 10]),
        open_files_max: pick(&[4, 256]) as usize,
        busy_timeout: Duration::ZERO,
        // Checkpoints of the index in most worlds.
        index_page_entries: if target == 8 << 10 { 256 } else { 4 },
        durability: match pick(&[0, 0, 0, 1, 2]) {
            0 => Durability::Synced,
            1 => Durability::Written,
            _ => Durability::Every(Duration::from_millis(20)),
        },
        ..Options::new("/db")
    };
    let flush_rule = match pick(&[0, 0, 0, 1]) {
        0 => FlushRule::Production,
        _ => FlushRule::LabExact {
            memory_events: pick(&[40, 150]) as u32,
        },
    };
    let late_policy = match pick(&[0, 1, 2]) {
        0 => base.late_policy,
        1 => LatePolicy::conventional().into(),
        _ => LatePolicy {
            merge_scope: [MergeScope::Touched, MergeScope::Overlap][pick(&[0, 1]) as usize],
            retain_events: pick(&[0, 10]) as u32,
            ..LatePolicy::separate(0.5)
        }
        .into(),
    };
    Options {
        flush_rule,
        late_policy,
        ..base
    }
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let mut options = options(&mut random);
        // Some have their log in a fast tier, which makes no other life of it.
        options.fast_dir = (seed % 4 == 3).then(|| "/fast".into());
        options.fast_parts.index = seed % 16 > 3;
        // Some ask for leaves ahead and have queue sets, which makes no other life of it either.
        options.queue_sets = if seed % 5 == 2 { 2 } else { 0 };
        options.read_ahead = if seed % 10 == 2 { 3 } else { 8 };
        options.log_mirror = (seed % 8 == 7).then(|| Duration::from_secs(1));
        let disk = FaultyFiles::new(seed);
        let mut world = World {
            process: Mortal::new(&disk, u64::MAX / 2),
            disk,
            db: None,
            time: Time::new(START, &options),
            options,
            expires: random.chance(50),
            wild: random.chance(50),
            random,
            transcript: Transcript::default(),
            step: 0,
            trouble: Trouble::None,
            must_reopen: false,
            open_snapshots: Vec::new(),
            base: Plain::default(),
            ops: Vec::new(),
            acknowledged: 0,
            was_full: false,
            now: Plain::default(),
            newest: BTreeMap::new(),
            written: 0,
            backup: None,
        };
        let (expires, wild) = (world.expires, world.wild);
        world.log(format!(
            "expires {expires}, wild {wild}, {:?}",
            world.options
        ));
        world.db = Some(world.open().unwrap());
        world
    }

    pub(super) fn log(&mut self, text: String) {
        let (step, at) = (self.step, self.disk.operations());
        let truly = (self.time.truly - START) / super::time::SECOND;
        let offset = self.time.offset() / super::time::SECOND;
        self.transcript
            .line(format!("{step} @{at} {truly}{offset:+} s: {text}"));
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.process.clone()),
            media: headwater_io::Media::default(),
            clock: Arc::clone(&self.time.clock) as Arc<dyn Clock>,
            chance: Arc::new(SeededChance::new(7 + self.step)),
            threads: Arc::new(NoThreads),
        }
    }

    /// The world of somebody else than the owner's process, on some disk.
    pub(super) fn env_on(&self, disk: &FaultyFiles) -> Env {
        Env {
            files: Arc::new(disk.clone()),
            ..self.env()
        }
    }

    /// One try to open the database, by a new process.
    pub(super) fn open(&mut self) -> Result<Database, Error> {
        self.process = Mortal::new(&self.disk, u64::MAX / 2);
        self.watch();
        Database::open_in(self.env(), self.options.clone())
    }

    /// As [`World::open`], by a process that is killed after so many operations.
    pub(super) fn open_mortal(&mut self, after: u64) -> Result<Database, Error> {
        self.process = Mortal::new(&self.disk, after);
        self.watch();
        Database::open_in(self.env(), self.options.clone())
    }

    /// Cuts the power should the next steps never end.
    pub(super) fn watch(&self) {
        if self.trouble != Trouble::Cut {
            self.disk.crash_at(self.disk.operations() + OPERATIONS_MAX);
        }
    }

    fn is_synced(&self) -> bool {
        self.options.durability == Durability::Synced
    }

    /// What is durable cannot be taken back.
    pub(super) fn all_is_durable(&mut self) {
        assert_eq!(self.acknowledged, self.ops.len());
        // With what time has done to the rows since they were acknowledged.
        self.base = self.now.clone();
        self.ops.clear();
        self.acknowledged = 0;
    }

    pub(super) fn acknowledge(&mut self, op: Op) {
        assert_eq!(self.acknowledged, self.ops.len());
        self.was_full &= self.trouble == Trouble::Full || !matches!(op, Op::Write { .. });
        self.now.apply(&op);
        if self.is_synced() && self.ops.is_empty() {
            self.base.apply(&op);
            return;
        }
        self.ops.push(op);
        self.acknowledged += 1;
        if self.is_synced() {
            self.all_is_durable();
        }
    }

    /// An operation failed: was that to be expected?
    pub(super) fn failed(&mut self, what: &str, error: &Error) {
        let kind = error.kind();
        self.log(format!("{what} failed: {error}"));
        self.transcript.count("operations that failed");
        let expected = match self.trouble {
            Trouble::None => false,
            Trouble::Cut => self.disk.crashed(),
            Trouble::Kill => self.process.is_dead(),
            Trouble::Fault(FaultKind::CreateFull | FaultKind::SyncFull) => {
                matches!(kind, ErrorKind::Full | ErrorKind::Io | ErrorKind::Closed)
            }
            // What fails may be the making of the reserve.
            Trouble::Fault(_) if self.was_full && kind == ErrorKind::Full => true,
            Trouble::Fault(_) => matches!(kind, ErrorKind::Io | ErrorKind::Closed),
            Trouble::Full => matches!(kind, ErrorKind::Full | ErrorKind::Busy | ErrorKind::Closed),
        };
        let endless = self.disk.crashed() && self.trouble != Trouble::Cut;
        assert!(!endless, "{what} does not end: {error}");
        assert!(expected, "{what}: {error} ({:?})", self.trouble);
        self.must_reopen = true;
    }

    pub(super) fn now_bounds(&self) -> Now {
        let most = self.time.newest_believed;
        Now {
            least: if self.time.always_right {
                self.time.wall()
            } else {
                i64::MIN
            },
            most,
        }
    }

    /// Takes over how far retention and aging have come, and checks that it is not too far.
    pub(super) fn see(&mut self) -> Vec<TableInfo> {
        let infos = self.db().tables();
        let before = self.now.clone_cutoffs();
        self.now.see(&infos);
        self.base.see(&infos);
        let newest = self.time.newest_believed;
        for (name, table) in &self.now.tables {
            for (what, at, least) in [
                ("cut", table.cut, table.retention_least),
                ("aged to", table.aged_to, table.raw_least),
            ] {
                let most = least.map_or(i64::MIN, |l| newest.saturating_sub(l));
                assert!(
                    at <= most,
                    "table {name} is {what} {at}, at most {most} is due: {} s too far",
                    (i128::from(at) - i128::from(most)) / i128::from(super::time::SECOND)
                );
            }
            self.transcript.add(
                "moved cutoffs",
                u64::from(
                    before
                        .get(name)
                        .is_some_and(|h| *h != (table.cut, table.aged_to)),
                ),
            );
        }
        infos
    }

    /// A view of what was acknowledged.
    pub(super) fn view(&mut self) -> (Vec<TableInfo>, View) {
        let infos = self.see();
        let partitions = self.db().partitions();
        let view = View {
            plain: self.now.clone(),
            now: self.now_bounds(),
            straddling: straddling(&self.now, &partitions),
        };
        (infos, view)
    }

    /// Compares everything there is with the plain rows.
    pub(super) fn compare(&mut self) {
        let (infos, view) = self.view();
        let usages = [
            IndexUse::Always,
            IndexUse::Always,
            IndexUse::ByCost,
            IndexUse::Never,
        ];
        let usage = self.random.pick(&usages);
        self.db().use_indexes(usage);
        let snapshot = self.db().snapshot().unwrap();
        self.transcript.count("comparisons");
        if let Err(difference) = full(&snapshot, &infos, &view, &mut self.random) {
            panic!("{difference}\n{:?}", view.now);
        }
    }

    pub(super) fn hold(&mut self) {
        let memory = self.db().stats().unwrap().memory_bytes;
        let (infos, view) = self.view();
        let snapshot = self.db().snapshot().unwrap();
        let since = self.step;
        self.log(format!("hold a snapshot, {memory} bytes of memory"));
        self.transcript.count("snapshots held");
        self.open_snapshots.push(OpenSnapshot {
            snapshot,
            infos,
            view,
            memory,
            since,
        });
    }

    /// Whatever happened since, a snapshot shows what it showed.
    pub(super) fn compare_open_snapshot(&mut self, index: usize) {
        let held = &self.open_snapshots[index];
        self.transcript.count("comparisons of held snapshots");
        let same = full(&held.snapshot, &held.infos, &held.view, &mut self.random);
        if let Err(difference) = same {
            panic!("a snapshot held since step {}: {difference}", held.since);
        }
    }

    /// Which of the possible states the database is in after it was opened again. `least`
    /// operations are there for certain.
    pub(super) fn resolve(&mut self, least: usize, all_durable: bool) {
        let infos = self.db().tables();
        let partitions = self.db().partitions();
        let snapshot = self.db().snapshot().unwrap();
        self.base.see(&infos);
        let mut view = View {
            plain: self.base.clone(),
            now: self.now_bounds(),
            straddling: BTreeMap::new(),
        };
        let (mut found, mut differences) = (None, Vec::new());
        for count in 0..=self.ops.len() {
            view.plain.see(&infos);
            if count >= least {
                view.plain.remember(&self.now);
                view.straddling = straddling(&view.plain, &partitions);
                match quick(&snapshot, &infos, &view) {
                    Ok(()) => found = Some((count, view.plain.clone())),
                    Err(difference) => differences.push(format!("after {count}: {difference}")),
                }
            }
            if let Some(op) = self.ops.get(count) {
                view.plain.apply(op);
            }
        }
        let all = self.ops.len();
        let Some((count, plain)) = found else {
            differences.truncate(5);
            panic!(
                "the database is in none of the states {least} to {all}, {} acknowledged\n{}\n{:?}",
                self.acknowledged,
                differences.join("\n"),
                self.db().recovery()
            );
        };
        self.log(format!("{count} of {least} to {all} operations are there"));
        self.transcript.add(
            "operations in doubt that stayed",
            count.saturating_sub(self.acknowledged) as u64,
        );
        self.transcript.add(
            "operations in doubt that went",
            (all - count.max(self.acknowledged)) as u64,
        );
        self.transcript.add(
            "acknowledged and lost as promised",
            self.acknowledged.saturating_sub(count) as u64,
        );
        self.ops.truncate(count);
        self.acknowledged = count;
        self.now = plain;
        drop(snapshot);
        let found = Op::Found(infos);
        self.now.apply(&found);
        self.ops.push(found);
        self.acknowledged += 1;
        if all_durable || self.is_synced() {
            self.all_is_durable();
        }
        self.see();
    }
}

/// A batch of events, and which of them stands where in it.
pub(super) fn batch_of(rows: &[Event]) -> (Batch, BTreeMap<(usize, usize), usize>) {
    let mut batch = Batch::new();
    let mut names: Vec<&StreamName> = Vec::new();
    let mut counts: Vec<usize> = Vec::new();
    let mut places = BTreeMap::new();
    for (index, event) in rows.iter().enumerate() {
        let entry = names
            .iter()
            .position(|n| **n == event.stream)
            .unwrap_or_else(|| {
                names.push(&event.stream);
                counts.push(0);
                names.len() - 1
            });
        places.insert((entry, counts[entry]), index);
        counts[entry] += 1;
        let fields = event.fields.iter().map(|(f, v)| (f.as_str(), v.clone()));
        batch.stream(&event.stream).row(event.time, fields).unwrap();
    }
    (batch, places)
}

/// A batch in flight.
pub(super) struct Flying {
    pub(super) ticket: Ticket,
    pub(super) op: Op,
}

impl World {
    /// Hands a batch in. `None` when nothing of it is stored, which a failure promises as well.
    pub(super) fn submit(
        &mut self,
        rows: Vec<Event>,
        expires_at: Option<i64>,
        producer: Option<(String, u64)>,
    ) -> Option<Flying> {
        self.see();
        let (mut batch, places) = batch_of(&rows);
        if let Some(at) = expires_at {
            batch.expire_at(Timestamp::from_nanos(at));
        }
        let mut repeated = false;
        if let Some((name, number)) = &producer {
            batch.set_producer(name, *number);
            repeated = self
                .now
                .producers
                .get(name)
                .is_some_and(|known| number <= known);
        }
        let ticket = match self.db().write(batch) {
            Ok(ticket) => ticket,
            // Making room for it moved a cutoff beyond its rows: next time they are refused.
            Err(error)
                if error.kind() == ErrorKind::Busy
                    && error.to_string().ends_with("write it again") =>
            {
                self.log(format!("a write failed: {error}"));
                self.transcript.count("writes that are to be made again");
                return None;
            }
            Err(error) => {
                self.failed("a write", &error);
                // Full: nothing has been handed to the log, and the database goes on.
                self.must_reopen =
                    !matches!(self.trouble, Trouble::Full) || error.kind() == ErrorKind::Closed;
                return None;
            }
        };
        assert_eq!(ticket.is_repeated(), repeated, "{producer:?}");
        let mut refused = vec![false; rows.len()];
        for one in ticket.refused() {
            let index = places[&(one.entry, one.row)];
            let event = &rows[index];
            let table = &self.now.tables[event.stream.table()];
            let floor = table.cut.max(table.aged_most);
            assert!(
                one.code == REFUSED_ENDED && event.time < floor,
                "{event:?} was refused: {} {}",
                one.code,
                one.message
            );
            refused[index] = true;
        }
        let count = ticket.refused().len() as u64;
        self.transcript.add("rows refused", count);
        let mut refused = refused.into_iter();
        let rows: Vec<Event> = rows
            .into_iter()
            .filter(|_| !refused.next().unwrap())
            .collect();
        if repeated || rows.is_empty() {
            self.transcript.add("batches repeated", u64::from(repeated));
            if let Err(error) = ticket.wait() {
                self.failed("a repeated write", &error);
            }
            return None;
        }
        self.transcript.add("rows written", rows.len() as u64);
        let op = Op::Write {
            rows,
            expires_at,
            producer,
        };
        Some(Flying { ticket, op })
    }

    /// Waits for batches in flight, in order.
    pub(super) fn land(&mut self, flying: Vec<Flying>) {
        for Flying { ticket, op } in flying {
            match ticket.wait() {
                Ok(_) if self.acknowledged == self.ops.len() => self.acknowledge(op),
                Ok(_) => panic!("a batch was acknowledged after an earlier one had failed"),
                Err(error) => {
                    self.failed("waiting for a write", &error);
                    self.ops.push(op);
                }
            }
        }
    }

    /// Does something that is no write. True when it was acknowledged.
    pub(super) fn operate(
        &mut self,
        op: Op,
        run: impl FnOnce(&Database) -> Result<(), Error>,
    ) -> bool {
        self.see();
        match run(self.db()) {
            Ok(()) => {
                self.acknowledge(op);
                true
            }
            Err(error) => {
                self.failed("a statement", &error);
                self.ops.push(op);
                false
            }
        }
    }
}
