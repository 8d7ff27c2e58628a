//! A source and a copy on disks that lose power, and a faulty link; time goes by in steps.

use crate::replication::compare::{compare, compare_by, compare_newest, nearly};
use crate::replication::liar::Liar;
use crate::replication::rules::{rule, some_rules};
use headwater_engine::{
    CopyProgress, Database, DeleteSpec, Error, ErrorKind, Options, Pin, RemoteCopy,
    ReplicationRules, ScanSpec, Snapshot, State, StateName, StreamShare, TableChange, TableSpec,
    TailProgress,
};
use headwater_io::{Env, FaultyFiles, ManualClock, NoThreads, SeededChance};
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, PlannerStats, Policy,
    ScoreBy, Spent, Weights, decode, encode,
};
use headwater_testing::Dice;
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const STEP: Duration = Duration::from_millis(200);
pub(crate) const DIR: &str = "/copies/1";
const COPY: &str = "far";
pub(crate) use crate::replication::compare::LEVEL;
/// A table, and a field of it, of which nothing may leave the source while it says so.
pub(crate) const SECRET: &str = "s3cret";
const SECRET_FIELD: &str = "h1dden";

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Source,
    Copy,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    at: Duration,
    to: To,
    bytes: Vec<u8>,
}

/// How a link is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Of each: in percent.
    pub(crate) loses: u64,
    pub(crate) doubles: u64,
    pub(crate) damages: u64,
    /// The longest delay in steps.
    pub(crate) delay: u64,
}

pub(crate) const PERFECT: Link = Link {
    loses: 0,
    doubles: 0,
    damages: 0,
    delay: 0,
};

pub(crate) struct Source {
    pub(crate) disk: FaultyFiles,
    pub(super) seed: u64,
    /// Connections so far.
    pub(super) connections: u32,
    clock: Arc<ManualClock>,
    db: Option<Database>,
    pub(super) agent: Agent,
    limits: BudgetLimits,
    hold_bytes: u64,
    /// Nothing of the secret table may leave.
    pub(crate) withholds: bool,
    persisted: Spent,
    /// Bytes that were written for that.
    pub(crate) persisted_bytes: u64,
    /// What it reads for others in a second.
    reads: u64,
    /// Sends newest events along this often.
    live: Option<Duration>,
    pub(crate) newest: i64,
    /// Where the same is written and deleted, and nothing is freed; if that is wanted.
    pub(crate) twin: Option<Database>,
    /// Bytes of payload it sent, by day of its clock.
    pub(crate) sent: BTreeMap<i64, u64>,
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) now: Duration,
    /// How far the wall clock of the source is off.
    pub(crate) skew: i64,
    pub(crate) source: Source,
    pub(crate) disk: FaultyFiles,
    pub(crate) planner: Option<Planner>,
    pub(crate) rules: ReplicationRules,
    pub(super) flying: Vec<Flying>,
    pub(crate) link: Link,
    /// What the copy says instead of the truth, if it lies.
    pub(crate) liar: Option<Liar>,
    /// How patient planners are; `None` = by chance.
    pub(crate) limits: Option<PlannerLimits>,
}

pub(crate) fn options() -> Options {
    Options {
        memory_budget_bytes: 1 << 20,
        shards: 2,
        late_runs_max: 3,
        partition_target_bytes: 8 << 10,
        partition_bytes_max: 16 << 10,
        leaf_events: 16,
        bucket_events: 4,
        groups_max: 8,
        log_file_bytes: 4096,
        reserve_bytes: 0,
        ..Options::new("/db")
    }
}

impl Source {
    fn env(&self) -> Env {
        Env {
            files: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as _,
            chance: Arc::new(SeededChance::new(self.seed)),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        }
    }

    fn new(seed: u64, limits: BudgetLimits, hold_bytes: u64) -> Source {
        let mut source = Source {
            disk: FaultyFiles::new(seed),
            seed,
            connections: 0,
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
            db: None,
            agent: Agent::new(0, Budget::new(BudgetLimits::default(), Spent::default())),
            limits,
            hold_bytes,
            withholds: true,
            persisted: Spent::default(),
            persisted_bytes: 0,
            reads: [64 << 20, 200 << 10][(seed % 2) as usize],
            live: Some(STEP * 3).filter(|_| seed.is_multiple_of(3)),
            newest: Env::MEMORY_START.as_nanos(),
            twin: None,
            sent: BTreeMap::new(),
        };
        source.open();
        for table in [SECRET, "m"] {
            source.db().create_table(&TableSpec::new(table)).unwrap();
        }
        source
    }

    pub(crate) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn open(&mut self) {
        // Other numbers by chance than the process before.
        self.seed = self.seed.wrapping_add(1);
        self.db = Some(Database::open_in(self.env(), options()).unwrap());
        let budget = Budget::new(self.limits.clone(), self.persisted);
        self.agent = Agent::new(self.hold_bytes, budget);
        self.agent.set_reads(self.reads);
        self.agent.set_live(self.live);
        self.agent.set_copy(COPY);
        self.db().add_copy(COPY).unwrap();
        self.withhold(self.withholds);
        self.challenges();
    }

    /// Nothing of the secret table may leave from now on, or all may.
    pub(crate) fn withhold(&mut self, withholds: bool) {
        self.withholds = withholds;
        self.agent.set_rules(self.rules());
    }

    /// What may leave.
    pub(crate) fn rules(&self) -> ReplicationRules {
        match self.withholds {
            true => ReplicationRules::new(
                vec![rule(SECRET, None, StreamShare::Nothing, 0)],
                StreamShare::Full,
            )
            .unwrap(),
            false => ReplicationRules::default(),
        }
    }

    /// Power goes.
    pub(crate) fn power_loss(&mut self, seed: u64) {
        self.disk.crash_now();
        let after = self.disk.after_crash(seed);
        self.let_go();
        self.disk = after;
        self.open();
    }

    pub(crate) fn set_reads(&mut self, reads: u64) {
        self.reads = reads;
        self.agent.set_reads(reads);
    }

    /// Keeps what it has to before it sends what was answered.
    pub(super) fn persist_spending(&mut self) {
        if let Some(spent) = self.agent.to_keep() {
            let bytes = spent.encode();
            self.persisted = Spent::decode(&bytes).unwrap();
            self.persisted_bytes += bytes.len() as u64;
            self.agent.set_persisted(self.persisted);
        }
    }

    fn let_go(&mut self) {
        self.agent = Agent::new(0, Budget::new(BudgetLimits::default(), Spent::default()));
        self.db = None;
    }

    /// The machine goes on from an older image of its disk.
    pub(crate) fn roll_back(&mut self, image: FaultyFiles) {
        self.let_go();
        self.disk = image;
        self.seed = self.seed.wrapping_add(1000);
        self.open();
    }

    pub(crate) fn act(&mut self, dice: &mut Dice) {
        match dice.below(100) {
            0..=69 => self.write(dice),
            70..=89 => self.db().flush().unwrap(),
            90..=94 => {
                let last = self.newest - dice.below(600) as i64 * SECOND;
                let spec = DeleteSpec {
                    table: "m".into(),
                    tags: vec![("id".into(), dice.below(3).to_string())],
                    range: ClosedRange::nanos(last - 60 * SECOND, last),
                };
                self.delete(&spec);
            }
            _ => self.db().compact().unwrap(),
        }
    }

    /// Deletes rows; a part of those that were freed cannot be deleted.
    fn delete(&self, spec: &DeleteSpec) {
        match (self.db().delete(spec), &self.twin) {
            (Ok(_), Some(twin)) => drop(twin.delete(spec).unwrap()),
            (Err(error), Some(_)) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}"),
            (deleted, None) => drop(deleted.unwrap()),
        }
    }

    /// Rows of its tables go after half an hour: of one table as a whole, of the other they leave
    /// their buckets.
    pub(crate) fn forgets(&self) {
        let half_an_hour = Some(Duration::from_secs(1800));
        let life =
            |table: &str, change: TableChange| self.db().alter_table(table, &change).unwrap();
        let change = TableChange::default();
        life(
            "m",
            TableChange {
                retention: Some(half_an_hour),
                ..change.clone()
            },
        );
        life(
            SECRET,
            TableChange {
                raw_for: Some(half_an_hour),
                ..change
            },
        );
    }

    /// Time passes without rows, and what is due is done.
    pub(crate) fn passes(&mut self, passed: Duration) {
        self.clock.advance(passed);
        let now = self.env().clock.now().as_nanos();
        self.newest = self.newest.max(now);
        self.db().maintain().unwrap();
    }

    pub(crate) fn write(&mut self, dice: &mut Dice) {
        let is_secret = dice.chance(15);
        self.write_to(is_secret, dice);
    }

    /// Writes some rows to the secret table, or to the other.
    pub(crate) fn write_to(&mut self, is_secret: bool, dice: &mut Dice) {
        let table = if is_secret { SECRET } else { "m" };
        let field = if is_secret { SECRET_FIELD } else { "v" };
        let stream = StreamName::new(table, [("id", dice.below(3).to_string())]);
        let late = if dice.chance(15) {
            dice.below(900) as i64 * SECOND
        } else {
            0
        };
        let mut time = self.newest - late;
        let mut made = Vec::new();
        for _ in 0..1 + dice.below(if late > 0 { 5 } else { 80 }) {
            time += SECOND / 2 + dice.below(SECOND as u64) as i64;
            made.push((time, dice.below(1000) as f64 / 8.0));
        }
        for db in [self.db.as_ref(), self.twin.as_ref()].into_iter().flatten() {
            let mut batch = Batch::new();
            let rows = batch.stream(&stream);
            for (time, value) in &made {
                rows.row(*time, [(field, Value::F64(*value))]).unwrap();
            }
            db.commit(batch).unwrap();
        }
        self.newest = self.newest.max(time);
    }
}

impl World {
    pub(crate) fn new(
        seed: u64,
        limits: BudgetLimits,
        rules: impl Into<ReplicationRules>,
    ) -> World {
        World::begin(seed, limits, rules.into(), None)
    }

    /// One whose source has a twin: a database that does the same.
    pub(crate) fn with_twin(seed: u64, twin: Database) -> World {
        World::begin(
            seed,
            BudgetLimits::default(),
            ReplicationRules::default(),
            Some(twin),
        )
    }

    fn begin(
        seed: u64,
        limits: BudgetLimits,
        rules: ReplicationRules,
        twin: Option<Database>,
    ) -> World {
        let mut dice = Dice(seed);
        let hold_bytes = if dice.chance(50) { u64::MAX } else { 4 << 10 };
        let mut source = Source::new(seed, limits, hold_bytes);
        source.twin = twin;
        for _ in 0..20 {
            source.act(&mut dice);
        }
        source.db().flush().unwrap();
        let first = source.db().hold_state_of(None, &source.rules()).unwrap();
        let disk = FaultyFiles::new(seed);
        let to = Path::new(DIR);
        RemoteCopy::begin(far(&disk), to, first.state(), rules.clone()).unwrap();
        drop(first);
        let link = Link {
            loses: dice.below(20),
            doubles: dice.below(20),
            damages: dice.below(5),
            delay: 1 + dice.below(12),
        };
        let mut world = World {
            now: Duration::ZERO,
            skew: [0, -54 * 365 * 86_400, 3600, 72 * 365 * 86_400][dice.below(4) as usize] * SECOND,
            dice,
            source,
            disk,
            planner: None,
            rules,
            flying: Vec::new(),
            link,
            liar: None,
            limits: None,
        };
        world.open_copy();
        world
    }

    /// The copy is lost, and another one is begun with a state.
    pub(crate) fn replace_copy(&mut self, first: &State) {
        self.planner = None;
        self.flying.clear();
        self.disk = FaultyFiles::new(self.dice.next());
        let rules = self.rules.clone();
        RemoteCopy::begin(far(&self.disk), Path::new(DIR), first, rules).unwrap();
        self.open_copy();
    }

    pub(crate) fn open_copy(&mut self) {
        self.planner = None;
        let rules = self.rules.clone();
        let copy = RemoteCopy::open(far(&self.disk), Path::new(DIR), rules).unwrap();
        let limits = PlannerLimits {
            request_bytes: 1 + self.dice.below(8 << 10),
            requests: 1 + self.dice.below(5) as usize,
            answer_within: Duration::from_secs(5),
            wait_first: Duration::from_millis(300),
            wait_most: Duration::from_secs(20),
        };
        let limits = self.limits.unwrap_or(limits);
        let mut planner = Planner::new(copy, limits, self.dice.next());
        let mut weight = || u32::try_from(self.dice.below(9)).unwrap();
        planner.set_weights(Weights {
            states: weight(),
            periodic: weight(),
            proactive: weight(),
            requested: weight(),
            backlog: weight(),
        });
        planner.set_live(self.source.live.is_some());
        planner.set_score(match weight() {
            0 | 1 => ScoreBy::Spread,
            2 => ScoreBy::Events,
            3 => ScoreBy::Misses,
            _ => ScoreBy::Deviation,
        });
        // Of those that bring all that is wanted.
        planner.set_policy(match weight() {
            0 => Policy::Periodic,
            1 => Policy::Both,
            _ => Policy::Shares,
        });
        self.planner = Some(planner);
    }

    /// A reader asks for some range.
    pub(crate) fn ask_for(&mut self) {
        let copy = self.planner().copy().clone();
        let segments: Vec<_> = copy.state().segments().collect();
        let segment = segments[self.dice.below(segments.len() as u64) as usize];
        let offset = self.dice.below(segment.bytes);
        let bytes = 1 + self.dice.below(3000);
        let is_named = offset + bytes <= segment.bytes;
        assert!(!copy.request_range(segment.id, offset, bytes) || is_named);
    }

    /// What the planner has done.
    pub(crate) fn stats(&self) -> PlannerStats {
        self.planner().stats(self.clocks())
    }

    pub(crate) fn planner(&self) -> &Planner {
        self.planner.as_ref().unwrap()
    }

    /// The power of the copy goes; what it had confirmed is there.
    pub(crate) fn cut_copy(&mut self) {
        // Without newest events, partitions that were left out for them are shown.
        self.planner().copy().drop_tail();
        let confirmed = CopyProgress {
            // What was sent along of newest events is on no medium.
            tail: TailProgress::default(),
            ..self.planner().copy().progress()
        };
        self.disk.crash_now();
        let after = self.disk.after_crash(self.dice.next());
        self.planner = None;
        self.disk = after;
        self.open_copy();
        assert_eq!(self.planner().copy().progress(), confirmed);
    }

    /// The link is cut: nothing that is on its way arrives, and the source begins anew.
    pub(crate) fn cut_link(&mut self) {
        self.flying.clear();
        self.source.agent.restart();
        self.source.challenges();
    }

    pub(crate) fn wall(&self) -> Timestamp {
        let passed = i64::try_from(self.now.as_nanos()).unwrap();
        let start = Env::MEMORY_START.as_nanos();
        Timestamp::from_nanos(start + passed + self.skew)
    }

    pub(crate) fn clocks(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: self.wall(),
        }
    }

    pub(super) fn send(&mut self, to: To, message: &Message) {
        if let Message::State { bytes, .. }
        | Message::Bytes { bytes, .. }
        | Message::Tail { bytes, .. } = message
        {
            let day = self.wall().as_nanos().div_euclid(86_400 * SECOND);
            *self.source.sent.entry(day).or_default() += bytes.len() as u64;
        }
        let link = self.link;
        let mut copies = 1;
        if self.dice.chance(link.loses) {
            copies = 0;
        } else if self.dice.chance(link.doubles) {
            copies = 2;
        }
        for _ in 0..copies {
            let mut bytes = encode(message);
            if to == To::Copy && self.source.withholds {
                let holds = |word: &str| {
                    let mut parts = bytes.windows(word.len());
                    parts.any(|part| part == word.as_bytes())
                };
                assert!(!holds(SECRET) && !holds(SECRET_FIELD), "{message:?}");
            }
            if self.dice.chance(link.damages) {
                let at = self.dice.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.dice.below(8);
            }
            let steps = self.dice.below(link.delay + 1) as u32;
            let at = self.now + STEP * steps;
            self.flying.push(Flying { at, to, bytes });
        }
    }

    /// One step of time: what is due arrives, and what is to be said is sent.
    pub(crate) fn step(&mut self) {
        self.try_step().unwrap();
    }

    /// As [`World::step`], where the medium of the copy may refuse what comes.
    pub(crate) fn try_step(&mut self) -> Result<(), Error> {
        self.now += STEP;
        let (due, later) = std::mem::take(&mut self.flying)
            .into_iter()
            .partition(|f| f.at <= self.now);
        self.flying = later;
        let due: Vec<Flying> = due;
        for one in due {
            // What was damaged on its way is no message.
            let Ok(message) = decode(&one.bytes) else {
                continue;
            };
            let now = self.clocks();
            if one.to == To::Copy && self.throws_away(&message) {
                continue;
            }
            match one.to {
                To::Copy => self.planner.as_mut().unwrap().receive(now, message)?,
                To::Source => {
                    let db = self.source.db.clone().unwrap();
                    let answers = self.source.agent.answer(&db, now, message).unwrap();
                    self.source.persist_spending();
                    for answer in answers {
                        self.send(To::Copy, &answer);
                    }
                }
            }
        }
        let now = self.clocks();
        let db = self.source.db.clone().unwrap();
        self.source.agent.look_again(&db, now).unwrap();
        if let Some(newest) = self.source.agent.live(&db, now).unwrap() {
            self.source.persist_spending();
            self.send(To::Copy, &newest);
        }
        if let Some(challenge) = self.source.agent.challenge(now) {
            self.source.persist_spending();
            self.send(To::Copy, &challenge);
        }
        drop(db);
        while let Some(message) = self.planner.as_mut().unwrap().next(now) {
            let said = self.lie(message);
            self.send(To::Source, &said);
        }
        match self.planner().failed() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// True when the copy has every newest event that may leave.
    pub(crate) fn is_live(&self) -> bool {
        let tail = self.planner().copy().progress().tail;
        let newest = self.source.db().snapshot().unwrap().sequence();
        tail.is_whole && tail.until >= newest
    }

    /// The source says which state it is in.
    pub(crate) fn hello(&mut self) {
        self.source.agent.keep_within();
        let hello = self.source.agent.hello(self.source.db()).unwrap();
        self.send(To::Copy, &hello);
    }

    pub(crate) fn verify(&mut self) {
        self.planner.as_mut().unwrap().verify();
    }

    pub(crate) fn source_state(&self) -> StateName {
        self.source.db().hold_state(None).unwrap().state().name()
    }

    /// True when the copy has the state that the source is in, as far as it may leave.
    pub(crate) fn is_current(&self) -> bool {
        let rules = self.source.rules();
        let now = self.source.db().hold_state_of(None, &rules).unwrap();
        now.state().is_equivalent(&self.planner().copy().state())
    }

    /// Other rules for the copy.
    pub(crate) fn change_rules(&mut self) {
        self.rules = some_rules(&mut self.dice);
        let copy = self.planner().copy();
        copy.set_rules(self.rules.clone()).unwrap();
    }

    /// Pins some rows, or takes a pin away.
    pub(crate) fn change_pins(&mut self) {
        let copy = self.planner().copy().clone();
        let pins = copy.pins();
        if let Some((number, _)) = pins.first()
            && self.dice.chance(40)
        {
            assert!(copy.unpin(*number).unwrap());
            return;
        }
        let first = Env::MEMORY_START.as_nanos() + self.dice.below(900) as i64 * SECOND;
        let last = first + self.dice.below(600) as i64 * SECOND;
        let soon = self.wall().as_nanos() + self.dice.below(100) as i64 * SECOND;
        let until = Timestamp::from_nanos(soon);
        let pin = Pin {
            table: "m".into(),
            tags: vec![("id".into(), self.dice.below(3).to_string())],
            range: ClosedRange::nanos(first, last),
            until: Some(until).filter(|_| self.dice.chance(50)),
        };
        copy.pin(pin).unwrap();
    }

    /// What is pinned, or wanted as a whole, is here.
    pub(crate) fn compare_subscribed(&self) {
        let copy = self.planner().copy();
        let source = self.source.db().snapshot().unwrap();
        let reader = copy.reader(options()).unwrap().snapshot();
        let pins = copy.pins().into_iter();
        let mut wanted: Vec<(StreamName, ClosedRange)> = pins
            .map(|(_, pin)| (StreamName::new("m", pin.tags), pin.range))
            .collect();
        if self.rules == ReplicationRules::default() {
            let streams = source.streams("m", &[]).unwrap();
            wanted.extend(streams.into_iter().map(|s| (s, ClosedRange::ALL)));
        }
        for (stream, range) in wanted {
            let rows = |snapshot: &Snapshot| {
                let spec = ScanSpec {
                    range,
                    ..ScanSpec::default()
                };
                let scan = snapshot.scan(&stream, &spec);
                // A pin may be of a stream that there is not.
                let Ok(scan) = scan else { return Vec::new() };
                scan.flat_map(|chunk| chunk.unwrap().times).collect()
            };
            assert_eq!(rows(&reader), rows(&source));
        }
        // Whether of the secret table nothing is known is what the source says now.
        let has = |snapshot: &Snapshot| snapshot.table_names().contains(&SECRET.to_owned());
        assert!(has(&source));
        assert_eq!(has(&reader), !self.source.withholds);
    }

    /// Compares what the copy answers with what the source does; how many answers were elsewhere.
    pub(crate) fn compare(&self) -> u64 {
        let source = self.source.db().snapshot().unwrap();
        let reader = self.planner().copy().reader(options()).unwrap();
        compare(&source, &reader.snapshot())
    }

    /// As [`World::compare`], but for the last digits: newest events are summed in another order.
    pub(crate) fn compare_live(&self) -> u64 {
        let source = self.source.db().snapshot().unwrap();
        let reader = self.planner().copy().reader(options()).unwrap();
        match self.rules == ReplicationRules::default() {
            true => compare_by(&source, &reader.snapshot(), &nearly),
            // What comes late where rows are elsewhere is not shown before it is stored.
            false => compare_newest(&source, &reader.snapshot()),
        }
    }
}

pub(crate) fn far(disk: &FaultyFiles) -> Env {
    Env {
        files: Arc::new(disk.clone()),
        ..Env::memory()
    }
}
