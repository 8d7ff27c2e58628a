//! Inventory of this node, for dispatchers: refreshed when a dispatcher requests it.
//!
//! Purpose: a registry (`headwater_protocol::dispatch`) of the node's own streams, of its edges
//! with theirs, of stretches with more than is subscribed (`spans`), and of answered tiles below
//! the levels that are complete here.
//!
//! Invariants: the inventory lists only data that a refresh found in the copy; data that is removed
//! later disappears at a later refresh, and until then costs a redirected client one query. The
//! inventory is refreshed only on requests of dispatchers. Concurrency: one refresh at a time, at
//! most every [`REFRESH_EVERY`], away from the runtime; answered tiles wait in a short list.
//! Failure: an edge whose copy cannot be read is listed without streams.

mod spans;

pub use spans::{Stretch, spans};

use crate::{EdgeCopies, EdgeView, OWN, StreamShare};
use headwater_engine::{Error, Snapshot};
use headwater_io::Env;
use headwater_protocol::dispatch::{
    Address, Database, EdgeFacts, Exception, InventoryReport, Reach, Registry, Span, StreamKey,
    TileKey,
};
use headwater_types::{ClosedRange, Level, StreamName, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Header with the key that a dispatcher signs tickets with.
pub const TICKET_KEY: &str = "x-headwater-ticket-key";
/// Header with the tokens revoked recently, from a dispatcher.
pub const REVOKED: &str = "x-headwater-revoked";
/// Header with the key that a node signs notices with, where a broker carries them.
pub const NOTICE_KEY: &str = "x-headwater-notice-key";
/// Shortest time between two refreshes.
pub const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Names read at once.
const NAMES_AT_ONCE: usize = 4_096;
/// Streams of an edge for which the inventory reports up to when each is present, and its spans.
const STREAMS_CHECKED: usize = 2_000;
/// Coverages of streams that a refresh computes: the other streams keep what an earlier one found.
const CHECKED_AT_ONCE: usize = 500;
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
    /// Checks of the streams of outdated edges.
    checked: HashMap<String, CheckedStreams<Timestamp>>,
    /// Spans of the streams of edges of which more than the subscribed data is here.
    spans: HashMap<String, CheckedStreams<Vec<Stretch>>>,
    /// First edge of the next refresh.
    next_edge: String,
    tiles: BTreeMap<TileKey, Tile>,
    /// First tile of the next check.
    next_tile: TileKey,
}

/// Inventory of this node.
#[derive(Debug, Default)]
pub struct Inventory {
    state: Mutex<Option<InventoryState>>,
    /// True after the first request of a dispatcher.
    is_requested: AtomicBool,
    answered: Mutex<Vec<Tile>>,
}

impl Inventory {
    /// Records a tile that was answered from copies.
    pub fn answered(&self, stream: &StreamName, level: Level, offset: i64) {
        if !self.is_requested.load(Ordering::Relaxed) {
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
pub struct Sources<'a> {
    /// The node's own database.
    pub db: &'a headwater_engine::Database,
    /// The edges of a cloud node.
    pub fleet: Option<&'a EdgeCopies>,
    /// Clocks of the node.
    pub env: &'a Env,
}

impl Inventory {
    /// Changes since a version of an epoch.
    pub fn since(
        &self,
        sources: Sources<'_>,
        epoch: u64,
        version: u64,
    ) -> Result<InventoryReport, Error> {
        self.refreshed(sources, |registry| registry.since(epoch, version))
    }

    /// Identity of the database, the epoch, and the newest version of the inventory.
    pub fn newest(&self, sources: Sources<'_>) -> Result<(Database, u64, u64), Error> {
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
    ) -> Result<T, Error> {
        self.is_requested.store(true, Ordering::Relaxed);
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
    fn begin(sources: Sources<'_>) -> Result<InventoryState, Error> {
        let (identity, incarnation) = crate::database_of(sources.db)?;
        let database = Database {
            identity,
            incarnation,
        };
        Ok(InventoryState {
            registry: Registry::new(database, sources.env.chance.next_u64()),
            refreshed: None,
            definitions: None,
            edges: HashMap::new(),
            checked: HashMap::new(),
            spans: HashMap::new(),
            next_edge: String::new(),
            tiles: BTreeMap::new(),
            next_tile: TileKey(0),
        })
    }

    fn refresh(&mut self, sources: Sources<'_>, answered: Vec<Tile>) -> Result<(), Error> {
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
            self.checked.remove(name);
            self.spans.remove(name);
        }
        let mut have_changed = false;
        let mut budget = CHECKED_AT_ONCE;
        let begin = views.partition_point(|view| view.name() < self.next_edge.as_str());
        let mut views = views;
        views.rotate_left(begin);
        for view in views {
            let before = self.edges.get(view.name());
            let checked = self.checked.get(view.name());
            let is_checked = checked.is_none_or(|checked| checked.unchecked == 0);
            let spans = self.spans.get(view.name());
            let is_checked = is_checked && spans.is_none_or(|spans| spans.unchecked == 0);
            if before == Some(&view) && is_checked {
                continue;
            }
            if budget > 0 {
                view.name().clone_into(&mut self.next_edge);
            }
            let is_same =
                |before: &EdgeView| before.changes == view.changes && before.tags() == view.tags();
            let shows_other = !before.is_some_and(is_same);
            have_changed |= shows_other;
            let has_come = before.is_none_or(|before| before.bytes != view.bytes) || shows_other;
            match fleet.shown_of_edge(view.name()) {
                Ok(snapshot) => {
                    self.refresh_edge(&view, snapshot.as_ref(), shows_other, &mut budget)?;
                    let has_more = fleet.may_have_more(&view);
                    let snapshot = snapshot.as_ref().filter(|_| has_more);
                    self.refresh_spans(&view, snapshot, has_come, &mut budget)?;
                }
                Err(error) => {
                    tracing::warn!(edge = view.name(), %error, "a copy that cannot be read is listed without streams");
                    self.refresh_edge(&view, None, true, &mut budget)?;
                    self.refresh_spans(&view, None, true, &mut budget)?;
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

    fn refresh_own(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let definitions = snapshot.definitions();
        if definitions.is_some() && definitions == self.definitions {
            return Ok(());
        }
        let mut facts = empty_facts(OWN);
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
        budget: &mut usize,
    ) -> Result<(), Error> {
        let mut facts = empty_facts(view.name());
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
            (facts.reach, facts.until) = (reach(view.share()), usual_until(view));
            let mut checked = self.checked.remove(view.name()).unwrap_or_default();
            facts.exceptions = exceptions(view, snapshot, &mut checked, budget, shows_other)?;
            if !view.is_current {
                self.checked.insert(view.name().to_owned(), checked);
            }
        }
        self.registry.set_edge(facts);
        if shows_other {
            let mut streams = Vec::new();
            if let Some(snapshot) = snapshot {
                let tags = view.tags();
                each_stream(snapshot, |own| {
                    streams.push(StreamKey::of(&tags.shown(own)));
                })?;
            }
            self.registry.set_streams(view.name(), streams);
        }
        Ok(())
    }

    /// Examines streams of a copy of which more than the subscribed data is here.
    fn refresh_spans(
        &mut self,
        view: &EdgeView,
        snapshot: Option<&Snapshot>,
        has_changed: bool,
        budget: &mut usize,
    ) -> Result<(), Error> {
        let Some(snapshot) = snapshot else {
            if self.spans.remove(view.name()).is_some() {
                self.registry.set_spans(view.name(), Vec::new());
            }
            return Ok(());
        };
        let mut names = Vec::new();
        first_streams(snapshot, STREAMS_CHECKED, |stream| {
            names.push(stream.clone());
        })?;
        let (begins, checked) = match self.spans.remove(view.name()) {
            Some(checked) => (false, checked),
            None => (true, CheckedStreams::default()),
        };
        let mut checked = checked;
        if has_changed || begins {
            checked.unchecked = usize::MAX;
        }
        checked.check(&names, budget, |stream, budget| {
            let reach = reach(view.want_of(stream));
            let (found, used) = spans(snapshot, stream, (reach, view.is_current));
            *budget = budget.saturating_sub(used);
            found
        });
        let tags = view.tags();
        let all = names.iter().flat_map(|own| {
            let found = checked.found.get(&StreamKey::of(own));
            let stream = StreamKey::of(&tags.shown(own));
            let spans = found.into_iter().flatten();
            spans.map(move |(reach, range)| Span {
                stream,
                reach: *reach,
                range: *range,
            })
        });
        self.registry.set_spans(view.name(), all.collect());
        self.spans.insert(view.name().to_owned(), checked);
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
            let want = view.and_then(|view| {
                let own = view.tags().own(&tile.stream)?;
                Some(view.want_of(&own))
            });
            if want.is_some_and(|want| !reach(want).has(tile.level)) {
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

fn empty_facts(name: &str) -> EdgeFacts {
    EdgeFacts {
        name: name.to_owned(),
        is_own: false,
        is_connected: false,
        rank: 0,
        database: None,
        address: None,
        reach: Reach::None,
        until: Timestamp::MIN,
        exceptions: Vec::new(),
    }
}

fn reach(want: StreamShare) -> Reach {
    match want {
        StreamShare::Full => Reach::Rows,
        StreamShare::Summaries(level) => Reach::Level(Level::clamped(level)),
        StreamShare::Nothing => Reach::None,
    }
}

/// The level that coverage is queried for; `None` = rows.
fn level(reach: Reach) -> Option<Level> {
    match reach {
        Reach::Level(level) => Some(level),
        Reach::Rows | Reach::None => None,
    }
}

fn each_stream(snapshot: &Snapshot, each: impl FnMut(&StreamName)) -> Result<(), Error> {
    first_streams(snapshot, usize::MAX, each)
}

/// Calls for the first `most` streams.
fn first_streams(
    snapshot: &Snapshot,
    most: usize,
    mut each: impl FnMut(&StreamName),
) -> Result<(), Error> {
    let mut left = most;
    for table in snapshot.table_names() {
        let mut last: Option<StreamName> = None;
        loop {
            let count = NAMES_AT_ONCE.min(left);
            let page = snapshot.streams_after(&table, last.as_ref(), count)?;
            page.iter().for_each(&mut each);
            left -= page.len().min(left);
            if left == 0 {
                return Ok(());
            }
            if page.len() < count {
                break;
            }
            last = page.into_iter().next_back();
        }
    }
    Ok(())
}

/// Findings about streams of an edge, as the newest checks made them.
#[derive(Debug)]
struct CheckedStreams<T> {
    found: HashMap<StreamKey, T>,
    /// Position of the next check.
    next: usize,
    /// Streams that were not checked since the edge's last change.
    unchecked: usize,
}

impl<T> Default for CheckedStreams<T> {
    fn default() -> CheckedStreams<T> {
        CheckedStreams {
            found: HashMap::new(),
            next: 0,
            unchecked: 0,
        }
    }
}

impl<T> CheckedStreams<T> {
    /// Checks further streams of those with these names, within the budget, which each of them
    /// reduces by one, and the check by more.
    fn check(
        &mut self,
        names: &[StreamName],
        budget: &mut usize,
        check: impl Fn(&StreamName, &mut usize) -> T,
    ) {
        if self.found.len() > names.len() {
            // Some of them are gone.
            self.found.clear();
            self.unchecked = names.len();
        }
        self.unchecked = self.unchecked.min(names.len());
        while self.unchecked > 0 && *budget > 0 {
            let Some(stream) = names.get(self.next) else {
                self.next = 0;
                continue;
            };
            *budget -= 1;
            self.found
                .insert(StreamKey::of(stream), check(stream, budget));
            self.next += 1;
            self.unchecked -= 1;
        }
    }
}

/// Instant up to which streams without an exception are here.
fn usual_until(view: &EdgeView) -> Timestamp {
    match view.is_current {
        true => Timestamp::MAX,
        false => Timestamp::MIN,
    }
}

/// Streams with another reach than their edge as a whole.
fn exceptions(
    view: &EdgeView,
    snapshot: &Snapshot,
    checked: &mut CheckedStreams<Timestamp>,
    budget: &mut usize,
    has_changed: bool,
) -> Result<Vec<Exception>, Error> {
    if view.is_current && !view.has_rules() {
        return Ok(Vec::new());
    }
    let most = match view.has_rules() {
        true => usize::MAX,
        // The others are like the edge as a whole.
        false => STREAMS_CHECKED,
    };
    let mut names = Vec::new();
    first_streams(snapshot, most, |stream| names.push(stream.clone()))?;
    if !view.is_current {
        if has_changed {
            checked.unchecked = usize::MAX;
        }
        let first = names.get(..STREAMS_CHECKED).unwrap_or(&names);
        checked.check(first, budget, |stream, _| {
            until(snapshot, stream, level(reach(view.want_of(stream))))
        });
    }
    let (mut exceptions, tags) = (Vec::new(), view.tags());
    for stream in &names {
        let key = StreamKey::of(stream);
        let reach_of = reach(view.want_of(stream));
        let until = match view.is_current {
            true => Timestamp::MAX,
            false => checked.found.get(&key).copied().unwrap_or(Timestamp::MIN),
        };
        if reach_of != reach(view.share()) || until != usual_until(view) {
            exceptions.push(Exception {
                stream: StreamKey::of(&tags.shown(stream)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_refresh_checks_a_bounded_number_of_streams_and_the_next_goes_on() {
        let names: Vec<StreamName> = (0..1_200)
            .map(|n| StreamName::new("pump", [("id", format!("{n:04}"))]))
            .collect();
        let mut checked = CheckedStreams {
            unchecked: usize::MAX,
            ..CheckedStreams::default()
        };
        let calls = RefCell::new(BTreeSet::new());
        let mut rounds = 0;
        while checked.unchecked > 0 {
            let before = calls.borrow().len();
            checked.check(&names, &mut CHECKED_AT_ONCE.clone(), |stream, _| {
                calls.borrow_mut().insert(stream.to_string());
                Timestamp::from_nanos(7)
            });
            assert!(calls.borrow().len() - before <= CHECKED_AT_ONCE);
            rounds += 1;
        }
        assert_eq!((rounds, calls.borrow().len()), (3, names.len()));
        // Without a change there is nothing to check, and what was found is kept.
        let mut budget = 10;
        checked.check(&names, &mut budget, |_, _| Timestamp::MIN);
        assert_eq!((budget, checked.found.len()), (10, names.len()));
        // After a change the checks go on where they ended, and two edges share a budget.
        checked.unchecked = usize::MAX;
        checked.check(&names, &mut budget, |_, _| Timestamp::MIN);
        assert_eq!((budget, checked.unchecked), (0, names.len() - 10));
        let older = checked
            .found
            .values()
            .filter(|until| **until != Timestamp::MIN);
        assert_eq!(older.count(), names.len() - 10);
        // Streams that are gone are not remembered.
        let (few, _) = names.split_at(3);
        checked.check(few, &mut 100, |_, _| Timestamp::MAX);
        assert_eq!((checked.found.len(), checked.unchecked), (3, 0));
    }
}
