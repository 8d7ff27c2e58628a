//! Roster: the copies of a cloud node, as it tells its peer, which keeps the same edges and closed
//! parts.
//!
//! Invariants: a roster is the state and not a change of it, so that it may be sent again at any
//! time, and only the newest one counts. A copy is known by the node and that node's name of it,
//! which never changes, and by the identity of its database. A copy that is not in a roster stays;
//! only those that it names as removed are deleted. Concurrency: plain data. Format:
//! docs/cluster/peers.md.

use super::list::{RosterRemoved, hexed};
use super::{ClosedPart, ClosedReason, Edge, PeerCopy, Tags};
use crate::subscription::{StreamPattern, StreamShare};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name at the peer of a node.
fn at_peer(name: &str, node: &str) -> String {
    format!("{name}.{node}")
}

/// Identities of nodes; text that is none is replaced by one that no node has.
pub(super) fn unhexed(nodes: &[String]) -> Vec<u64> {
    let nodes = nodes.iter().map(|node| u64::from_str_radix(node, 16));
    nodes.map(|node| node.unwrap_or(u64::MAX)).collect()
}

/// Facts of a closed part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RosterClosed {
    /// Its number.
    pub(crate) number: u64,
    /// Rank among all copies.
    pub(crate) rank: u64,
    /// Name of the edge that goes on in its place, at the peer; missing = none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edge: Option<String>,
    /// When it was closed, in nanoseconds since 1970.
    pub(crate) closed_ns: i64,
    /// Reason why it is closed.
    pub(crate) why: ClosedReason,
}

/// A copy of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RosterCopy {
    /// The node's name of the copy.
    pub(crate) copy: String,
    /// Name of its edge at the peer; of a closed part without its number.
    pub(crate) name: String,
    /// Identity of its database, 16 hexadecimal digits.
    pub(crate) identity: String,
    /// Nodes through which the data has passed, the sending node last, 16 hexadecimal digits each.
    pub(crate) path: Vec<String>,
    /// When its edge was added, in nanoseconds since 1970; missing = of the node's own database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_ns: Option<i64>,
    /// Number of closed parts that came before it.
    #[serde(default)]
    pub(crate) closed_before: u32,
    /// Tags that are added to the names of its streams.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: Tags,
    /// Facts of a closed part; missing = it is the copy of an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) closed: Option<RosterClosed>,
    /// The node has no key for it.
    #[serde(default)]
    pub(crate) needs_key: bool,
}

impl RosterCopy {
    /// The copy of an edge, under its name here and without its path.
    pub(crate) fn of_edge(edge: &Edge, identity: u64) -> RosterCopy {
        RosterCopy {
            copy: edge.folder().to_owned(),
            name: edge.name.clone(),
            identity: hexed(identity),
            path: Vec::new(),
            created_ns: Some(edge.created_ns),
            closed_before: edge.closed_before,
            tags: edge.tags.clone(),
            closed: None,
            needs_key: false,
        }
    }

    /// The copy of a closed part, under the name of its edge here and without its path.
    pub(crate) fn of_part(part: &ClosedPart, identity: u64) -> RosterCopy {
        RosterCopy {
            copy: part.folder.clone(),
            name: part.name.clone(),
            identity: hexed(identity),
            path: Vec::new(),
            created_ns: None,
            closed_before: 0,
            tags: part.tags.clone(),
            closed: Some(RosterClosed {
                number: part.number,
                rank: part.rank,
                edge: part.edge.clone(),
                closed_ns: part.closed_ns,
                why: part.why,
            }),
            needs_key: false,
        }
    }

    /// The copy under the names that it has at the peer of a node with this name.
    pub(crate) fn named_at_peer(mut self, node: &str) -> RosterCopy {
        self.name = at_peer(&self.name, node);
        if let Some(closed) = &mut self.closed {
            let edge = closed.edge.as_deref();
            closed.edge = edge.map(|name| at_peer(name, node));
        }
        self
    }

    /// Identity of its database; `None` for text that is none.
    pub(crate) fn database(&self) -> Option<u64> {
        u64::from_str_radix(&self.identity, 16).ok()
    }
}

/// A declaration that streams went from one edge to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RosterMove {
    /// Identity of the node that made it, 16 hexadecimal digits.
    pub(crate) node: String,
    /// Its number there.
    pub(crate) number: u64,
    /// The streams.
    pub(crate) pattern: StreamPattern,
    /// Identity of the database that has them before, 16 hexadecimal digits.
    pub(crate) from: String,
    /// Identity of the database that has them afterwards.
    pub(crate) to: String,
    /// The first instant afterwards, in nanoseconds since 1970.
    pub(crate) at_ns: i64,
}

/// The copies of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Identity of the node, 16 hexadecimal digits.
    pub(crate) node: String,
    /// Subscription of new edges.
    pub(crate) want: StreamShare,
    /// All copies that the peer is to have.
    pub(crate) copies: Vec<RosterCopy>,
    /// Copies that were deleted.
    #[serde(default)]
    pub(crate) removed: Vec<RosterRemoved>,
    /// The declarations of moved streams.
    #[serde(default)]
    pub(crate) moves: Vec<RosterMove>,
}

impl Roster {
    /// True when the copy that an edge or a closed part follows is in this roster.
    pub(crate) fn lists(&self, follows: Option<&PeerCopy>, identity: Option<u64>) -> bool {
        let is_it = |copy: &RosterCopy| {
            follows.is_some_and(|follows| follows.copy == copy.copy)
                && (identity.is_none() || identity == copy.database())
        };
        follows.is_some_and(|follows| follows.node == self.node) && self.copies.iter().any(is_it)
    }
}

/// The peer's answer to a roster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterAnswer {
    /// New keys, by the copies.
    pub(crate) keys: BTreeMap<String, String>,
    /// Reasons why copies are not kept, by the copies.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
}
