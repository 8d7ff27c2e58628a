//! Registry of a cloud's edges: `DIR/edges.json`.
//!
//! Invariants: names are unique and are valid folder names; keys and invitations are stored as
//! hashes. An invitation is valid for one edge: it ends when the key that replaced it is first
//! used, or at its expiry. A name belongs to the database that first connected under it.
//! Concurrency: plain data; [`crate::copies`] has one owner for it. Format: docs/format/fleet.md.

use crate::error::{FleetError, FleetErrorKind};
use crate::invite::SECRET_PREFIX;
use crate::prefetch::Prefetch;
use crate::private::{self, VERSION, check_version, damaged};
use crate::subscription::{StreamShare, WantRule, rules};
use headwater_engine::Rules;
use headwater_shell::access::token::{Hash, from_hex, hash, hex, random_hex};
use headwater_types::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most edges of a cloud node.
pub const EDGES_MAX: usize = 10_000;
/// Prefix of the key of an edge.
const KEY_PREFIX: &str = "hwe_";
/// Longest name of an edge in bytes.
const NAME_MAX: usize = 64;

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

/// An edge in the registry of its cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Name of the edge; also the name of the folder of its copy.
    pub name: String,
    /// When it was added, in nanoseconds since 1970.
    pub created_ns: i64,
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
    /// The database that connected under the name, once one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<u64>,
    /// SHA-256 of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// SHA-256 of the invitation that is not used yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite: Option<String>,
    /// Expiry of the invitation, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite_ends_ns: Option<i64>,
}

impl Edge {
    /// Whether the edge was invited and has not connected yet.
    #[must_use]
    pub fn is_invited(&self) -> bool {
        self.invite.is_some()
    }

    /// Rules of the subscription, with the prefetch and the retention of rows that the edge
    /// removes.
    pub(crate) fn wanted(&self) -> Result<Rules, FleetError> {
        let kept = self.kept_seconds.map_or(Duration::MAX, Duration::from_secs);
        let rules = rules(&self.rules, self.want)?.keeping(kept);
        Ok(rules.with_ahead_bytes(self.migration.ahead_bytes))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    edges: Vec<Edge>,
}

/// All edges of a cloud node.
#[derive(Debug)]
pub(crate) struct Edges {
    path: PathBuf,
    edges: Vec<Edge>,
    places: Places,
    version: u64,
}

/// Positions of edges, by name and by the hash of their secrets. The time of a hash lookup reveals
/// no secret: a secret whose hash is close to another's cannot be constructed.
#[derive(Debug, Default)]
struct Places {
    names: HashMap<String, usize>,
    keys: HashMap<Hash, usize>,
    invites: HashMap<Hash, usize>,
}

impl Places {
    fn of(edges: &[Edge]) -> Places {
        let mut places = Places::default();
        for (at, edge) in edges.iter().enumerate() {
            places.names.insert(edge.name.clone(), at);
            let hash = |text: &Option<String>| text.as_deref().and_then(from_hex);
            places.keys.extend(hash(&edge.key).map(|key| (key, at)));
            let invite = hash(&edge.invite);
            places.invites.extend(invite.map(|invite| (invite, at)));
        }
        places
    }
}

/// Owner of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// The edge with its key.
    Key(String),
    /// A client with an invitation for the edge.
    Invite(String),
}

fn unknown(name: &str) -> FleetError {
    FleetError::new(
        FleetErrorKind::NotFound,
        format!("there is no edge `{name}`; `headwater edges` lists those there are"),
    )
}

fn check_name(name: &str) -> Result<(), FleetError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.chars().all(is_part)
        && !name.starts_with('.');
    match is_name {
        true => Ok(()),
        false => Err(FleetError::invalid(format!(
            "`{name}`: the name of an edge is 1 to {NAME_MAX} letters, digits, `-`, `_` and `.`, and does not begin with a dot"
        ))),
    }
}

impl Edges {
    /// Opens the registry in a directory.
    pub(crate) fn open(dir: &Path) -> Result<Edges, FleetError> {
        let path = dir.join("edges.json");
        let stored: Option<Stored> = private::read(&path)?;
        let Some(stored) = stored else {
            return Ok(Edges {
                path,
                edges: Vec::new(),
                places: Places::default(),
                version: 1,
            });
        };
        check_version(&path, stored.version)?;
        let mut names: Vec<&str> = stored.edges.iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if pair[0] == pair[1] {
                return Err(damaged(&path, &format!("`{}` stands there twice", pair[0])));
            }
        }
        for name in names {
            check_name(name).map_err(|error| damaged(&path, &error))?;
        }
        for edge in &stored.edges {
            edge.wanted()
                .map_err(|e| damaged(&path, &format!("`{}`: {e}", edge.name)))?;
        }
        Ok(Edges {
            path,
            places: Places::of(&stored.edges),
            edges: stored.edges,
            version: 1,
        })
    }

    /// Incremented with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The file as it is, and its version.
    pub(crate) fn to_be_kept(&self) -> Result<(u64, Vec<u8>), FleetError> {
        let stored = Stored {
            version: VERSION,
            edges: self.edges.clone(),
        };
        Ok((self.version, private::text_of(&self.path, &stored)?))
    }

    pub(crate) fn all(&self) -> &[Edge] {
        &self.edges
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Edge, FleetError> {
        let at = self.places.names.get(name);
        let found = at.and_then(|at| self.edges.get(*at));
        found.ok_or_else(|| unknown(name))
    }

    /// Changes the list; the list is unchanged if the change cannot be stored.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Vec<Edge>) -> Result<T, FleetError>,
    ) -> Result<T, FleetError> {
        let mut edges = self.edges.clone();
        let changed = change(&mut edges)?;
        let places = Places::of(&edges);
        assert_eq!(places.names.len(), edges.len(), "two edges of one name");
        let stored = Stored {
            version: VERSION,
            edges,
        };
        private::replace(&self.path, &stored)?;
        (self.places, self.edges) = (places, stored.edges);
        self.version += 1;
        Ok(changed)
    }

    /// Changes one of them.
    pub(crate) fn update(
        &mut self,
        name: &str,
        update: impl FnOnce(&mut Edge),
    ) -> Result<(), FleetError> {
        self.change(|edges| {
            let found = edges.iter_mut().find(|edge| edge.name == name);
            update(found.ok_or_else(|| unknown(name))?);
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
    ) -> Result<String, FleetError> {
        check_name(name)?;
        let secret = secret(SECRET_PREFIX)?;
        let ends = now
            .as_nanos()
            .saturating_add(i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX));
        let invite = Some(hex(&hash(&secret)));
        self.change(|edges| {
            let is_full = edges.len() >= EDGES_MAX;
            let found = edges.iter_mut().find(|edge| edge.name == name);
            match found {
                Some(_) if !again => {
                    return Err(FleetError::new(
                        FleetErrorKind::Taken,
                        format!("there is an edge `{name}`; take another name, or say --again to replace the machine behind it"),
                    ));
                }
                Some(edge) => {
                    edge.invite = invite;
                    edge.invite_ends_ns = Some(ends);
                    edge.want = want.unwrap_or(edge.want);
                }
                None if again => return Err(unknown(name)),
                None if is_full => {
                    return Err(FleetError::new(
                        FleetErrorKind::Taken,
                        format!("there are {EDGES_MAX} edges, the most of one node"),
                    ));
                }
                None => edges.push(Edge {
                    name: name.to_owned(),
                    created_ns: now.as_nanos(),
                    want: want.unwrap_or_default(),
                    rules: Vec::new(),
                    kept_seconds: None,
                    migration: Prefetch::default(),
                    is_paused: false,
                    address: None,
                    identity: None,
                    key: None,
                    invite,
                    invite_ends_ns: Some(ends),
                }),
            }
            Ok(())
        })?;
        Ok(secret)
    }

    /// Removes an edge. Its key is invalid from then on.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), FleetError> {
        self.change(|edges| {
            let at = edges.iter().position(|edge| edge.name == name);
            edges.remove(at.ok_or_else(|| unknown(name))?);
            Ok(())
        })
    }

    /// Owner of this secret.
    pub(crate) fn find(&self, secret: &str, now: Timestamp) -> Option<Secret> {
        let shown = hash(secret);
        let edge = |at: Option<&usize>| at.and_then(|at| self.edges.get(*at));
        if let Some(edge) = edge(self.places.keys.get(&shown)) {
            return Some(Secret::Key(edge.name.clone()));
        }
        let invited = edge(self.places.invites.get(&shown));
        let holds = |edge: &&Edge| edge.invite_ends_ns.is_some_and(|end| now.as_nanos() < end);
        let invited = invited.filter(holds);
        invited.map(|edge| Secret::Invite(edge.name.clone()))
    }

    /// Creates a key for the invited edge, which is not stored.
    pub(crate) fn redeem(&mut self, name: &str) -> Result<String, FleetError> {
        let key = secret(KEY_PREFIX)?;
        let hashed = hex(&hash(&key));
        self.update(name, |edge| edge.key = Some(hashed))?;
        Ok(key)
    }

    /// Records that the edge connected with its key: its invitation ends.
    pub(crate) fn has_come(&mut self, name: &str) -> Result<(), FleetError> {
        if !self.get(name)?.is_invited() {
            return Ok(());
        }
        self.update(name, |edge| {
            edge.invite = None;
            edge.invite_ends_ns = None;
        })
    }
}

fn secret(prefix: &str) -> Result<String, FleetError> {
    let random = random_hex::<32>();
    let random = random.map_err(|e| FleetError::new(FleetErrorKind::Io, e.to_string()))?;
    Ok(format!("{prefix}{random}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_invitation_is_worth_one_edge_and_a_key_lasts() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        let invite = edges.invite("pump-7", None, NOW, HOUR, false).unwrap();
        assert_eq!(
            edges.find(&invite, NOW),
            Some(Secret::Invite("pump-7".into()))
        );
        let lost = edges.redeem("pump-7").unwrap();
        // The answer was lost: the edge repeats the request, and the first key is invalid.
        let key = edges.redeem("pump-7").unwrap();
        assert_eq!(edges.find(&lost, NOW), None);
        assert_eq!(edges.find(&key, NOW), Some(Secret::Key("pump-7".into())));
        edges.has_come("pump-7").unwrap();
        assert_eq!(edges.find(&invite, NOW), None);
        let edges = Edges::open(dir.path()).unwrap();
        assert_eq!(edges.find(&key, NOW), Some(Secret::Key("pump-7".into())));
        let text = std::fs::read_to_string(dir.path().join("edges.json")).unwrap();
        assert!(!text.contains(&key) && !text.contains(&invite));
    }

    #[test]
    fn an_invitation_ends_by_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        let invite = edges.invite("a", None, NOW, HOUR, false).unwrap();
        let late = Timestamp::from_nanos(NOW.as_nanos() + 3_600_000_000_000);
        assert_eq!(edges.find(&invite, late), None);
    }

    #[test]
    fn names_are_unique_and_may_be_folders() {
        let dir = tempfile::tempdir().unwrap();
        let mut edges = Edges::open(dir.path()).unwrap();
        edges.invite("a", None, NOW, HOUR, false).unwrap();
        let again = edges.invite("a", None, NOW, HOUR, false).unwrap_err();
        assert_eq!(again.kind(), FleetErrorKind::Taken);
        edges.invite("a", None, NOW, HOUR, true).unwrap();
        let absent = edges.invite("b", None, NOW, HOUR, true).unwrap_err();
        assert_eq!(absent.kind(), FleetErrorKind::NotFound);
        for wrong in ["", ".", "..", ".a", "a/b", "a b", "ü", &"x".repeat(65)] {
            let error = edges.invite(wrong, None, NOW, HOUR, false).unwrap_err();
            assert_eq!(error.kind(), FleetErrorKind::Invalid, "{wrong}");
        }
        edges.remove("a").unwrap();
        assert_eq!(
            edges.remove("a").unwrap_err().kind(),
            FleetErrorKind::NotFound
        );
    }

    #[test]
    fn a_file_that_is_none_stops_the_start_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("edges.json");
        let mut edges = Edges::open(dir.path()).unwrap();
        edges.invite("a", None, NOW, HOUR, false).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        for wrong in [
            &good[..good.len() / 2],
            &good.replace("\"version\": 1", "\"version\": 2"),
            &good.replace("\"a\"", "\"../a\""),
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = Edges::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains("edges.json"), "{error}");
        }
    }
}
