//! Registry of a cloud's edges: `DIR/edges.json`.
//!
//! Invariants: names are unique and are valid folder names; keys and invitations are stored as
//! hashes. An invitation is valid for one edge: it ends when the key that replaced it is first
//! used, or at its expiry. A name belongs to the database that first connected under it. The folder
//! of a copy never changes: a copy whose edge goes on with another one becomes a closed part with
//! the same folder, and the edge gets another folder, in one replacement of the file. Concurrency:
//! plain data; [`crate::copies`] has one owner for it. Failure: a change that cannot be stored is
//! not made. Format: docs/format/fleet.md.

mod changes;
mod list;
mod many;
mod mirror;
mod moves;
mod roster;
mod tag_set;
mod tags;

use crate::error::{ClusterError, ClusterErrorKind};
use crate::invite::SECRET_PREFIX;
use crate::prefetch::Prefetch;
use crate::private::{self, damaged};
use crate::subscription::{StreamShare, WantRule, rules};
pub(crate) use changes::FoundCopy;
use headwater_engine::ReplicationRules;
use headwater_shell::access::token::{Hash, from_hex, hash, hex, random_hex};
use headwater_types::Timestamp;
pub use list::OWN;
pub(crate) use list::hexed;
pub use list::{ChangeRecord, ClosedPart, ClosedReason, RecordedChange};
pub(crate) use list::{List, name_of_folder, numbered};
pub use many::{NewEdge, NewEdgeFault};
pub(crate) use moves::{PartsMove, owners};
pub(crate) use roster::RosterCopy;
pub use roster::{Roster, RosterAnswer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;
pub(crate) use tag_set::{Tags, added};

/// Ranks between two edges that are added at once.
const RANKS_OF_EDGE: usize = 1_000;
/// Most edges of a cloud node.
pub const EDGES_MAX: usize = 10_000;
/// Prefix of the key of an edge.
const KEY_PREFIX: &str = "hwe_";
/// Longest name of an edge in bytes.
const NAME_MAX: usize = 64;
/// Separates the name of an edge from the number of its closed part.
const PART: char = '@';
/// The version of the file that is written; older ones are read.
const VERSION: u32 = 2;

/// Address at which clients reach an edge directly, as set by an operator of the cloud: an edge
/// cannot set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeAddress {
    /// `https://pump-7.example:7373`, without a path.
    pub url: String,
    /// Browsers may be sent there: its certificate is valid for all, and it lists the origin of the
    /// page.
    #[serde(default)]
    pub for_browsers: bool,
}

/// A copy of another cloud node, which a copy of this node follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerCopy {
    /// Identity of that node, 16 hexadecimal digits.
    pub(crate) node: String,
    /// That node's name of the copy.
    pub(crate) copy: String,
    /// Nodes through which the data has passed, that node last, 16 hexadecimal digits each.
    pub(crate) path: Vec<String>,
}

/// An edge in the registry of its cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Name of the edge.
    pub name: String,
    /// When it was added, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Folder of its copy in `DIR/copies`; missing = its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<String>,
    /// Number of closed parts that came before its copy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) closed_before: u32,
    /// The subscription where no rule fits.
    pub want: StreamShare,
    /// Subscriptions of some of its streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<WantRule>,
    /// Seconds for which rows that the edge removes because of their age are retained here beyond
    /// that; missing = for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_seconds: Option<u64>,
    /// The prefetch policy.
    #[serde(default, skip_serializing_if = "Prefetch::is_default")]
    pub migration: Prefetch,
    /// Requests to the edge are paused.
    #[serde(default)]
    pub is_paused: bool,
    /// Address at which clients reach the edge directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<EdgeAddress>,
    /// Tags that are added to the names of its streams.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: Tags,
    /// The database that connected under the name, once one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<u64>,
    /// The copy of another cloud node that it follows; missing = it is not another node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<PeerCopy>,
    /// SHA-256 of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// SHA-256 of its next key, which is valid too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_key: Option<String>,
    /// The edge gets a next key at its next connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_key_due: bool,
    /// SHA-256 of the invitation that is not used yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite: Option<String>,
    /// Expiry of the invitation, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite_ends_ns: Option<i64>,
    /// The key was created for the invitation: the invitation ends when it is used.
    #[serde(default, skip_serializing_if = "is_false")]
    is_redeemed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Edge {
    /// Folder of its copy.
    pub(crate) fn folder(&self) -> &str {
        self.folder.as_deref().unwrap_or(&self.name)
    }

    /// Rank of its copy among all copies: at an instant with rows of several, the one with the
    /// lowest rank is shown. A copy has a higher rank than the closed parts before it.
    pub(crate) fn rank(&self) -> u64 {
        let place = self.created_ns.max(0).unsigned_abs();
        place.saturating_add(u64::from(self.closed_before))
    }

    /// Whether the edge was invited and has not connected yet.
    #[must_use]
    pub fn is_invited(&self) -> bool {
        self.invite.is_some()
    }

    /// Rules of the subscription, with the prefetch and the retention of rows that the edge
    /// removes.
    pub(crate) fn subscription_rules(&self) -> Result<ReplicationRules, ClusterError> {
        let kept = self.kept_seconds.map_or(Duration::MAX, Duration::from_secs);
        let rules = rules(&self.rules, self.want)?.keeping(kept);
        Ok(rules.with_ahead_bytes(self.migration.ahead_bytes))
    }
}

/// All edges of a cloud node.
#[derive(Debug)]
pub(crate) struct Edges {
    path: PathBuf,
    list: List,
    positions: Positions,
    version: u64,
}

/// Positions of edges, by name and by the hash of their secrets. The time of a hash lookup reveals
/// no secret: a secret whose hash is close to another's cannot be constructed.
#[derive(Debug, Default)]
struct Positions {
    names: HashMap<String, usize>,
    keys: HashMap<Hash, usize>,
    invites: HashMap<Hash, usize>,
    /// Positions of closed parts that have a key.
    part_keys: HashMap<Hash, usize>,
    /// Nodes through which the data of copies has passed, by folders.
    paths: HashMap<String, Vec<u64>>,
}

impl Positions {
    fn of(list: &List) -> Positions {
        let mut places = Positions::default();
        let hash = |text: &Option<String>| text.as_deref().and_then(from_hex);
        let path = |follows: &PeerCopy| roster::unhexed(&follows.path);
        for (at, part) in list.parts.iter().enumerate() {
            places
                .part_keys
                .extend(hash(&part.key).map(|key| (key, at)));
            let path = part.follows.as_ref().map(path);
            places
                .paths
                .extend(path.map(|path| (part.folder.clone(), path)));
        }
        for (at, edge) in list.edges.iter().enumerate() {
            places.names.insert(edge.name.clone(), at);
            let path = edge.follows.as_ref().map(path);
            places
                .paths
                .extend(path.map(|path| (edge.folder().to_owned(), path)));
            places.keys.extend(hash(&edge.key).map(|key| (key, at)));
            places
                .keys
                .extend(hash(&edge.next_key).map(|key| (key, at)));
            let invite = hash(&edge.invite);
            places.invites.extend(invite.map(|invite| (invite, at)));
        }
        places
    }
}

/// Owner of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// The edge, or the closed part that is still received, with its key.
    Key(String),
    /// A client with an invitation for the edge.
    Invite(String),
}

fn unknown(name: &str) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::NotFound,
        format!("there is no edge `{name}`; list the edges with `headwater edges`"),
    )
}

fn check_name(name: &str) -> Result<(), ClusterError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.chars().all(is_part)
        && !name.starts_with('.');
    match is_name {
        true => Ok(()),
        false => Err(ClusterError::invalid(format!(
            "`{name}`: the name of an edge is 1 to {NAME_MAX} letters, digits, `-`, `_` and `.`, and does not begin with a dot"
        ))),
    }
}

/// A new invitation.
struct Invitation {
    hash: String,
    ends_ns: i64,
    want: Option<StreamShare>,
}

impl List {
    /// Adds an edge with an invitation, or gives it to an existing one.
    fn invite(
        &mut self,
        name: &str,
        created_ns: i64,
        invite: Invitation,
        again: bool,
    ) -> Result<(), ClusterError> {
        let is_full = self.edges.len() >= EDGES_MAX;
        let found = self.edges.iter_mut().find(|edge| edge.name == name);
        match found {
            Some(_) if !again => Err(ClusterError::new(
                ClusterErrorKind::NameExists,
                format!(
                    "the edge `{name}` already exists; choose another name, or use --again to replace the machine behind it"
                ),
            )),
            Some(edge) => {
                edge.invite = Some(invite.hash);
                edge.invite_ends_ns = Some(invite.ends_ns);
                edge.is_redeemed = false;
                edge.want = invite.want.unwrap_or(edge.want);
                Ok(())
            }
            None if again => Err(unknown(name)),
            None if is_full => Err(ClusterError::new(
                ClusterErrorKind::NameExists,
                format!("there are {EDGES_MAX} edges, which is the maximum of one node"),
            )),
            None => {
                let folder = self.free_folder(name);
                self.edges.push(Edge {
                    name: name.to_owned(),
                    created_ns,
                    folder,
                    closed_before: 0,
                    want: invite.want.unwrap_or_default(),
                    rules: Vec::new(),
                    kept_seconds: None,
                    migration: Prefetch::default(),
                    is_paused: false,
                    address: None,
                    tags: Tags::new(),
                    identity: None,
                    follows: None,
                    key: None,
                    next_key: None,
                    is_key_due: false,
                    invite: Some(invite.hash),
                    invite_ends_ns: Some(invite.ends_ns),
                    is_redeemed: false,
                });
                Ok(())
            }
        }
    }
}

impl Edges {
    /// Opens the registry in a directory.
    pub(crate) fn open(dir: &Path) -> Result<Edges, ClusterError> {
        let path = dir.join("edges.json");
        let stored: Option<List> = private::read(&path)?;
        let Some(list) = stored else {
            return Ok(Edges {
                path,
                list: List::default(),
                positions: Positions::default(),
                version: 1,
            });
        };
        if !(1..=VERSION).contains(&list.version) {
            let reason = format!(
                "it has version {}; this program reads the versions 1 to {VERSION}",
                list.version
            );
            return Err(damaged(&path, &reason));
        }
        list.check().map_err(|error| damaged(&path, &error))?;
        Ok(Edges {
            path,
            positions: Positions::of(&list),
            list,
            version: 1,
        })
    }

    /// Incremented with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The file as it is, and its version.
    pub(crate) fn file_to_persist(&self) -> Result<(u64, Vec<u8>), ClusterError> {
        let stored = List {
            version: VERSION,
            ..self.list.clone()
        };
        Ok((self.version, private::text_of(&self.path, &stored)?))
    }

    pub(crate) fn all(&self) -> &[Edge] {
        &self.list.edges
    }

    pub(crate) fn list(&self) -> &List {
        &self.list
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Edge, ClusterError> {
        let at = self.positions.names.get(name);
        let found = at.and_then(|at| self.list.edges.get(*at));
        found.ok_or_else(|| unknown(name))
    }

    /// An edge, or a closed part that is still received, as an edge.
    pub(crate) fn followed(&self, name: &str) -> Option<Edge> {
        if !name.contains(PART) {
            return self.get(name).ok().cloned();
        }
        let mut received = self.list.parts.iter().filter(|part| part.key.is_some());
        let part = received.find(|part| part.label() == name);
        part.map(ClosedPart::as_edge)
    }

    /// Sets the database that belongs to the name of an edge, or of a closed part.
    pub(crate) fn set_identity(&mut self, name: &str, identity: u64) -> Result<(), ClusterError> {
        if !name.contains(PART) {
            return self.update(name, |edge| edge.identity = Some(identity));
        }
        self.change(|list| {
            let part = list.parts.iter_mut().find(|part| part.label() == name);
            let part = part.ok_or_else(|| unknown(name))?;
            part.identity = Some(identity);
            Ok(())
        })
    }

    /// Nodes through which the data of a copy has passed, as the last one of them told.
    pub(crate) fn path_of(&self, folder: &str) -> Vec<u64> {
        let path = self.positions.paths.get(folder);
        path.map_or_else(Vec::new, Vec::clone)
    }

    /// Changes the list; the list is unchanged if the change cannot be stored.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut List) -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        let mut list = List {
            version: VERSION,
            ..self.list.clone()
        };
        let changed = change(&mut list)?;
        let places = Positions::of(&list);
        assert_eq!(
            places.names.len(),
            list.edges.len(),
            "two edges of one name"
        );
        private::replace(&self.path, &list)?;
        (self.positions, self.list) = (places, list);
        self.version += 1;
        Ok(changed)
    }

    /// Changes one of them.
    pub(crate) fn update(
        &mut self,
        name: &str,
        update: impl FnOnce(&mut Edge),
    ) -> Result<(), ClusterError> {
        self.change(|list| {
            update(list.edge_mut(name)?);
            Ok(())
        })
    }

    /// Adds an edge, or invites an existing one again: then its key is valid until the invitation
    /// is used. Returns the secret of the invitation, which is not stored.
    pub(crate) fn invite(
        &mut self,
        name: &str,
        want: Option<StreamShare>,
        now: Timestamp,
        valid: Duration,
        again: bool,
    ) -> Result<String, ClusterError> {
        check_name(name)?;
        let secret = secret(SECRET_PREFIX)?;
        let valid = i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX);
        let invite = Invitation {
            hash: hex(&hash(&secret)),
            ends_ns: now.as_nanos().saturating_add(valid),
            want,
        };
        self.change(|list| list.invite(name, now.as_nanos(), invite, again))?;
        Ok(secret)
    }

    /// Owner of this secret.
    pub(crate) fn find(&self, secret: &str, now: Timestamp) -> Option<Secret> {
        let shown = hash(secret);
        let edge = |at: Option<&usize>| at.and_then(|at| self.list.edges.get(*at));
        if let Some(edge) = edge(self.positions.keys.get(&shown)) {
            return Some(Secret::Key(edge.name.clone()));
        }
        let part = self.positions.part_keys.get(&shown);
        if let Some(part) = part.and_then(|at| self.list.parts.get(*at)) {
            return Some(Secret::Key(part.label()));
        }
        let invited = edge(self.positions.invites.get(&shown));
        let holds = |edge: &&Edge| edge.invite_ends_ns.is_some_and(|end| now.as_nanos() < end);
        let invited = invited.filter(holds);
        invited.map(|edge| Secret::Invite(edge.name.clone()))
    }

    /// Creates a key for the invited edge, which is not stored.
    pub(crate) fn redeem(&mut self, name: &str) -> Result<String, ClusterError> {
        let key = secret(KEY_PREFIX)?;
        let hashed = hex(&hash(&key));
        self.update(name, |edge| {
            (edge.key, edge.is_redeemed) = (Some(hashed), true);
            (edge.next_key, edge.is_key_due) = (None, false);
        })?;
        Ok(key)
    }

    /// Makes this edge, or all edges, get a next key; returns their number.
    pub(crate) fn rotate_keys(&mut self, name: Option<&str>) -> Result<usize, ClusterError> {
        if let Some(name) = name {
            self.update(name, |edge| edge.is_key_due = edge.key.is_some())?;
            return Ok(1);
        }
        self.change(|list| {
            let with_key = list.edges.iter_mut().filter(|edge| edge.key.is_some());
            Ok(with_key.map(|edge| edge.is_key_due = true).count())
        })
    }

    /// Creates the next key of an edge, which is not stored: it is valid besides the present one.
    pub(crate) fn issue_key(&mut self, name: &str) -> Result<String, ClusterError> {
        let key = secret(KEY_PREFIX)?;
        let hashed = hex(&hash(&key));
        self.update(name, |edge| edge.next_key = Some(hashed))?;
        Ok(key)
    }

    /// Ends the key before, if the edge has shown or confirmed this one, its next key.
    pub(crate) fn confirm_key(&mut self, name: &str, key: &str) -> Result<bool, ClusterError> {
        let hashed = hex(&hash(key));
        if name.contains(PART) {
            return Ok(false);
        }
        if self.get(name)?.next_key.as_ref() != Some(&hashed) {
            return Ok(false);
        }
        self.update(name, |edge| {
            edge.key = edge.next_key.take();
            edge.is_key_due = false;
        })?;
        Ok(true)
    }

    /// Records that the edge connected with its key: the invitation that the key was created for
    /// ends. One that came after the key stays.
    pub(crate) fn set_connected(&mut self, name: &str) -> Result<(), ClusterError> {
        if name.contains(PART) {
            return Ok(());
        }
        let edge = self.get(name)?;
        if !edge.is_invited() || !edge.is_redeemed {
            return Ok(());
        }
        self.update(name, |edge| {
            edge.invite = None;
            edge.invite_ends_ns = None;
            edge.is_redeemed = false;
        })
    }
}

fn secret(prefix: &str) -> Result<String, ClusterError> {
    let random = random_hex::<32>();
    let random = random.map_err(|e| ClusterError::new(ClusterErrorKind::Io, e.to_string()))?;
    Ok(format!("{prefix}{random}"))
}

#[cfg(test)]
mod tests;
