//! State of one node, as it reports: its edges, their streams and its single tiles.
//!
//! Invariants: the state is the node's inventory at one version of one epoch; a message that does
//! not follow changes nothing. A lookup returns the lowest-ranked of the node's edges with a
//! stream, whatever the order of reports. Concurrency: plain data, one owner.

use crate::dispatch::inventory::{Change, Database, EdgeFacts, InventoryReport, Span};
use crate::dispatch::keys::{Reach, StreamKey};
use crate::dispatch::tiles::TileSet;
use headwater_types::{ClosedRange, Timestamp};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A node, by its place in the dispatcher's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub usize);

/// Version up to which a node has reported its inventory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch.
    pub epoch: u64,
    /// The version; 0 = no inventory yet.
    pub version: u64,
}

/// Result of applying a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The message was applied.
    Applied,
    /// The message does not follow the known version: it was ignored.
    DoesNotFollow,
}

/// An edge of a node.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) facts: EdgeFacts,
    streams: Vec<StreamKey>,
    spans: Vec<Span>,
}

impl Edge {
    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Reach of a stream: the level from which on and the instant up to which it is complete.
    pub(crate) fn reach(&self, stream: StreamKey) -> (Reach, Timestamp) {
        let facts = &self.facts;
        let found = facts
            .exceptions
            .binary_search_by_key(&stream, |exception| exception.stream);
        let exception = found.ok().and_then(|at| facts.exceptions.get(at));
        exception.map_or((facts.reach, facts.until), |e| (e.reach, e.until))
    }

    /// Whether a span of a stream has a whole range, for queries that a reach answers.
    pub(crate) fn has_span(
        &self,
        stream: StreamKey,
        range: ClosedRange,
        answers: impl Fn(Reach) -> bool,
    ) -> bool {
        let first = self.spans.partition_point(|span| span.stream < stream);
        let spans = self.spans.iter().skip(first);
        let mut own = spans.take_while(|span| span.stream == stream);
        own.any(|span| answers(span.reach) && span.range.intersect(&range) == range)
    }
}

/// A node with its edges and tiles.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) database: Database,
    pub(crate) is_live: bool,
    /// The node has reported its inventory at least once.
    pub(crate) has_reported: bool,
    /// Since when the node does not answer, once that was recorded.
    lost: Option<Timestamp>,
    edges: HashMap<u32, Edge>,
    streams: HashMap<StreamKey, u32>,
    /// Streams that several edges have.
    shared: HashSet<StreamKey>,
    pub(crate) tiles: TileSet,
    /// Requests that the node was working on at its newest report.
    pub(crate) load: u32,
}

/// Stats of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStats {
    /// The node answers.
    pub is_live: bool,
    /// Version up to which it has reported.
    pub position: Position,
    /// Number of edges with data on the node, its own streams included.
    pub edges: usize,
    /// Number of edges connected to the node.
    pub connected: usize,
    /// Streams of all of them.
    pub streams: usize,
    /// Single tiles.
    pub tiles: u64,
    /// Bytes of the filters and keys of single tiles.
    pub tile_bytes: usize,
    /// Requests that the node was working on at its newest report.
    pub load: u32,
}

impl Node {
    /// True when another node has a stream of the same name.
    pub(crate) fn shares_streams_with(&self, other: &Node) -> bool {
        let (few, many) = match self.streams.len() < other.streams.len() {
            true => (&self.streams, &other.streams),
            false => (&other.streams, &self.streams),
        };
        few.keys().any(|stream| many.contains_key(stream))
    }

    /// Records that the node does not answer; true if that is new.
    pub(crate) fn lose(&mut self, now: Timestamp) -> bool {
        let is_new = self.is_live || self.lost.is_none();
        if is_new {
            (self.is_live, self.lost) = (false, Some(now));
        }
        is_new
    }

    /// Stats of the node.
    pub(crate) fn stats(&self) -> NodeStats {
        NodeStats {
            is_live: self.is_live,
            position: self.position,
            edges: self.edges.len(),
            connected: self.edges().filter(|e| e.facts.is_connected).count(),
            streams: self.streams.len(),
            tiles: self.tiles.len(),
            tile_bytes: self.tiles.bytes(),
            load: self.load,
        }
    }

    pub(crate) fn edge_of(&self, stream: StreamKey) -> Option<&Edge> {
        let number = self.streams.get(&stream)?;
        self.edges.get(number)
    }

    /// Since when the node does not answer; `None` while it does.
    pub(crate) fn lost_since(&self) -> Option<Timestamp> {
        self.lost.filter(|_| !self.is_live)
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    fn rank(&self, number: u32) -> (u64, u32) {
        let edge = self.edges.get(&number);
        (edge.map_or(u64::MAX, |edge| edge.facts.rank), number)
    }

    /// An edge has a stream.
    fn add(&mut self, stream: StreamKey, number: u32) {
        let rank = self.rank(number);
        let before = match self.streams.entry(stream) {
            Entry::Vacant(place) => {
                place.insert(number);
                return;
            }
            Entry::Occupied(place) => *place.get(),
        };
        if before != number {
            self.shared.insert(stream);
            if rank < self.rank(before) {
                self.streams.insert(stream, number);
            }
        }
    }

    /// Removes a stream of an edge; the next edge with the stream replaces it.
    fn remove(&mut self, stream: StreamKey, number: u32) {
        if !self.shared.contains(&stream) {
            self.streams.remove(&stream);
            return;
        }
        let others: Vec<u32> = self
            .edges
            .iter()
            .filter(|(other, edge)| {
                **other != number && edge.streams.binary_search(&stream).is_ok()
            })
            .map(|(other, _)| *other)
            .collect();
        if others.len() < 2 {
            self.shared.remove(&stream);
        }
        match others.into_iter().min_by_key(|other| self.rank(*other)) {
            Some(next) => self.streams.insert(stream, next),
            None => self.streams.remove(&stream),
        };
    }

    /// Removes an edge with its streams.
    fn remove_edge(&mut self, number: u32) {
        if let Some(edge) = self.edges.remove(&number) {
            for stream in edge.streams {
                self.remove(stream, number);
            }
        }
    }

    fn set_spans(&mut self, number: u32, spans: Option<Vec<Span>>) {
        if let Some((edge, spans)) = self.edges.get_mut(&number).zip(spans) {
            edge.spans = spans;
        }
    }

    fn set_edge(&mut self, number: u32, facts: EdgeFacts, streams: Option<Vec<StreamKey>>) {
        let before = self.edges.get(&number);
        let is_rank_other = before.is_some_and(|edge| edge.facts.rank != facts.rank);
        if streams.is_none()
            && !is_rank_other
            && let Some(edge) = self.edges.get_mut(&number)
        {
            edge.facts = facts;
            return;
        }
        let before = self.edges.get(&number);
        let kept = before.map(|edge| edge.streams.clone()).unwrap_or_default();
        let spans = before.map(|edge| edge.spans.clone()).unwrap_or_default();
        let streams = streams.unwrap_or_else(|| kept.clone());
        // Remaining streams need no lookup, unless they may belong to another edge now.
        let stays: BTreeSet<StreamKey> = match is_rank_other {
            true => BTreeSet::new(),
            false => {
                let is_kept = |stream: &StreamKey| kept.binary_search(stream).is_ok();
                streams.iter().copied().filter(is_kept).collect()
            }
        };
        self.edges.insert(
            number,
            Edge {
                facts,
                streams: streams.clone(),
                spans,
            },
        );
        for stream in kept.into_iter().filter(|stream| !stays.contains(stream)) {
            self.remove(stream, number);
        }
        for stream in streams.into_iter().filter(|stream| !stays.contains(stream)) {
            self.add(stream, number);
        }
    }

    pub(crate) fn apply(&mut self, held: InventoryReport) -> Applied {
        let follows = held.since == 0
            || (held.epoch == self.position.epoch && held.since == self.position.version);
        if !follows || held.version < held.since {
            return Applied::DoesNotFollow;
        }
        if held.since == 0 {
            let fresh = Node {
                is_live: self.is_live,
                has_reported: true,
                ..Node::default()
            };
            let before = std::mem::replace(self, fresh);
            if !self.tiles.change(held.shard_bits, held.shards) {
                *self = before;
                return Applied::DoesNotFollow;
            }
        } else if !self.tiles.change(held.shard_bits, held.shards) {
            return Applied::DoesNotFollow;
        }
        for (number, change) in held.edges {
            match change {
                Change::Removed => self.remove_edge(number),
                Change::State {
                    facts,
                    streams,
                    spans,
                } => {
                    self.set_edge(number, facts, streams);
                    self.set_spans(number, spans);
                }
            }
        }
        let before = self.position.version;
        assert!(before <= held.version, "a version before {before}");
        self.database = held.database;
        self.load = held.load;
        self.position = Position {
            epoch: held.epoch,
            version: held.version,
        };
        Applied::Applied
    }
}
