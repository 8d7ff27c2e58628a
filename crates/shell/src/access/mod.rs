//! Access control.
//!
//! Every request has an [`Access`], made of its token (or of there being no tokens) before a route
//! sees it. Routes check each stream they touch against it, and the parts of a table that they show
//! ([`seen`]). Streams that may not be seen are answered like ones that do not exist.
//!
//! Invariants: an `Access` never gets wider during its life; a request without a valid token has
//! none once tokens are in use. Concurrency: the tokens in force are one immutable
//! [`tokens::Tokens`] that is replaced whole.

pub(crate) mod host;
mod revocations;
pub mod rules;
pub mod seen;
pub mod ticket;
mod ticket_keys;
mod tickets;
pub mod token;
pub mod tokens;

use crate::error::ErrorAnswer;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use headwater::StreamName;
use rules::{Action, Rule};
use std::sync::Arc;
use ticket::Ticket;
use tokens::{Grant, Guard};

/// Longest name of a producer, as the engine has it.
pub const PRODUCER_BYTES_MAX: usize = 255;

/// Rights of a request.
#[derive(Debug, Clone)]
pub enum Access {
    /// No tokens are in use: everything.
    Open {
        /// Whether tokens have come into use since.
        guard: Arc<Guard>,
    },
    /// Rights of a token.
    Token {
        /// The token.
        grant: Arc<Grant>,
        /// Whether it has been revoked since.
        guard: Arc<Guard>,
    },
    /// Rights of a ticket: reading, of the streams it names.
    Ticket {
        /// The subject of the ticket, with the rules of what it may read.
        grant: Arc<Grant>,
        /// The signed ticket.
        ticket: Arc<Ticket>,
        /// Whether it has been revoked since.
        guard: Arc<Guard>,
    },
}

impl Access {
    /// The rules of its token; `None` = everything is allowed.
    #[must_use]
    pub fn rules(&self) -> Option<&[Rule]> {
        match self {
            Access::Open { .. } => None,
            Access::Token { grant, .. } | Access::Ticket { grant, .. } => Some(&grant.rules),
        }
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

    /// The streams of which alone something may be done; `None` = all that rules allow.
    fn named(&self) -> Option<&[StreamName]> {
        match self {
            Access::Ticket { ticket, .. } if !ticket.streams.is_empty() => Some(&ticket.streams),
            _ => None,
        }
    }

    /// Whether this may be done with everything.
    #[must_use]
    pub fn all(&self, action: Action) -> bool {
        !self.is_barred(action)
            && self.named().is_none()
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.is_everything())
            })
    }

    /// Whether this may be done with a stream.
    #[must_use]
    pub fn may(&self, action: Action, table: &str, tags: &[(String, String)]) -> bool {
        let is_it = |name: &StreamName| name.table() == table && name.tags() == tags;
        self.named().is_none_or(|named| named.iter().any(is_it))
            && self.rules_allow(action, table, tags)
    }

    /// Whether rules let this be done with a stream, or with a table where there are no tags.
    pub(crate) fn rules_allow(
        &self,
        action: Action,
        table: &str,
        tags: &[(String, String)],
    ) -> bool {
        !self.is_barred(action)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.matches(table, tags))
            })
    }

    /// Whether something may be done with some table whose name begins so and goes on.
    pub fn any_behind(&self, action: Action, beginning: &str) -> bool {
        !self.is_barred(action)
            && self.rules().is_none_or(|rules| {
                let mut of_action = rules.iter().filter(|r| r.action == action);
                of_action.any(|r| r.pattern.may_concern_behind(beginning))
            })
    }

    /// Whether something may be done at all.
    pub fn any(&self, action: Action) -> bool {
        let mut rules = self.rules().map(|rules| rules.iter());
        !self.is_barred(action)
            && rules
                .as_mut()
                .is_none_or(|rules| rules.any(|r| r.action == action))
    }

    /// Whether every stream may be read, so that nothing need be left out.
    pub fn reads_all(&self) -> bool {
        self.all(Action::Read)
    }

    /// Whether every stream may be written.
    pub fn writes_all(&self) -> bool {
        self.all(Action::Write)
    }

    /// Whether a stream may be read.
    pub fn may_read(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Read, table, tags)
    }

    /// Whether a stream may be read.
    pub fn may_read_stream(&self, stream: &StreamName) -> bool {
        self.may_read(stream.table(), stream.tags())
    }

    /// True when some stream of a table could be read; each must still be checked.
    pub fn may_read_some_of(&self, table: &str) -> bool {
        let is_it = |name: &StreamName| name.table() == table;
        if !self.named().is_none_or(|named| named.iter().any(is_it)) {
            return false;
        }
        self.rules().is_none_or(|rules| {
            rules
                .iter()
                .any(|r| r.action == Action::Read && r.pattern.may_concern(table))
        })
    }

    /// Whether a stream may be written.
    pub fn may_write(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Write, table, tags)
    }

    /// Whether a stream may be written.
    pub fn may_write_stream(&self, stream: &StreamName) -> bool {
        self.may_write(stream.table(), stream.tags())
    }

    /// Cache key of answers that depend on the rights to read: an empty text where everything may
    /// be read, else the token, whose rules never change.
    pub fn kept_for(&self) -> String {
        match self {
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

    /// Stored name of a producer: each database has producers of its own (`None` = the one without
    /// a name). So has a token that may write some streams only, so that its numbers can neither
    /// make a batch of another token look like one that is stored, nor reveal it.
    pub fn producer(&self, name: String, database: Option<&str>) -> String {
        let token = match self {
            Access::Token { grant, .. } if !self.writes_all() => Some(grant.name.as_str()),
            _ => None,
        };
        if token.is_none() && database.is_none() {
            return name;
        }
        // Neither a header, nor the name of a token or a database has a line feed.
        let parts = [Some(name.as_str()), token.or(Some("")), database];
        let given = parts.into_iter().flatten();
        let own = given.collect::<Vec<_>>().join("\n");
        if own.len() <= PRODUCER_BYTES_MAX {
            own
        } else {
            token::hex(&token::hash(&own))
        }
    }

    /// Whether it still holds: false once its token is revoked or has ended, or tokens have come
    /// into use. For answers that last.
    pub fn is_current(&self) -> bool {
        match self {
            Access::Open { guard } => guard.is_open(),
            Access::Token { grant, guard } => guard.holds(grant),
            Access::Ticket { ticket, guard, .. } => guard.holds_ticket(ticket),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = ErrorAnswer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Access, ErrorAnswer> {
        parts.extensions.get::<Access>().cloned().ok_or_else(|| {
            // The layer around all routes puts it there.
            ErrorAnswer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "E_INTERNAL",
                "the request was not checked",
            )
        })
    }
}
