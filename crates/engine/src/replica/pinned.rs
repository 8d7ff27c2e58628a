//! Pinned states of an open database: their files are kept open, so that others can fetch them a
//! range at a time, while the database continues to change.
//!
//! Invariants: a state is the content of one transaction of the metadata, with every definition and
//! delete up to a record that is on the disk: it survives a power cut completely. Files that a
//! pinned state names exist until it is released ([law 4]); a pinned state never blocks a job, a
//! compaction or a writer. Only bytes below a committed length are returned. Concurrency: a pinned
//! state is immutable; [`PinnedStates`] has its own lock, under which no other lock is taken and no
//! file is read. Failure: `busy` when the database changes faster than it can be read; `gone` for
//! states that were released.
//!
//! [law 4]: ../../../../ARCHITECTURE.md#laws

use crate::common::error::Damage;
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::core::Core;
use crate::metadata::catalog::{StreamRecord, Table};
use crate::metadata::tables::{EndsChange, Lineage, NamedState};
use crate::replica::copy::WeakCopy;
use crate::replication::needed::{NeededRange, needed};
use crate::replication::state::{
    State, StateEnds, StateName, StatePartition, omitted_table, view_of,
};
use crate::replication::subscriptions::{ReplicationRules, StreamShare, Subscription};
use crate::replication::tail::{self, LogLocation, Tail, TailRequest};
use crate::storage::segment::{Partition, SegmentFile};
use crate::storage::tombstone::{DeleteRecord, Tombstone};
use crate::{Database, Error, ErrorKind, RemoteCopy, Result};
use headwater_codec::Cursor;
use headwater_types::{ByteRange, Level};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum attempts.
const LOOKS_MAX: usize = 64;

/// A pinned state with the bytes that it names: of an open database, with its files, or of a copy
/// that passes on its data.
#[derive(Debug)]
pub struct PinnedState {
    state: Arc<State>,
    bytes: PinnedBytes,
}

/// Source of the bytes.
#[derive(Debug)]
enum PinnedBytes {
    Database {
        core: Arc<Core>,
        files: FilesById,
    },
    /// A pinned state of a copy keeps neither the copy open, nor bytes that the copy releases.
    Copy(WeakCopy),
}

impl Database {
    /// Pins the current state of the database, and its files. With the state of an earlier call,
    /// unchanged parts are not read again.
    ///
    /// Rows that are only in the log and memory are not part of it: [`Database::flush`] stores
    /// them.
    ///
    /// # Errors
    /// `busy` when the database changes faster than it can be read, `corrupt` when a footer cannot
    /// be read, `closed`, `io`.
    pub fn hold_state(&self, before: Option<&State>) -> Result<PinnedState> {
        self.hold_state_of(before, &ReplicationRules::default())
    }

    /// Pins a state like [`Database::hold_state`], without the tables that the rules withhold:
    /// neither their names nor any bytes of their segments are in the state.
    ///
    /// # Errors
    /// As [`Database::hold_state`].
    pub fn hold_state_of(
        &self,
        before: Option<&State>,
        rules: &ReplicationRules,
    ) -> Result<PinnedState> {
        let core = self.own_core()?;
        core.log.check()?;
        for _ in 0..LOOKS_MAX {
            if let Some(held) = look(core, before, rules)? {
                return Ok(held);
            }
            std::thread::yield_now();
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!(
                "{}: the database changes faster than its state can be pinned: try again",
                core.options.dir.display()
            ),
        ))
    }

    /// The number of the present state of the database: when it has increased,
    /// [`Database::hold_state`] returns another state.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn state_number(&self) -> Result<u64> {
        Ok(self.core().meta.lineage()?.number)
    }

    /// Identifies the database and its history: its identity, and the incarnation, which a restore
    /// or a repair replaces. Both are created by the first call, if they were not stored before.
    ///
    /// # Errors
    /// When the metadata cannot be read or written, or another process owns the database.
    pub fn history(&self) -> Result<(u64, u64)> {
        let core = self.own_core()?;
        let mut lineage = core.meta.lineage()?;
        if lineage.incarnation == 0 {
            core.log.check()?;
            let _commit = core.commits.begin();
            core.meta.begin_lineage()?;
            lineage = core.meta.lineage()?;
        }
        Ok((lineage.identity, lineage.incarnation))
    }

    /// Begins another incarnation of the database: what a copy has of it so far is of another
    /// history than its states from now on. Two databases that continue from one copy of the files
    /// are told apart by it.
    ///
    /// # Errors
    /// `closed`, or when the metadata cannot be written.
    pub fn begin_incarnation(&self) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let _commit = core.commits.begin();
        core.meta.begin_incarnation()
    }

    /// True when the database is or was in a state of this name: otherwise the name is from another
    /// history of it, or from another database. Definitions and deletes are not checked.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn was_in(&self, name: &StateName) -> Result<bool> {
        let lineage = self.core().meta.lineage()?;
        let is_this = (lineage.identity, lineage.incarnation) == (name.identity, name.incarnation);
        Ok(is_this && lineage.contains(name.opening, name.number))
    }
}

impl Database {
    /// The records in the log, on the disk, after the point that a copy knows, without the tables
    /// that the rules withhold. With the location from an earlier call, the log before it is not
    /// read again.
    ///
    /// A tail that does not begin at the requested point replaces the known one: the log is of
    /// another history, or does not have the requested records any more.
    ///
    /// # Errors
    /// `busy` when the log changes faster than it can be read, `closed`, `corrupt`, `io`.
    pub fn tail(
        &self,
        ask: &TailRequest,
        rules: &ReplicationRules,
        place: &mut Option<LogLocation>,
    ) -> Result<Tail> {
        tail::tail(self.own_core()?, ask, rules, place)
    }

    /// Registers a copy of the database under this name, which is sent every delete until it has
    /// confirmed it: also deletes that are carried out here before it connects. Call this before
    /// the copy receives any data; stored with the database. Does nothing when the name is known.
    ///
    /// # Errors
    /// `invalid` when there are 64 copies, `closed`, `io`.
    pub fn add_copy(&self, name: &str) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let _commit = core.commits.begin();
        let change = core.ends.add_copy(name).map_err(|most| {
            Error::invalid(format!(
                "{}: there are already {most} copies, the maximum: remove those that are not needed",
                core.options.dir.display()
            ))
        })?;
        change.map_or(Ok(()), |change| put_ends(core, &change))
    }

    /// Unregisters the copy of this name.
    ///
    /// # Errors
    /// `closed`, `io`.
    pub fn remove_copy(&self, name: &str) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let _commit = core.commits.begin();
        let change = core.ends.remove_copy(name);
        change.map_or(Ok(()), |change| put_ends(core, &change))
    }

    /// Confirms that the copy of this name has a state on its disk: the deletes of that state are
    /// not sent again. The confirmation alone causes no write.
    pub fn confirm_copy(&self, name: &str, state: &StateName) {
        self.core().ends.confirm(name, Sequence(state.sequence));
    }
}

fn put_ends(core: &Core, change: &EndsChange) -> Result<()> {
    if let Err(error) = core.meta.put_ends(change) {
        core.log.latch(error.clone());
        return Err(error);
    }
    core.ends.saved(change);
    Ok(())
}

/// Partitions of all shards in memory, by segment, and the pending deletes.
struct ShardContents {
    partitions: BTreeMap<SegmentId, Arc<Partition>>,
    tombstones: BTreeMap<Sequence, Tombstone>,
}

impl ShardContents {
    fn of(core: &Core) -> ShardContents {
        let mut seen = ShardContents {
            partitions: BTreeMap::new(),
            tombstones: BTreeMap::new(),
        };
        for shard in &core.shards {
            let state = shard.state.lock();
            let partitions = state.partitions.all();
            seen.partitions
                .extend(partitions.map(|p| (p.id(), Arc::clone(p))));
            let waiting = state.tombstones.iter();
            seen.tombstones
                .extend(waiting.map(|t| (t.sequence, t.clone())));
        }
        seen
    }
}

/// Names the state by this opening if it has written something; true if it was not named so.
///
/// Definitions and deletes in the log are part of the state, and must be of a state of this
/// opening: two databases that continue from one copy of the files have the same numbers.
fn begins_opening(core: &Core) -> Result<bool> {
    if core.meta.has_named_opening() || core.log.stats().bytes_written == 0 {
        return Ok(false);
    }
    let _commit = core.commits.begin();
    core.meta.begin_opening()
}

/// One attempt; `None` when the database changed meanwhile.
fn look(
    core: &Arc<Core>,
    before: Option<&State>,
    rules: &ReplicationRules,
) -> Result<Option<PinnedState>> {
    let deletes = core.write_barrier.deletes();
    let seen = ShardContents::of(core);
    // Before the metadata: a commit in between moves them there, so each stream is seen at least
    // once.
    let pending = pending_streams(core);
    let mut named = core.meta.named_state()?;
    if named.lineage.incarnation == 0 {
        // A transaction of this version may not have changed anything yet.
        let _commit = core.commits.begin();
        core.meta.begin_lineage()?;
        named = core.meta.named_state()?;
    }
    // A file that a transaction names belongs to a partition seen before or after it; a partition
    // that was created and removed meanwhile is not named.
    let later = ShardContents::of(core);
    let tables = tables(core);
    let sequence = core.log.published();
    if core.write_barrier.deletes() != deletes || begins_opening(core)? {
        return Ok(None);
    }
    core.log.sync_up_to(sequence)?;
    let withheld = tables.iter().filter(|t| rules.withholds(&t.name));
    let withheld: Vec<TableId> = withheld.map(|t| t.id).collect();
    let leaves = |table: TableId| withheld.binary_search(&table).is_err();
    named.partitions.retain(|(_, record)| leaves(record.table));
    let mut waiting = seen.tombstones;
    waiting.extend(later.tombstones);
    // A delete that is just being added to the shards is part of a later state.
    waiting.retain(|of, tombstone| *of <= sequence && leaves(tombstone.table));
    let mut newest_deletes = core.newest_deletes.all();
    newest_deletes.retain(|(table, _)| leaves(*table));
    let (from, deletes) = core.ends.up_to(sequence, &leaves);
    let mut streams = streams(core, &named.streams, pending)?;
    streams.retain(|record| leaves(record.table));
    let seen = [&later.partitions, &seen.partitions];
    let found = pinned_partitions(core, before, &named, seen)?;
    let Some((partitions, files)) = found else {
        return Ok(None);
    };
    let tables = tables.into_iter().map(|table| match leaves(table.id) {
        true => table,
        false => omitted_table(table.id),
    });
    let state = State {
        name: StateName {
            view: view_of(&withheld),
            ..name(&named.lineage, sequence)
        },
        openings: named.lineage.openings,
        shards: named.shards,
        streams: streams.into(),
        tables: tables.collect(),
        deletes: waiting.into_values().map(delete).collect(),
        newest_deletes,
        ends: StateEnds { from, deletes },
        partitions,
    };
    Ok(Some(PinnedState {
        state: Arc::new(state),
        bytes: PinnedBytes::Database {
            core: Arc::clone(core),
            files,
        },
    }))
}

impl RemoteCopy {
    /// Pins the state of the copy, to pass it on: under the name from its source, with the hashes
    /// that its source computed. Tables that the rules withhold are left out, as by
    /// [`Database::hold_state_of`]. This keeps neither the copy open nor any of its bytes.
    #[must_use]
    pub fn hold_state_of(&self, rules: &ReplicationRules) -> PinnedState {
        let state = self.state();
        let withheld = state.tables.iter().filter(|t| rules.withholds(&t.name));
        let withheld: Vec<TableId> = withheld.map(|t| t.id).collect();
        PinnedState {
            state: match withheld.is_empty() {
                true => state,
                false => Arc::new(state.without(&withheld)),
            },
            bytes: PinnedBytes::Copy(self.weak()),
        }
    }
}

pub(crate) type FilesById = BTreeMap<SegmentId, Arc<SegmentFile>>;

/// Partitions that a transaction names, and their files; `None` when a partition does not exist any
/// more.
fn pinned_partitions(
    core: &Core,
    before: Option<&State>,
    named: &NamedState,
    seen: [&BTreeMap<SegmentId, Arc<Partition>>; 2],
) -> Result<Option<(Vec<StatePartition>, FilesById)>> {
    let mut files = BTreeMap::new();
    let mut partitions = Vec::with_capacity(named.partitions.len());
    for (id, record) in &named.partitions {
        let id = *id;
        let Some(found) = seen.iter().find_map(|partitions| partitions.get(&id)) else {
            return Ok(None);
        };
        files.insert(id, Arc::clone(&found.file));
        let known = before.and_then(|before| before.partition(id));
        let known = known.filter(|k| k.record.footer_offset == record.footer_offset);
        let uppers = match known.filter(|k| k.record.chain == record.chain) {
            Some(known) => Arc::clone(&known.uppers),
            None if record.chain.is_none() => Arc::default(),
            None => {
                let hashes = core.meta.named_hashes(named, id)?;
                hashes.iter().map(|group| group.upper_at).collect()
            }
        };
        let footers = match known {
            Some(known) => Arc::clone(&known.footers),
            None => {
                let unreadable = found.unreadable.clone();
                let named = Partition::with(record.clone(), Arc::clone(&found.file), unreadable);
                core.store.indexes(&named)?
            }
        };
        if record.chain.is_some() && uppers.len() != footers.len() {
            return Err(Error::internal(format!(
                "segment {} with {} groups, and hashes of {}",
                id.0,
                footers.len(),
                uppers.len()
            )));
        }
        partitions.push(StatePartition {
            id,
            record: record.clone(),
            footers,
            uppers,
        });
    }
    Ok(Some((partitions, files)))
}

/// All tables that exist or existed, by number.
fn tables(core: &Core) -> Vec<Arc<Table>> {
    let ids = (0..).map(TableId);
    ids.map_while(|id| core.catalog.table(id)).collect()
}

fn name(lineage: &Lineage, sequence: Sequence) -> StateName {
    StateName {
        identity: lineage.identity,
        incarnation: lineage.incarnation,
        opening: lineage.opening(),
        number: lineage.number,
        sequence: sequence.0,
        view: 0,
    }
}

/// Streams that are not in the metadata yet.
fn pending_streams(core: &Core) -> Vec<StreamRecord> {
    let tables = tables(core);
    let pending = tables.iter().map(|t| core.catalog.pending_streams(t.id));
    pending.flatten().collect()
}

/// The existing streams, stored or only in the log so far: excludes streams dropped after their
/// record was stored.
fn streams(
    core: &Core,
    stored: &[Box<[u8]>],
    pending: Vec<StreamRecord>,
) -> Result<Vec<StreamRecord>> {
    let mut all: BTreeMap<StreamId, StreamRecord> = BTreeMap::new();
    for bytes in stored {
        let record = StreamRecord::decode(&mut Cursor::new(bytes))
            .map_err(|e| Error::decode(core.meta.path(), 0, e))?;
        all.insert(record.id, record);
    }
    all.extend(pending.into_iter().map(|record| (record.id, record)));
    all.retain(|id, _| !core.catalog.is_dropped(*id));
    Ok(all.into_values().collect())
}

fn delete(tombstone: Tombstone) -> (Sequence, DeleteRecord) {
    let record = DeleteRecord {
        table: tombstone.table,
        streams: tombstone.streams,
        range: tombstone.range,
        // Dropped streams are not in a state.
        drops_streams: false,
    };
    (tombstone.sequence, record)
}

impl PinnedState {
    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    fn partition(&self, segment: u64) -> Result<&StatePartition> {
        self.state.partition(SegmentId(segment)).ok_or_else(|| {
            Error::not_found(format!(
                "segment {segment} does not belong to state {}",
                self.state.name.number
            ))
        })
    }

    /// The partition that contains these bytes in the state.
    fn of_bytes(&self, segment: u64, offset: u64, bytes: u64) -> Result<&StatePartition> {
        let partition = self.partition(segment)?;
        let committed = partition.record.committed_bytes;
        let end = offset.checked_add(bytes);
        match end.is_some_and(|end| end <= committed) {
            true => Ok(partition),
            false => Err(Error::invalid(format!(
                "cannot read {bytes} bytes at offset {offset} of segment {segment}, of which {committed} are committed"
            ))),
        }
    }

    /// The missing parts of a range, sorted and disjoint. A database has all bytes that it names
    /// except freed ones, a copy the ranges that it has received.
    ///
    /// # Errors
    /// `not_found` and `invalid` as [`PinnedState::read`]; `gone` when the copy was closed, or has
    /// released the segment.
    pub fn missing(&self, segment: u64, offset: u64, bytes: u64) -> Result<Vec<ByteRange>> {
        let partition = self.of_bytes(segment, offset, bytes)?;
        let range = ByteRange::at(offset, bytes);
        match &self.bytes {
            PinnedBytes::Database { core, .. } => core.store.freed_of(partition.id, range),
            PinnedBytes::Copy(copy) => copy.missing(partition.id, range),
        }
    }

    /// True while its bytes can be read: false when the copy was closed.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match &self.bytes {
            PinnedBytes::Database { .. } => true,
            PinnedBytes::Copy(copy) => copy.is_there(),
        }
    }

    /// True when a copy passes it on.
    #[must_use]
    pub fn is_passed_on(&self) -> bool {
        matches!(self.bytes, PinnedBytes::Copy(_))
    }

    /// Bytes of a segment that the state names.
    ///
    /// # Errors
    /// `not_found` for another segment, `invalid` for bytes that are not committed, `corrupt` when
    /// the file is truncated, `io`; of a copy `elsewhere` for missing ranges, and `gone` when it
    /// was closed.
    pub fn read(&self, segment: u64, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let partition = self.of_bytes(segment, offset, u64::from(bytes))?;
        let core = match &self.bytes {
            PinnedBytes::Database { core, .. } => core,
            PinnedBytes::Copy(copy) => return copy.read(partition.id, offset, bytes),
        };
        let (store, id) = (&core.store, partition.id);
        let mut out = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        store
            .cached_file(id)?
            .read_exact_at(offset, &mut out)
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::damage(Damage {
                    file: store.path(id),
                    offset,
                    expected: format!("{bytes} committed bytes"),
                    found: "the end of the file".into(),
                }),
                _ => Error::io("read", &store.path(id), e),
            })?;
        Ok(out)
    }

    /// The ranges of a segment that a reader needs for tiles at this level and above.
    ///
    /// # Errors
    /// `not_found` for a segment that the state does not name, `corrupt`, `io`; `elsewhere` of a
    /// copy, which has its own list of [missing ranges](RemoteCopy::missing).
    pub fn needed(&self, segment: u64, level: Level) -> Result<Vec<NeededRange>> {
        let partition = self.partition(segment)?;
        let PinnedBytes::Database { core, files } = &self.bytes else {
            return Err(Error::new(
                ErrorKind::Elsewhere,
                "only the node that wrote a segment knows which of its ranges are needed",
            ));
        };
        let file = files.get(&partition.id);
        let file = file.ok_or_else(|| Error::internal("a file of the state is missing"))?;
        let subscription = Subscription::from(StreamShare::from(level));
        let needed = needed(&core.store, &self.state, partition, file, &subscription)?;
        Ok(needed.ranges.iter().map(|wanted| wanted.range).collect())
    }

    /// The state and its files, for callers that keep them longer.
    pub(crate) fn into_files(self) -> Result<(Arc<State>, FilesById)> {
        match self.bytes {
            PinnedBytes::Database { files, .. } => Ok((self.state, files)),
            PinnedBytes::Copy(_) => Err(Error::internal("a copy is used as a database")),
        }
    }

    /// Files that exist only because the state is pinned, with their committed lengths.
    fn replaced(&self) -> impl Iterator<Item = (SegmentId, u64)> + '_ {
        let files = match &self.bytes {
            PinnedBytes::Database { files, .. } => Some(files),
            PinnedBytes::Copy(_) => None,
        };
        let replaced = files.into_iter().flatten();
        let replaced = replaced.filter(|(_, file)| file.is_replaced());
        replaced.filter_map(|(id, _)| {
            let partition = self.state.partition(*id)?;
            Some((*id, partition.record.committed_bytes))
        })
    }

    fn names(&self, id: SegmentId, end: u64) -> bool {
        let partition = self.state.partition(id);
        partition.is_some_and(|p| end <= p.record.committed_bytes)
    }
}

/// Pinned states, for others to fetch. The oldest are released when the files that exist only for
/// pinned states exceed a limit of bytes.
#[derive(Debug)]
pub struct PinnedStates {
    bytes_max: u64,
    /// The oldest first.
    states: Mutex<VecDeque<Arc<PinnedState>>>,
}

impl PinnedStates {
    /// `bytes_max` limits the bytes of replaced files.
    #[must_use]
    pub fn new(bytes_max: u64) -> PinnedStates {
        PinnedStates {
            bytes_max,
            states: Mutex::default(),
        }
    }

    /// Adds a pinned state, the newest.
    pub fn hold(&self, state: PinnedState) -> Arc<PinnedState> {
        let state = Arc::new(state);
        self.states.lock().push_back(Arc::clone(&state));
        self.keep_within();
        state
    }

    /// Releases states that are not needed any more: all states older than this one.
    pub fn release_before(&self, name: &StateName) {
        let mut held = self.states.lock();
        let at = held.iter().position(|h| h.state.name == *name);
        let gone: Vec<_> = held.drain(..at.unwrap_or(0)).collect();
        drop(held);
        // Without the lock: the last reference to a file removes it.
        drop(gone);
    }

    /// Releases all states.
    pub fn release_all(&self) {
        let gone = std::mem::take(&mut *self.states.lock());
        // Without the lock: the last reference to a file removes it.
        drop(gone);
    }

    /// The newest pinned state.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<PinnedState>> {
        self.states.lock().back().cloned()
    }

    /// The state of this name, if it is still pinned.
    #[must_use]
    pub fn named(&self, name: &StateName) -> Option<Arc<PinnedState>> {
        let held = self.states.lock();
        held.iter().find(|h| h.state.name == *name).cloned()
    }

    /// Bytes of files that exist only because of states pinned here, or by others.
    #[must_use]
    pub fn replaced_bytes(&self) -> u64 {
        Self::sum(&self.states.lock())
    }

    fn sum(held: &VecDeque<Arc<PinnedState>>) -> u64 {
        let mut files: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for (id, bytes) in held.iter().flat_map(|h| h.replaced()) {
            let known = files.entry(id).or_default();
            *known = bytes.max(*known);
        }
        files.values().sum()
    }

    /// Releases the oldest states until the files that exist only for them are within the limit.
    /// Call it from time to time: compactions replace files even while no copy fetches.
    pub fn keep_within(&self) {
        loop {
            let mut held = self.states.lock();
            if Self::sum(&held) <= self.bytes_max {
                return;
            }
            let gone = held.pop_front();
            drop(held);
            drop(gone);
        }
    }

    /// Bytes of a segment, from the newest pinned state that names them.
    ///
    /// # Errors
    /// `gone` when no pinned state names them; otherwise as [`PinnedState::read`].
    pub fn read(&self, segment: u64, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        self.keep_within();
        let id = SegmentId(segment);
        let end = offset.saturating_add(u64::from(bytes));
        let found = {
            let held = self.states.lock();
            held.iter().rev().find(|h| h.names(id, end)).cloned()
        };
        match found {
            Some(state) => state.read(segment, offset, bytes),
            None => Err(Error::new(
                ErrorKind::Gone,
                format!(
                    "{bytes} bytes at offset {offset} of segment {segment} are not pinned, or no longer: fetch the newest state"
                ),
            )),
        }
    }
}
