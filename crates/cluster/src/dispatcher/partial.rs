//! Queries about everything where no node has everything: they are refused, or, if the client
//! allows it, answered in part, and the answer says so ([`crate::partial_answer`]).
//!
//! Invariant: names of edges are shown only to clients that may read everything.

use super::state::DispatcherState;
use crate::partial_answer::told_missing;
use axum::http::{HeaderMap, StatusCode};
use headwater_protocol::dispatch::{Missing, NodeIndex};
use headwater_shell::ErrorAnswer;
use headwater_shell::access::Access;
use headwater_shell::access::rules::Action;
use headwater_types::Timestamp;
use headwater_wire::instant::Rfc3339;
use serde_json::{Value, json};

/// An instant to the second.
fn instant(at: Timestamp) -> String {
    format!("{:.0}", Rfc3339(at))
}

/// One missing database or node, for a client.
fn described(state: &DispatcherState, missing: &Missing) -> Value {
    let nodes = missing.nodes.iter().filter_map(|at| state.node(*at));
    let nodes: Vec<&str> = nodes.map(|node| node.public_url.as_str()).collect();
    json!({
        "edge": missing.edge,
        "nodes": nodes,
        "unreachable_since": missing.since.map(instant),
    })
}

/// List of what is missing, for a client with this access.
pub(crate) fn list(state: &DispatcherState, access: &Access, missing: &[Missing]) -> Value {
    match access.all(Action::Read) {
        true => missing.iter().map(|m| described(state, m)).collect(),
        false => json!([]),
    }
}

fn phrase(state: &DispatcherState, missing: &Missing) -> String {
    let nodes = missing.nodes.iter().filter_map(|at| state.node(*at));
    let nodes: Vec<&str> = nodes.map(|node| node.public_url.as_str()).collect();
    let nodes = nodes.join(", ");
    match (&missing.edge, missing.since) {
        (Some(edge), None) => format!("the edge `{edge}`, which is only at {nodes}"),
        (Some(edge), Some(at)) => format!(
            "the edge `{edge}` of {nodes}, unreachable since {}",
            instant(at)
        ),
        (None, None) => format!("what {nodes} has of its own or has not reported"),
        (None, Some(at)) => format!("the rows of {nodes}, unreachable since {}", instant(at)),
    }
}

/// Edges that nodes left out of their answers.
#[derive(Default)]
pub(crate) struct LeftOutEdges {
    pub(crate) edges: Vec<(NodeIndex, String)>,
    /// True if a node left out any, named or not.
    pub(crate) is_partial: bool,
}

impl LeftOutEdges {
    /// Adds what the headers of a node's answer say.
    pub(crate) fn add(&mut self, node: NodeIndex, headers: &HeaderMap) {
        if let Some(edges) = told_missing(headers) {
            self.is_partial = true;
            self.edges
                .extend(edges.into_iter().map(|edge| (node, edge)));
        }
    }
}

/// Adds edges that a node left out of its answer to what is missing: it has copies of them that it
/// cannot read, which its inventory may not say yet.
pub(crate) fn with_left_out(missing: &[Missing], left_out: &[(NodeIndex, String)]) -> Vec<Missing> {
    let mut all = missing.to_vec();
    for (node, edge) in left_out {
        let is_it = |known: &Missing| known.edge.as_deref() == Some(edge.as_str());
        if !all.iter().any(is_it) {
            all.push(Missing {
                edge: Some(edge.clone()),
                nodes: vec![*node],
                since: None,
            });
        }
    }
    all
}

/// Refusal of a query about everything.
pub(crate) fn refused(
    state: &DispatcherState,
    access: &Access,
    missing: &[Missing],
) -> ErrorAnswer {
    const SHOWN: usize = 5;
    let what = match access.all(Action::Read) {
        true => {
            let mut what: Vec<String> = missing
                .iter()
                .take(SHOWN)
                .map(|m| phrase(state, m))
                .collect();
            if missing.len() > SHOWN {
                what.push(format!("{} more", missing.len().saturating_sub(SHOWN)));
            }
            what.join("; ")
        }
        false => format!("{} databases or nodes", missing.len()),
    };
    let message = format!(
        "no node has the data of all edges; missing: {what}; name streams, or allow a partial answer with partial=allow"
    );
    let mut answer =
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, "E_PARTIAL", message).retry_after(5);
    let list = list(state, access, missing);
    answer.details.insert("missing".to_owned(), list);
    answer
}
