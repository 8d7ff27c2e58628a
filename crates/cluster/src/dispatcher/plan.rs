//! Splits a request into shares, one for each node that answers a part of its streams;
//! `protocol/dispatch/decision` decides which node has a stream.
//!
//! Invariant: streams that the client may not read are not looked up: they are routed and answered
//! like unknown streams.

use super::partial::refused;
use super::request::{About, AnswerKind, DispatchRequest};
use super::state::DispatcherState;
use crate::partial_answer::PARTIAL;
use axum::http::StatusCode;
use headwater_protocol::dispatch::{Decision, Missing, NodeIndex, StreamKey, Tables, Why};
use headwater_shell::ErrorAnswer;
use headwater_shell::access::Access;
use headwater_shell::access::ticket::Audience;

/// Node or edge that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Node(NodeIndex),
    /// An edge at its own address.
    Edge {
        url: String,
        audience: Audience,
    },
}

/// Target of a request, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    pub(crate) to: Destination,
    /// Fetches missing ranges before the answer.
    pub(crate) fetches: bool,
    /// The client cannot be redirected there.
    pub(crate) is_relayed: bool,
    /// Reason for the target, for metrics and the header.
    pub(crate) why: &'static str,
}

/// Part of a request, and the node that answers it.
#[derive(Debug)]
pub(crate) struct RequestShare<'a> {
    pub(crate) target: RequestTarget,
    pub(crate) about: Vec<&'a About>,
    /// Data that is missing in the answer, which the client allows.
    pub(crate) missing: Vec<Missing>,
}

fn named(why: Why) -> &'static str {
    match why {
        Why::Base => "base",
        Why::Span => "span",
        Why::Filter => "filter",
        Why::Edge => "edge",
        Why::Unknown => "unknown",
    }
}

/// Error when no node that could answer can be reached, or not all nodes have reported their
/// inventory yet.
pub(crate) fn unreachable(edge: Option<&str>) -> ErrorAnswer {
    let what = match edge {
        Some(edge) => format!("the edge `{edge}`, and every node that answers for it"),
        None => "a node that may have it".to_owned(),
    };
    ErrorAnswer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "E_UNREACHABLE",
        format!("{what}: cannot be reached now; its data is not lost"),
    )
    .retry_after(5)
}

/// Target of a request that names no stream.
///
/// # Errors
/// When no node answers, or none has everything and the client did not allow a partial answer.
fn whole(
    state: &DispatcherState,
    tables: &Tables,
    request: &DispatchRequest,
    access: &Access,
) -> Result<RequestTarget, ErrorAnswer> {
    let coverage = tables.coverage();
    let node = coverage.node.ok_or_else(|| unreachable(None))?;
    let why = match request.is_about_everything() {
        false => "node",
        true if coverage.is_whole() => "whole",
        true if request.allows_partial => PARTIAL,
        true => return Err(refused(state, access, &coverage.missing)),
    };
    Ok(RequestTarget {
        to: Destination::Node(node),
        fetches: false,
        // An answer that may be partial is marked here.
        is_relayed: request.allows_partial || request.client.is_browser,
        why,
    })
}

fn target(
    tables: &Tables,
    asked: &DispatchRequest,
    access: &Access,
    about: &About,
) -> Result<RequestTarget, ErrorAnswer> {
    let key = StreamKey::of(&about.stream);
    let place = match access.may_read_stream(&about.stream) {
        true => tables.decide(key, asked.question, asked.at, asked.client),
        false => tables.unknown(),
    };
    match place {
        Decision::Node { node, fetches, why } => Ok(RequestTarget {
            to: Destination::Node(node),
            fetches: fetches && asked.kind.fetches(),
            is_relayed: asked.client.is_browser,
            why: named(why),
        }),
        Decision::Edge {
            url,
            database,
            is_relayed,
            ..
        } => Ok(RequestTarget {
            to: Destination::Edge {
                url,
                audience: Audience {
                    identity: database.identity,
                    incarnation: database.incarnation,
                },
            },
            fetches: false,
            is_relayed,
            why: named(Why::Edge),
        }),
        // A client that may read the stream is told the reason.
        Decision::Nowhere { edge } => Err(unreachable(edge.as_deref())),
    }
}

/// Shares of a request: each has at least one stream, or the only share has none.
pub(crate) fn shares<'a>(
    state: &DispatcherState,
    asked: &'a DispatchRequest,
    access: &Access,
) -> Result<Vec<RequestShare<'a>>, ErrorAnswer> {
    let tables = state.tables.read();
    if asked.about.is_empty() || asked.kind == AnswerKind::Whole {
        let target = whole(state, &tables, asked, access)?;
        let missing = match target.why {
            PARTIAL => tables.coverage().missing.clone(),
            _ => Vec::new(),
        };
        return Ok(vec![RequestShare {
            target,
            about: asked.about.iter().collect(),
            missing,
        }]);
    }
    let mut shares: Vec<RequestShare<'a>> = Vec::new();
    for about in &asked.about {
        let target = target(&tables, asked, access, about)?;
        let found = shares.iter_mut().find(|share| share.target.to == target.to);
        match found {
            Some(share) => {
                share.target.fetches |= target.fetches;
                share.about.push(about);
            }
            None => shares.push(RequestShare {
                target,
                about: vec![about],
                missing: Vec::new(),
            }),
        }
    }
    Ok(shares)
}
