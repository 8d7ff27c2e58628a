//! Decides which node or edge answers a query about a stream.
//!
//! First choice is a node that has the data: all rows from a level on and up to an instant (the
//! base), or the requested tile (the filter). Otherwise the edge itself, at an address that the
//! client can use, or the node with the edge's connection, which fetches the data. Access is
//! checked before, by names.
//!
//! Invariants: a pure function of tables and query. A query "at the edge" is never answered from a
//! node's copy. Nodes and edges redirect no query, so no query is redirected in a circle. An
//! unknown stream is looked up at a node, since the tables may be older than the stream.
//! Concurrency: none.

use crate::dispatch::inventory::Database;
use crate::dispatch::keys::{Reach, StreamKey};
use crate::dispatch::tables::{Edge, Node, NodeIndex, Tables};
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
    /// This tile is there, but for a false hit in a hundred.
    Filter,
    /// No node has the data: the edge does.
    Edge,
    /// The stream is unknown to the tables; a node may know it by now.
    Unknown,
}

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
                reach.has(level) && last_of_tile(level, offset) <= until
            }
            Question::Rows => reach == Reach::Rows && until == Timestamp::MAX,
            // The newest rows of an edge are at the edge; a node has only the newest rows written
            // to it.
            Question::Live => self.edge.facts.is_own,
        }
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

/// Last instant of a tile; the last of all instants if the tile ends after it.
fn last_of_tile(level: Level, offset: i64) -> Timestamp {
    let buckets = level.tile_buckets(offset);
    let span = buckets.map_or(ClosedRange::ALL, |b| level.span(*b.start(), *b.end()));
    span.last
}

impl Tables {
    fn found(&self, stream: StreamKey) -> Vec<NodeMatch<'_>> {
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

    /// Answering node that knows the most edges, for queries that do not name a stream, and the
    /// names of the edges that only other nodes know.
    #[must_use]
    pub fn widest(&self) -> Option<(NodeIndex, Vec<String>)> {
        let nodes = self.nodes.iter().enumerate();
        let live = nodes.filter(|(_, node)| node.is_live && node.has_told);
        let (at, widest) = live.max_by_key(|(at, node)| (node.edges().count(), Reverse(*at)))?;
        let names = |node: &Node| -> Vec<String> {
            let edges = node.edges().filter(|edge| !edge.facts.is_own);
            edges.map(|edge| edge.facts.name.clone()).collect()
        };
        let known = names(widest);
        let others = self.nodes.iter().flat_map(names);
        let mut elsewhere: Vec<String> = others.filter(|name| !known.contains(name)).collect();
        elsewhere.sort_unstable();
        elsewhere.dedup();
        Some((NodeIndex(at), elsewhere))
    }

    /// The nodes that answer, in the order of the list.
    pub fn live(&self) -> impl Iterator<Item = NodeIndex> {
        let nodes = self.nodes.iter().enumerate();
        let live = nodes.filter(|(_, node)| node.is_live && node.has_told);
        live.map(|(at, _)| NodeIndex(at))
    }

    /// Preferred node for a stream, if a node knows the stream.
    #[must_use]
    pub fn node_of(&self, stream: StreamKey) -> Option<NodeIndex> {
        self.found(stream).first().map(|found| found.index)
    }

    /// Route of a query about a stream that no node has reported: to a node that may know it by
    /// now; nowhere while a node has not reported yet, since that node may have the stream.
    #[must_use]
    pub fn unknown(&self) -> Decision {
        let all_have_told = self.nodes.iter().all(|node| node.has_told);
        match self.widest().filter(|_| all_have_told) {
            Some((node, _)) => Decision::Node {
                node,
                fetches: false,
                why: Why::Unknown,
            },
            None => Decision::Nowhere { edge: None },
        }
    }

    /// Where a question about a stream is answered.
    #[must_use]
    pub fn place(&self, stream: StreamKey, question: Question, at: At, client: Client) -> Decision {
        let found = self.found(stream);
        let Some(first) = found.first() else {
            return self.unknown();
        };
        let live = || found.iter().filter(|found| found.node.is_live);
        if at != At::Edge {
            if let Some(has) = live().find(|found| found.has_base(stream, question)) {
                return has.at_node(Why::Base);
            }
            if let Question::Tile { level, offset } = question {
                let key = stream.tile(level, offset);
                if let Some(has) = live().find(|found| found.node.tiles.has(key)) {
                    return has.at_node(Why::Filter);
                }
            }
        }
        let itself = found.iter().find_map(|found| found.at_edge(client));
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
