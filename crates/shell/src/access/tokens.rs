//! The tokens of a database, in `DIR/tokens.json`, and the guard that enforces them.
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

use super::Access;
use super::revocations::{REVOKED_MAX, Revocations};
use super::rules::Rule;
use super::seen::StreamFields;
use super::ticket_keys::TicketKeys;
use super::token::{Carried, Hash, PREFIX, from_hex, hash, hex, random_hex};
use crate::private::{private, replace_private};
use headwater_io::{Clock, SystemClock};
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Maximum tokens of a database: each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;
/// Longest name of a token in bytes.
const NAME_MAX: usize = 200;
const FILE: &str = "tokens.json";
const LOCK: &str = "tokens.lock";
const VERSION: u32 = 1;
/// Time for which the file lists removed tokens: longer than the validity of a ticket plus the
/// clock difference.
const REVOKED_KEPT: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

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
    #[error("{path}: {reason}; correct it, or move it away and make new tokens")]
    Damaged {
        /// The file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// The name cannot be taken.
    #[error("a token's name is 1 to {NAME_MAX} bytes without control characters")]
    Name,
    /// A token with this name exists.
    #[error("there is a token named `{0}`; take another name, or revoke it first")]
    Taken(String),
    /// No token has this name or id.
    #[error("there is no token with the name or id `{0}`; `headwater token list` names them")]
    Unknown(String),
    /// The maximum number of tokens is reached.
    #[error("there are {TOKENS_MAX} tokens, which is the most; revoke some first")]
    TooMany,
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
    pub rules: Vec<Rule>,
    hash: Hash,
}

impl Grant {
    /// The subject of a ticket, with the rights in the ticket: not a token.
    pub(super) fn of_subject(id: &str, rules: Vec<Rule>) -> Grant {
        Grant {
            id: id.to_owned(),
            name: "ticket".to_owned(),
            created: Timestamp::MIN,
            expires: None,
            rules,
            hash: Hash::default(),
        }
    }

    /// True when the token has expired by the clock of this machine.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over_at(now(&SystemClock::new()))
    }

    fn is_over_at(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
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
    pub rules: Vec<Rule>,
    /// Time of expiry.
    pub expires: Option<Timestamp>,
}

/// A token that was taken out not long ago.
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
    pub(super) fn list(&self) -> u64 {
        self.list
    }

    /// The token with this id, if it has not expired by `now`.
    pub(super) fn of_id(&self, id: &str, now: Timestamp) -> Option<&Arc<Grant>> {
        let found = self.grants.iter().find(|grant| grant.id == id);
        found.filter(|grant| !grant.is_over_at(now))
    }

    /// Recently revoked tokens: the first version of the list without each, and its id.
    pub(super) fn revoked(&self) -> impl Iterator<Item = (u64, &str)> {
        self.revoked.iter().map(|one| (one.list, one.id.as_str()))
    }

    /// Remembers earlier tokens that are not in the list any more.
    fn remember_revoked(&mut self, before: &[String], now: Timestamp) {
        let is_fresh = |one: &Revoked| now.duration_since(one.at).abs() < REVOKED_KEPT;
        self.revoked.retain(is_fresh);
        let gone: Vec<&String> = before.iter().filter(|id| !self.has_id(id)).collect();
        self.revoked.extend(gone.into_iter().map(|id| Revoked {
            id: id.clone(),
            list: self.list,
            at: now,
        }));
        let beyond = self.revoked.len().saturating_sub(REVOKED_MAX);
        self.revoked.drain(..beyond);
    }

    /// True when a token with this id exists, even an expired one.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.grants.iter().any(|grant| grant.id == id)
    }

    /// Finds a token that has not expired by `now`, in a time that does not depend on its position
    /// or presence.
    fn find(&self, token: &str, now: Timestamp) -> Option<&Arc<Grant>> {
        let hash = hash(token);
        let mut found = None;
        for grant in &self.grants {
            if bool::from(grant.hash.ct_eq(&hash)) {
                found = Some(grant);
            }
        }
        found.filter(|grant| !grant.is_over_at(now))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    version: u32,
    /// Goes up with every change.
    #[serde(default)]
    list: u64,
    tokens: Vec<StoredToken>,
    /// Recently revoked tokens, the newest last.
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
    sha256: String,
}

impl StoredToken {
    fn of(grant: &Grant) -> StoredToken {
        StoredToken {
            id: grant.id.clone(),
            name: grant.name.clone(),
            created: grant.created.to_string(),
            expires: grant.expires.map(|end| end.to_string()),
            rules: grant.rules.iter().map(Rule::to_string).collect(),
            sha256: hex(&grant.hash),
        }
    }

    fn grant(self) -> Result<Grant, String> {
        let name = self.name.clone();
        let of = |what: &dyn std::fmt::Display| format!("the token `{name}`: {what}");
        let time = |text: &str| text.parse::<Timestamp>().map_err(|e| of(&e));
        Ok(Grant {
            created: time(&self.created)?,
            expires: self.expires.as_deref().map(time).transpose()?,
            rules: self
                .rules
                .iter()
                .map(|text| text.parse::<Rule>().map_err(|e| of(&e)))
                .collect::<Result<_, _>>()?,
            hash: from_hex(&self.sha256).ok_or_else(|| of(&"sha256 is not 64 digits"))?,
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
    fn now(&self) -> Timestamp {
        now(self.clock.as_ref())
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
        if stored.version != VERSION {
            return Err(damaged(format!(
                "it has version {}, and this is the version that reads {VERSION}",
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
            hash: hash(&token),
            name,
        };
        self.change(|grants| {
            if grants.iter().any(|other| other.name == grant.name) {
                return Err(TokenError::Taken(grant.name.clone()));
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
        std::fs::create_dir_all(&self.dir).map_err(|e| io_error(&self.dir, e))?;
        let lock_path = self.dir.join(LOCK);
        let lock = private()
            .open(&lock_path)
            .map_err(|e| io_error(&lock_path, e))?;
        // Given up when the file is closed, at the end of this function.
        lock.lock().map_err(|e| io_error(&lock_path, e))?;
        let mut tokens = self.read()?.unwrap_or_default();
        let before: Vec<String> = tokens.grants.iter().map(|g| g.id.clone()).collect();
        change(&mut tokens.grants)?;
        tokens.list = tokens.list.saturating_add(1);
        tokens.remember_revoked(&before, self.now());
        self.replace(&tokens)
    }

    fn replace(&self, tokens: &Tokens) -> Result<(), TokenError> {
        let path = self.path();
        let stored = StoredFile {
            version: VERSION,
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

    /// Stamp that changes with the file.
    fn stamp(&self) -> io::Result<Stamp> {
        let found = std::fs::metadata(self.path())?;
        Ok(Stamp {
            inode: found.ino(),
            len: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

fn io_error(path: &Path, source: io::Error) -> TokenError {
    TokenError::Io {
        path: path.display().to_string(),
        source,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

/// The valid tokens, and their file.
#[derive(Debug)]
pub struct Guard {
    file: TokenFile,
    /// `None` while the file does not exist.
    tokens: RwLock<Option<Arc<Tokens>>>,
    /// Stamp of the file at the last read, successful or not.
    stamp: RwLock<Option<Stamp>>,
    /// Refuses everything but reading, regardless of tokens.
    read_only: bool,
    /// Fields of streams, for tokens that may read some streams only.
    pub(super) stream_fields: StreamFields,
    /// Trusted keys of tickets.
    pub(super) ticket_keys: RwLock<TicketKeys>,
    /// Revoked tokens, as other nodes report them.
    pub(super) revocations: RwLock<Revocations>,
}

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The request does not have a token.
    Missing,
    /// The request has an invalid token.
    Wrong,
    /// The request has a ticket that is not valid here.
    Ticket,
}

impl Guard {
    /// A guard over the tokens in a file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn new(file: TokenFile) -> Result<Guard, TokenError> {
        // The stamp is taken before the file is read, so that a change between the two is read by
        // the next look.
        let stamp = file.stamp().ok();
        let tokens = file.read()?.map(Arc::new);
        Ok(Guard {
            file,
            tokens: RwLock::new(tokens),
            stamp: RwLock::new(stamp),
            read_only: false,
            stream_fields: StreamFields::default(),
            ticket_keys: RwLock::default(),
            revocations: RwLock::default(),
        })
    }

    /// The same guard, or one that refuses every change.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Guard {
        Guard { read_only, ..self }
    }

    /// True when every change is refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// True when tokens are not in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.read().is_none()
    }

    /// True when a grant is still in the list and has not expired.
    #[must_use]
    pub fn holds(&self, grant: &Arc<Grant>) -> bool {
        let tokens = self.tokens.read();
        let kept = tokens
            .as_ref()
            .is_some_and(|tokens| tokens.grants.iter().any(|g| g.hash == grant.hash));
        kept && !grant.is_over_at(self.file.now())
    }

    /// The valid tokens; `None` = tokens are not in use.
    pub(super) fn in_force(&self) -> Option<Arc<Tokens>> {
        self.tokens.read().clone()
    }

    /// The time for tokens.
    pub(super) fn now(&self) -> Timestamp {
        self.file.now()
    }

    /// Rights of a request by its token.
    ///
    /// # Errors
    /// When the request is refused.
    pub fn admit(self: &Arc<Self>, carried: &Carried) -> Result<Access, Denied> {
        let tokens = self.tokens.read().clone();
        let guard = Arc::clone(self);
        match (tokens, carried) {
            // Clients that always send a token may do so where tokens are not needed.
            (None, _) => Ok(Access::Open { guard }),
            (Some(_), Carried::Nothing) => Err(Denied::Missing),
            (Some(_), Carried::Garbled) => Err(Denied::Wrong),
            (Some(tokens), Carried::Token(token)) => match tokens.find(token, self.file.now()) {
                Some(grant) => Ok(Access::Token {
                    grant: Arc::clone(grant),
                    guard,
                }),
                None => Err(Denied::Wrong),
            },
        }
    }

    /// Present rights of the token with this id, or of any client where tokens are not in use;
    /// `None` when the token is not valid any more. For work on behalf of a token without a
    /// request.
    #[must_use]
    pub fn access_of(self: &Arc<Self>, id: Option<&str>) -> Option<Access> {
        let guard = Arc::clone(self);
        match (self.in_force(), id) {
            (None, _) => Some(Access::Open { guard }),
            (Some(_), None) => None,
            (Some(tokens), Some(id)) => {
                let grant = tokens.grants.iter().find(|grant| grant.id == id)?;
                let grant = Arc::clone(grant);
                (!grant.is_over_at(self.file.now())).then_some(Access::Token { grant, guard })
            }
        }
    }

    /// Reads the file again if it has changed. Costs a system call when it has not.
    pub fn refresh(&self) {
        let stamp = self.file.stamp().ok();
        if *self.stamp.read() == stamp {
            return;
        }
        let path = self.file.path();
        match self.file.read() {
            Ok(Some(tokens)) => {
                tracing::info!(tokens = tokens.grants.len(), "tokens read");
                *self.tokens.write() = Some(Arc::new(tokens));
            }
            Ok(None) => {
                // The file was removed: that does not open the server.
                tracing::error!(path = %path.display(), "the file of tokens is gone; those read last stay in force until the server is started again");
            }
            Err(error) => {
                tracing::error!(%error, "the tokens cannot be read; those read last stay in force");
            }
        }
        *self.stamp.write() = stamp;
    }
}

#[cfg(test)]
mod tests;
