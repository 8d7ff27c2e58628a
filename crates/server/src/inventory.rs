//! Inventory of this node, for dispatchers: refreshed when a dispatcher requests it.
//!
//! Purpose: a registry (`headwater_protocol::dispatch`) of the node's own streams, of its edges
//! with theirs, and of answered tiles below the levels that are complete here.
//!
//! Invariants: the inventory lists only data that a refresh found in the copy; data that is removed
//! later disappears at a later refresh, and until then costs a redirected client one query. The
//! inventory is refreshed only on requests of dispatchers. Concurrency: one refresh at a time, at
//! most every [`REFRESH_EVERY`], away from the runtime; answered tiles wait in a short list.
//! Failure: an edge whose copy cannot be read is listed without streams.

use crate::error::ApiError;
use headwater::{ClosedRange, Level, Snapshot, StreamName, Timestamp};
use headwater_fleet::{EdgeView, Fleet, OWN, StreamShare};
use headwater_io::Env;
use headwater_protocol::dispatch::{
    Address, Database, EdgeFacts, Exception, InventoryReport, Reach, Registry, StreamKey, TileKey,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shortest time between two refreshes.
pub(crate) const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Names read at once.
const NAMES_AT_ONCE: usize = 4_096;
/// Streams of an outdated edge for which the inventory reports up to when each is present.
const STREAMS_CHECKED: usize = 2_000;
/// Answered tiles that wait for the next refresh.
const ANSWERED_MAX: usize = 4_096;
/// Single tiles in the inventory.
const TILES_MAX: usize = 1 << 20;
/// Single tiles that a refresh checks for being still here.
const TILES_CHECKED: usize = 512;

/// Tile that was answered.
#[derive(Clone, Debug)]
struct Tile {
    stream: StreamName,
    level: Level,
    offset: i64,
}

impl Tile {
    fn key(&self) -> TileKey {
        StreamKey::of(&self.stream).tile(self.level, self.offset)
    }

    fn range(&self) -> Option<ClosedRange> {
        let buckets = self.level.tile_buckets(self.offset)?;
        Some(self.level.span(*buckets.start(), *buckets.end()))
    }

    /// Name of the part that contains the whole tile, if one part does.
    fn is_in(&self, snapshot: &Snapshot) -> Option<String> {
        let range = self.range()?;
        let found = snapshot.coverage(&self.stream, range, Some(self.level));
        let parts = found.ok()?;
        let is_here = parts.iter().all(|part| part.is_here && !part.is_older);
        let part = parts.first().filter(|_| is_here)?.part.as_deref()?;
        Some(part.to_owned())
    }
}

/// State of the last refresh.
#[derive(Debug)]
struct InventoryState {
    registry: Registry,
    refreshed: Option<Duration>,
    /// Version of the definitions of the node's own database.
    definitions: Option<u64>,
    edges: HashMap<String, EdgeView>,
    tiles: BTreeMap<TileKey, Tile>,
    /// First tile of the next check.
    next_tile: TileKey,
}

/// Inventory of this node.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    state: Mutex<Option<InventoryState>>,
    /// True after the first request of a dispatcher.
    is_asked: AtomicBool,
    answered: Mutex<Vec<Tile>>,
}

impl Inventory {
    /// Records a tile that was answered from copies.
    pub(crate) fn answered(&self, stream: &StreamName, level: Level, offset: i64) {
        if !self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let mut answered = self.answered.lock();
        if answered.len() < ANSWERED_MAX {
            answered.push(Tile {
                stream: stream.clone(),
                level,
                offset,
            });
        }
    }
}

/// Sources of the inventory.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// The node's own database.
    pub(crate) db: &'a headwater::Database,
    /// The edges of a cloud node.
    pub(crate) fleet: Option<&'a Fleet>,
    pub(crate) env: &'a Env,
}

impl Inventory {
    /// Changes since a version of an epoch.
    pub(crate) fn since(
        &self,
        sources: Sources<'_>,
        epoch: u64,
        version: u64,
    ) -> Result<InventoryReport, ApiError> {
        self.refreshed(sources, |registry| registry.since(epoch, version))
    }

    /// Identity of the database, the epoch, and the newest version of the inventory.
    pub(crate) fn newest(&self, sources: Sources<'_>) -> Result<(Database, u64, u64), ApiError> {
        self.refreshed(sources, |registry| {
            let (epoch, version) = (registry.epoch(), registry.version());
            // Nothing has changed since: the answer contains only the identity of the database.
            (registry.since(epoch, version).database, epoch, version)
        })
    }

    fn refreshed<T>(
        &self,
        sources: Sources<'_>,
        tell: impl FnOnce(&Registry) -> T,
    ) -> Result<T, ApiError> {
        self.is_asked.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let state = match &mut *state {
            Some(state) => state,
            none => none.insert(InventoryState::begin(sources)?),
        };
        let clock = &sources.env.clock;
        let now = clock.monotonic();
        if state.refreshed.is_none_or(|at| now >= at + REFRESH_EVERY) {
            let answered = std::mem::take(&mut *self.answered.lock());
            state.refresh(sources, answered)?;
            state.registry.settle();
            state.refreshed = Some(clock.monotonic());
        }
        Ok(tell(&state.registry))
    }
}

impl InventoryState {
    fn begin(sources: Sources<'_>) -> Result<InventoryState, ApiError> {
        let (identity, incarnation) = headwater_fleet::database_of(sources.db)?;
        let database = Database {
            identity,
            incarnation,
        };
        Ok(InventoryState {
            registry: Registry::new(database, sources.env.chance.next_u64()),
            refreshed: None,
            definitions: None,
            edges: HashMap::new(),
            tiles: BTreeMap::new(),
            next_tile: TileKey(0),
        })
    }

    fn refresh(&mut self, sources: Sources<'_>, answered: Vec<Tile>) -> Result<(), ApiError> {
        let own = sources.db.snapshot()?;
        self.refresh_own(&own)?;
        let Some(fleet) = sources.fleet else {
            return Ok(());
        };
        let views = fleet.views();
        let names: BTreeSet<&str> = views.iter().map(EdgeView::name).collect();
        let gone: Vec<String> = self.edges.keys().cloned().collect();
        for name in gone.iter().filter(|name| !names.contains(name.as_str())) {
            self.registry.remove_edge(name);
            self.edges.remove(name);
        }
        let mut have_changed = false;
        for view in views {
            let before = self.edges.get(view.name());
            if before == Some(&view) {
                continue;
            }
            let shows_other = before.is_none_or(|before| before.changes != view.changes);
            have_changed |= shows_other;
            match fleet.shown_of_edge(view.name()) {
                Ok(snapshot) => self.refresh_edge(&view, snapshot.as_ref(), shows_other)?,
                Err(error) => {
                    tracing::warn!(edge = view.name(), %error, "a copy that cannot be read is listed without streams");
                    self.refresh_edge(&view, None, true)?;
                }
            }
            self.edges.insert(view.name().to_owned(), view);
        }
        let may_be_gone = have_changed && !self.tiles.is_empty();
        if answered.is_empty() && !may_be_gone {
            return Ok(());
        }
        self.refresh_tiles(&fleet.across(own)?, answered, have_changed);
        Ok(())
    }

    fn refresh_own(&mut self, snapshot: &Snapshot) -> Result<(), ApiError> {
        let definitions = snapshot.definitions();
        if definitions.is_some() && definitions == self.definitions {
            return Ok(());
        }
        let mut facts = nothing_of(OWN);
        (facts.is_own, facts.is_connected) = (true, true);
        (facts.reach, facts.until) = (Reach::Rows, Timestamp::MAX);
        self.registry.set_edge(facts);
        let mut streams = Vec::new();
        each_stream(snapshot, |stream| streams.push(StreamKey::of(stream)))?;
        self.registry.set_streams(OWN, streams);
        self.definitions = definitions;
        Ok(())
    }

    fn refresh_edge(
        &mut self,
        view: &EdgeView,
        snapshot: Option<&Snapshot>,
        shows_other: bool,
    ) -> Result<(), ApiError> {
        let mut facts = nothing_of(view.name());
        facts.rank = view.rank();
        facts.is_connected = view.is_connected;
        facts.database = view.database.map(|(identity, incarnation)| Database {
            identity,
            incarnation,
        });
        facts.address = view.address().map(|address| Address {
            url: address.url.trim_end_matches('/').to_owned(),
            for_browsers: address.for_browsers,
        });
        if let Some(snapshot) = snapshot {
            (facts.reach, facts.until) = (reach(view.want()), Timestamp::MAX);
            facts.exceptions = exceptions(view, snapshot)?;
        }
        self.registry.set_edge(facts);
        if shows_other {
            let mut streams = Vec::new();
            if let Some(snapshot) = snapshot {
                each_stream(snapshot, |stream| streams.push(StreamKey::of(stream)))?;
            }
            self.registry.set_streams(view.name(), streams);
        }
        Ok(())
    }

    /// Adds answered tiles, and checks whether some of the listed ones are still present.
    fn refresh_tiles(&mut self, snapshot: &Snapshot, answered: Vec<Tile>, have_changed: bool) {
        for tile in answered {
            let key = tile.key();
            if self.tiles.len() >= TILES_MAX || self.tiles.contains_key(&key) {
                continue;
            }
            let part = tile.is_in(snapshot);
            let view = part.and_then(|part| self.edges.get(&part));
            // The edge's entry covers levels that are replicated completely.
            if view.is_some_and(|view| !reach(view.want_of(&tile.stream)).has(tile.level)) {
                self.registry.add_tile(key);
                self.tiles.insert(key, tile);
            }
        }
        if have_changed {
            self.check_tiles(snapshot);
        }
    }

    fn check_tiles(&mut self, snapshot: &Snapshot) {
        let behind = self.tiles.range(self.next_tile..).chain(self.tiles.iter());
        let some = behind.take(TILES_CHECKED.min(self.tiles.len()));
        let mut gone = Vec::new();
        for (key, tile) in some {
            if tile.is_in(snapshot).is_none() {
                gone.push(*key);
            }
            self.next_tile = TileKey(key.0.wrapping_add(1));
        }
        for key in gone {
            self.tiles.remove(&key);
            self.registry.remove_tile(key);
        }
    }
}

fn nothing_of(name: &str) -> EdgeFacts {
    EdgeFacts {
        name: name.to_owned(),
        is_own: false,
        is_connected: false,
        rank: 0,
        database: None,
        address: None,
        reach: Reach::Nothing,
        until: Timestamp::MIN,
        exceptions: Vec::new(),
    }
}

fn reach(want: StreamShare) -> Reach {
    match want {
        StreamShare::Full => Reach::Rows,
        StreamShare::Summaries(level) => Reach::Level(Level::clamped(level)),
        StreamShare::Nothing => Reach::Nothing,
    }
}

/// The level that coverage is queried for; `None` = rows.
fn level(reach: Reach) -> Option<Level> {
    match reach {
        Reach::Level(level) => Some(level),
        Reach::Rows | Reach::Nothing => None,
    }
}

fn each_stream(snapshot: &Snapshot, mut each: impl FnMut(&StreamName)) -> Result<(), ApiError> {
    for table in snapshot.table_names() {
        let mut last: Option<StreamName> = None;
        loop {
            let page = snapshot.streams_after(&table, last.as_ref(), NAMES_AT_ONCE)?;
            page.iter().for_each(&mut each);
            if page.len() < NAMES_AT_ONCE {
                break;
            }
            last = page.into_iter().next_back();
        }
    }
    Ok(())
}

/// Streams with another reach than their edge as a whole.
fn exceptions(view: &EdgeView, snapshot: &Snapshot) -> Result<Vec<Exception>, ApiError> {
    if view.is_current && !view.has_rules() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    each_stream(snapshot, |stream| names.push(stream.clone()))?;
    let mut exceptions = Vec::new();
    for (at, stream) in names.iter().enumerate() {
        let reach_of = reach(view.want_of(stream));
        let until = match () {
            () if view.is_current => Timestamp::MAX,
            () if at < STREAMS_CHECKED => until(snapshot, stream, level(reach_of)),
            () => Timestamp::MIN,
        };
        if reach_of != reach(view.want()) || until != Timestamp::MAX {
            exceptions.push(Exception {
                stream: StreamKey::of(stream),
                reach: reach_of,
                until,
            });
        }
    }
    exceptions.sort_by_key(|exception| exception.stream);
    exceptions.dedup_by_key(|exception| exception.stream);
    Ok(exceptions)
}

/// Instant up to which all of a stream is here.
fn until(snapshot: &Snapshot, stream: &StreamName, level: Option<Level>) -> Timestamp {
    let parts = snapshot.coverage(stream, ClosedRange::ALL, level);
    // Streams that cannot be read are not state to be here.
    let parts = parts.unwrap_or_default();
    let ends = parts
        .iter()
        .map(|part| match part.is_here && !part.is_older {
            true => Timestamp::MAX,
            false => part.until.unwrap_or(Timestamp::MIN),
        });
    ends.min().unwrap_or(Timestamp::MIN)
}
