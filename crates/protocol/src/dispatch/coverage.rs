//! Coverage of queries about everything: the node that has every database that any node reported,
//! and the databases that it lacks.
//!
//! Invariants: a database is known by its identity and incarnation, however nodes call its edge,
//! and whether that is connected or a closed part; the rows of a node itself are known by its
//! identity. A node that has never reported lacks nothing and covers nothing, and is itself
//! missing: nobody knows its edges. The coverage is computed when a report or a loss changes the
//! tables, never for a query. Concurrency: plain data, one owner.

use crate::dispatch::nodes::{Edge, Node, NodeIndex};
use headwater_types::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A database, or a node, that answers about everything lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Name of the edge at the nodes that have it; `None` for a node's own rows, and for a node
    /// that has never reported.
    pub edge: Option<String>,
    /// Nodes that have it, in the order of the list.
    pub nodes: Vec<NodeIndex>,
    /// Since when none of these nodes answers; `None` while one does.
    pub since: Option<Timestamp>,
}

/// Coverage of queries about everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Answering node with the most databases; `None` without an answering node.
    pub node: Option<NodeIndex>,
    /// Databases that this node lacks.
    pub missing: Vec<Missing>,
    /// Answering nodes of which no two have the same database, that node first: their lists may be
    /// added.
    pub apart: Vec<NodeIndex>,
    /// Databases that these nodes together lack.
    pub missing_apart: Vec<Missing>,
}

impl Coverage {
    /// Whether the node has every known database.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.node.is_some() && self.missing.is_empty()
    }
}

/// Identity and incarnation of a database.
type Identity = (u64, u64);

/// Identity of the database behind an edge of a node, if it has rows that count. The rows of a node
/// itself, of one of these, count in any incarnation: that changes with a restoration.
fn identity(own: &BTreeSet<u64>, node: &Node, edge: &Edge) -> Option<Identity> {
    let database = match edge.facts.is_own {
        true => (edge.has_streams()).then_some(node.database)?,
        false => edge.facts.database?,
    };
    match own.contains(&database.identity) {
        true => Some((database.identity, 0)),
        false => Some((database.identity, database.incarnation)),
    }
}

/// Nodes that have a database, and the name of its edge.
#[derive(Default)]
struct Holders {
    edge: Option<String>,
    nodes: Vec<NodeIndex>,
}

fn since(nodes: &[Node], holders: &[NodeIndex]) -> Option<Timestamp> {
    let holders = holders.iter().filter_map(|at| nodes.get(at.0));
    let lost: Option<Vec<Timestamp>> = holders.map(|node| node.lost_since()).collect();
    lost?.into_iter().max()
}

/// The databases that nodes reported, and those of each node.
fn reported(nodes: &[Node]) -> (BTreeMap<Identity, Holders>, Vec<BTreeSet<Identity>>) {
    let mut databases: BTreeMap<Identity, Holders> = BTreeMap::new();
    let mut of_nodes: Vec<BTreeSet<Identity>> = Vec::new();
    let own: BTreeSet<u64> = nodes.iter().map(|node| node.database.identity).collect();
    for (at, node) in nodes.iter().enumerate() {
        let mut has = BTreeSet::new();
        let known = node
            .edges()
            .filter_map(|edge| Some((identity(&own, node, edge)?, edge)));
        for (identity, edge) in known {
            has.insert(identity);
            let holders = databases.entry(identity).or_default();
            if holders.nodes.last() != Some(&NodeIndex(at)) {
                holders.nodes.push(NodeIndex(at));
            }
            let name = (!edge.facts.is_own).then(|| edge.facts.name.clone());
            // The lowest name, whatever the order of reports.
            holders.edge = [holders.edge.take(), name].into_iter().flatten().min();
        }
        of_nodes.push(has);
    }
    (databases, of_nodes)
}

/// Computes the coverage of all nodes.
pub(crate) fn coverage(nodes: &[Node]) -> Coverage {
    let (databases, of_nodes) = reported(nodes);
    let live = || {
        let all = nodes.iter().zip(&of_nodes).enumerate();
        all.filter(|(_, (node, _))| node.is_live && node.has_reported)
    };
    // Of nodes with as many databases, one with the connections has the newest rows.
    let connected = |node: &Node| node.edges().filter(|e| e.facts.is_connected).count();
    let edges = |node: &Node| node.edges().count();
    let best = live()
        .max_by_key(|(at, (node, has))| (has.len(), connected(node), edges(node), Reverse(*at)));
    let nobody = BTreeSet::new();
    let of_best = best.map_or(&nobody, |(_, (_, has))| has);
    let mut apart: Vec<NodeIndex> = best.iter().map(|(at, _)| NodeIndex(*at)).collect();
    let mut together = of_best.clone();
    for (at, (_, has)) in live() {
        if !has.is_empty() && together.is_disjoint(has) {
            together.extend(has);
            apart.push(NodeIndex(at));
        }
    }
    let unreported = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.has_reported);
    let unreported = unreported.map(|(at, node)| Missing {
        edge: None,
        nodes: vec![NodeIndex(at)],
        since: node.lost_since(),
    });
    let unreported: Vec<Missing> = unreported.collect();
    let without = |has: &BTreeSet<Identity>| -> Vec<Missing> {
        let lacked = databases
            .iter()
            .filter(|(identity, _)| !has.contains(identity));
        let lacked = lacked.map(|(_, holders)| Missing {
            edge: holders.edge.clone(),
            nodes: holders.nodes.clone(),
            since: since(nodes, &holders.nodes),
        });
        let mut all: Vec<Missing> = lacked.chain(unreported.iter().cloned()).collect();
        all.sort_by(|a, b| (&a.edge, &a.nodes).cmp(&(&b.edge, &b.nodes)));
        all
    };
    let coverage = Coverage {
        node: best.map(|(at, _)| NodeIndex(at)),
        missing: without(of_best),
        missing_apart: without(&together),
        apart,
    };
    assert!(
        coverage.missing_apart.len() <= coverage.missing.len(),
        "one node has more than all together"
    );
    coverage
}
