//! What this node holds, for dispatchers: kept up to date when one of them asks.
//!
//! Purpose: a registry (`headwater_protocol::dispatch`) of the node's own streams, of its edges with
//! theirs, and of single tiles below the levels of which everything is here: those that were
//! answered.
//!
//! Invariants: nothing is told to be here that a look at the copy did not find here; what goes
//! later is found gone later, and until then costs whoever is sent here a question. What nobody
//! asks for is not looked at.
//! Concurrency: one look at a time, at most every [`LOOK`], away from the runtime; tiles that were
//! answered wait in a list that is never long.
//! Failure: an edge whose copy cannot be read is told of without streams.

use crate::error::ApiError;
use headwater::{ClosedRange, Level, Snapshot, StreamName, Timestamp};
use headwater_fleet::{EdgeView, Fleet, OWN, Want};
use headwater_io::Env;
use headwater_protocol::dispatch::{
    Address, Database, EdgeFacts, Exception, Held, Reach, Registry, StreamKey, TileKey,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often something is looked at, at most.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Names looked at together.
const NAMES_AT_ONCE: usize = 4_096;
/// Of so many streams of an edge that is behind it is told up to when each is here.
const STREAMS_LOOKED_AT: usize = 2_000;
/// Tiles that were answered and wait to be told of.
const ANSWERED_MAX: usize = 4_096;
/// Single tiles that are told of.
const TILES_MAX: usize = 1 << 20;
/// Single tiles of which it is looked whether they are still here, each time.
const TILES_LOOKED_AT: usize = 512;

/// A tile that was answered.
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

    /// The part that has all of it, if one has.
    fn is_in(&self, snapshot: &Snapshot) -> Option<String> {
        let range = self.range()?;
        let found = snapshot.coverage(&self.stream, range, Some(self.level));
        let parts = found.ok()?;
        let is_here = parts.iter().all(|part| part.is_here && !part.is_older);
        let part = parts.first().filter(|_| is_here)?.part.as_deref()?;
        Some(part.to_owned())
    }
}

/// What was found at the last look.
#[derive(Debug)]
struct Known {
    registry: Registry,
    looked: Option<Duration>,
    /// Of the node's own database.
    definitions: Option<u64>,
    edges: HashMap<String, EdgeView>,
    tiles: BTreeMap<TileKey, Tile>,
    /// Where the next look at tiles begins.
    next_tile: TileKey,
}

/// What this node holds.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    known: Mutex<Option<Known>>,
    /// Whether a dispatcher has asked.
    is_asked: AtomicBool,
    answered: Mutex<Vec<Tile>>,
}

impl Holdings {
    /// Takes note of a tile that was answered from copies.
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

/// What there is to be looked at.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// The node's own database.
    pub(crate) db: &'a headwater::Database,
    /// The edges of a cloud node.
    pub(crate) fleet: Option<&'a Fleet>,
    pub(crate) env: &'a Env,
}

impl Holdings {
    /// What has changed since a version of an epoch.
    pub(crate) fn since(
        &self,
        sources: Sources<'_>,
        epoch: u64,
        version: u64,
    ) -> Result<Held, ApiError> {
        self.looked_at(sources, |registry| registry.since(epoch, version))
    }

    /// Which database this is, the epoch, and the newest version of what is held.
    pub(crate) fn newest(&self, sources: Sources<'_>) -> Result<(Database, u64, u64), ApiError> {
        self.looked_at(sources, |registry| {
            let (epoch, version) = (registry.epoch(), registry.version());
            // Nothing has changed since: which database it is, and no more.
            (registry.since(epoch, version).database, epoch, version)
        })
    }

    fn looked_at<T>(
        &self,
        sources: Sources<'_>,
        tell: impl FnOnce(&Registry) -> T,
    ) -> Result<T, ApiError> {
        self.is_asked.store(true, Ordering::Relaxed);
        let mut known = self.known.lock();
        let known = match &mut *known {
            Some(known) => known,
            none => none.insert(Known::begin(sources)?),
        };
        let clock = &sources.env.clock;
        let now = clock.monotonic();
        if known.looked.is_none_or(|at| now >= at + LOOK) {
            let answered = std::mem::take(&mut *self.answered.lock());
            known.look(sources, answered)?;
            known.registry.settle();
            known.looked = Some(clock.monotonic());
        }
        Ok(tell(&known.registry))
    }
}

impl Known {
    fn begin(sources: Sources<'_>) -> Result<Known, ApiError> {
        let (identity, incarnation) = headwater_fleet::database_of(sources.db)?;
        let database = Database {
            identity,
            incarnation,
        };
        Ok(Known {
            registry: Registry::new(database, sources.env.chance.next_u64()),
            looked: None,
            definitions: None,
            edges: HashMap::new(),
            tiles: BTreeMap::new(),
            next_tile: TileKey(0),
        })
    }

    fn look(&mut self, sources: Sources<'_>, answered: Vec<Tile>) -> Result<(), ApiError> {
        let own = sources.db.snapshot()?;
        self.look_at_own(&own)?;
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
                Ok(snapshot) => self.look_at(&view, snapshot.as_ref(), shows_other)?,
                Err(error) => {
                    tracing::warn!(edge = view.name(), %error, "nothing is told of a copy that cannot be read");
                    self.look_at(&view, None, true)?;
                }
            }
            self.edges.insert(view.name().to_owned(), view);
        }
        let may_be_gone = have_changed && !self.tiles.is_empty();
        if answered.is_empty() && !may_be_gone {
            return Ok(());
        }
        self.look_at_tiles(&fleet.across(own)?, answered, have_changed);
        Ok(())
    }

    fn look_at_own(&mut self, snapshot: &Snapshot) -> Result<(), ApiError> {
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

    fn look_at(
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

    /// Tells of tiles that were answered, and looks whether some of those told of are still here.
    fn look_at_tiles(&mut self, snapshot: &Snapshot, answered: Vec<Tile>, have_changed: bool) {
        for tile in answered {
            let key = tile.key();
            if self.tiles.len() >= TILES_MAX || self.tiles.contains_key(&key) {
                continue;
            }
            let part = tile.is_in(snapshot);
            let view = part.and_then(|part| self.edges.get(&part));
            // Of the levels of which everything is wanted the edge tells.
            if view.is_some_and(|view| !reach(view.want_of(&tile.stream)).has(tile.level)) {
                self.registry.add_tile(key);
                self.tiles.insert(key, tile);
            }
        }
        if have_changed {
            self.look_at_some(snapshot);
        }
    }

    fn look_at_some(&mut self, snapshot: &Snapshot) {
        let behind = self.tiles.range(self.next_tile..).chain(self.tiles.iter());
        let some = behind.take(TILES_LOOKED_AT.min(self.tiles.len()));
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

fn reach(want: Want) -> Reach {
    match want {
        Want::Full => Reach::Rows,
        Want::Summaries(level) => Reach::Level(Level::clamped(level)),
        Want::Nothing => Reach::Nothing,
    }
}

/// The level that coverage is asked for; `None` = rows.
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

/// Streams of which something else is here than of their edge as a whole.
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
            () if at < STREAMS_LOOKED_AT => until(snapshot, stream, level(reach_of)),
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

/// Up to when all of a stream is here.
fn until(snapshot: &Snapshot, stream: &StreamName, level: Option<Level>) -> Timestamp {
    let parts = snapshot.coverage(stream, ClosedRange::ALL, level);
    // What cannot be looked at is not known to be here.
    let parts = parts.unwrap_or_default();
    let ends = parts
        .iter()
        .map(|part| match part.is_here && !part.is_older {
            true => Timestamp::MAX,
            false => part.until.unwrap_or(Timestamp::MIN),
        });
    ends.min().unwrap_or(Timestamp::MIN)
}
