//! Copies of many edges in the folder of a cloud, made without its server: each of a database in
//! memory, by the shipped planner and agent, and entered into the list of edges as one that has
//! connected before.

use super::children::stream;
use crate::harness::{Failure, Random, real, signed, unsigned};
use headwater_cluster::EdgeCopies;
use headwater_engine::{Database, Options, RemoteCopy, ReplicationRules, StreamShare};
use headwater_io::{Env, SystemChance};
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Now, Planner, PlannerLimits, Spent,
};
use headwater_types::{Batch, StreamRows, Timestamp, Values};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const COPY: &str = "cloud";
const LIST: &str = "edges.json";
/// The first second of the data.
pub(super) const BEGIN: i64 = 1_700_000_000 / 86_400 * 86_400;
/// Seconds between rows.
pub(super) const APART: i64 = 10;

/// Rounds of messages without one, after which a copy counts as complete.
const QUIET: usize = 20;

/// A database of one stream with so many rows.
fn source(edge: usize, rows: usize) -> Result<Database, Failure> {
    let env = Env {
        chance: Arc::new(SystemChance::new()),
        ..Env::memory()
    };
    let options = Options {
        shards: 1,
        memory_budget_bytes: 8 << 20,
        ..Options::new("/edge")
    };
    let db = Database::open_in(env, options)?;
    let mut dice = Random::new(unsigned(edge) + 1);
    let mut hundredths = 2_000;
    let mut of_stream = StreamRows::new(stream(edge, 0));
    of_stream.times = (0..signed(rows))
        .map(|row| (BEGIN + row * APART) * 1_000_000_000)
        .collect();
    let walk = (0..rows).map(|_| {
        hundredths += signed(dice.below(11)) - 5;
        real(hundredths) / 100.0
    });
    let mut batch = Batch::new();
    batch.push(of_stream.with_column("v", Values::F64(walk.collect())));
    db.commit(batch)?;
    db.flush()?;
    db.add_copy(COPY)?;
    Ok(db)
}

/// A full copy of a database in a folder; returns the database's identity.
fn copy(db: &Database, dir: &Path) -> Result<u64, Failure> {
    let rules = ReplicationRules::from(StreamShare::Full);
    let first = db.hold_state(None)?;
    let copy = RemoteCopy::begin(Env::system(), dir, first.state(), rules)?;
    let identity = first.state().name().identity;
    drop(first);
    let mut planner = Planner::new(copy, PlannerLimits::default(), 1);
    let mut agent = Agent::new(
        u64::MAX,
        Budget::new(BudgetLimits::default(), Spent::default()),
    );
    agent.set_copy(COPY);
    let mut now = Now {
        monotonic: Duration::ZERO,
        wall: Timestamp::from_nanos(BEGIN * 1_000_000_000),
    };
    planner.receive(now, agent.hello(db)?)?;
    let mut quiet = 0;
    while quiet < QUIET {
        now.monotonic += Duration::from_millis(20);
        quiet += 1;
        while let Some(message) = planner.next(now) {
            quiet = 0;
            for answer in agent.answer(db, now, message)? {
                planner.receive(now, answer)?;
            }
        }
        if let Some(kept) = agent.to_keep() {
            agent.set_persisted(kept);
        }
    }
    match planner.copy().progress().missing_bytes {
        0 => Ok(identity),
        bytes => Err(format!("{}: {bytes} bytes are missing", dir.display()).into()),
    }
}

/// Copies of so many edges with so many rows each, in the folder of a cloud.
pub(super) fn make(dir: &Path, edges: usize, rows: usize) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    let list = template(dir)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let part = |worker: usize| -> Result<Vec<(usize, u64)>, String> {
        let mut made = Vec::new();
        for edge in (worker..edges).step_by(workers) {
            let folder = dir.join("copies").join(format!("edge-{edge}"));
            let one = source(edge, rows).and_then(|db| copy(&db, &folder));
            made.push((edge, one.map_err(|error| error.to_string())?));
        }
        Ok(made)
    };
    let mut identities = vec![0; edges];
    std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || part(worker)))
            .collect();
        for thread in threads {
            let made = thread.join().map_err(|_| "making copies panicked")?;
            for (edge, identity) in made? {
                if let Some(of) = identities.get_mut(edge) {
                    *of = identity;
                }
            }
        }
        Ok::<(), Failure>(())
    })?;
    write(dir, list, &identities)
}

/// A list of one edge, as a cloud writes it.
fn template(dir: &Path) -> Result<Value, Failure> {
    let fleet = EdgeCopies::open(Env::system(), dir, Options::new(dir))?;
    let hour = Duration::from_secs(3_600);
    fleet.invite("edge-0", "http://127.0.0.1:1", None, None, hour, false)?;
    drop(fleet);
    Ok(serde_json::from_slice(&std::fs::read(dir.join(LIST))?)?)
}

/// Writes the list of edges: copies of the entry of one.
fn write(dir: &Path, mut list: Value, identities: &[u64]) -> Result<(), Failure> {
    let first = list
        .pointer("/edges/0")
        .ok_or("no edge in the list")?
        .clone();
    let entries = identities.iter().enumerate().map(|(edge, identity)| {
        let mut entry = first.clone();
        if let Some(fields) = entry.as_object_mut() {
            for secret in ["invite", "invite_ends_ns", "is_redeemed", "key", "folder"] {
                fields.remove(secret);
            }
            let created = BEGIN * 1_000_000_000 + signed(edge) * 1_000;
            fields.insert("name".to_owned(), format!("edge-{edge}").into());
            fields.insert("created_ns".to_owned(), created.into());
            fields.insert("identity".to_owned(), (*identity).into());
        }
        entry
    });
    let entries: Vec<Value> = entries.collect();
    if let Some(fields) = list.as_object_mut() {
        fields.insert("edges".to_owned(), entries.into());
        fields.insert("parts".to_owned(), Value::Array(Vec::new()));
        fields.insert("records".to_owned(), Value::Array(Vec::new()));
        fields.insert("last_number".to_owned(), 0.into());
    }
    std::fs::write(dir.join(LIST), serde_json::to_vec(&list)?)?;
    Ok(())
}

/// Bytes of all files below a folder.
pub(super) fn bytes_under(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_under(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
