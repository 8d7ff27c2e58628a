//! The list of rights of a cloud: signed where it is made, kept and enforced where it is received.
//!
//! From bottom to top: `age` the age of a received list; [`keys`] the keys that sign it at a cloud;
//! [`received`] the file of a received list; this module the policy of a node for received lists,
//! and the forms of a list as bytes and as tokens. The page is `docs/cluster/rights.md`, the bytes
//! are `docs/format/rights.md`.
//!
//! Invariants: a received list never replaces a token of the node's own list, and a veto of the
//! node only removes rights. A rule that this version does not know grants nothing. Concurrency:
//! plain data. Failure: a list that cannot be read is not in force.

pub(super) mod age;
pub mod keys;
pub mod received;

use super::rules::AccessRule;
use super::tokens::{FETCH_RULE, Grant, Tokens};
use headwater_protocol::rights::{KeyChain, RightsList, RightsToken};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Use of a list that another node sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListUse {
    /// The list is not accepted.
    #[default]
    Ignore,
    /// Its tokens are valid besides the node's own tokens. Without a list of the node's own, no
    /// token is needed, and the received list has no effect.
    Accept,
    /// As `Accept`; and tokens are in use without a list of the node's own, and before the list has
    /// arrived.
    Require,
}

impl ListUse {
    /// All uses.
    pub const ALL: [ListUse; 3] = [ListUse::Ignore, ListUse::Accept, ListUse::Require];

    /// Value of the setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ListUse::Ignore => "ignore",
            ListUse::Accept => "accept",
            ListUse::Require => "require",
        }
    }
}

/// Policy of a node for received lists.
#[derive(Debug, Clone, Default)]
pub struct RightsPolicy {
    /// Use of the list.
    pub list: ListUse,
    /// Rights that no token of the list has here.
    pub vetoes: Arc<[AccessRule]>,
    /// Highest age of a list; `None` = any.
    pub max_age: Option<Duration>,
    /// Tokens of a list above that age are not valid.
    pub refuses_stale: bool,
}

/// A time in nanoseconds since 1970; the nearest one for times beyond.
pub(super) fn nanos(at: Timestamp) -> i64 {
    let ns = at.as_nanosecond();
    let end = if ns < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(ns).unwrap_or(end)
}

fn timestamp(ns: i64) -> Timestamp {
    // Every number of nanoseconds that fits into 64 bits is within the range.
    Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::MAX)
}

impl Tokens {
    /// The list of these tokens, to be signed by the key at a position of the chain.
    #[must_use]
    pub fn rights(&self, cloud: u64, keys: KeyChain, signer: usize) -> RightsList {
        let tokens = self.grants().iter().map(|grant| RightsToken {
            id: grant.id.clone(),
            name: grant.name.clone(),
            hash: *grant.hash(),
            created_ns: nanos(grant.created),
            expires_ns: grant.expires.map(nanos),
            rules: rules_of(grant),
        });
        let removed = self.removed().map(|(id, list)| (id.to_owned(), list));
        RightsList {
            number: self.list(),
            cloud,
            keys,
            signer,
            tokens: tokens.collect(),
            removed: removed.collect(),
        }
    }
}

/// The rules of a token as text, with its budget for fetching.
fn rules_of(grant: &Grant) -> Vec<String> {
    let limit = grant.fetch_per_day.iter();
    let limit = limit.map(|limit| format!("{FETCH_RULE}{limit}"));
    limit
        .chain(grant.rules.iter().map(AccessRule::to_string))
        .collect()
}

/// The tokens of a received list under the vetoes of this node.
pub(super) fn grants(list: &RightsList, vetoes: &Arc<[AccessRule]>) -> Vec<Arc<Grant>> {
    let grants = list.tokens.iter().map(|token| {
        let rules = token.rules.iter().filter_map(|text| text.parse().ok());
        Arc::new(Grant::received(
            token,
            [
                timestamp(token.created_ns),
                timestamp(token.expires_ns.unwrap_or(0)),
            ],
            rules.collect(),
            Arc::clone(vetoes),
        ))
    });
    grants.collect()
}

#[cfg(test)]
mod tests;
