//! The definitions in force, and those not yet in the metadata.

use super::streams::StreamRecord;
use super::table::{Table, check_name};
use crate::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::meta::Meta;
use crate::{Error, Result};
use headwater_codec::Cursor;
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A definition on its way from the log to the metadata.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    Table(Arc<Table>),
    Stream(StreamRecord),
}

/// All definitions.
///
/// Streams already in the metadata are looked up there and remembered by a 96-bit keyed hash (16 bytes each and their place in
/// a map): of ten million streams any two have the same one with a chance of 10^-15. Those defined since the last step are held here whole.
#[derive(Debug)]
pub(crate) struct Catalog {
    hashers: (RandomState, RandomState),
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    tables: Vec<Arc<Table>>,
    table_ids: HashMap<String, TableId>,
    tag_keys: Vec<BTreeSet<String>>,
    stream_counts: Vec<u64>,
    next_stream: u32,
    known: HashMap<KeyHash, StreamId>,
    pending: Vec<(Sequence, Definition)>,
    pending_keys: HashMap<Box<[u8]>, StreamRecord>,
}

/// A keyed hash of key bytes.
type KeyHash = [u32; 3];

impl Catalog {
    pub(crate) fn new() -> Catalog {
        Catalog {
            hashers: (RandomState::new(), RandomState::new()),
            state: RwLock::new(State::default()),
        }
    }

    /// Fills the catalog from the metadata at opening.
    pub(crate) fn load(&self, meta: &Meta) -> Result<()> {
        let (tables, next_stream) = (meta.tables()?, meta.next_stream()?);
        let mut state = self.state.write();
        for table in tables {
            state.put_table(Arc::new(table));
        }
        state.next_stream = next_stream;
        for (table, count) in meta.stream_counts()? {
            if let Some(slot) = state.stream_counts.get_mut(table.0 as usize) {
                *slot = count;
            }
        }
        for (table, key) in meta.tag_keys()? {
            if let Some(keys) = state.tag_keys.get_mut(table.0 as usize) {
                keys.insert(key);
            }
        }
        Ok(())
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        let (a, b) = (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key));
        [a as u32, (a >> 32) as u32, b as u32]
    }

    pub(crate) fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.state.read().tables.get(id.0 as usize).cloned()
    }

    pub(crate) fn table_named(&self, name: &str) -> Option<Arc<Table>> {
        let state = self.state.read();
        let id = state.table_ids.get(name)?;
        state.tables.get(id.0 as usize).cloned()
    }

    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.state.read().tables.clone()
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

    /// Changes or makes a table. `change` gets the table as it is now (or none) and gives the new one; its definition is put
    /// into the log by `enqueue` before it is in force. No change = no record.
    pub(crate) fn define_table(
        &self,
        name: &str,
        change: impl FnOnce(TableId, Option<&Table>) -> Result<Table>,
        enqueue: impl FnOnce(&Table) -> Result<Sequence>,
    ) -> Result<(Arc<Table>, Option<Sequence>)> {
        check_name("table", name)?;
        let mut state = self.state.write();
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
        if let Some(old) = old
            && *old == table
        {
            return Ok((old, None));
        }
        let sequence = enqueue(&table)?;
        let table = Arc::new(table);
        state.put_table(Arc::clone(&table));
        state
            .pending
            .push((sequence, Definition::Table(Arc::clone(&table))));
        Ok((table, Some(sequence)))
    }

    /// The stream behind key bytes, if it is defined.
    pub(crate) fn find_stream(&self, meta: &Meta, key: &[u8]) -> Result<Option<StreamId>> {
        let hash = self.hash(key);
        {
            let state = self.state.read();
            if let Some(id) = state.known.get(&hash) {
                return Ok(Some(*id));
            }
            if let Some(record) = state.pending_keys.get(key) {
                return Ok(Some(record.id));
            }
        }
        let found = meta.find_stream(key)?;
        if let Some(id) = found {
            self.state.write().known.insert(hash, id);
        }
        Ok(found)
    }

    /// Defines the streams behind `keys`, none of which was found; one log record for all that are really new.
    pub(crate) fn define_streams(
        &self,
        meta: &Meta,
        table: TableId,
        keys: &[Box<[u8]>],
        streams_max: usize,
        shard_of: impl Fn(&[u8]) -> ShardIndex,
        enqueue: impl FnOnce(&[StreamRecord]) -> Result<Sequence>,
    ) -> Result<()> {
        let mut state = self.state.write();
        let mut records: Vec<StreamRecord> = Vec::with_capacity(keys.len());
        let mut next = state.next_stream;
        for key in keys {
            let defined = state.known.contains_key(&self.hash(key))
                || state.pending_keys.contains_key(key)
                || records.iter().rev().take(4).any(|r| r.key == *key)
                || meta.find_stream(key)?.is_some();
            if defined {
                continue;
            }
            records.push(StreamRecord {
                id: StreamId(next),
                table,
                shard: shard_of(key),
                key: key.clone(),
            });
            next = next
                .checked_add(1)
                .ok_or_else(|| Error::invalid("too many streams: 2^32"))?;
        }
        if records.is_empty() {
            return Ok(());
        }
        let count = state
            .stream_counts
            .get(table.0 as usize)
            .copied()
            .unwrap_or(0)
            + records.len() as u64;
        if count > streams_max as u64 {
            return Err(Error::invalid(format!(
                "the table would have {count} streams, the limit is {streams_max} (setting streams_max)"
            )));
        }
        let sequence = enqueue(&records)?;
        for record in records {
            state.put_stream(self.hash(&record.key), record.clone());
            state.pending.push((sequence, Definition::Stream(record)));
        }
        Ok(())
    }

    /// Applies a definition read back from the log.
    pub(crate) fn replay(
        &self,
        meta: &Meta,
        sequence: Sequence,
        definition: Definition,
    ) -> Result<()> {
        let mut state = self.state.write();
        match &definition {
            Definition::Table(table) => {
                let known = state.tables.get(table.id.0 as usize);
                // Fields are only added and types only widened, so the definition with more of them is the newer one;
                // the log is replayed in order, so an older record than the metadata's is followed by the newer ones.
                if known.is_some_and(|known| known.fields.len() > table.fields.len()) {
                    return Ok(());
                }
                state.put_table(Arc::clone(table));
            }
            Definition::Stream(record) => {
                if state.pending_keys.contains_key(&record.key)
                    || meta.find_stream(&record.key)?.is_some()
                {
                    return Ok(());
                }
                state.put_stream(self.hash(&record.key), record.clone());
            }
        }
        state.pending.push((sequence, definition));
        Ok(())
    }

    /// Definitions up to `sequence` that the metadata does not hold yet, and the next free stream number.
    pub(crate) fn pending_up_to(&self, sequence: Sequence) -> (Vec<Definition>, u32) {
        let state = self.state.read();
        let pending = state
            .pending
            .iter()
            .filter(|(s, _)| *s <= sequence)
            .map(|(_, d)| d.clone())
            .collect();
        (pending, state.next_stream)
    }

    /// Forgets pending definitions up to `sequence`: the metadata holds them now.
    pub(crate) fn applied_up_to(&self, sequence: Sequence) {
        let mut guard = self.state.write();
        let state = &mut *guard;
        state.pending.retain(|(s, definition)| {
            if *s > sequence {
                return true;
            }
            if let Definition::Stream(record) = definition {
                state.pending_keys.remove(&record.key);
            }
            false
        });
    }

    /// The smallest sequence of a definition not yet in the metadata.
    pub(crate) fn first_pending(&self) -> Option<Sequence> {
        self.state.read().pending.iter().map(|(s, _)| *s).min()
    }

    /// The largest sequence of a table's definition not yet in the metadata.
    pub(crate) fn newest_pending_table(&self) -> Option<Sequence> {
        let state = self.state.read();
        let tables = state
            .pending
            .iter()
            .filter(|(_, d)| matches!(d, Definition::Table(_)));
        tables.map(|(s, _)| *s).max()
    }

    /// Streams of a table not yet in the metadata.
    pub(crate) fn pending_streams(&self, table: TableId) -> Vec<StreamRecord> {
        self.state
            .read()
            .pending_keys
            .values()
            .filter(|r| r.table == table)
            .cloned()
            .collect()
    }

    /// Keys of all streams not yet in the metadata.
    pub(crate) fn pending_keys(&self) -> HashMap<StreamId, Box<[u8]>> {
        self.state
            .read()
            .pending_keys
            .values()
            .map(|r| (r.id, r.key.clone()))
            .collect()
    }
}

impl State {
    fn put_table(&mut self, table: Arc<Table>) {
        let at = table.id.0 as usize;
        self.table_ids.insert(table.name.clone(), table.id);
        if at < self.tables.len() {
            if let Some(slot) = self.tables.get_mut(at) {
                *slot = table;
            }
        } else {
            self.tables.push(table);
            self.tag_keys.push(BTreeSet::new());
            self.stream_counts.push(0);
        }
    }

    fn put_stream(&mut self, hash: KeyHash, record: StreamRecord) {
        self.known.insert(hash, record.id);
        self.next_stream = self.next_stream.max(record.id.0.saturating_add(1));
        let at = record.table.0 as usize;
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
        self.pending_keys.insert(record.key.clone(), record);
    }
}
