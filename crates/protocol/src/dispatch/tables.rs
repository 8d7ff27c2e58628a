//! State of a dispatcher: applies the inventories that nodes report, and looks up streams.
//!
//! Invariants: as [`crate::dispatch::nodes`] for each node; the coverage is that of the nodes as
//! they are. Concurrency: plain data, one owner.

use crate::dispatch::coverage::{Coverage, coverage};
use crate::dispatch::inventory::{Database, InventoryReport};
use crate::dispatch::nodes::{Applied, Node, NodeIndex, NodeStats, Position};
use headwater_types::Timestamp;
use std::sync::Arc;

/// State of a dispatcher's nodes.
#[derive(Debug)]
pub struct Tables {
    pub(crate) nodes: Vec<Node>,
    coverage: Arc<Coverage>,
}

impl Tables {
    /// Creates empty tables of `nodes` nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Tables {
        let nodes: Vec<Node> = (0..nodes).map(|_| Node::default()).collect();
        Tables {
            coverage: Arc::new(coverage(&nodes)),
            nodes,
        }
    }

    /// Version up to which a node has reported, and from which its next report continues.
    #[must_use]
    pub fn position(&self, node: NodeIndex) -> Position {
        self.nodes
            .get(node.0)
            .map_or_else(Position::default, |node| node.position)
    }

    /// Applies an inventory reported by a node, and records that the node answers.
    pub fn apply(&mut self, node: NodeIndex, held: InventoryReport) -> Applied {
        let Some(node) = self.nodes.get_mut(node.0) else {
            return Applied::DoesNotFollow;
        };
        node.is_live = true;
        let applied = node.apply(held);
        if applied == Applied::DoesNotFollow {
            // The state is unchanged, and the whole inventory is requested again.
            node.position = Position::default();
        }
        self.coverage = Arc::new(coverage(&self.nodes));
        applied
    }

    /// Records that a node does not answer. Its state is unchanged.
    pub fn lost(&mut self, node: NodeIndex, now: Timestamp) {
        let is_new = self
            .nodes
            .get_mut(node.0)
            .is_some_and(|node| node.lose(now));
        if is_new {
            self.coverage = Arc::new(coverage(&self.nodes));
        }
    }

    /// Coverage of queries about everything, as of the last report or loss.
    #[must_use]
    pub fn coverage(&self) -> &Arc<Coverage> {
        &self.coverage
    }

    /// A node's own database, once it has reported.
    #[must_use]
    pub fn database(&self, node: NodeIndex) -> Option<Database> {
        let node = self.nodes.get(node.0)?;
        node.has_reported.then_some(node.database)
    }

    /// True when two of these nodes have a stream of the same name.
    #[must_use]
    pub fn share_streams(&self, nodes: &[NodeIndex]) -> bool {
        let known: Vec<&Node> = nodes.iter().filter_map(|at| self.nodes.get(at.0)).collect();
        let pairs = known.iter().enumerate();
        let mut pairs =
            pairs.flat_map(|(at, one)| known.iter().skip(at + 1).map(move |b| (one, b)));
        pairs.any(|(one, other)| one.shares_streams_with(other))
    }

    /// Stats of a node.
    #[must_use]
    pub fn stats(&self, node: NodeIndex) -> Option<NodeStats> {
        self.nodes.get(node.0).map(Node::stats)
    }
}
