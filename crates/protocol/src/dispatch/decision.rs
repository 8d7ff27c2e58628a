//! Decides which node or edge answers a query about a stream.
//!
//! First choice is a node that has the data: all rows from a level on and up to an instant (the
//! base), a stretch of which more is present (a span), or the requested tile (the filter).
//! Otherwise the edge itself, at an address that the client can use, while a node that answers has
//! the edge's connection; or that node, which fetches the data. Access is checked before, by names.
//!
//! Of several nodes with the data, each stream has a first: the one with the connection of its
//! edge, whose rows are the newest, else the one that a hash of the stream and the nodes names; and
//! a second, by that hash. The second answers while the first is much busier. So a stream stays at
//! one node, whose caches are warm for it, and every dispatcher chooses the same node.
//!
//! Invariants: a pure function of tables and query. A query "at the edge" is never answered from a
//! node's copy. Nodes and edges redirect no query, so no query is redirected in a circle. An
//! unknown stream is looked up at a node, since the tables may be older than the stream.
//! Concurrency: none.

use crate::dispatch::inventory::Database;
use crate::dispatch::keys::{Reach, StreamKey, mix};
use crate::dispatch::nodes::{Edge, Node, NodeIndex};
use crate::dispatch::tables::Tables;
use headwater_types::{ClosedRange, Level, Timestamp};
use std::cmp::Reverse;

/// Kind of a query about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// A tile.
    Tile {
        /// Level of the tile.
        level: Level,
        /// Number of the tile.
        offset: i64,
    },
    /// Rows, or results computed from rows.
    Rows,
    /// New values, as they are written.
    Live,
}

/// Preference of the client for a node or the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The best available answerer.
    #[default]
    Any,
    /// According to the edge's own data.
    Edge,
    /// At a node.
    Node,
}

/// Properties of the client that decide where it can be redirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Browsers drop their token on a redirect, and another node may refuse them.
    pub is_browser: bool,
}

/// Why a place was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All tiles of that level and time are present at the node.
    Base,
    /// A stretch with the requested data is present at the node.
    Span,
    /// This tile is there, but for a false hit in a hundred.
    Filter,
    /// No node has the data: the edge does.
    Edge,
    /// The stream is unknown to the tables; a node may know it by now.
    Unknown,
}

/// Requests by which a node may be busier than twice another one before that one answers instead.
const LOAD_SLACK: u32 = 8;

/// Where a question is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// At a node.
    Node {
        /// The answering node.
        node: NodeIndex,
        /// The node is to fetch missing ranges from the edge, to which it is connected.
        fetches: bool,
        /// Why there.
        why: Why,
    },
    /// Redirects to the edge itself.
    Edge {
        /// Name of the edge.
        name: String,
        /// Address of the edge.
        url: String,
        /// Which database it is.
        database: Database,
        /// The client cannot be redirected there; the query is relayed.
        is_relayed: bool,
    },
    /// No answer: the nodes and the edge that could answer are unreachable.
    Nowhere {
        /// The edge, if known.
        edge: Option<String>,
    },
}

/// A stream at a node.
#[derive(Clone, Copy)]
struct NodeMatch<'t> {
    index: NodeIndex,
    node: &'t Node,
    edge: &'t Edge,
}

impl NodeMatch<'_> {
    /// Sort key of candidates, best first: it answers, it has the edge's connection, its index is
    /// the lowest.
    fn order(&self) -> (Reverse<bool>, Reverse<bool>, NodeIndex) {
        let facts = &self.edge.facts;
        let has_edge = facts.is_connected || facts.is_own;
        (Reverse(self.node.is_live), Reverse(has_edge), self.index)
    }

    fn has_base(&self, stream: StreamKey, question: Question) -> bool {
        let (reach, until) = self.edge.reach(stream);
        match question {
            Question::Tile { level, offset } => {
                reach.has(level) && range_of_tile(level, offset).last <= until
            }
            Question::Rows => reach == Reach::Rows && until == Timestamp::MAX,
            // The newest rows of an edge are at the edge; a node has only the newest rows written
            // to it.
            Question::Live => self.edge.facts.is_own,
        }
    }

    fn has_span(&self, stream: StreamKey, question: Question) -> bool {
        match question {
            Question::Tile { level, offset } => {
                let range = range_of_tile(level, offset);
                self.edge.has_span(stream, range, |reach| reach.has(level))
            }
            // A query for rows does not tell their range here.
            Question::Rows | Question::Live => false,
        }
    }

    /// Whether this node is much busier than another one.
    fn is_busier(&self, than: &NodeMatch<'_>) -> bool {
        self.node.load > than.node.load.saturating_mul(2).saturating_add(LOAD_SLACK)
    }

    /// Place among the nodes with the data, the same at every dispatcher.
    fn preference(&self, stream: StreamKey) -> Reverse<u64> {
        Reverse(mix(stream.0 ^ mix(self.node.database.identity)))
    }

    fn at_node(&self, why: Why) -> Decision {
        Decision::Node {
            node: self.index,
            fetches: self.edge.facts.is_connected,
            why,
        }
    }

    /// Redirect to the edge itself; for a browser that cannot be redirected, through a request to
    /// the edge.
    fn at_edge(&self, client: Client) -> Option<Decision> {
        let facts = &self.edge.facts;
        let (address, database) = facts.address.as_ref().zip(facts.database)?;
        Some(Decision::Edge {
            name: facts.name.clone(),
            url: address.url.clone(),
            database,
            is_relayed: client.is_browser && !address.for_browsers,
        })
    }
}

/// Range of a tile; all of time for one beyond it.
fn range_of_tile(level: Level, offset: i64) -> ClosedRange {
    let buckets = level.tile_buckets(offset);
    buckets.map_or(ClosedRange::ALL, |b| level.span(*b.start(), *b.end()))
}

/// The node that answers, of the ones with the data: the first of the stream, or its second while
/// the first is much busier.
fn choice<'m, 't>(
    stream: StreamKey,
    having: impl Iterator<Item = &'m NodeMatch<'t>>,
) -> Option<&'m NodeMatch<'t>> {
    let mut having: Vec<&NodeMatch<'_>> = having.collect();
    having.sort_by_key(|found| {
        let (is_live, has_edge, index) = found.order();
        (is_live, has_edge, found.preference(stream), index)
    });
    // The second is chosen by the hash alone, so that the load of a node is shared among all.
    let (first, others) = having.split_first()?;
    let others = others.iter();
    let second = others.min_by_key(|found| (found.preference(stream), found.index));
    match second.filter(|second| first.is_busier(second)) {
        Some(second) => Some(second),
        None => Some(first),
    }
}

impl Tables {
    fn matches(&self, stream: StreamKey) -> Vec<NodeMatch<'_>> {
        let nodes = self.nodes.iter().enumerate();
        let mut all: Vec<NodeMatch<'_>> = nodes
            .filter_map(|(at, node)| {
                Some(NodeMatch {
                    index: NodeIndex(at),
                    node,
                    edge: node.edge_of(stream)?,
                })
            })
            .collect();
        all.sort_by_key(NodeMatch::order);
        all
    }

    /// The nodes that answer, in the order of the list.
    pub fn live(&self) -> impl Iterator<Item = NodeIndex> {
        let nodes = self.nodes.iter().enumerate();
        let live = nodes.filter(|(_, node)| node.is_live && node.has_reported);
        live.map(|(at, _)| NodeIndex(at))
    }

    /// Preferred node for a stream, if a node knows the stream.
    #[must_use]
    pub fn node_of(&self, stream: StreamKey) -> Option<NodeIndex> {
        self.matches(stream).first().map(|found| found.index)
    }

    /// Route of a query about a stream that no node has reported: to a node that may know it by
    /// now; nowhere while a node has not reported yet, since that node may have the stream.
    #[must_use]
    pub fn unknown(&self) -> Decision {
        let all_have_told = self.nodes.iter().all(|node| node.has_reported);
        match self.coverage().node.filter(|_| all_have_told) {
            Some(node) => Decision::Node {
                node,
                fetches: false,
                why: Why::Unknown,
            },
            None => Decision::Nowhere { edge: None },
        }
    }

    /// Where a question about a stream is answered.
    #[must_use]
    pub fn decide(
        &self,
        stream: StreamKey,
        question: Question,
        at: At,
        client: Client,
    ) -> Decision {
        let found = self.matches(stream);
        let Some(first) = found.first() else {
            return self.unknown();
        };
        let live = || found.iter().filter(|found| found.node.is_live);
        if at != At::Edge {
            let based = live().filter(|found| found.has_base(stream, question));
            if let Some(has) = choice(stream, based) {
                return has.at_node(Why::Base);
            }
            let spanned = live().filter(|found| found.has_span(stream, question));
            if let Some(has) = choice(stream, spanned) {
                return has.at_node(Why::Span);
            }
            if let Question::Tile { level, offset } = question {
                let key = stream.tile(level, offset);
                let having = live().filter(|found| found.node.tiles.contains(key));
                if let Some(has) = choice(stream, having) {
                    return has.at_node(Why::Filter);
                }
            }
        }
        // An edge without a connection to any node that answers is taken to be away.
        let is_there = |of: &NodeMatch<'_>| {
            let same = |found: &NodeMatch<'_>| found.edge.facts.database == of.edge.facts.database;
            live().any(|found| found.edge.facts.is_connected && same(found))
        };
        let there = found.iter().filter(|found| is_there(found));
        let itself = there.into_iter().find_map(|found| found.at_edge(client));
        if let Some(place) = itself.filter(|_| at != At::Node) {
            return place;
        }
        let holds =
            |found: &&NodeMatch<'_>| found.edge.facts.is_connected || found.edge.facts.is_own;
        let through = live().find(holds);
        // Without a connection, a node still reports which data is elsewhere.
        let through = through.or_else(|| live().next().filter(|_| at != At::Edge));
        through.map_or_else(
            || Decision::Nowhere {
                edge: Some(first.edge.facts.name.clone()),
            },
            |found| found.at_node(Why::Edge),
        )
    }
}
