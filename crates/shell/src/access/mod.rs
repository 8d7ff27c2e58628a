//! Access control.
//!
//! Every request has an [`Access`], made of its token, or of the absence of tokens, before a route
//! handles it. Routes check each stream that they access, and the parts of a table that they show
//! ([`visible_tables`]), against the [`Access`]. Invisible streams are answered like absent ones.
//!
//! Invariants: the rights of an `Access` never grow; when tokens are in use, a request without a
//! valid token does not have an `Access`. Concurrency: the valid tokens are one immutable
//! [`tokens::Tokens`] that is replaced as a whole.

pub mod guard;
pub(crate) mod host;
mod may_read;
mod revocations;
pub mod rights;
pub mod rules;
pub mod ticket;
mod ticket_keys;
mod tickets;
pub mod token;
pub mod tokens;
pub mod visible_tables;

use crate::error::ErrorAnswer;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use guard::Guard;
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
