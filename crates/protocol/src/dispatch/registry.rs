//! Inventory of a node, with the version of each part, so that only changes are reported.
//!
//! Invariants: a dispatcher that applies the changes since its version has the same state as after
//! a whole inventory. A version is never reused in an epoch; an unchanged part gets no new version.
//! Concurrency: plain data, one owner.

use crate::dispatch::filter::Filter;
use crate::dispatch::inventory::{
    Change, Database, EdgeFacts, FilterChange, InventoryReport, ShardChange, Span, in_order,
};
use crate::dispatch::keys::{SHARD_BITS_MAX, StreamKey, TileKey};
use crate::dispatch::tiles::{EXACT_MAX, shard_of};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Keys of a shard from which on there are more shards.
const SHARD_MAX: usize = 131_072;
/// A filter is rebuilt when more than one in `OUTSIDE` of its keys was reported outside the filter,
/// or removed.
const OUTSIDE: usize = 256;

/// An edge, and when it changed.
#[derive(Debug)]
struct Entry {
    facts: EdgeFacts,
    facts_version: u64,
    streams: Vec<StreamKey>,
    streams_version: u64,
    spans: Vec<Span>,
    spans_version: u64,
}

/// A part of the tiles.
#[derive(Debug, Default)]
struct Shard {
    keys: BTreeSet<TileKey>,
    /// Most of them, and when it was made.
    filter: Option<Filter>,
    filter_version: u64,
    /// Keys outside of the filter.
    outside: BTreeSet<TileKey>,
    /// Removed keys that the filter still has.
    stale_keys: usize,
    version: u64,
}

impl Shard {
    /// Rebuilds the filter of all keys.
    fn rebuild_filter(&mut self, version: u64) {
        let keys: Vec<TileKey> = self.keys.iter().copied().collect();
        self.filter = (keys.len() > EXACT_MAX)
            .then(|| Filter::of(&keys))
            .flatten();
        self.filter_version = version;
        self.stale_keys = 0;
        self.outside = match self.filter {
            Some(_) => BTreeSet::new(),
            None => self.keys.clone(),
        };
    }

    fn needs_filter_rebuild(&self) -> bool {
        let most = match &self.filter {
            None => EXACT_MAX,
            Some(filter) => usize::try_from(filter.keys()).unwrap_or(0) / OUTSIDE,
        };
        self.outside.len() > most || self.stale_keys > most
    }
}

/// Inventory of a node.
#[derive(Debug)]
pub struct Registry {
    database: Database,
    epoch: u64,
    version: u64,
    edges: BTreeMap<u32, Entry>,
    numbers: HashMap<String, u32>,
    /// Removed edges, with the version of the removal.
    removed_edges: BTreeMap<u32, u64>,
    next_number: u32,
    shards: Vec<Shard>,
    shard_bits: u8,
    /// When tiles were divided otherwise.
    bits_version: u64,
    /// Tiles of all shards.
    tiles: usize,
    load: u32,
}

impl Registry {
    /// Creates an empty registry of a node's database. Each registry needs an epoch of its own.
    #[must_use]
    pub fn new(database: Database, epoch: u64) -> Registry {
        Registry {
            database,
            epoch,
            version: 1,
            edges: BTreeMap::new(),
            numbers: HashMap::new(),
            removed_edges: BTreeMap::new(),
            next_number: 0,
            shards: vec![Shard::default()],
            shard_bits: 0,
            bits_version: 1,
            tiles: 0,
            load: 0,
        }
    }

    /// The newest version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Sets the facts of an edge, which is identified by its name.
    pub fn set_edge(&mut self, facts: EdgeFacts) {
        let known = self.numbers.get(&facts.name).copied();
        match known.and_then(|number| self.edges.get_mut(&number)) {
            Some(entry) if entry.facts == facts => {}
            Some(entry) => {
                self.version += 1;
                entry.facts = facts;
                entry.facts_version = self.version;
            }
            None => {
                let version = self.next_version();
                let number = self.next_number;
                self.next_number += 1;
                self.numbers.insert(facts.name.clone(), number);
                let entry = Entry {
                    facts,
                    facts_version: version,
                    streams: Vec::new(),
                    streams_version: version,
                    spans: Vec::new(),
                    spans_version: version,
                };
                let before = self.edges.insert(number, entry);
                assert!(before.is_none(), "two edges with number {number}");
            }
        }
    }

    /// Sets the streams of a registered edge.
    pub fn set_streams(&mut self, edge: &str, mut streams: Vec<StreamKey>) {
        streams.sort_unstable();
        streams.dedup();
        let known = self.numbers.get(edge);
        let entry = known.and_then(|number| self.edges.get_mut(number));
        if let Some(entry) = entry.filter(|entry| entry.streams != streams) {
            self.version += 1;
            entry.streams = streams;
            entry.streams_version = self.version;
        }
    }

    /// Sets the spans of a registered edge; of each stream the finest are reported.
    pub fn set_spans(&mut self, edge: &str, spans: Vec<Span>) {
        let spans = in_order(spans);
        let known = self.numbers.get(edge);
        let entry = known.and_then(|number| self.edges.get_mut(number));
        if let Some(entry) = entry.filter(|entry| entry.spans != spans) {
            self.version += 1;
            entry.spans = spans;
            entry.spans_version = self.version;
        }
    }

    /// Sets the number of requests that the node is working on. The number is part of each report,
    /// and no change by itself.
    pub fn set_load(&mut self, load: u32) {
        self.load = load;
    }

    /// Removes an edge.
    pub fn remove_edge(&mut self, edge: &str) {
        if let Some(number) = self.numbers.remove(edge) {
            self.edges.remove(&number);
            let version = self.next_version();
            self.removed_edges.insert(number, version);
        }
    }

    /// The names of all edges.
    pub fn edges(&self) -> impl Iterator<Item = &str> {
        self.edges.values().map(|entry| entry.facts.name.as_str())
    }

    /// Number of reported tiles.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.tiles
    }

    /// Adds a tile. False when it was there before.
    pub fn add_tile(&mut self, key: TileKey) -> bool {
        if self.tiles >= SHARD_MAX << self.shard_bits && self.shard_bits < SHARD_BITS_MAX {
            self.divide();
        }
        let version = self.version + 1;
        let at = shard_of(key, self.shard_bits);
        let Some(shard) = self.shards.get_mut(at) else {
            return false;
        };
        if !shard.keys.insert(key) {
            return false;
        }
        self.tiles += 1;
        shard.outside.insert(key);
        shard.version = version;
        self.version = version;
        true
    }

    /// Removes a tile.
    pub fn remove_tile(&mut self, key: TileKey) {
        let version = self.version + 1;
        let at = shard_of(key, self.shard_bits);
        let Some(shard) = self.shards.get_mut(at) else {
            return;
        };
        if !shard.keys.remove(&key) {
            return;
        }
        self.tiles -= 1;
        if !shard.outside.remove(&key) {
            shard.stale_keys += 1;
        }
        shard.version = version;
        self.version = version;
    }

    /// Rebuilds filters with too many keys outside them, or too many removed keys. Call before the
    /// inventory is reported, since a rebuild takes longer than a change of one tile.
    pub fn settle(&mut self) {
        for shard in &mut self.shards {
            if shard.needs_filter_rebuild() {
                self.version += 1;
                shard.version = self.version;
                shard.rebuild_filter(self.version);
            }
        }
    }

    /// Divides the tiles into twice as many parts.
    fn divide(&mut self) {
        let version = self.next_version();
        self.shard_bits += 1;
        self.bits_version = version;
        let before = std::mem::take(&mut self.shards);
        self.shards
            .resize_with(1 << self.shard_bits, Shard::default);
        for key in before.into_iter().flat_map(|shard| shard.keys) {
            if let Some(shard) = self.shards.get_mut(shard_of(key, self.shard_bits)) {
                shard.keys.insert(key);
            }
        }
        for shard in &mut self.shards {
            shard.version = version;
            shard.rebuild_filter(version);
        }
        let divided: usize = self.shards.iter().map(|shard| shard.keys.len()).sum();
        assert_eq!(divided, self.tiles, "tiles are lost");
    }

    /// Changes since a version of an epoch; the whole inventory if this registry does not have that
    /// version.
    #[must_use]
    pub fn since(&self, epoch: u64, version: u64) -> InventoryReport {
        let known = epoch == self.epoch && version <= self.version;
        let since = if known { version } else { 0 };
        let changed = self.edges.iter().filter_map(|(number, entry)| {
            let streams = (entry.streams_version > since).then(|| entry.streams.clone());
            let spans = (entry.spans_version > since).then(|| entry.spans.clone());
            let is_other = streams.is_some() || spans.is_some() || entry.facts_version > since;
            is_other.then(|| {
                let state = Change::State {
                    facts: entry.facts.clone(),
                    streams,
                    spans,
                };
                (*number, state)
            })
        });
        let gone = self
            .removed_edges
            .iter()
            .filter(|(_, at)| since > 0 && **at > since);
        let gone = gone.map(|(number, _)| (*number, Change::Removed));
        let mut edges: Vec<(u32, Change)> = changed.chain(gone).collect();
        edges.sort_by_key(|(number, _)| *number);
        let is_anew = self.bits_version > since;
        let shards = self.shards.iter().enumerate();
        let shards = shards.filter(|(_, shard)| is_anew || shard.version > since);
        let shards = shards.map(|(index, shard)| ShardChange {
            index,
            filter: match &shard.filter {
                _ if !is_anew && shard.filter_version <= since => FilterChange::Unchanged,
                Some(filter) => FilterChange::Replaced(filter.clone()),
                None => FilterChange::None,
            },
            exact: shard.outside.iter().copied().collect(),
        });
        InventoryReport {
            database: self.database,
            epoch: self.epoch,
            since,
            version: self.version,
            load: self.load,
            edges,
            shard_bits: self.shard_bits,
            shards: shards.collect(),
        }
    }
}
