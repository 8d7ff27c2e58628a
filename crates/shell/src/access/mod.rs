//! Access control.
//!
//! Every request has an [`Access`], made of its token, or of the absence of tokens, before a route
//! handles it. Routes check each stream that they access, and the parts of a table that they show
//! ([`visibility`]), against the [`Access`]. Invisible streams are answered like absent ones.
//!
//! Invariants: the rights of an `Access` never grow; when tokens are in use, a request without a
//! valid token does not have an `Access`. Concurrency: the valid tokens are one immutable
//! [`tokens::Tokens`] that is replaced as a whole.

pub mod guard;
pub(crate) mod host;
mod revocations;
pub mod rights;
pub mod rules;
pub mod ticket;
mod ticket_keys;
mod tickets;
pub mod token;
pub mod tokens;
pub mod visibility;

use crate::error::ErrorAnswer;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use guard::{Guard, is_vetoed};
use headwater::StreamName;
use rules::{AccessRule, Action};
use std::sync::Arc;
use ticket::Ticket;
use tokens::Grant;

/// Longest name of a producer, as the engine has it.
pub const PRODUCER_BYTES_MAX: usize = 255;

/// Rights of a request.
#[derive(Debug, Clone)]
pub enum Access {
    /// Tokens are not in use: everything is allowed.
    Open {
        /// Tells whether tokens have come into use since.
        guard: Arc<Guard>,
    },
    /// Rights of a token.
    Token {
        /// The token.
        grant: Arc<Grant>,
        /// Tells whether the token has been revoked since.
        guard: Arc<Guard>,
    },
    /// Rights of a ticket: reading, of the streams it names.
    Ticket {
        /// Subject of the ticket, with its rules for reading.
        grant: Arc<Grant>,
        /// The signed ticket.
        ticket: Arc<Ticket>,
        /// Tells whether the ticket has been revoked since.
        guard: Arc<Guard>,
    },
}

impl Access {
    /// The rules of its token; `None` = everything is allowed.
    #[must_use]
    pub fn rules(&self) -> Option<&[AccessRule]> {
        match self {
            Access::Open { .. } => None,
            Access::Token { grant, .. } | Access::Ticket { grant, .. } => Some(&grant.rules),
        }
    }

    /// Rights that its token does not have here, although its rules allow them.
    #[must_use]
    pub fn vetoes(&self) -> &[AccessRule] {
        match self {
            Access::Open { .. } => &[],
            Access::Token { grant, .. } | Access::Ticket { grant, .. } => &grant.vetoes,
        }
    }

    /// True when a veto removes the action on all streams.
    fn is_vetoed_everywhere(&self, action: Action) -> bool {
        let mut of_action = self.vetoes().iter().filter(|veto| veto.action == action);
        of_action.any(|veto| veto.pattern.is_everything())
    }

    fn guard(&self) -> &Arc<Guard> {
        let (Access::Open { guard } | Access::Token { guard, .. } | Access::Ticket { guard, .. }) =
            self;
        guard
    }

    /// True when the action is refused here, or by a ticket, whatever a token allows.
    fn is_barred(&self, action: Action) -> bool {
        let is_ticket = matches!(self, Access::Ticket { .. });
        action != Action::Read && (is_ticket || self.guard().is_read_only())
    }

    /// The only streams that the access may use; `None` = all that rules allow.
    fn named(&self) -> Option<&[StreamName]> {
        match self {
            Access::Ticket { ticket, .. } if !ticket.streams.is_empty() => Some(&ticket.streams),
            _ => None,
        }
    }

    /// True when the action is allowed on all streams.
    #[must_use]
    pub fn all(&self, action: Action) -> bool {
        !self.is_barred(action)
            && self.named().is_none()
            && self.vetoes().iter().all(|veto| veto.action != action)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.is_everything())
            })
    }

    /// True when the action is allowed on a stream.
    #[must_use]
    pub fn may(&self, action: Action, table: &str, tags: &[(String, String)]) -> bool {
        let is_it = |name: &StreamName| name.table() == table && name.tags() == tags;
        self.named().is_none_or(|named| named.iter().any(is_it))
            && self.rules_allow(action, table, tags)
    }

    /// True when rules allow this action on a stream, or without tags on its table.
    pub(crate) fn rules_allow(
        &self,
        action: Action,
        table: &str,
        tags: &[(String, String)],
    ) -> bool {
        !self.is_barred(action)
            && !is_vetoed(self.vetoes(), action, table, tags)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.matches(table, tags))
            })
    }

    /// True when the action is allowed on some table whose name is longer than `beginning` and
    /// starts with it.
    pub fn any_with_prefix(&self, action: Action, beginning: &str) -> bool {
        !self.is_barred(action)
            && !self.is_vetoed_everywhere(action)
            && self.rules().is_none_or(|rules| {
                let mut of_action = rules.iter().filter(|r| r.action == action);
                of_action.any(|r| r.pattern.may_concern_prefix(beginning))
            })
    }

    /// True when the action is allowed on any stream.
    pub fn any(&self, action: Action) -> bool {
        let mut rules = self.rules().map(|rules| rules.iter());
        !self.is_barred(action)
            && !self.is_vetoed_everywhere(action)
            && rules
                .as_mut()
                .is_none_or(|rules| rules.any(|r| r.action == action))
    }

    /// True when every stream is readable, so that no data must be left out.
    pub fn reads_all(&self) -> bool {
        self.all(Action::Read)
    }

    /// True when every stream is writable.
    pub fn writes_all(&self) -> bool {
        self.all(Action::Write)
    }

    /// True when a stream is readable.
    pub fn may_read(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Read, table, tags)
    }

    /// True when a stream is readable.
    pub fn may_read_stream(&self, stream: &StreamName) -> bool {
        self.may_read(stream.table(), stream.tags())
    }

    /// True when some stream of a table could be read; each must still be checked.
    pub fn may_read_some_of(&self, table: &str) -> bool {
        let is_it = |name: &StreamName| name.table() == table;
        if !self.named().is_none_or(|named| named.iter().any(is_it)) {
            return false;
        }
        // A veto without tags removes all streams of the table.
        let is_hidden =
            |veto: &AccessRule| veto.action == Action::Read && veto.pattern.matches(table, &[]);
        !self.vetoes().iter().any(is_hidden)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == Action::Read && r.pattern.may_concern(table))
            })
    }

    /// True when a stream is writable.
    pub fn may_write(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Write, table, tags)
    }

    /// True when a stream is writable.
    pub fn may_write_stream(&self, stream: &StreamName) -> bool {
        self.may_write(stream.table(), stream.tags())
    }

    /// Cache key of answers that depend on the rights to read: empty where everything is readable,
    /// otherwise the token, whose rules never change, or the rights of a token of a received list.
    pub fn cache_key(&self) -> String {
        match self {
            Access::Token { grant, .. } if grant.is_received && !self.reads_all() => {
                let rules = grant.rules.iter().map(ToString::to_string);
                let rules: Vec<String> = rules.collect();
                let rules = token::hex(&token::hash(&rules.join("\n")));
                format!("received {} {rules}", grant.id)
            }
            Access::Token { grant, .. } if !self.reads_all() => {
                [grant.id.as_str(), grant.name.as_str()].join(" ")
            }
            Access::Ticket { grant, ticket, .. } if !self.reads_all() => {
                let rules = grant.rules.iter().map(ToString::to_string);
                let streams = ticket.streams.iter().map(ToString::to_string);
                let parts: Vec<String> = rules.chain(streams).collect();
                format!(
                    "ticket {} {}",
                    grant.id,
                    token::hex(&token::hash(&parts.join("\n")))
                )
            }
            _ => String::new(),
        }
    }

    /// Stored name of a producer: each database has its own producers (`None` = the database
    /// without a name). A token that may write some streams only also has its own producers, so
    /// that its numbers can neither make a batch of another token look like a stored one, nor
    /// reveal such a batch.
    pub fn producer(&self, name: String, database: Option<&str>) -> String {
        let token = match self {
            // Names are unique in one list only.
            Access::Token { grant, .. } if grant.is_received && !self.writes_all() => {
                Some(grant.id.as_str())
            }
            Access::Token { grant, .. } if !self.writes_all() => Some(grant.name.as_str()),
            _ => None,
        };
        if token.is_none() && database.is_none() {
            return name;
        }
        // Headers and names of tokens and databases do not contain a line feed.
        let parts = [Some(name.as_str()), token.or(Some("")), database];
        let given = parts.into_iter().flatten();
        let own = given.collect::<Vec<_>>().join("\n");
        if own.len() <= PRODUCER_BYTES_MAX {
            own
        } else {
            token::hex(&token::hash(&own))
        }
    }

    /// True while the access is valid: false after its token is revoked or has expired, or tokens
    /// have come into use. For long-lived answers.
    pub fn is_current(&self) -> bool {
        match self {
            Access::Open { guard } => guard.is_open(),
            Access::Token { grant, guard } => guard.is_valid(grant),
            Access::Ticket { ticket, guard, .. } => guard.is_ticket_valid(ticket),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = ErrorAnswer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Access, ErrorAnswer> {
        parts.extensions.get::<Access>().cloned().ok_or_else(|| {
            // The middleware of all routes inserts it.
            ErrorAnswer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "E_INTERNAL",
                "the request was not checked",
            )
        })
    }
}
