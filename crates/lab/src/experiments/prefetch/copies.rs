//! Our copies: a database with the week, and copies of it that grow by the shipped planner up to a
//! number of bytes.

use super::sensors::{BEGIN, Channel, FIELDS, ROOMS, SECONDS};
use super::visits::Tile;
use crate::harness::{Failure, signed, unsigned};
use headwater_engine::{
    Database, ErrorKind, Options, Reader, RemoteCopy, ReplicationRules, Snapshot, StreamShare,
};
use headwater_io::Env;
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, Planner, PlannerLimits, Policy, Spent,
};
use headwater_types::{Batch, Level, StreamName, StreamRows, Timestamp, Values};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

const COPY: &str = "cloud";
/// Rows of a batch.
const BATCH: usize = 10_000;

fn stream_of_room(number: usize) -> StreamName {
    StreamName::new("lab", [("room", number.to_string())])
}

fn field_name(number: usize) -> Result<&'static str, Failure> {
    Ok(FIELDS.get(number).ok_or("no such sensor")?)
}

fn options(dir: &Path) -> Options {
    Options {
        memory_budget_bytes: 32 << 20,
        ..Options::new(dir)
    }
}

/// The edge.
pub(super) struct Edge {
    db: Database,
    pub(super) bytes: u64,
}

impl Edge {
    /// Writes the week, one batch after another, and compacts it.
    pub(super) fn new(dir: &Path, channels: &[Channel]) -> Result<Edge, Failure> {
        let db = Database::open(options(dir))?;
        for first in (0..SECONDS).step_by(BATCH) {
            let last = (first + BATCH).min(SECONDS);
            let times = (first..last).map(|s| (BEGIN + signed(s)) * 1_000_000_000);
            let times: Vec<i64> = times.collect();
            for number in 0..ROOMS {
                let mut batch = Batch::new();
                let of_room = channels.iter().filter(|c| c.room == number);
                let mut rows = StreamRows::new(stream_of_room(number));
                rows.times.clone_from(&times);
                for channel in of_room {
                    let part = channel.values.get(first..last);
                    let part = part.ok_or("a channel is too short")?;
                    let values = Values::F64(part.to_vec());
                    rows = rows.with_column(field_name(channel.field)?, values);
                }
                batch.push(rows);
                db.commit(batch)?;
            }
        }
        db.flush()?;
        db.compact()?;
        db.add_copy(COPY)?;
        let held = db.hold_state(None)?;
        let bytes = held.state().segments().map(|s| s.bytes).sum();
        Ok(Edge { db, bytes })
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, Failure> {
        Ok(self.db.snapshot()?)
    }
}

/// Growth of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growing {
    pub(super) policy: Policy,
    /// Tiles from this level on are subscribed to, and rows are prefetched; `None` = all rows.
    pub(super) level: Option<i32>,
    /// Bytes of payload that may travel, the state among them.
    pub(super) bytes: u64,
}

/// A copy, and its traffic.
pub(super) struct Cloud {
    planner: Planner,
    agent: Agent,
    db: Database,
    reader: Reader,
    now: Duration,
    pub(super) travelled: u64,
}

/// Payload of a message.
fn payload(message: &Message) -> u64 {
    match message {
        Message::State { bytes, .. } | Message::Bytes { bytes, .. } => unsigned(bytes.len()),
        _ => 0,
    }
}

impl Cloud {
    /// Grows a copy until it is complete, or the maximum number of bytes has arrived.
    pub(super) fn new(edge: &Edge, dir: &Path, growing: Growing) -> Result<Cloud, Failure> {
        let want = growing.level.map_or(StreamShare::Full, |level| {
            StreamShare::Summaries(Level::clamped(level))
        });
        let rules = ReplicationRules::from(want).with_ahead_bytes(match growing.level {
            Some(_) => growing.bytes,
            None => 0,
        });
        let first = edge.db.hold_state(None)?;
        RemoteCopy::begin(Env::system(), dir, first.state(), rules.clone())?;
        let travelled = unsigned(first.state().encode().len());
        drop(first);
        let copy = RemoteCopy::open(Env::system(), dir, rules)?;
        let reader = copy.reader(options(dir))?;
        let limits = PlannerLimits {
            request_bytes: 64 << 10,
            ..PlannerLimits::default()
        };
        let mut planner = Planner::new(copy, limits, 1);
        planner.set_policy(growing.policy);
        let mut agent = Agent::new(
            u64::MAX,
            Budget::new(BudgetLimits::default(), Spent::default()),
        );
        agent.set_copy(COPY);
        let mut cloud = Cloud {
            planner,
            agent,
            db: edge.db.clone(),
            reader,
            now: Duration::ZERO,
            travelled,
        };
        cloud.run(growing.bytes)?;
        cloud.reader.refresh()?;
        // From now on only requests of readers bring data.
        cloud.planner.set_policy(Policy::None);
        Ok(cloud)
    }

    fn clocks(&self) -> Now {
        let nanos = i64::try_from(self.now.as_nanos()).unwrap_or(i64::MAX);
        Now {
            monotonic: self.now,
            wall: Timestamp::from_nanos((BEGIN + signed(SECONDS)) * 1_000_000_000 + nanos),
        }
    }

    /// Exchanges messages until there are none left, or `bytes_max` bytes have arrived.
    fn run(&mut self, bytes_max: u64) -> Result<(), Failure> {
        let hello = self.agent.hello(&self.db)?;
        self.planner.receive(self.clocks(), hello)?;
        let mut quiet = 0;
        while self.travelled < bytes_max && quiet < 100 {
            self.now += Duration::from_millis(20);
            let now = self.clocks();
            let mut asked = VecDeque::new();
            while let Some(message) = self.planner.next(now) {
                asked.push_back(message);
            }
            quiet = if asked.is_empty() { quiet + 1 } else { 0 };
            for message in asked {
                for answer in self.agent.answer(&self.db, now, message)? {
                    let cost = payload(&answer);
                    if self.travelled + cost > bytes_max {
                        return Ok(());
                    }
                    self.travelled += cost;
                    self.planner.receive(now, answer)?;
                }
            }
            if let Some(kept) = self.agent.to_keep() {
                self.agent.set_persisted(kept);
            }
        }
        Ok(())
    }

    /// Whether a tile is here; where it is not and `fetches`, it is fetched, and how often the edge
    /// was requested for that.
    pub(super) fn fetch_tile(
        &mut self,
        tile: &Tile,
        expected: &Snapshot,
        fetches: bool,
    ) -> Result<Option<u32>, Failure> {
        let (stream, field) = (
            stream_of_room(tile.channel / FIELDS.len()),
            tile.channel % FIELDS.len(),
        );
        let (field, level) = (field_name(field)?, Level::clamped(tile.level));
        let mut rounds = 0;
        loop {
            let found = self
                .reader
                .snapshot()
                .tile(&stream, field, level, tile.offset);
            match found {
                Ok(found) => {
                    let expected = expected.tile(&stream, field, level, tile.offset)?;
                    let same = |(a, b): (&(i64, _), &(i64, _))| a == b;
                    if found.len() != expected.len() || !found.iter().zip(&expected).all(same) {
                        return Err(format!("{tile:?} is another one at the copy").into());
                    }
                    return Ok(Some(rounds));
                }
                Err(error) if error.kind() != ErrorKind::Elsewhere => return Err(error.into()),
                Err(_) if !fetches => return Ok(None),
                Err(_) => {}
            }
            let copy = self.planner.copy().clone();
            let missed = copy.take_missed();
            let asked = missed
                .iter()
                .filter(|m| copy.request_range(m.segment, m.offset, m.bytes));
            if asked.count() == 0 || rounds > 1_000 {
                return Ok(None);
            }
            rounds += 1;
            self.run(u64::MAX)?;
            self.reader.refresh()?;
        }
    }
}
