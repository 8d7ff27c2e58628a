//! Chooses the nodes that answer a request: one node, or several, each for its streams.
//!
//! Invariant: streams that the client may not read are not looked up: they are routed and answered
//! like unknown streams.

use super::request::{About, DispatchRequest, Kind};
use super::state::DispatcherState;
use crate::access::Access;
use crate::access::ticket::Audience;
use axum::http::StatusCode;
use headwater_protocol::dispatch::{Decision, NodeIndex, StreamKey, Tables, Why};
use headwater_shell::ErrorAnswer;

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
pub(crate) struct Target {
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
pub(crate) struct Share<'a> {
    pub(crate) target: Target,
    pub(crate) about: Vec<&'a About>,
}

fn named(why: Why) -> &'static str {
    match why {
        Why::Base => "base",
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
        format!("{what}: cannot be reached now; what it holds is not lost"),
    )
    .retry_after(5)
}

/// Target of a request about everything, or about unknown streams.
pub(crate) fn whole(tables: &Tables) -> Result<Target, ErrorAnswer> {
    let (node, _) = tables.widest().ok_or_else(|| unreachable(None))?;
    Ok(Target {
        to: Destination::Node(node),
        fetches: false,
        is_relayed: false,
        why: "whole",
    })
}

fn target(
    tables: &Tables,
    asked: &DispatchRequest,
    access: &Access,
    about: &About,
) -> Result<Target, ErrorAnswer> {
    let key = StreamKey::of(&about.stream);
    let place = match access.may_read_stream(&about.stream) {
        true => tables.place(key, asked.question, asked.at, asked.client),
        false => tables.unknown(),
    };
    match place {
        Decision::Node { node, fetches, why } => Ok(Target {
            to: Destination::Node(node),
            fetches: fetches && asked.kind.fetches(),
            is_relayed: false,
            why: named(why),
        }),
        Decision::Edge {
            url,
            database,
            is_relayed,
            ..
        } => Ok(Target {
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
) -> Result<Vec<Share<'a>>, ErrorAnswer> {
    let tables = state.tables.read();
    if asked.about.is_empty() || asked.kind == Kind::Whole {
        return Ok(vec![Share {
            target: whole(&tables)?,
            about: asked.about.iter().collect(),
        }]);
    }
    let mut shares: Vec<Share<'a>> = Vec::new();
    for about in &asked.about {
        let target = target(&tables, asked, access, about)?;
        let found = shares.iter_mut().find(|share| share.target.to == target.to);
        match found {
            Some(share) => {
                share.target.fetches |= target.fetches;
                share.about.push(about);
            }
            None => shares.push(Share {
                target,
                about: vec![about],
            }),
        }
    }
    Ok(shares)
}
