//! The definitions in force, including definitions that are not yet in the metadata.

mod changes;
mod listing;
mod planned;

pub(crate) use planned::{NewStreamKeys, Planned, PlannedTable};

use super::index::{SavedDefinitions, StreamIndex};
use super::limits::{Defined, LimitExceeded, TableLimits};
use super::pending::{Definition, Pending};
use super::streams::{ByKey, StreamRecord};
use super::table::{AddedFields, Table, TableRecord, check_name};
use crate::common::ids::{NumberMap, Sequence, StreamId, TableId};
use crate::{Error, Result};
use headwater_codec::Cursor;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// All definitions.
///
/// Streams already in the metadata are looked up there and remembered by a 96-bit keyed hash (16
/// bytes each and their slot in a map): among ten million streams the probability of a collision is
/// 10^-15. Streams defined since the last job are stored here whole, once, and shared by their
/// readers.
#[derive(Debug)]
pub(crate) struct Catalog {
    hashers: (RandomState, RandomState),
    state: RwLock<State>,
    /// `changes` of the state, for readers: they need not wait for the lock.
    changes: AtomicU64,
    /// False until a stream is dropped.
    has_dropped: AtomicBool,
}

/// The existing tables, by number.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    list: Vec<Arc<Table>>,
    /// True when values of any table expire.
    pub(crate) expire: bool,
}

impl Deref for Tables {
    type Target = [Arc<Table>];

    fn deref(&self) -> &[Arc<Table>] {
        &self.list
    }
}

impl Tables {
    fn of(all: &[Arc<Table>]) -> Tables {
        let alive = all.iter().filter(|t| !t.lifetime.dropped);
        let list: Vec<Arc<Table>> = alive.cloned().collect();
        Tables {
            expire: list.iter().any(|t| t.lifetime.expires),
            list,
        }
    }

    pub(crate) fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        let at = self.list.binary_search_by_key(&id, |t| t.id).ok()?;
        self.list.get(at)
    }
}

#[derive(Debug, Default)]
struct State {
    tables: Vec<Arc<Table>>,
    /// Bytes of the definitions of existing tables.
    table_bytes: usize,
    /// The existing tables; `None` = must be collected again.
    alive: Option<Arc<Tables>>,
    table_ids: HashMap<String, TableId>,
    tag_keys: Vec<BTreeSet<String>>,
    stream_counts: Vec<u64>,
    next_stream: u32,
    stream_ids: NumberMap<KeyHash, StreamId>,
    pending: Pending,
    pending_keys: HashSet<ByKey>,
    /// Streams dropped since opening, or before and still in the log.
    dropped_ids: HashSet<StreamId>,
    /// Streams dropped since opening, which older snapshots still see, by sequence.
    dropped: Vec<(Sequence, StreamRecord)>,
    /// Number of definitions made, changed or dropped since opening.
    changes: u64,
}

/// Guard for changing definitions: the shared tables, which readers take without the lock, are
/// updated before it is released.
struct Writing<'a> {
    state: RwLockWriteGuard<'a, State>,
    changes: &'a AtomicU64,
}

impl Deref for Writing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if self.state.alive.is_none() {
            self.state.alive = Some(Arc::new(Tables::of(&self.state.tables)));
        }
        self.changes.store(self.state.changes, Ordering::Release);
    }
}

/// A keyed hash of key bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyHash([u32; 3]);

impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The hash is already keyed and uniform.
        let [a, b, _] = self.0;
        state.write_u64(u64::from(a) | u64::from(b) << 32);
    }
}

impl Catalog {
    pub(crate) fn new() -> Catalog {
        Catalog::hashing(None)
    }

    /// A catalog with these hash keys, or random ones.
    pub(crate) fn hashing(hashers: Option<(RandomState, RandomState)>) -> Catalog {
        Catalog {
            hashers: hashers.unwrap_or_else(|| (RandomState::new(), RandomState::new())),
            state: RwLock::new(State::default()),
            changes: AtomicU64::new(0),
            has_dropped: AtomicBool::new(false),
        }
    }

    /// Locks the definitions for a change.
    fn writing(&self) -> Writing<'_> {
        Writing {
            state: self.state.write(),
            changes: &self.changes,
        }
    }

    /// Fills the catalog at opening from the metadata.
    pub(crate) fn load(&self, saved: SavedDefinitions) {
        let mut state = self.writing();
        for table in saved.tables {
            state.put_table(table);
        }
        state.next_stream = saved.next_stream;
        state.dropped_ids = saved.dropped.into_iter().map(|(_, r)| r.id).collect();
        self.has_dropped
            .store(!state.dropped_ids.is_empty(), Ordering::Release);
        for (table, count) in saved.stream_counts {
            // Metadata of a table that does not exist are not needed.
            if let Some(slot) = state.stream_counts.get_mut(table.0 as usize) {
                *slot = count;
            }
        }
        for (table, key) in saved.tag_keys {
            if let Some(keys) = state.tag_keys.get_mut(table.0 as usize) {
                keys.insert(key);
            }
        }
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        let (a, b) = (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key));
        KeyHash([a as u32, (a >> 32) as u32, b as u32])
    }

    pub(crate) fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.state.read().tables.get(id.0 as usize).cloned()
    }

    pub(crate) fn table_named(&self, name: &str) -> Option<Arc<Table>> {
        let state = self.state.read();
        let id = state.table_ids.get(name)?;
        state.tables.get(id.0 as usize).cloned()
    }

    /// Looks up a table like [`Catalog::table_named`], without waiting: `None` also while
    /// definitions are being changed.
    pub(crate) fn try_table_named(&self, name: &str) -> Option<Arc<Table>> {
        let state = self.state.try_read()?;
        let id = state.table_ids.get(name)?;
        state.tables.get(id.0 as usize).cloned()
    }

    /// The stream with these key bytes if it is known without reading the metadata or waiting.
    pub(crate) fn try_known_stream(&self, key: &[u8]) -> Option<StreamId> {
        let hash = self.hash(key);
        self.state.try_read()?.stream_ids.get(&hash).copied()
    }

    /// A hasher with the random keys of this process.
    pub(crate) fn keyed_hasher(&self) -> impl Hasher {
        self.hashers.0.build_hasher()
    }

    /// Number of tables that exist or existed: also the number of the next table.
    pub(crate) fn table_count(&self) -> usize {
        self.state.read().tables.len()
    }

    /// All existing tables.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.state.read().alive.clone().unwrap_or_default()
    }

    pub(crate) fn tag_keys(&self, table: TableId) -> Vec<String> {
        self.state
            .read()
            .tag_keys
            .get(table.0 as usize)
            .map(|k| k.iter().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn stream_count(&self, table: TableId) -> u64 {
        self.state
            .read()
            .stream_counts
            .get(table.0 as usize)
            .copied()
            .unwrap_or(0)
    }

    /// Changes or makes a table. `change` gets the present table (or `None`) and returns the new
    /// one; its definition is put into the log by `enqueue` before it is in force. Without a change
    /// no record is written.
    pub(crate) fn define_table(
        &self,
        name: &str,
        change: impl FnOnce(TableId, Option<&Table>) -> Result<Table>,
        enqueue: impl FnOnce(&TableRecord) -> Result<Sequence>,
    ) -> Result<(Arc<Table>, Option<Sequence>)> {
        let unlimited = TableLimits {
            tables: usize::MAX,
            bytes: usize::MAX,
        };
        match self.define_table_within(name, unlimited, change, enqueue)? {
            Defined::As(table, sequence) => Ok((table, sequence)),
            Defined::Not(beyond) => Err(Error::internal(format!(
                "a definition exceeds a limit although none applies: {beyond}"
            ))),
        }
    }

    /// Defines like [`Catalog::define_table`], within the limits of memory and number.
    pub(crate) fn define_table_within(
        &self,
        name: &str,
        limits: TableLimits,
        change: impl FnOnce(TableId, Option<&Table>) -> Result<Table>,
        enqueue: impl FnOnce(&TableRecord) -> Result<Sequence>,
    ) -> Result<Defined> {
        check_name("table", name)?;
        let mut state = self.writing();
        let old = state
            .table_ids
            .get(name)
            .and_then(|id| state.tables.get(id.0 as usize))
            .cloned();
        let id = match &old {
            Some(table) => table.id,
            None => TableId(
                u32::try_from(state.tables.len()).map_err(|_| Error::invalid("too many tables"))?,
            ),
        };
        let table = change(id, old.as_deref())?;
        if let Some(old) = &old
            && **old == table
        {
            return Ok(Defined::As(Arc::clone(old), None));
        }
        if old.is_none() && state.table_ids.len() >= limits.tables {
            return Ok(Defined::Not(LimitExceeded::Tables(limits.tables)));
        }
        let added = table
            .heap_bytes()
            .saturating_sub(old.as_ref().map_or(0, |t| t.heap_bytes()));
        if added > 0 && state.table_bytes.saturating_add(added) > limits.bytes {
            return Ok(Defined::Not(LimitExceeded::Bytes(limits.bytes)));
        }
        let table = Arc::new(table);
        let record = TableRecord::of(old.as_ref(), &table);
        let sequence = enqueue(&record)?;
        state.put_table(Arc::clone(&table));
        state.pending.push_table(sequence, old, record);
        Ok(Defined::As(table, Some(sequence)))
    }

    /// The stream with these key bytes, if it is defined.
    pub(crate) fn find_stream(
        &self,
        index: &dyn StreamIndex,
        key: &[u8],
    ) -> Result<Option<StreamId>> {
        if let Some(id) = self.known_stream(key) {
            return Ok(Some(id));
        }
        let Some(id) = index.find_stream(key)? else {
            return Ok(None);
        };
        let mut state = self.writing();
        if state.dropped_ids.contains(&id) {
            // The metadata do not have the drop yet. A successor would be among the pending
            // streams.
            return Ok(state.pending_id(key));
        }
        state.stream_ids.insert(self.hash(key), id);
        Ok(Some(id))
    }

    /// Finds a stream like [`Catalog::find_stream`], for a snapshot that sees `sequence`: streams
    /// dropped later are still found.
    pub(crate) fn find_stream_at(
        &self,
        index: &dyn StreamIndex,
        key: &[u8],
        sequence: Sequence,
    ) -> Result<Option<StreamId>> {
        {
            let state = self.state.read();
            let dropped = state.dropped.iter();
            if let Some((_, record)) = dropped
                .filter(|(s, r)| *s > sequence && *r.key == *key)
                .min_by_key(|(s, _)| *s)
            {
                return Ok(Some(record.id));
            }
        }
        self.find_stream(index, key)
    }

    /// The streams of a table with matching tags, as seen by a snapshot with this sequence; `None`
    /// = the present streams.
    pub(crate) fn streams_of(
        &self,
        index: &dyn StreamIndex,
        table: TableId,
        at: Option<Sequence>,
    ) -> Result<Vec<StreamRecord>> {
        // Pending ones first: a commit in between moves them to the metadata, so each stream is
        // seen at least once.
        let mut records = self.pending_streams(table);
        records.extend(index.streams_of(table)?);
        let state = self.state.read();
        records.retain(|r| !state.dropped_ids.contains(&r.id));
        if let Some(at) = at {
            let later = state
                .dropped
                .iter()
                .filter(|(s, r)| *s > at && r.table == table);
            records.extend(later.map(|(_, r)| r.clone()));
        }
        drop(state);
        records.sort_by(|a, b| (&a.key, a.id).cmp(&(&b.key, b.id)));
        records.dedup_by_key(|r| r.id);
        Ok(records)
    }

    /// Removes streams from the catalog. `enqueue` puts the delete that drops them into the log.
    pub(crate) fn drop_streams(
        &self,
        records: Vec<StreamRecord>,
        enqueue: impl FnOnce() -> Result<Sequence>,
    ) -> Result<Sequence> {
        let mut state = self.writing();
        // Before the record can be published: a reader that sees it must not find the stream.
        self.has_dropped.store(true, Ordering::Release);
        let sequence = enqueue()?;
        for record in records {
            state.drop_stream(self.hash(&record.key), sequence, record, true);
        }
        Ok(sequence)
    }

    /// True when one of these previously found streams has been dropped.
    pub(crate) fn any_dropped(&self, mut streams: impl Iterator<Item = StreamId>) -> bool {
        if !self.has_dropped.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.read();
        streams.any(|s| state.dropped_ids.contains(&s))
    }

    /// True for a dropped stream.
    pub(crate) fn is_dropped(&self, stream: StreamId) -> bool {
        self.state.read().dropped_ids.contains(&stream)
    }

    /// A stream defined since the last job.
    pub(crate) fn pending_stream(&self, stream: StreamId) -> Option<StreamRecord> {
        let state = self.state.read();
        let mut pending = state.pending_keys.iter().map(|p| &*p.0);
        pending.find(|r| r.id == stream).cloned()
    }

    /// Keys of dropped streams not yet in the metadata.
    pub(crate) fn pending_dropped(&self) -> Vec<StreamRecord> {
        self.state.read().pending.dropped()
    }

    /// Forgets dropped streams that only snapshots could still need, once no snapshot does.
    pub(crate) fn forget_dropped(&self) {
        if !self.state.read().dropped.is_empty() {
            self.writing().dropped.clear();
        }
    }

    /// The stream with these key bytes, if it is known without reading the metadata.
    pub(crate) fn known_stream(&self, key: &[u8]) -> Option<StreamId> {
        let hash = self.hash(key);
        let state = self.state.read();
        let known = state.stream_ids.get(&hash).copied();
        known.or_else(|| state.pending_id(key))
    }

    /// Applies a definition read from the log.
    pub(crate) fn replay(
        &self,
        index: &dyn StreamIndex,
        sequence: Sequence,
        definition: Definition,
    ) -> Result<()> {
        let mut state = self.writing();
        match &definition {
            Definition::Table(table) => {
                let known = state.tables.get(table.id.0 as usize).cloned();
                // Fields are only added and types only widened, so the definition with more of them
                // is the newer one; the log is replayed in order, so a record older than the
                // metadata is followed by the newer ones.
                if known.as_ref().is_some_and(|known| {
                    known.fields.len() > table.fields.len() || known.lifetime.dropped
                }) {
                    return Ok(());
                }
                state.put_table(Arc::clone(table));
                let record = TableRecord::Full(Arc::clone(table));
                state.pending.push_table(sequence, known, record);
                return Ok(());
            }
            Definition::Stream(record) => {
                let known = state.pending_keys.contains(&*record.key)
                    || index
                        .find_stream(&record.key)?
                        .is_some_and(|id| !state.dropped_ids.contains(&id));
                if known || state.dropped_ids.contains(&record.id) {
                    return Ok(());
                }
                state.put_stream(self.hash(&record.key), record);
            }
            Definition::Dropped(record) => {
                self.has_dropped.store(true, Ordering::Release);
                let hash = self.hash(&record.key);
                state.drop_stream(hash, sequence, (**record).clone(), false);
                return Ok(());
            }
        }
        state.pending.push_stream(sequence, definition);
        Ok(())
    }

    /// Applies fields read from the log. False when their table is not known, or has fewer fields
    /// than it had before they were added.
    pub(crate) fn replay_fields(&self, sequence: Sequence, added: AddedFields) -> Result<bool> {
        let mut state = self.writing();
        let known = state.tables.get(added.table.0 as usize).cloned();
        let Some(known) = known.filter(|t| added.first as usize <= t.fields.len()) else {
            return Ok(false);
        };
        if known.lifetime.dropped || known.fields.len() >= added.end() {
            return Ok(true);
        }
        let mut table = (*known).clone();
        added.add_to(&mut table)?;
        state.put_table(Arc::new(table));
        let record = TableRecord::Fields(added);
        state.pending.push_table(sequence, Some(known), record);
        Ok(true)
    }

    /// Definitions up to `sequence` that are not in the metadata yet.
    pub(crate) fn pending_up_to(&self, sequence: Sequence) -> Result<Vec<(Sequence, Definition)>> {
        self.state.read().pending.up_to(sequence)
    }

    /// The next free stream number.
    pub(crate) fn next_stream(&self) -> u32 {
        self.state.read().next_stream
    }

    /// Forgets pending definitions up to `sequence`, which the metadata have now. Returns the bytes
    /// they used.
    pub(crate) fn applied_up_to(&self, sequence: Sequence) -> Result<usize> {
        let mut guard = self.writing();
        let State {
            pending,
            pending_keys,
            ..
        } = &mut *guard;
        let bytes = pending.applied_up_to(sequence, |record| {
            let held = pending_keys.get(&*record.key);
            if held.is_some_and(|p| p.0.id == record.id) {
                pending_keys.remove(&*record.key);
            }
        })?;
        // Capacity for many new streams at once is not retained.
        if pending_keys.len() < pending_keys.capacity() / 8 {
            pending_keys.shrink_to(pending_keys.len() * 2);
        }
        Ok(bytes)
    }

    /// Bytes of memory used by definitions that are on their way to the metadata.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.state.read().pending.bytes()
    }

    /// The smallest sequence of a definition not yet in the metadata.
    pub(crate) fn first_pending(&self) -> Option<Sequence> {
        self.state.read().pending.first()
    }

    /// The largest sequence of a table's definition not yet in the metadata.
    pub(crate) fn newest_pending_table(&self) -> Option<Sequence> {
        self.state.read().pending.newest_table()
    }

    /// Streams of a table not yet in the metadata.
    pub(crate) fn pending_streams(&self, table: TableId) -> Vec<StreamRecord> {
        let state = self.state.read();
        let pending = state.pending_keys.iter().map(|p| &*p.0);
        pending.filter(|r| r.table == table).cloned().collect()
    }

    /// Key bytes of the `streams` that are not yet in the metadata.
    pub(crate) fn pending_keys(&self, streams: &[StreamId]) -> HashMap<StreamId, Box<[u8]>> {
        let mut wanted = streams.to_vec();
        wanted.sort_unstable();
        let state = self.state.read();
        let pending = state.pending_keys.iter().map(|p| &*p.0);
        pending
            .filter(|r| wanted.binary_search(&r.id).is_ok())
            .map(|r| (r.id, r.key.clone()))
            .collect()
    }
}

impl State {
    fn pending_id(&self, key: &[u8]) -> Option<StreamId> {
        self.pending_keys.get(key).map(|p| p.0.id)
    }

    fn drop_stream(
        &mut self,
        hash: KeyHash,
        sequence: Sequence,
        record: StreamRecord,
        seen_by_snapshots: bool,
    ) {
        self.changes += 1;
        if self.stream_ids.get(&hash) == Some(&record.id) {
            self.stream_ids.remove(&hash);
        }
        if self.pending_id(&record.key) == Some(record.id) {
            self.pending_keys.remove(&*record.key);
        }
        if let Some(count) = self.stream_counts.get_mut(record.table.0 as usize) {
            *count = count.saturating_sub(1);
        }
        self.dropped_ids.insert(record.id);
        if seen_by_snapshots {
            self.dropped.push((sequence, record.clone()));
        }
        let dropped = Definition::Dropped(Arc::new(record));
        self.pending.push_stream(sequence, dropped);
    }

    fn put_table(&mut self, table: Arc<Table>) {
        self.changes += 1;
        self.alive = None;
        let at = table.id.0 as usize;
        let alive = |t: &Arc<Table>| {
            if t.lifetime.dropped {
                0
            } else {
                t.heap_bytes()
            }
        };
        let before = self.tables.get(at).map_or(0, alive);
        self.table_bytes = self.table_bytes + alive(&table) - before;
        if !table.lifetime.dropped {
            self.table_ids.insert(table.name.clone(), table.id);
        } else if self.table_ids.get(&table.name) == Some(&table.id) {
            self.table_ids.remove(&table.name);
        }
        if let Some(slot) = self.tables.get_mut(at) {
            *slot = table;
        } else {
            assert_eq!(at, self.tables.len(), "tables are numbered without gaps");
            self.tables.push(table);
            self.tag_keys.push(BTreeSet::new());
            self.stream_counts.push(0);
        }
    }

    fn put_stream(&mut self, hash: KeyHash, record: &Arc<StreamRecord>) {
        self.changes += 1;
        self.stream_ids.insert(hash, record.id);
        self.next_stream = self.next_stream.max(record.id.0.saturating_add(1));
        let at = record.table.0 as usize;
        assert!(
            at < self.tables.len(),
            "stream {} of table {at}, and there are {}",
            record.id.0,
            self.tables.len()
        );
        if let Some(count) = self.stream_counts.get_mut(at) {
            *count += 1;
        }
        if let Some(keys) = self.tag_keys.get_mut(at) {
            let mut cursor = Cursor::new(record.key.get(4..).unwrap_or_default());
            while let (Ok(key), Ok(_)) = (cursor.text("tag key"), cursor.text("tag value")) {
                if !keys.contains(key) {
                    keys.insert(key.to_owned());
                }
            }
        }
        // Replaces a dropped stream of the same name, if there is one.
        self.pending_keys.replace(ByKey(Arc::clone(record)));
    }
}
