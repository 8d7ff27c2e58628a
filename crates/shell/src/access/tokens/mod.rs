//! The tokens of a database, in `DIR/tokens.json`.
//!
//! Purpose: `headwater token` changes the file; a running server reads it again within a second.
//! The page is `docs/operate/security.md`.
//!
//! Invariants: the file has hashes, never tokens. While the file exists, tokens are in use, even if
//! the list is empty: revoking the last token locks the server and never opens it.
//!
//! Concurrency: commands are serialised by a lock on `DIR/tokens.lock`. Readers see the old file or
//! the new one, since the new file is synced and then renamed over it.
//!
//! Failure: a file that cannot be read or parsed prevents the start; while a server runs, the
//! tokens read last stay valid, with a message in the log.

use super::rules::AccessRule;
use super::token::{Hash, PREFIX, from_hex, hash, hex, random_hex};
use crate::private::{private, replace_private};
use headwater_io::{Clock, SystemClock};
use headwater_protocol::rights::RightsToken;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Maximum tokens of a database: each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;
/// Longest name of a token in bytes.
const NAME_MAX: usize = 200;
const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";
const UNLIMITED: &str = "unlimited";
/// Begin of a budget among the rules of a list of rights.
pub(super) const FETCH_RULE: &str = "fetch_per_day ";
/// Version of a file in which a token has `fetch_per_day`; others are of version 1.
const VERSION: u32 = 2;
/// Maximum removed tokens that the file lists.
const REVOKED_LISTED_MAX: usize = 1000;
/// Time for which other nodes are told of removed tokens: longer than the validity of a ticket plus
/// the clock difference.
const REVOKED_TOLD: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

/// Reason why tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file does not have the format of `headwater token`.
    #[error("{path}: {reason}; correct it, or move it away and create new tokens")]
    Damaged {
        /// The file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// The file of a received list of rights is damaged.
    #[error(
        "{path}: {reason}; remove the file: the node receives the list again, and trusts its number and key anew"
    )]
    DamagedList {
        /// The file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// The file of the keys that sign the list of rights is damaged, or of another database.
    #[error(
        "{path}: {reason}; restore it from a backup, or move it away: then a new key is made, and edges must join again to accept the list"
    )]
    DamagedKeys {
        /// The file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// The keys that sign the list of rights do not exist.
    #[error(
        "there is no key that signs the list of rights: it is made when a server with the role cloud starts on this database with tokens"
    )]
    NoKeys,
    /// Another rotation is in progress.
    #[error(
        "a rotation of the key is in progress until {0}; wait for its end, or use --now, with which nodes that were away follow the chain of keys"
    )]
    Rotating(String),
    /// The name cannot be taken.
    #[error("a token's name is 1 to {NAME_MAX} bytes without control characters")]
    Name,
    /// A token with this name exists.
    #[error("the token `{0}` already exists; choose another name, or revoke it first")]
    NameExists(String),
    /// No token has this name or id.
    #[error("there is no token with the name or id `{0}`; `headwater token list` lists them")]
    Unknown(String),
    /// The maximum number of tokens is reached.
    #[error("there are {TOKENS_MAX} tokens, which is the maximum; revoke some first")]
    TooMany,
}

/// Bytes that a token may have fetched from edges on one day (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchLimit {
    /// Every reader's missing ranges are fetched.
    Unlimited,
    /// So many bytes; 0 = nothing is fetched for it.
    Bytes(u64),
}

impl fmt::Display for FetchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchLimit::Unlimited => f.write_str(UNLIMITED),
            FetchLimit::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for FetchLimit {
    type Err = &'static str;

    /// Reads a number of bytes, or `unlimited`.
    fn from_str(text: &str) -> Result<FetchLimit, &'static str> {
        if text == UNLIMITED {
            return Ok(FetchLimit::Unlimited);
        }
        let is_number = text.bytes().all(|b| b.is_ascii_digit());
        let bytes = text.parse().ok().filter(|_| is_number);
        let bytes = bytes.ok_or("expected a number of bytes, or unlimited")?;
        Ok(FetchLimit::Bytes(bytes))
    }
}

/// A token in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Identifies the token in logs; random.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Creation time.
    pub created: Timestamp,
    /// Instant from which on the token is invalid.
    pub expires: Option<Timestamp>,
    /// Rights of the token. Without rules it allows only `/metrics`.
    pub rules: Vec<AccessRule>,
    /// Bytes a day that it may have fetched from edges; `None` = as the node's setting.
    pub fetch_per_day: Option<FetchLimit>,
    /// Rights that the token does not have here, although its rules allow them.
    pub vetoes: Arc<[AccessRule]>,
    /// The token is one of a list that another node sent.
    pub is_received: bool,
    hash: Hash,
}

impl Grant {
    /// A token of a received list, with its creation time and expiry.
    pub(super) fn received(
        token: &RightsToken,
        [created, ends]: [Timestamp; 2],
        rules: Vec<AccessRule>,
        vetoes: Arc<[AccessRule]>,
    ) -> Grant {
        Grant {
            id: token.id.clone(),
            name: token.name.clone(),
            created,
            expires: token.expires_ns.map(|_| ends),
            fetch_per_day: token.rules.iter().find_map(|rule| fetch_limit_of(rule)),
            rules,
            vetoes,
            is_received: true,
            hash: token.hash,
        }
    }

    /// SHA-256 of the token's text.
    pub(super) fn hash(&self) -> &Hash {
        &self.hash
    }

    /// True when the token has expired by the clock of this machine.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over_at(now(&SystemClock::new()))
    }

    pub(super) fn is_over_at(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// The budget in a rule of a list of rights; a receiver of an earlier version takes it for a rule
/// that it does not know, which grants nothing.
fn fetch_limit_of(rule: &str) -> Option<FetchLimit> {
    rule.strip_prefix(FETCH_RULE)?.parse().ok()
}

/// The time of a clock, in the form of the file of tokens.
fn now(clock: &dyn Clock) -> Timestamp {
    let ns = i128::from(clock.now().as_nanos());
    // Every number of nanoseconds that fits into 64 bits is within the range.
    Timestamp::from_nanosecond(ns).unwrap_or(Timestamp::MAX)
}

/// Settings of a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Name, unique in the list.
    pub name: String,
    /// Rights of the token.
    pub rules: Vec<AccessRule>,
    /// Time of expiry.
    pub expires: Option<Timestamp>,
}

/// A token that was taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Revoked {
    id: String,
    /// The first version of the list without it.
    list: u64,
    at: Timestamp,
}

/// The tokens of one version of the file.
#[derive(Debug, Default)]
pub struct Tokens {
    grants: Vec<Arc<Grant>>,
    revoked: Vec<Revoked>,
    /// Increases with every change; 0 = from before versions existed.
    list: u64,
}

impl Tokens {
    /// The tokens, in the order of creation.
    #[must_use]
    pub fn grants(&self) -> &[Arc<Grant>] {
        &self.grants
    }

    /// Version of the list, which increases with every change.
    #[must_use]
    pub fn list(&self) -> u64 {
        self.list
    }

    /// Removed tokens: the id of each, and the first version of the list without it.
    pub(super) fn removed(&self) -> impl Iterator<Item = (&str, u64)> {
        self.revoked.iter().map(|one| (one.id.as_str(), one.list))
    }

    /// Recently revoked tokens: the first version of the list without each, and its id.
    pub(super) fn revoked_lately(&self, now: Timestamp) -> impl Iterator<Item = (u64, &str)> {
        let is_fresh = move |one: &&Revoked| now.duration_since(one.at).abs() < REVOKED_TOLD;
        let fresh = self.revoked.iter().filter(is_fresh);
        fresh.map(|one| (one.list, one.id.as_str()))
    }

    /// True when this list had a token with this id, which was revoked here.
    pub(super) fn has_revoked(&self, id: &str) -> bool {
        self.revoked.iter().any(|one| one.id == id)
    }

    /// Remembers earlier tokens that are not in the list any more.
    fn remember_revoked(&mut self, before: &[String], now: Timestamp) {
        let gone: Vec<&String> = before.iter().filter(|id| !self.has_id(id)).collect();
        self.revoked.extend(gone.into_iter().map(|id| Revoked {
            id: id.clone(),
            list: self.list,
            at: now,
        }));
        let beyond = self.revoked.len().saturating_sub(REVOKED_LISTED_MAX);
        self.revoked.drain(..beyond);
    }

    /// True when a token with this id exists, even an expired one.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.grants.iter().any(|grant| grant.id == id)
    }
}

/// Finds a token by the hash of its text, in a time that does not depend on its position or
/// presence.
pub(super) fn find_by_hash<'a>(grants: &'a [Arc<Grant>], hash: &Hash) -> Option<&'a Arc<Grant>> {
    let mut found = None;
    for grant in grants {
        if bool::from(grant.hash.ct_eq(hash)) {
            found = Some(grant);
        }
    }
    found
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    version: u32,
    /// Goes up with every change.
    #[serde(default)]
    list: u64,
    tokens: Vec<StoredToken>,
    /// Revoked tokens, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<StoredRevoked>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRevoked {
    id: String,
    list: u64,
    at: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredToken {
    id: String,
    name: String,
    created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    rules: Vec<String>,
    /// Bytes, or `unlimited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fetch_per_day: Option<String>,
    sha256: String,
}

impl StoredToken {
    fn of(grant: &Grant) -> StoredToken {
        StoredToken {
            id: grant.id.clone(),
            name: grant.name.clone(),
            created: grant.created.to_string(),
            expires: grant.expires.map(|end| end.to_string()),
            rules: grant.rules.iter().map(AccessRule::to_string).collect(),
            fetch_per_day: grant.fetch_per_day.map(|limit| limit.to_string()),
            sha256: hex(&grant.hash),
        }
    }

    fn grant(self) -> Result<Grant, String> {
        let name = self.name.clone();
        let of = |what: &dyn fmt::Display| format!("the token `{name}`: {what}");
        let time = |text: &str| text.parse::<Timestamp>().map_err(|e| of(&e));
        Ok(Grant {
            created: time(&self.created)?,
            expires: self.expires.as_deref().map(time).transpose()?,
            rules: self
                .rules
                .iter()
                .map(|text| text.parse::<AccessRule>().map_err(|e| of(&e)))
                .collect::<Result<_, _>>()?,
            fetch_per_day: self
                .fetch_per_day
                .as_deref()
                .map(|text| text.parse().map_err(|e| of(&format!("fetch_per_day: {e}"))))
                .transpose()?,
            vetoes: Arc::default(),
            is_received: false,
            hash: from_hex(&self.sha256)
                .ok_or_else(|| of(&"sha256 is not 64 hexadecimal digits"))?,
            id: self.id,
            name: self.name,
        })
    }
}

/// The file of a database's tokens.
#[derive(Debug, Clone)]
pub struct TokenFile {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl TokenFile {
    /// The file in a database's directory. Neither need be there yet.
    pub fn of_database(dir: impl Into<PathBuf>) -> TokenFile {
        TokenFile {
            dir: dir.into(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// The same file, whose tokens begin and expire by this clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> TokenFile {
        TokenFile { clock, ..self }
    }

    /// The time for its tokens.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        now(self.clock.as_ref())
    }

    /// The clock for its tokens.
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Directory of the database.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Reads the file; `None` when it does not exist, so that no token was ever created.
    ///
    /// # Errors
    /// When the file cannot be read or does not have the format of [`TokenFile::create`].
    pub fn read(&self) -> Result<Option<Tokens>, TokenError> {
        let path = self.path();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&path, source)),
        };
        let damaged = |reason: String| TokenError::Damaged {
            path: path.display().to_string(),
            reason,
        };
        let stored: StoredFile =
            serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if !(1..=VERSION).contains(&stored.version) {
            return Err(damaged(format!(
                "it has version {}; this program reads the versions 1 to {VERSION}",
                stored.version
            )));
        }
        let grants = stored
            .tokens
            .into_iter()
            .map(|token| token.grant().map(Arc::new).map_err(damaged))
            .collect::<Result<_, _>>()?;
        let revoked = stored.revoked.into_iter().map(|one| {
            let at = one.at.parse::<Timestamp>();
            Ok(Revoked {
                at: at.map_err(|e| damaged(format!("when `{}` was revoked: {e}", one.id)))?,
                id: one.id,
                list: one.list,
            })
        });
        Ok(Some(Tokens {
            grants,
            revoked: revoked.collect::<Result<_, TokenError>>()?,
            list: stored.list,
        }))
    }

    /// Creates a token and returns its text, which is not stored. The first token creates the file,
    /// and from then on tokens are in use.
    ///
    /// # Errors
    /// When the name cannot be taken, or the file not be read or written.
    pub fn create(&self, new: NewToken) -> Result<String, TokenError> {
        self.create_with_budget(new, None)
    }

    /// Creates a token as [`TokenFile::create`], with the bytes a day that it may have fetched from
    /// edges; `None` = as the setting of the node.
    ///
    /// # Errors
    /// As [`TokenFile::create`].
    pub fn create_with_budget(
        &self,
        new: NewToken,
        fetch_per_day: Option<FetchLimit>,
    ) -> Result<String, TokenError> {
        let name = new.name;
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return Err(TokenError::Name);
        }
        let random = |source| io_error(&self.path(), source);
        let token = format!("{PREFIX}{}", random_hex::<32>().map_err(random)?);
        let grant = Grant {
            id: random_hex::<4>().map_err(random)?,
            created: self.now(),
            expires: new.expires,
            rules: new.rules,
            fetch_per_day,
            vetoes: Arc::default(),
            is_received: false,
            hash: hash(&token),
            name,
        };
        self.change(|grants| {
            if grants.iter().any(|other| other.name == grant.name) {
                return Err(TokenError::NameExists(grant.name.clone()));
            }
            if grants.len() >= TOKENS_MAX {
                return Err(TokenError::TooMany);
            }
            grants.push(Arc::new(grant));
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a token, by its name or id. A running server stops accepting the token within a
    /// second.
    ///
    /// # Errors
    /// When no such token exists, or the file cannot be read or written.
    pub fn revoke(&self, name_or_id: &str) -> Result<(), TokenError> {
        self.change(|grants| {
            // A name precedes an id that happens to be the same text.
            let by_name = grants.iter().position(|g| g.name == name_or_id);
            let place = by_name.or_else(|| grants.iter().position(|g| g.id == name_or_id));
            grants.remove(place.ok_or_else(|| TokenError::Unknown(name_or_id.to_owned()))?);
            Ok(())
        })
    }

    /// Changes the list under its lock.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Arc<Grant>>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        self.change_list(|tokens| change(&mut tokens.grants))
    }

    /// Raises the number of the list, after `change` has prepared the next one in the directory of
    /// the list.
    pub(super) fn bump<T>(
        &self,
        change: impl FnOnce(&Path, &Tokens, Timestamp) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let now = self.now();
        self.change_list(|tokens| change(&self.dir, tokens, now))
    }

    fn change_list<T>(
        &self,
        change: impl FnOnce(&mut Tokens) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        std::fs::create_dir_all(&self.dir).map_err(|e| io_error(&self.dir, e))?;
        let lock_path = self.dir.join(LOCK);
        let lock = private()
            .open(&lock_path)
            .map_err(|e| io_error(&lock_path, e))?;
        // Given up when the file is closed, at the end of this function.
        lock.lock().map_err(|e| io_error(&lock_path, e))?;
        let mut tokens = self.read()?.unwrap_or_default();
        let before: Vec<String> = tokens.grants.iter().map(|g| g.id.clone()).collect();
        let done = change(&mut tokens)?;
        tokens.list = tokens.list.saturating_add(1);
        tokens.remember_revoked(&before, self.now());
        self.replace(&tokens)?;
        Ok(done)
    }

    fn replace(&self, tokens: &Tokens) -> Result<(), TokenError> {
        let path = self.path();
        let has_limits = tokens.grants.iter().any(|g| g.fetch_per_day.is_some());
        let stored = StoredFile {
            version: if has_limits { VERSION } else { 1 },
            list: tokens.list,
            tokens: tokens.grants.iter().map(|g| StoredToken::of(g)).collect(),
            revoked: tokens
                .revoked
                .iter()
                .map(|one| StoredRevoked {
                    id: one.id.clone(),
                    list: one.list,
                    at: one.at.to_string(),
                })
                .collect(),
        };
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(&stored)?;
            text.push(b'\n');
            replace_private(&path, &text)
        };
        write().map_err(|source| io_error(&path, source))
    }
}

fn io_error(path: &Path, source: io::Error) -> TokenError {
    TokenError::Io {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
