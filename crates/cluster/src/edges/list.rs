//! Content of `edges.json`: edges, closed parts, and the numbered changes.
//!
//! Invariants: names of edges and folders of copies are unique; a number is given out once, to a
//! change and to the part that it closed. Concurrency: plain data. Format: docs/format/fleet.md.

use super::tag_set::{Tags, added};
use super::{Edge, PART, PeerCopy, check_name, unknown};
use crate::error::ClusterError;
use crate::subscription::{StreamPattern, StreamShare, WantRule, rules};
use headwater_engine::ReplicationRules;
use headwater_types::Timestamp;
use headwater_wire::instant::format_instant;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Identity of a node or a database, as text.
pub(crate) fn hexed(identity: u64) -> String {
    format!("{identity:016x}")
}

/// A copy that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RosterRemoved {
    /// The node's name of the copy.
    pub(crate) copy: String,
    /// Identity of its database, 16 hexadecimal digits.
    pub(crate) identity: String,
}

/// The name of the node's own database: no edge may have it.
pub const OWN: &str = "this node";

/// A declaration that streams went from one edge to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamMove {
    /// Number of its change.
    pub(crate) number: u64,
    /// The streams, by the names under which this node shows them.
    pub(crate) pattern: StreamPattern,
    /// Folder of a copy of the edge that has them before; [`OWN`] = the node's own database.
    pub(crate) from: String,
    /// Folder of a copy of the edge that has them afterwards.
    pub(crate) to: String,
    /// The first instant afterwards, in nanoseconds since 1970.
    pub(crate) at_ns: i64,
    /// The node that made it, where a peer has told it; missing = this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) told: Option<ToldMove>,
}

/// Origin of a move that a peer has told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToldMove {
    /// Identity of the node that made it, 16 hexadecimal digits.
    pub(crate) node: String,
    /// Identity of the node that told it.
    pub(crate) by: String,
}

/// Number of newest changes that are retained.
const RECORDS_MAX: usize = 1000;
/// Separates a name from a number in the folder of a copy; not allowed in names of edges.
const NUMBERED: char = '+';

/// Reason why a part is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedReason {
    /// Its edge started over with another database.
    NewIncarnation,
    /// Another edge took the place of its edge.
    Replaced,
    /// Its edge was removed.
    Removed,
    /// Its copy was in the directory, and in no list.
    Found,
}

impl ClosedReason {
    /// The reason, in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            ClosedReason::NewIncarnation => "new incarnation",
            ClosedReason::Replaced => "replaced",
            ClosedReason::Removed => "removed",
            ClosedReason::Found => "found",
        }
    }
}

/// A copy that receives no more data and is still read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedPart {
    /// Number of the change that closed it.
    pub number: u64,
    /// Name of its edge when it was closed.
    pub name: String,
    /// Name of the edge that goes on in its place; missing = none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    /// Folder of the copy in `DIR/copies`.
    pub(crate) folder: String,
    /// Rank among all copies.
    pub(crate) rank: u64,
    /// When it was closed, in nanoseconds since 1970.
    pub closed_ns: i64,
    /// Reason why it is closed.
    pub why: ClosedReason,
    /// Identity of its database, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<u64>,
    /// The subscription that it was filled by.
    pub(crate) want: StreamShare,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<WantRule>,
    /// Tags that are added to the names of its streams.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: Tags,
    /// The copy of another cloud node that it follows; missing = it is not another node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<PeerCopy>,
    /// SHA-256 of the key with which another cloud node sends what is not here yet; missing =
    /// nothing more is received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl ClosedPart {
    /// Name of the part: the name of its edge, `@`, and its number.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}{PART}{}", self.name, self.number)
    }

    /// The part as an edge that never connects, under the name of the part.
    pub(crate) fn as_edge(&self) -> Edge {
        Edge {
            name: self.label(),
            created_ns: i64::try_from(self.rank).unwrap_or(i64::MAX),
            folder: Some(self.folder.clone()),
            closed_before: 0,
            want: self.want,
            rules: self.rules.clone(),
            kept_seconds: None,
            migration: Default::default(),
            is_paused: false,
            address: None,
            tags: self.tags.clone(),
            identity: self.identity,
            follows: self.follows.clone(),
            key: self.key.clone(),
            next_key: None,
            is_key_due: false,
            invite: None,
            invite_ends_ns: None,
            is_redeemed: false,
        }
    }

    /// The subscription that it was filled by; no row is removed because of its age.
    pub(crate) fn subscription_rules(&self) -> Result<ReplicationRules, ClusterError> {
        Ok(rules(&self.rules, self.want)?.keeping(Duration::MAX))
    }
}

/// A change of the list, with the data to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordedChange {
    /// An edge started over with another database.
    NewIncarnation {
        /// Name of the edge.
        edge: String,
    },
    /// An edge was renamed.
    Rename {
        /// Name before.
        from: String,
        /// Name after.
        to: String,
    },
    /// An edge took the place of another one.
    Replace {
        /// The replaced edge.
        before: Box<Edge>,
        /// Name of its successor.
        by: String,
        /// Folder of the copy of the successor.
        folder: String,
        /// The successor as it was; missing = it was added by this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_before: Option<Box<Edge>>,
        /// Numbers of the closed parts of the replaced edge, with the one of this change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<u64>,
    },
    /// An edge was removed, and its copy became a closed part.
    Remove {
        /// The removed edge.
        before: Box<Edge>,
        /// Numbers of its closed parts, with the one of this change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<u64>,
    },
    /// An edge was removed with its copy.
    RemoveWithHistory {
        /// Name of the edge.
        edge: String,
        /// Folder of its copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
        /// Identity of its database.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<u64>,
    },
    /// A closed part was removed.
    RemovePart {
        /// Name of the part.
        part: String,
        /// Folder of its copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
        /// Identity of its database.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<u64>,
    },
    /// A copy in the directory was taken up as a closed part.
    TakeUp {
        /// Name of the part.
        part: String,
    },
    /// The copy of another cloud node changed there.
    Follow {
        /// Name of the edge or closed part before.
        from: String,
        /// Name after.
        to: String,
    },
    /// Streams went from one edge to another at an instant.
    Move {
        /// The streams.
        pattern: StreamPattern,
        /// Name of the edge or closed part that has them before.
        from: String,
        /// Name of the one that has them afterwards.
        to: String,
        /// The first instant afterwards, in nanoseconds since 1970.
        begins_ns: i64,
    },
    /// Tags were added to the names of all streams of an edge.
    Tag {
        /// Name of the edge.
        edge: String,
        /// Folder of its copy.
        folder: String,
        /// The tags.
        tags: Tags,
        /// The tags before, by the folders of its copies.
        before: BTreeMap<String, Tags>,
    },
    /// A change was undone.
    Undo {
        /// Number of the change.
        of: u64,
    },
}

impl RecordedChange {
    /// The change, in words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            RecordedChange::NewIncarnation { edge } => format!("{edge} started over"),
            RecordedChange::Rename { from, to } => format!("{from} renamed to {to}"),
            RecordedChange::Replace { before, by, .. } => {
                format!("{} replaced by {by}", before.name)
            }
            RecordedChange::Remove { before, .. } => format!("{} removed", before.name),
            RecordedChange::RemoveWithHistory { edge, .. } => {
                format!("{edge} removed with its history")
            }
            RecordedChange::RemovePart { part, .. } => format!("part {part} removed"),
            RecordedChange::TakeUp { part } => format!("part {part} taken up"),
            RecordedChange::Follow { from, to } => format!("{from} became {to}, as at its cloud"),
            RecordedChange::Move {
                pattern,
                from,
                to,
                begins_ns,
            } => {
                let at = format_instant(Timestamp::from_nanos(*begins_ns));
                format!("{pattern} moved from {from} to {to} at {at}")
            }
            RecordedChange::Tag { edge, tags, .. } if tags.is_empty() => {
                format!("{edge}: no tags are added")
            }
            RecordedChange::Tag { edge, tags, .. } => {
                let tags = tags.iter().map(|(key, value)| format!("{key}={value}"));
                let tags: Vec<String> = tags.collect();
                format!("{edge}: {} added to all streams", tags.join(","))
            }
            RecordedChange::Undo { of } => format!("{of} undone"),
        }
    }
}

/// A numbered change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRecord {
    /// Its number.
    pub number: u64,
    /// When it was made, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The change.
    pub change: RecordedChange,
    /// Number of the change that undid it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<u64>,
}

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    pub(super) version: u32,
    pub(crate) edges: Vec<Edge>,
    /// Closed parts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<ClosedPart>,
    /// Declarations that streams went from one edge to another, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) moves: Vec<StreamMove>,
    /// The newest changes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) records: Vec<ChangeRecord>,
    /// Folders of copies that are to be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped: Vec<String>,
    /// The last number given out.
    #[serde(default)]
    pub(super) last_number: u64,
}

impl List {
    /// Checks what was read from a file.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for edge in &self.edges {
            check_name(&edge.name).map_err(|error| error.to_string())?;
            let rules = edge.subscription_rules();
            rules.map_err(|error| format!("`{}`: {error}", edge.name))?;
            added(&edge.tags).map_err(|error| format!("`{}`: {error}", edge.name))?;
            if !names.insert(&edge.name) {
                return Err(format!("`{}` is listed twice", edge.name));
            }
        }
        for part in &self.parts {
            let rules = part.subscription_rules();
            rules.map_err(|error| format!("`{}`: {error}", part.label()))?;
            added(&part.tags).map_err(|error| format!("`{}`: {error}", part.label()))?;
            if part.number > self.last_number {
                return Err(format!("`{}`: its number was not given out", part.label()));
            }
        }
        let mut used = BTreeSet::new();
        for folder in self.folders() {
            if !is_folder(folder) {
                return Err(format!("`{folder}` is not the folder of a copy"));
            }
            if !used.insert(folder) {
                return Err(format!("the folder `{folder}` is listed twice"));
            }
        }
        Ok(())
    }

    /// Folders of all copies, also of those that are to be deleted.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        let edges = self.edges.iter().map(Edge::folder);
        let parts = self.parts.iter().map(|part| part.folder.as_str());
        let dropped = self.dropped.iter().map(String::as_str);
        edges.chain(parts).chain(dropped)
    }

    /// The copies that were deleted, as far back as the changes are retained.
    pub(crate) fn removed(&self) -> Vec<RosterRemoved> {
        let removed = self.records.iter().filter_map(|record| {
            let (RecordedChange::RemoveWithHistory {
                folder, identity, ..
            }
            | RecordedChange::RemovePart {
                folder, identity, ..
            }) = &record.change
            else {
                return None;
            };
            Some(RosterRemoved {
                copy: folder.clone()?,
                identity: hexed((*identity)?),
            })
        });
        removed.collect()
    }

    /// Folder of a new copy of an edge; `None` = the one with its name.
    pub(super) fn free_folder(&mut self, name: &str) -> Option<String> {
        // A move is about the copies that it was made for, also when they were removed.
        let is_moved = |one: &StreamMove| one.from == name || one.to == name;
        let is_used = self.folders().any(|folder| folder == name);
        let is_used = is_used || self.moves.iter().any(is_moved);
        is_used.then(|| {
            self.last_number += 1;
            numbered(name, self.last_number)
        })
    }

    pub(super) fn edge_mut(&mut self, name: &str) -> Result<&mut Edge, ClusterError> {
        let found = self.edges.iter_mut().find(|edge| edge.name == name);
        found.ok_or_else(|| unknown(name))
    }

    /// Takes an edge from the list.
    pub(super) fn take_edge(&mut self, name: &str) -> Result<Edge, ClusterError> {
        let at = self.edges.iter().position(|edge| edge.name == name);
        Ok(self.edges.remove(at.ok_or_else(|| unknown(name))?))
    }

    /// Appends a change, and returns its number.
    pub(super) fn record(&mut self, at_ns: i64, change: RecordedChange) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.records.push(ChangeRecord {
            number,
            at_ns,
            change,
            undone_by: None,
        });
        let surplus = self.records.len().saturating_sub(RECORDS_MAX);
        self.records.drain(..surplus);
        number
    }
}

/// Folder of a copy of an edge that is not the first one of its name.
pub(crate) fn numbered(name: &str, number: u64) -> String {
    format!("{name}{NUMBERED}{number}")
}

/// Name of the edge whose copy a folder was made for; `None` if it is no folder of a copy.
pub(crate) fn name_of_folder(folder: &str) -> Option<&str> {
    let name = match folder.rsplit_once(NUMBERED) {
        Some((name, number)) => number.parse::<u64>().is_ok().then_some(name)?,
        None => folder,
    };
    check_name(name).is_ok().then_some(name)
}

fn is_folder(folder: &str) -> bool {
    name_of_folder(folder).is_some()
}
