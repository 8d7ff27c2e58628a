//! Answer to a query: a redirect to the node that answers it, or that node's answer.
//!
//! Invariants: a redirect leads to a node or to an edge, and neither of them redirects, so that
//! redirects cannot form a cycle. An answer from a part of the nodes carries a warning. Failure: a
//! node that turns out not to answer is left out, and a query without a body is planned again.

use super::merge::{listed, merged};
use super::plan::{Destination, Share, shares};
use super::relay::{Relaying, broken, ticket};
use super::request::{DispatchRequest, Kind};
use super::state::DispatcherState;
use crate::access::Access;
use crate::error::ApiError;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, HeaderName, LOCATION};
use axum::http::{HeaderValue, Response, StatusCode};
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::ErrorAnswer;
use std::sync::Arc;

/// Reason why the answer comes from this node.
const PLACE: HeaderName = HeaderName::from_static("x-headwater-place");
const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
const A_PART: HeaderValue =
    HeaderValue::from_static("other nodes have edges that are not in this answer");
/// Code of an answer that could not be relayed.
const RELAY: &str = "E_RELAY";

/// Answers a query on a route.
///
/// # Errors
/// When no node that could answer can be reached, or the query cannot be answered.
pub(crate) async fn answer(
    state: Arc<DispatcherState>,
    route: &'static str,
    access: Access,
    request: Request,
) -> Result<Response<Body>, ErrorAnswer> {
    let (parts, mut body) = request.into_parts();
    let asked =
        DispatchRequest::of(route, &parts).map_err(|e| ErrorAnswer::from(ApiError::from(e)))?;
    let passing = Relaying {
        state: &state,
        asked: &asked,
        access: &access,
        parts: &parts,
    };
    let is_empty = body.is_end_stream();
    // Each attempt finds at least one more node that does not answer.
    let mut left = if is_empty { state.nodes.len() } else { 0 };
    loop {
        let body = std::mem::replace(&mut body, Body::empty());
        match once(&passing, body).await {
            Err(error) if error.code == RELAY && left > 0 => left -= 1,
            answered => return answered,
        }
    }
}

async fn once(passing: &Relaying<'_>, body: Body) -> Result<Response<Body>, ErrorAnswer> {
    let (state, asked) = (passing.state, passing.asked);
    if asked.kind == Kind::Streams && asked.about.is_empty() {
        let nodes: Vec<NodeIndex> = state.tables.read().live().collect();
        if nodes.len() > 1 {
            let mut response = listed(passing, &nodes).await?;
            if nodes.len() < state.nodes.len() {
                response.headers_mut().insert(WARNING, A_PART);
            }
            return Ok(response);
        }
    }
    let decided = shares(state, asked, passing.access)?;
    match decided.as_slice() {
        [one] if asked.is_relayed || one.target.is_relayed => relayed(passing, one, body).await,
        [one] => redirect(passing, one),
        _ => merged(passing, &decided).await,
    }
}

/// Adds the reason for the node, and a warning to a partial answer about everything.
fn dress(passing: &Relaying<'_>, share: &Share<'_>, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(PLACE, HeaderValue::from_static(share.target.why));
    let widest = passing.state.tables.read().widest();
    let is_part = widest.is_some_and(|(_, elsewhere)| !elsewhere.is_empty());
    if share.target.why == "whole" && is_part && !headers.contains_key(WARNING) {
        headers.insert(WARNING, A_PART);
    }
}

async fn relayed(
    passing: &Relaying<'_>,
    share: &Share<'_>,
    body: Body,
) -> Result<Response<Body>, ErrorAnswer> {
    let passed = passing
        .pass(&share.target, (&share.about, &[]), body)
        .await?;
    let is_miss = passed.status == StatusCode::SERVICE_UNAVAILABLE
        && matches!(share.target.why, "base" | "filter");
    let mut response = passed.into_response();
    if is_miss {
        passing.state.metrics.false_hit();
    }
    dress(passing, share, &mut response);
    Ok(response)
}

fn redirect(passing: &Relaying<'_>, share: &Share<'_>) -> Result<Response<Body>, ErrorAnswer> {
    let (state, asked, target) = (passing.state, passing.asked, &share.target);
    let base = match &target.to {
        Destination::Edge { url, .. } => url.as_str(),
        Destination::Node(at) => state
            .node(*at)
            .map(|node| node.public_url.as_str())
            .ok_or_else(|| broken("the node is not known"))?,
    };
    let mut more = Vec::new();
    if target.fetches {
        more.push("fetch=true".to_owned());
    }
    let ticket = ticket(state, asked, passing.access, (&target.to, &share.about));
    more.extend(ticket.map(|ticket| format!("ticket={ticket}")));
    let query = asked.query(&share.about, &more);
    let mark = if query.is_empty() { "" } else { "?" };
    let to = HeaderValue::try_from(format!("{base}{}{mark}{query}", asked.path));
    let to = to.map_err(|_| broken("the address of who answers is none"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, to);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    dress(passing, share, &mut response);
    state.metrics.redirected(target.why);
    Ok(response)
}
