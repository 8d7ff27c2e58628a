//! Named snapshots in the interface of embedders: states of a database that last, to be read later.
//!
//! Invariants: a snapshot has all data acknowledged before the call, and each batch completely or
//! not at all. Concurrency: one is made at a time; batches wait at the entrance while the last rows
//! of memory are stored, after nearly all were stored before. Failure: a failed creation leaves no
//! trace; a failed commit latches.

use crate::admin::move_tier::writers_wait;
use crate::common::ids::{SegmentId, Sequence};
use crate::core::Core;
use crate::maintenance::flush::{flush_all, store_all_alone};
use crate::metadata::catalog::check_name;
use crate::metadata::tables::SnapshotChange;
use crate::open::snapshot_states::{end, end_due, open_named};
use crate::read::Snapshot;
use crate::replica::pinned::PinnedState;
use crate::replication::state::State;
use crate::storage::named_snapshots::{NamedSnapshot, SNAPSHOTS_MAX, SnapshotEnd, SnapshotRecord};
use crate::{Database, Error, Reader, Result};
use headwater_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the present wherever a snapshot can be named: a snapshot cannot have this name.
const NOW: &str = "now";

/// A named snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Time of its creation, by the believed clock.
    pub created: Timestamp,
    /// Time of its automatic end ([`crate::Options::snapshot_age_max`]); `None` = never.
    pub ends: Option<Timestamp>,
    /// Sequence of the newest record in the snapshot.
    pub sequence: u64,
    /// Number of its tables.
    pub tables: u64,
    /// Number of its streams.
    pub streams: u64,
    /// Number of its events.
    pub events: u64,
    /// Bytes of the segments that it names.
    pub bytes: u64,
    /// Bytes of its segments that no longer belong to the database, and exist for snapshots only:
    /// for this one or for several.
    pub kept_bytes: u64,
    /// Bytes that its end alone would free.
    pub own_bytes: u64,
}

/// A named snapshot that ended automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSnapshot {
    /// Its name, which may belong to a newer snapshot now.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Reason of its end.
    pub why: SnapshotEnd,
}

impl Database {
    /// Stores the events in memory, and keeps the present state under a name: it can be read, also
    /// after the database was closed and opened, until it is dropped or ends automatically
    /// ([`crate::Options::snapshot_age_max`], [`crate::Options::snapshot_bytes_max`], a full disk).
    /// Later deletes by users apply to it too; data that ends because of its age stays in it. As
    /// long as there is a snapshot, versions of Headwater that do not support them refuse the
    /// database.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path()))?;
    /// let engine = StreamName::new("engine", [("id", "7")]);
    /// let mut batch = Batch::new();
    /// batch.stream(&engine).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// db.create_snapshot("before")?;
    /// let mut batch = Batch::new();
    /// batch.stream(&engine).row(1, [("rpm", 3000.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// let before = db.snapshot_named("before")?.last(&engine)?;
    /// assert_eq!(before.first().unwrap().value, 2150.0.into());
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` for a bad or existing name, or beyond 64 snapshots; `busy` when the database
    /// changes faster than its state can be taken; `full`, `io`, `corrupt`, `closed`.
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        let core = self.own_core()?;
        core.log.check()?;
        check_name("snapshot", name)?;
        if name == NOW {
            return Err(Error::invalid(format!(
                "`{NOW}` is reserved for the current state: choose another snapshot name"
            )));
        }
        let _change = core.placing.begin_change();
        end_due(core)?;
        check_free(core, name)?;
        core.check_space()?;
        // Nearly all of memory is stored before batches have to wait.
        flush_all(core)?;
        let number = core.named.take_number();
        let taken = self.take(core, number);
        let snapshot = taken.and_then(|(held, ends)| keep(core, (number, name), held, ends));
        let snapshot = snapshot.inspect_err(|_| {
            // The next opening corrects the entry in the metadata, or the next commit does.
            core.named_ends.remove_copy(&number.to_string());
        })?;
        let now: Vec<_> = core.named.all();
        tracing::info!(name, "created a snapshot");
        Ok(info(core, &snapshot, &now))
    }

    /// The present state, with nothing in memory, and with the number from which deletes are
    /// retained for it.
    fn take(&self, core: &Core, number: u64) -> Result<(PinnedState, Sequence)> {
        let newest = core.named.all().pop();
        let before = match newest {
            Some(newest) => core.meta.snapshot_state(newest.number)?,
            None => None,
        };
        let before = before
            .map(|bytes| State::decode(&bytes, None))
            .transpose()?;
        // Most footers are read before batches have to wait.
        let before = self.hold_state(before.as_ref())?;
        let (alone, held_back) = writers_wait(core);
        store_all_alone(core)?;
        let keeper = number.to_string();
        let newest = {
            // No delete may be between its number and its effect on the shards.
            let _barrier = core.write_barrier.close();
            let added = core.named_ends.add_copy(&keeper);
            added.map_err(|_| too_many(core))?;
            core.log.newest()
        };
        core.log.wait_published(newest)?;
        let held = self.hold_state(Some(before.state()))?;
        drop((held_back, alone));
        Ok((held, newest))
    }

    /// Drops the snapshot of this name: its files are removed when they have no reader.
    ///
    /// # Errors
    /// `not_found`, `closed`, `io`, `full`.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let found = core.named.find(name);
        let snapshot = found.ok_or_else(|| not_there(core, name))?;
        match end(core, &snapshot, None)? {
            true => Ok(()),
            false => Err(not_there(core, name)),
        }
    }

    /// The named snapshots, the oldest first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        all(self.core())
    }

    /// The newest automatically ended snapshots, the oldest first.
    #[must_use]
    pub fn ended_snapshots(&self) -> Vec<EndedSnapshot> {
        ended(self.core())
    }

    /// The state of a named snapshot, to be read like any other.
    ///
    /// # Errors
    /// `not_found`; `gone` for a snapshot that ended automatically; `corrupt`, `io`, `closed`.
    pub fn snapshot_named(&self, name: &str) -> Result<Snapshot> {
        drop(self.snapshot()?);
        Ok(Snapshot::open(open_named(self.core(), name)?))
    }
}

impl Reader {
    /// As [`Database::snapshots`].
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        all(&self.core())
    }

    /// As [`Database::ended_snapshots`].
    #[must_use]
    pub fn ended_snapshots(&self) -> Vec<EndedSnapshot> {
        ended(&self.core())
    }

    /// Opens a state like [`Database::snapshot_named`], of the snapshots that existed at the last
    /// refresh.
    ///
    /// # Errors
    /// As [`Database::snapshot_named`].
    pub fn snapshot_named(&self, name: &str) -> Result<Snapshot> {
        Ok(Snapshot::open(open_named(&self.core(), name)?))
    }
}

fn not_there(core: &Core, name: &str) -> Error {
    Error::not_found(format!(
        "{}: no snapshot `{name}`",
        core.options.dir.display()
    ))
}

fn too_many(core: &Core) -> Error {
    Error::invalid(format!(
        "{}: there are already {SNAPSHOTS_MAX} snapshots, the maximum: drop those that are not needed",
        core.options.dir.display()
    ))
}

fn check_free(core: &Core, name: &str) -> Result<()> {
    if core.named.find(name).is_some() {
        return Err(Error::invalid(format!(
            "snapshot `{name}` already exists: drop it first, or choose another name"
        )));
    }
    match core.named.all().len() < SNAPSHOTS_MAX {
        true => Ok(()),
        false => Err(too_many(core)),
    }
}

/// Stores a state under a name.
fn keep(
    core: &Core,
    (number, name): (u64, &str),
    held: PinnedState,
    known: Sequence,
) -> Result<Arc<NamedSnapshot>> {
    let (state, mut files) = held.into_files()?;
    let sequence = Sequence(state.name().sequence);
    if sequence < known {
        return Err(Error::internal("a state is older than the published one"));
    }
    let is_there = |t: &&Arc<crate::metadata::catalog::Table>| !t.lifetime.dropped;
    let record = SnapshotRecord {
        name: name.to_owned(),
        moment: core.moment(),
        sequence,
        tables: headwater_types::invariant::wide(state.tables.iter().filter(is_there).count()),
        streams: headwater_types::invariant::wide(state.streams.len()),
        events: state.partitions.iter().map(|p| p.record.events).sum(),
        ended: None,
        segments: state
            .segments()
            .map(|s| (SegmentId(s.id), s.bytes))
            .collect(),
    };
    let ids = record.segments.iter().map(|(id, _)| *id);
    let files: Option<Vec<_>> = ids.map(|id| files.remove(&id)).collect();
    let files = files.ok_or_else(|| Error::internal("a file of the state is missing"))?;
    // From here on no file is removed, even if it is replaced, and whether or not this succeeds: a
    // transaction that fails may be on the medium nevertheless.
    for file in &files {
        file.keep();
    }
    let _commit = core.commits.begin();
    let change = SnapshotChange {
        created: Some((number, record.encode(), state.encode())),
        ends: core.named_ends.unsaved().forced(),
        ..SnapshotChange::default()
    };
    if let Err(error) = core.meta.change_snapshots(&change) {
        core.log.latch(error.clone());
        return Err(error);
    }
    core.named_ends.saved(&change.ends);
    let snapshot = Arc::new(NamedSnapshot::new(number, record, files));
    core.named.put(Arc::clone(&snapshot));
    Ok(snapshot)
}

fn all(core: &Core) -> Vec<SnapshotInfo> {
    let all = core.named.all();
    all.iter().map(|s| info(core, s, &all)).collect()
}

fn ended(core: &Core) -> Vec<EndedSnapshot> {
    let ended = core.named.ended().into_iter();
    let told = ended.filter_map(|(_, record)| {
        let (at, why) = record.ended?;
        Some(EndedSnapshot {
            created: record.moment.believed(),
            name: record.name,
            ended: at,
            why,
        })
    });
    told.collect()
}

fn info(core: &Core, snapshot: &NamedSnapshot, all: &[Arc<NamedSnapshot>]) -> SnapshotInfo {
    let record = &snapshot.record;
    let created = record.moment.believed();
    let age = core.options.snapshot_age_max;
    let age = age.and_then(|age| i64::try_from(age.as_nanos()).ok());
    let kept: BTreeMap<SegmentId, u64> = snapshot.replaced().collect();
    let others: Vec<SegmentId> = all
        .iter()
        .filter(|other| other.number != snapshot.number)
        .flat_map(|other| other.replaced().map(|(id, _)| id))
        .collect();
    let own = kept.iter().filter(|(id, _)| !others.contains(id));
    SnapshotInfo {
        name: record.name.clone(),
        created,
        ends: age.map(|age| Timestamp::from_nanos(created.as_nanos().saturating_add(age))),
        sequence: record.sequence.0,
        tables: record.tables,
        streams: record.streams,
        events: record.events,
        bytes: record.segments.iter().map(|(_, bytes)| bytes).sum(),
        own_bytes: own.map(|(_, bytes)| bytes).sum(),
        kept_bytes: kept.values().sum(),
    }
}
