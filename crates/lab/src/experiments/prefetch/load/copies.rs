//! Edges of the fleet and their copies at a cloud: the shipped planner, source agent and reader of
//! each, without sockets and clocks.
//!
//! An edge has one room of the generated week, a row each [`STEP`] seconds. Edges with the same
//! room answer from one database; each has an agent of its own, and its cloud a copy and a planner
//! of its own.
//!
//! Invariants: every tile read from a copy equals that of the edge. Which tiles a cloud has is
//! found from its copy as a cloud node finds it (`headwater_cluster::inventory`). Concurrency:
//! none. Failure: an error of a database ends the experiment.

use super::super::sensors::{BEGIN, Channel, FIELDS, SECONDS};
use super::super::visits::Tile;
use crate::harness::{Failure, real, signed, unsigned, whole};
use headwater_cluster::inventory::spans;
use headwater_engine::{
    Database, ErrorKind, Options, ReadCache, Reader, RemoteCopy, ReplicationRules, Snapshot,
    StreamShare, reading_for,
};
use headwater_io::Env;
use headwater_protocol::dispatch::{Exception, Reach, Span, StreamKey};
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, Policy, Spent,
};
use headwater_types::{
    Aggregate, Batch, ClosedRange, Level, StreamName, StreamRows, Timestamp, Values,
};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Level with a bucket for each row, and seconds between two rows.
const STEP_LEVEL: i32 = 3;
const STEP: usize = 1 << STEP_LEVEL;
/// Rows of a batch.
const BATCH: usize = 10_000;
/// Cache of all copies of a cloud together, as of a node with a quarter of 256 MiB, and its files.
const CACHE_BYTES: usize = 64 << 20;
const OPEN_FILES: usize = 256;
/// Rounds without a message after which a copy has what it subscribes to.
const QUIET: usize = 100;
/// Time from the begin of prefetching to the first user.
const USERS_BEGIN: Duration = Duration::from_secs(24 * 3_600);

/// A tile of an edge: its field, level and number.
pub(super) type Spot = (usize, i32, i64);

/// The tile of an edge's stored rows for one of a value a second.
pub(super) fn spot(tile: &Tile) -> Spot {
    let below = (STEP_LEVEL - tile.level).max(0);
    (
        tile.channel % FIELDS.len(),
        tile.level + below,
        tile.offset >> below,
    )
}

fn stream() -> StreamName {
    StreamName::new("lab", [("sensors", "ceiling")])
}

/// Name of an edge's stream at a cloud, which adds the edge's tag.
pub(super) fn key_at_cloud(edge: usize) -> StreamKey {
    let tags = [
        ("edge", edge.to_string()),
        ("sensors", "ceiling".to_owned()),
    ];
    StreamKey::of(&StreamName::new("lab", tags))
}

/// Time of the planner and the agent, a number of microseconds after the first users.
pub(super) fn clocks(micros: u64) -> Now {
    let monotonic = USERS_BEGIN + Duration::from_micros(micros);
    let nanos = i64::try_from(monotonic.as_nanos()).unwrap_or(i64::MAX);
    Now {
        monotonic,
        wall: Timestamp::from_nanos((BEGIN + signed(SECONDS)) * 1_000_000_000 + nanos),
    }
}

fn options(dir: &Path) -> Options {
    Options {
        shards: 1,
        memory_budget_bytes: 16 << 20,
        ..Options::new(dir)
    }
}

/// A tile as a reader answers it.
type Buckets = Vec<(i64, Aggregate)>;

fn read(snapshot: &Snapshot, (field, level, offset): Spot) -> Result<Option<Buckets>, Failure> {
    let field = FIELDS.get(field).ok_or("no such sensor")?;
    match snapshot.tile(&stream(), field, Level::clamped(level), offset) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Elsewhere => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Database of all edges with the same room.
pub(super) struct Source {
    db: Database,
    snapshot: Snapshot,
    /// Tiles that were compared.
    tiles: HashMap<Spot, Buckets>,
    pub(super) bytes: u64,
}

impl Source {
    /// Writes the rows of a room, and compacts them.
    pub(super) fn new(dir: &Path, channels: &[&Channel]) -> Result<Source, Failure> {
        let db = Database::open_in(Env::memory(), options(dir))?;
        let seconds: Vec<usize> = (0..SECONDS).step_by(STEP).collect();
        for seconds in seconds.chunks(BATCH) {
            let mut rows = StreamRows::new(stream());
            let nanos = seconds.iter().map(|s| (BEGIN + signed(*s)) * 1_000_000_000);
            rows.times = nanos.collect();
            for channel in channels {
                let values = seconds.iter().filter_map(|s| channel.values.get(*s));
                let field = FIELDS.get(channel.field).ok_or("no such sensor")?;
                rows = rows.with_column(*field, Values::F64(values.copied().collect()));
            }
            let mut batch = Batch::new();
            batch.push(rows);
            db.commit(batch)?;
        }
        db.flush()?;
        db.compact()?;
        let held = db.hold_state(None)?;
        let bytes = held.state().segments().map(|s| s.bytes).sum();
        drop(held);
        Ok(Source {
            snapshot: db.snapshot()?,
            db,
            tiles: HashMap::new(),
            bytes,
        })
    }

    /// The tile of the edge itself.
    pub(super) fn tile(&mut self, spot: Spot) -> Result<&Buckets, Failure> {
        if !self.tiles.contains_key(&spot) {
            let found = read(&self.snapshot, spot)?.ok_or("an edge lacks a tile of its own")?;
            self.tiles.insert(spot, found);
        }
        Ok(self.tiles.get(&spot).ok_or("a tile that was just read")?)
    }
}

/// Part of the rows at a cloud before users look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Subscription {
    /// All rows, of which this share of the bytes has come.
    Rows(f64),
    /// Tiles from a level on, and this share of the bytes as rows ahead.
    Tiles(i32, f64),
}

impl Subscription {
    fn reach(self) -> Reach {
        match self {
            Subscription::Rows(_) => Reach::Rows,
            Subscription::Tiles(level, _) => Reach::Level(Level::clamped(level)),
        }
    }
}

/// The reader on whose behalf tiles are read: what it misses is fetched.
const READER: u64 = 1;

/// Room for copies in memory, with their common cache.
pub(super) struct Room {
    env: Env,
    cache: ReadCache,
}

impl Room {
    pub(super) fn new() -> Room {
        Room {
            env: Env::memory(),
            cache: ReadCache::new(CACHE_BYTES, OPEN_FILES),
        }
    }
}

/// The copy of an edge, with the machines at both ends.
pub(super) struct Copy {
    planner: Planner,
    agent: Agent,
    reader: Reader,
    subscription: Subscription,
}

/// Payload of a message.
fn payload(message: &Message) -> u64 {
    match message {
        Message::State { bytes, .. } | Message::Bytes { bytes, .. } => unsigned(bytes.len()),
        _ => 0,
    }
}

/// Inventory of a copy, and the number of coverages that it took.
pub(super) struct Listed {
    pub(super) until: Timestamp,
    pub(super) exceptions: Vec<Exception>,
    pub(super) spans: Vec<Span>,
    pub(super) coverages: usize,
}

impl Copy {
    /// A copy that has grown by the planner to what its subscription says.
    pub(super) fn grown(
        source: &Source,
        room: &Room,
        number: usize,
        subscription: Subscription,
    ) -> Result<Copy, Failure> {
        let part = |share: f64| unsigned(whole(real(source.bytes) * share));
        let (share, ahead, most) = match subscription {
            Subscription::Rows(share) if share < 1.0 => (StreamShare::Full, 0, part(share)),
            Subscription::Rows(_) => (StreamShare::Full, 0, u64::MAX),
            Subscription::Tiles(level, share) => (
                StreamShare::Summaries(Level::clamped(level)),
                part(share),
                u64::MAX,
            ),
        };
        let rules = ReplicationRules::from(share).with_ahead_bytes(ahead);
        let dir = Path::new("/copies").join(number.to_string());
        let first = source.db.hold_state(None)?;
        let copy = RemoteCopy::begin(room.env.clone(), &dir, first.state(), rules)?;
        drop(first);
        let reader = copy.reader_sharing(options(&dir), &room.cache)?;
        let limits = PlannerLimits {
            request_bytes: 64 << 10,
            ..PlannerLimits::default()
        };
        let budget = Budget::new(BudgetLimits::default(), Spent::default());
        let mut grown = Copy {
            planner: Planner::new(copy, limits, 1),
            agent: Agent::new(u64::MAX, budget),
            reader,
            subscription,
        };
        grown.grow(source, most)?;
        // From now on only requests of readers bring data.
        grown.planner.set_policy(Policy::None);
        Ok(grown)
    }

    /// Exchanges messages until there are none left, or `most` bytes of payload have come.
    fn grow(&mut self, source: &Source, most: u64) -> Result<(), Failure> {
        let mut now = clocks(0);
        now.monotonic = Duration::ZERO;
        let hello = self.agent.hello(&source.db)?;
        self.planner.receive(now, hello)?;
        let (mut quiet, mut come) = (0, 0);
        while quiet < QUIET && come < most {
            now.monotonic += Duration::from_millis(20);
            quiet += 1;
            for message in self.requests(now) {
                quiet = 0;
                for answer in self.agent.answer(&source.db, now, message)? {
                    let bytes = payload(&answer);
                    come += bytes;
                    // Bytes over the share do not come; that the answer has ended does.
                    if bytes == 0 || come <= most {
                        self.planner.receive(now, answer)?;
                    }
                }
            }
            self.persist_spending();
        }
        if now.monotonic >= USERS_BEGIN {
            return Err("growing took more than the time before users come".into());
        }
        self.reader.refresh()?;
        Ok(())
    }

    fn persist_spending(&mut self) {
        if let Some(spent) = self.agent.to_keep() {
            self.agent.set_persisted(spent);
        }
    }

    /// Level from which on the subscription has all tiles, once it is complete.
    pub(super) fn reach(&self) -> Reach {
        self.subscription.reach()
    }

    /// Messages that the cloud sends now.
    pub(super) fn requests(&mut self, now: Now) -> Vec<Message> {
        std::iter::from_fn(|| self.planner.next(now)).collect()
    }

    /// Answers of the edge to a message.
    pub(super) fn answers(
        &mut self,
        source: &Source,
        now: Now,
        message: Message,
    ) -> Result<Vec<Message>, Failure> {
        let answers = self.agent.answer(&source.db, now, message)?;
        self.persist_spending();
        Ok(answers)
    }

    /// A message of the edge arrives at the cloud.
    pub(super) fn take(&mut self, now: Now, message: Message) -> Result<(), Failure> {
        self.planner.receive(now, message)?;
        Ok(())
    }

    /// Readers see what has come.
    pub(super) fn refresh(&self) -> Result<(), Failure> {
        Ok(self.reader.refresh()?)
    }

    /// A tile, if all of it is here; it equals the edge's.
    pub(super) fn tile(&self, source: &mut Source, spot: Spot) -> Result<bool, Failure> {
        let found = reading_for(READER, || read(&self.reader.snapshot(), spot))?;
        let Some(found) = found else {
            return Ok(false);
        };
        let expected = source.tile(spot)?;
        let same = |(a, b): (&(i64, _), &(i64, _))| a == b;
        if found.len() != expected.len() || !found.iter().zip(expected).all(same) {
            return Err(format!("{spot:?} is another one at the copy").into());
        }
        Ok(true)
    }

    /// Has the ranges fetched that reads have missed.
    pub(super) fn request_missed(&self) {
        let copy = self.planner.copy();
        for missed in copy.take_missed_of(READER) {
            // A range that is requested already, or has come meanwhile, is not requested again.
            let _ = copy.request_range(missed.segment, missed.offset, missed.bytes);
        }
    }

    /// Forgets which ranges reads have missed.
    pub(super) fn forget_missed(&self) {
        let copy = self.planner.copy();
        drop((copy.take_missed(), copy.take_missed_of(READER)));
    }

    /// Inventory of the copy, as a node lists it.
    pub(super) fn listed(&self, edge: usize) -> Result<Listed, Failure> {
        let progress = self.planner.copy().progress();
        let is_current = progress.missing_bytes == 0 && progress.shown_older == 0;
        let (snapshot, reach) = (self.reader.snapshot(), self.subscription.reach());
        let (found, used) = spans(&snapshot, &stream(), (reach, is_current));
        let at_cloud = key_at_cloud(edge);
        let span = |(reach, range)| Span {
            stream: at_cloud,
            reach,
            range,
        };
        let spans: Vec<Span> = found.into_iter().map(span).collect();
        let mut listed = Listed {
            until: if is_current {
                Timestamp::MAX
            } else {
                Timestamp::MIN
            },
            exceptions: Vec::new(),
            spans,
            coverages: used,
        };
        if !is_current {
            let level = match reach {
                Reach::Level(level) => Some(level),
                Reach::Rows | Reach::None => None,
            };
            let parts = snapshot.coverage(&stream(), ClosedRange::ALL, level)?;
            let ends = parts
                .iter()
                .map(|part| match part.is_here && !part.is_older {
                    true => Timestamp::MAX,
                    false => part.until.unwrap_or(Timestamp::MIN),
                });
            listed.exceptions.push(Exception {
                stream: at_cloud,
                reach,
                until: ends.min().unwrap_or(Timestamp::MIN),
            });
            listed.coverages += 1;
        }
        self.forget_missed();
        Ok(listed)
    }
}
