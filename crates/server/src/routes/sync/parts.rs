//! Commands about closed parts, and about which copy belongs to which edge.
//!
//! Invariants: each change is one record of the list of edges, whose number is answered.
//! Concurrency: called on threads that may wait. Failure: as [`headwater_cluster::EdgeCopies`].

use super::{INVITE_VALID, fleet};
use crate::app::App;
use crate::error::ApiError;
use axum::http::StatusCode;
use headwater::Timestamp;
use headwater_cluster::{Roster, StreamPattern};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Default number of streams in an answer.
const STREAMS: usize = 20;
/// Maximum number of streams in an answer.
const STREAMS_MAX: usize = 10_000;

/// Names of the commands.
pub(super) const OPS: [&str; 13] = [
    "remove_edge",
    "rename",
    "replace",
    "parts",
    "conflicts",
    "part_streams",
    "remove_part",
    "verify_part",
    "changes",
    "move",
    "tag",
    "undo",
    "mirror",
];

/// Command in the body of a request. The names are a promise.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum PartCommand {
    RemoveEdge {
        edge: String,
        /// Its copy is deleted.
        #[serde(default)]
        with_history: bool,
    },
    Rename {
        edge: String,
        to: String,
    },
    /// Another edge, or a machine that is invited, takes the place of an edge.
    Replace {
        edge: String,
        /// `None` = a machine of the same name is invited.
        by: Option<String>,
        /// The address under which an invited machine reaches this node.
        url: String,
        ca: Option<String>,
        valid_seconds: Option<u64>,
    },
    Parts {},
    Conflicts {},
    PartStreams {
        part: String,
        limit: Option<usize>,
    },
    RemovePart {
        part: String,
    },
    VerifyPart {
        part: String,
    },
    Changes {},
    /// Streams go from one edge or closed part to another.
    Move {
        /// `TABLE`, or `*` for every table, and perhaps tags, as in `cpu,host=raspberrypi`.
        pattern: String,
        from: String,
        to: String,
        /// The first instant that belongs to `to`, in nanoseconds since 1970; `None` = now.
        at_ns: Option<i64>,
    },
    /// Adds tags to the names of all streams of an edge, instead of those before.
    Tag {
        edge: String,
        tags: BTreeMap<String, String>,
    },
    Undo {
        change: u64,
    },
    /// A peer tells its edges and closed parts.
    Mirror(Roster),
}

pub(super) fn execute(app: &App, command: PartCommand) -> Result<Value, ApiError> {
    let fleet = fleet(app)?;
    let change = match command {
        PartCommand::RemoveEdge {
            edge,
            with_history: false,
        } => fleet.remove(&edge)?,
        PartCommand::RemoveEdge { edge, .. } => fleet.remove_with_history(&edge)?,
        PartCommand::Rename { edge, to } => fleet.rename(&edge, &to)?,
        PartCommand::Replace {
            edge,
            by,
            url,
            ca,
            valid_seconds,
        } => {
            let by = by.unwrap_or_else(|| edge.clone());
            let valid = valid_seconds.map_or(INVITE_VALID, Duration::from_secs);
            let (change, invitation) = fleet.replace(&edge, &by, &url, ca, valid)?;
            return Ok(json!({ "edge": by, "change": change, "invitation": invitation }));
        }
        PartCommand::Parts {} => return Ok(json!({ "parts": fleet.parts() })),
        PartCommand::Conflicts {} => {
            crate::conflict_report::find(app)?;
            let report = fleet.conflicts();
            return Ok(json!({
                "conflicts": report.list(), "is_complete": report.is_complete(),
            }));
        }
        PartCommand::PartStreams { part, limit } => {
            let limit = limit.unwrap_or(STREAMS).min(STREAMS_MAX);
            return Ok(json!(fleet.streams_of_part(&part, limit)?));
        }
        PartCommand::RemovePart { part } => fleet.remove_part(&part)?,
        PartCommand::VerifyPart { part } => return Ok(json!(fleet.verify_part(&part)?)),
        PartCommand::Changes {} => {
            let records = fleet.change_records();
            let described = records.iter().map(|record| {
                json!({
                    "change": record.number, "at_ns": record.at_ns,
                    "text": record.change.text(), "undone_by": record.undone_by,
                })
            });
            return Ok(json!({ "changes": described.collect::<Vec<_>>() }));
        }
        PartCommand::Mirror(roster) => return Ok(json!(fleet.mirror(&roster)?)),
        PartCommand::Move {
            pattern,
            from,
            to,
            at_ns,
        } => {
            let invalid = |error| ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", error);
            let pattern: StreamPattern = pattern.parse().map_err(invalid)?;
            fleet.move_streams(pattern, &from, &to, at_ns.map(Timestamp::from_nanos))?
        }
        PartCommand::Tag { edge, tags } => fleet.tag(&edge, tags)?,
        PartCommand::Undo { change } => fleet.undo(change)?,
    };
    Ok(json!({ "done": true, "change": change }))
}
