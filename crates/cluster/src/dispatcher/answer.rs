//! Answer to a query: a redirect to the node that answers it, or that node's answer.
//!
//! Invariants: a redirect leads to a node or to an edge, and neither of them redirects, so that
//! redirects cannot form a cycle. An answer from a part of the nodes carries a warning. Failure: a
//! node that turns out not to answer is left out, and a query without a body is planned again.

use super::equal_names::merged_page;
use super::merge::{listed, merged};
use super::partial::{LeftOutEdges, list, refused, with_left_out};
use super::plan::{Destination, RequestShare, shares};
use super::relay::{Relaying, relay_failed, ticket};
use super::request::{AnswerKind, DispatchRequest};
use super::state::DispatcherState;
use crate::partial_answer::{MISSING, PARTIAL, PLACE, mark};
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, HeaderName, LOCATION};
use axum::http::{HeaderValue, Response, StatusCode};
use headwater_protocol::dispatch::Coverage;
use headwater_shell::ErrorAnswer;
use headwater_shell::access::Access;
use std::sync::Arc;

const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
const A_PART: HeaderValue = HeaderValue::from_static("edges of other nodes are not in this answer");
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
    let asked = DispatchRequest::of(route, &parts)?;
    let passing = Relaying {
        state: &state,
        request: &asked,
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
    let (state, asked) = (passing.state, passing.request);
    if asked.kind == AnswerKind::Streams && asked.about.is_empty() {
        let coverage = Arc::clone(state.tables.read().coverage());
        if !coverage.is_whole() && coverage.apart.len() > 1 {
            return every_stream(passing, &coverage).await;
        }
    }
    let decided = shares(state, asked, passing.access)?;
    match decided.as_slice() {
        [one] if asked.is_relayed || one.target.is_relayed => relayed(passing, one, body).await,
        [one] => redirect(passing, one),
        _ => merged(passing, &decided).await,
    }
}

/// List of the streams of all nodes, where no node has every database.
async fn every_stream(
    passing: &Relaying<'_>,
    coverage: &Coverage,
) -> Result<Response<Body>, ErrorAnswer> {
    let missing = &coverage.missing_apart;
    if !missing.is_empty() && !passing.request.allows_partial {
        return Err(refused(passing.state, passing.access, missing));
    }
    let (response, left_out) = match merged_page(passing, &coverage.apart).await? {
        Some(merged) => merged,
        None => listed(passing, &coverage.apart).await?,
    };
    let missing = with_left_out(missing, &left_out.edges);
    match missing.is_empty() && !left_out.is_partial {
        true => Ok(response),
        false => mark(response, list(passing.state, passing.access, &missing)).await,
    }
}

/// Adds the reason for the node, and a warning to an answer about one of several nodes.
fn dress(passing: &Relaying<'_>, share: &RequestShare<'_>, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(PLACE, HeaderValue::from_static(share.target.why));
    let is_whole = || passing.state.tables.read().coverage().is_whole();
    if share.target.why == "node" && !is_whole() && !headers.contains_key(WARNING) {
        headers.insert(WARNING, A_PART);
    }
}

async fn relayed(
    passing: &Relaying<'_>,
    share: &RequestShare<'_>,
    body: Body,
) -> Result<Response<Body>, ErrorAnswer> {
    let passed = passing
        .forward(&share.target, (&share.about, &[]), body)
        .await?;
    let is_miss = passed.status == StatusCode::SERVICE_UNAVAILABLE
        && matches!(share.target.why, "base" | "span" | "filter");
    let mut response = passed.into_response();
    if is_miss {
        passing.state.metrics.false_hit();
    }
    dress(passing, share, &mut response);
    let mut left_out = LeftOutEdges::default();
    if let Destination::Node(node) = share.target.to {
        left_out.add(node, response.headers());
    }
    response.headers_mut().remove(MISSING);
    if share.target.why != PARTIAL && !left_out.is_partial {
        return Ok(response);
    }
    let missing = with_left_out(&share.missing, &left_out.edges);
    let missing = list(passing.state, passing.access, &missing);
    response
        .headers_mut()
        .insert(PLACE, HeaderValue::from_static(PARTIAL));
    mark(response, missing).await
}

fn redirect(
    passing: &Relaying<'_>,
    share: &RequestShare<'_>,
) -> Result<Response<Body>, ErrorAnswer> {
    let (state, asked, target) = (passing.state, passing.request, &share.target);
    let base = match &target.to {
        Destination::Edge { url, .. } => url.as_str(),
        Destination::Node(at) => state
            .node(*at)
            .map(|node| node.public_url.as_str())
            .ok_or_else(|| relay_failed("this dispatcher has no address of the node yet"))?,
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
    let to = to.map_err(|_| relay_failed("the address of the node that answers is not valid"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, to);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    dress(passing, share, &mut response);
    state.metrics.redirected(target.why);
    Ok(response)
}
