//! The guard of a node: the tokens in force, of its own list and of a received one.
//!
//! Invariants: a token of the node's own list counts before one of the received list with the same
//! text, also after it has expired; a token that the own list has revoked is not valid by the
//! received list. Where the policy says so, no token of a received list above its highest age is
//! valid. Tokens that came into use stay in use until the node is restarted.
//!
//! Concurrency: the lists are immutable, and replaced as a whole.
//!
//! Failure: a file that cannot be read or parsed prevents the start, except for the received list,
//! which is not in force then; while a server runs, the lists read last stay valid, with a message
//! in the log. A received list whose file is gone ends.

use super::Access;
use super::revocations::Revocations;
use super::rights::age::ListAge;
use super::rights::received::{ReceivedFile, ReceivedList};
use super::rights::{ListUse, RightsPolicy, grants};
use super::rules::{AccessRule, Action};
use super::ticket_keys::TicketKeys;
use super::token::{Carried, Hash, hash};
use super::tokens::{Grant, TokenError, TokenFile, Tokens, find_by_hash};
use super::visible_tables::StreamFields;
use headwater::StreamName;
use headwater_protocol::rights::RightsList;
use jiff::Timestamp;
use parking_lot::RwLock;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

/// Stamp that changes with a file.
fn stamp(path: &Path) -> io::Result<Stamp> {
    let found = std::fs::metadata(path)?;
    Ok(Stamp {
        inode: found.ino(),
        len: found.len(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// A list of another node that is in force.
#[derive(Debug)]
struct Received {
    list: RightsList,
    grants: Vec<Arc<Grant>>,
}

/// The valid tokens, and their files.
#[derive(Debug)]
pub struct Guard {
    file: TokenFile,
    /// `None` while the file does not exist.
    tokens: RwLock<Option<Arc<Tokens>>>,
    /// Stamp of the file at the last read, successful or not.
    stamp: RwLock<Option<Stamp>>,
    received_file: ReceivedFile,
    received: RwLock<Option<Arc<Received>>>,
    received_stamp: RwLock<Option<Stamp>>,
    age: ListAge,
    policy: RightsPolicy,
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
        let at = stamp(&file.path()).ok();
        let tokens = file.read()?.map(Arc::new);
        let received_file = ReceivedFile::of_database(file.dir());
        Ok(Guard {
            age: ListAge::new(file.clock(), received_file.path()),
            received_file,
            file,
            tokens: RwLock::new(tokens),
            stamp: RwLock::new(at),
            received: RwLock::default(),
            received_stamp: RwLock::default(),
            policy: RightsPolicy::default(),
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

    /// The same guard with this policy for received lists.
    #[must_use]
    pub fn with_rights(self, policy: RightsPolicy) -> Guard {
        let guard = Guard { policy, ..self };
        guard.refresh_received();
        guard
    }

    /// True when every change is refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// True when tokens are not in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.policy.list != ListUse::Require && self.tokens.read().is_none()
    }

    /// The policy for received lists.
    #[must_use]
    pub fn policy(&self) -> &RightsPolicy {
        &self.policy
    }

    /// The file of the node's own tokens.
    #[must_use]
    pub fn file(&self) -> &TokenFile {
        &self.file
    }

    /// The node's own tokens; `None` while their file does not exist.
    #[must_use]
    pub fn own(&self) -> Option<Arc<Tokens>> {
        self.tokens.read().clone()
    }

    /// Runs a call with the received list that is in force.
    #[must_use]
    pub fn with_received<T>(&self, call: impl FnOnce(&RightsList) -> T) -> Option<T> {
        let received = self.received.read().clone();
        received.map(|received| call(&received.list))
    }

    /// The received list, unless its tokens are refused because of its age.
    fn in_force(&self) -> Option<Arc<Received>> {
        let received = self.received.read().clone()?;
        let is_refused = self.policy.refuses_stale && self.is_above_age();
        (!is_refused).then_some(received)
    }

    fn is_above_age(&self) -> bool {
        let max = self.policy.max_age;
        max.is_some_and(|max| self.age.age() > max)
    }

    /// The sender of the received list has no newer one now.
    pub fn confirm_received(&self) {
        self.age.confirm();
    }

    /// Time since the sender of the received list was known to have no newer one; `None` without a
    /// list.
    #[must_use]
    pub fn received_age(&self) -> Option<Duration> {
        self.with_received(|_| self.age.age())
    }

    /// True when the age of the received list is above `rights.max_age`.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.received.read().is_some() && self.is_above_age()
    }

    /// Reports once when the received list becomes too old, and when its sender is reached again.
    pub(crate) fn report_age(&self) {
        let is_stale = self.is_stale();
        if !self.age.note(is_stale) {
            return;
        }
        match (is_stale, self.policy.refuses_stale) {
            (true, true) => {
                tracing::error!(
                    "the list of rights is older than rights.max_age: its tokens are refused until its sender is reached"
                );
            }
            (true, false) => {
                tracing::warn!(
                    "the list of rights is older than rights.max_age: tokens that were revoked since are still valid here"
                );
            }
            (false, _) => tracing::info!("the sender of the list of rights is reached again"),
        }
    }

    /// The time for tokens.
    pub(super) fn now(&self) -> Timestamp {
        self.file.now()
    }

    /// The token with this hash, even an expired one.
    fn with_hash(&self, hash: &Hash) -> Option<Arc<Grant>> {
        let (own, received) = (self.own(), self.in_force());
        // Both are searched, whatever the first one has.
        let of_own = own.as_ref().map(|own| find_by_hash(own.grants(), hash));
        let of_list = received
            .as_ref()
            .map(|list| find_by_hash(&list.grants, hash));
        match (of_own.flatten(), of_list.flatten()) {
            (Some(grant), _) => Some(Arc::clone(grant)),
            (None, Some(grant)) => {
                let is_revoked = own.as_ref().is_some_and(|own| own.has_revoked(&grant.id));
                (!is_revoked).then(|| Arc::clone(grant))
            }
            (None, None) => None,
        }
    }

    /// The valid token with this id.
    pub(super) fn of_id(&self, id: &str) -> Option<Arc<Grant>> {
        let has_id = |grant: &&Arc<Grant>| grant.id == id;
        let own = self.own();
        let of_own = own.iter().flat_map(|own| own.grants().iter()).find(has_id);
        let found = match of_own {
            Some(grant) => Arc::clone(grant),
            None if own.as_ref().is_some_and(|own| own.has_revoked(id)) => return None,
            None => {
                let received = self.in_force()?;
                Arc::clone(received.grants.iter().find(has_id)?)
            }
        };
        (!found.is_over_at(self.now())).then_some(found)
    }

    /// Tokens that are valid now, of both lists. A token of the node's own list comes in place of
    /// one of the received list with the same name.
    #[must_use]
    pub fn valid_grants(&self) -> Vec<Arc<Grant>> {
        let (own, received) = (self.own(), self.in_force());
        let now = self.now();
        let own_grants = own.iter().flat_map(|own| own.grants());
        let mut all: Vec<Arc<Grant>> = own_grants.cloned().collect();
        let is_own = |grant: &Arc<Grant>| {
            let mut own_grants = own.iter().flat_map(|own| own.grants());
            own_grants.any(|own| own.name == grant.name || own.id == grant.id)
                || own.as_ref().is_some_and(|own| own.has_revoked(&grant.id))
        };
        let of_list = received.iter().flat_map(|list| &list.grants);
        all.extend(of_list.filter(|grant| !is_own(grant)).cloned());
        all.retain(|grant| !grant.is_over_at(now));
        all
    }

    /// Rights of a token that is valid now.
    #[must_use]
    pub fn access_by(self: &Arc<Self>, grant: &Arc<Grant>) -> Access {
        Access::Token {
            grant: Arc::clone(grant),
            guard: Arc::clone(self),
        }
    }

    /// True when the vetoes of this node remove reading of a stream from the tokens of the received
    /// list.
    #[must_use]
    pub fn is_reading_vetoed(&self, stream: &StreamName) -> bool {
        let vetoes = &self.policy.vetoes;
        is_vetoed(vetoes, Action::Read, stream.table(), stream.tags())
    }

    /// Number of the list that a token is in.
    pub(super) fn number_of(&self, grant: &Grant) -> Option<u64> {
        match grant.is_received {
            true => self.with_received(|list| list.number),
            false => self.own().map(|own| own.list()),
        }
    }

    /// True when a grant is still in the list and has not expired.
    #[must_use]
    pub fn is_valid(&self, grant: &Arc<Grant>) -> bool {
        let found = self.with_hash(grant.hash());
        let found = found.filter(|found| !found.is_over_at(self.now()));
        found.is_some_and(|found| {
            // Another list may give the token other rights.
            found.is_received == grant.is_received
                && (!found.is_received || found.rules == grant.rules)
        })
    }

    /// Rights of a request by its token.
    ///
    /// # Errors
    /// When the request is refused.
    pub fn admit(self: &Arc<Self>, carried: &Carried) -> Result<Access, Denied> {
        let guard = Arc::clone(self);
        if self.is_open() {
            // Clients that always send a token may do so where tokens are not needed.
            return Ok(Access::Open { guard });
        }
        match carried {
            Carried::Missing => Err(Denied::Missing),
            Carried::Garbled => Err(Denied::Wrong),
            Carried::Token(token) => {
                let found = self.with_hash(&hash(token));
                let found = found.filter(|found| !found.is_over_at(self.now()));
                let grant = found.ok_or(Denied::Wrong)?;
                Ok(Access::Token { grant, guard })
            }
        }
    }

    /// Present rights of the token with this id, or of any client where tokens are not in use;
    /// `None` when the token is not valid any more. For work on behalf of a token without a
    /// request.
    #[must_use]
    pub fn access_of(self: &Arc<Self>, id: Option<&str>) -> Option<Access> {
        let guard = Arc::clone(self);
        if self.is_open() {
            return Some(Access::Open { guard });
        }
        let grant = self.of_id(id?)?;
        Some(Access::Token { grant, guard })
    }

    /// Reads the files again if they have changed. Costs two system calls when they have not.
    pub fn refresh(&self) {
        self.refresh_own();
        self.refresh_received();
    }

    fn refresh_own(&self) {
        let path = self.file.path();
        let at = stamp(&path).ok();
        if *self.stamp.read() == at {
            return;
        }
        match self.file.read() {
            Ok(Some(tokens)) => {
                tracing::info!(tokens = tokens.grants().len(), "tokens read");
                *self.tokens.write() = Some(Arc::new(tokens));
            }
            Ok(None) => {
                // The file was removed: that does not open the server.
                tracing::error!(path = %path.display(), "the file of tokens is gone; the tokens read last stay in force until the server is restarted");
            }
            Err(error) => {
                tracing::error!(%error, "the tokens cannot be read; the ones read last stay in force");
            }
        }
        *self.stamp.write() = at;
    }

    fn refresh_received(&self) {
        if self.policy.list == ListUse::Ignore {
            return;
        }
        let at = stamp(self.received_file.path()).ok();
        if *self.received_stamp.read() == at {
            return;
        }
        match self.received_file.read() {
            Ok(Some(ReceivedList { list, .. })) => {
                // The file changes when its age does.
                if self.with_received(|known| known.number) != Some(list.number) {
                    tracing::info!(
                        number = list.number,
                        tokens = list.tokens.len(),
                        "a list of rights is in force"
                    );
                }
                let grants = grants(&list, &self.policy.vetoes);
                *self.received.write() = Some(Arc::new(Received { list, grants }));
            }
            Ok(None) => {
                tracing::warn!("the list of rights of another node is not in force any more");
                *self.received.write() = None;
            }
            Err(error) => {
                tracing::error!(%error, "the list of rights cannot be read; the one read last stays in force");
            }
        }
        *self.received_stamp.write() = at;
    }
}

/// True when one of these vetoes removes an action on a stream, or without tags on its table.
pub(super) fn is_vetoed(
    vetoes: &[AccessRule],
    action: Action,
    table: &str,
    tags: &[(String, String)],
) -> bool {
    vetoes.iter().any(|veto| {
        let is_table = tags.is_empty() && veto.pattern.may_concern(table);
        veto.action == action && (is_table || veto.pattern.matches(table, tags))
    })
}
