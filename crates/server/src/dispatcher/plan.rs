//! Who answers what is asked: one for all of it, or several, each for its streams.
//!
//! Invariant: streams that the asker may not read are not looked up: they go where what is not
//! there goes, and are answered there as it is.

use super::asked::{About, Asked, Kind};
use super::desk::Desk;
use crate::access::Access;
use crate::access::ticket::Audience;
use axum::http::StatusCode;
use headwater_protocol::dispatch::{NodeIndex, Place, StreamKey, Tables, Why};
use headwater_shell::ErrorAnswer;

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Node(NodeIndex),
    /// An edge at its own address.
    Edge {
        url: String,
        audience: Audience,
    },
}

/// Who answers, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) to: To,
    /// It is to fetch what it lacks.
    pub(crate) fetches: bool,
    /// The client cannot be sent there.
    pub(crate) is_relayed: bool,
    /// Why there, for figures and the header.
    pub(crate) why: &'static str,
}

/// Some of what is asked, and who answers it.
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

/// Nobody who could answer can be reached, or not all have told yet what they hold.
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

/// Where what is asked about everything is answered, or what is not known.
pub(crate) fn whole(tables: &Tables) -> Result<Target, ErrorAnswer> {
    let (node, _) = tables.widest().ok_or_else(|| unreachable(None))?;
    Ok(Target {
        to: To::Node(node),
        fetches: false,
        is_relayed: false,
        why: "whole",
    })
}

fn target(
    tables: &Tables,
    asked: &Asked,
    access: &Access,
    about: &About,
) -> Result<Target, ErrorAnswer> {
    let key = StreamKey::of(&about.stream);
    let place = match access.may_read_stream(&about.stream) {
        true => tables.place(key, asked.question, asked.at, asked.client),
        false => tables.unknown(),
    };
    match place {
        Place::Node { node, fetches, why } => Ok(Target {
            to: To::Node(node),
            fetches: fetches && asked.kind.fetches(),
            is_relayed: false,
            why: named(why),
        }),
        Place::Edge {
            url,
            database,
            is_relayed,
            ..
        } => Ok(Target {
            to: To::Edge {
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
        // What may be read is told why it cannot be.
        Place::Nowhere { edge } => Err(unreachable(edge.as_deref())),
    }
}

/// Who answers: shares that have a stream each at least, or one without any.
pub(crate) fn shares<'a>(
    desk: &Desk,
    asked: &'a Asked,
    access: &Access,
) -> Result<Vec<Share<'a>>, ErrorAnswer> {
    let tables = desk.tables.read();
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
