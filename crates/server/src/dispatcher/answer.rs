//! The answer to a question: a redirect to who answers it, or what that one answers.
//!
//! Invariants: a redirect leads to a node or to an edge, neither of which sends anybody on, so that
//! no client goes round in a circle. What is answered of a part of what there is says so.
//! Failure: a node that turns out not to answer is left out, and where the question has no body it
//! is decided anew.

use super::asked::{Asked, Kind};
use super::desk::Desk;
use super::merge::{listed, merged};
use super::plan::{Share, To, shares};
use super::relay::{Passing, broken, ticket};
use crate::access::Access;
use crate::error::ApiError;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, HeaderName, LOCATION};
use axum::http::{HeaderValue, Response, StatusCode};
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::ErrorAnswer;
use std::sync::Arc;

/// Why an answer comes from where it does.
const PLACE: HeaderName = HeaderName::from_static("x-headwater-place");
const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
const A_PART: HeaderValue =
    HeaderValue::from_static("other nodes have edges that are not in this answer");
/// The code of what could not be passed on.
const RELAY: &str = "E_RELAY";

/// Answers a question on a route.
///
/// # Errors
/// When nobody who could answer can be reached, or what is asked cannot be.
pub(crate) async fn answer(
    desk: Arc<Desk>,
    route: &'static str,
    access: Access,
    request: Request,
) -> Result<Response<Body>, ErrorAnswer> {
    let (parts, mut body) = request.into_parts();
    let asked = Asked::of(route, &parts).map_err(|e| ErrorAnswer::from(ApiError::from(e)))?;
    let passing = Passing {
        desk: &desk,
        asked: &asked,
        access: &access,
        parts: &parts,
    };
    let is_empty = body.is_end_stream();
    // Each time one node at least is found not to answer.
    let mut left = if is_empty { desk.nodes.len() } else { 0 };
    loop {
        let body = std::mem::replace(&mut body, Body::empty());
        match once(&passing, body).await {
            Err(error) if error.code == RELAY && left > 0 => left -= 1,
            answered => return answered,
        }
    }
}

async fn once(passing: &Passing<'_>, body: Body) -> Result<Response<Body>, ErrorAnswer> {
    let (desk, asked) = (passing.desk, passing.asked);
    if asked.kind == Kind::Streams && asked.about.is_empty() {
        let nodes: Vec<NodeIndex> = desk.tables.read().live().collect();
        if nodes.len() > 1 {
            let mut response = listed(passing, &nodes).await?;
            if nodes.len() < desk.nodes.len() {
                response.headers_mut().insert(WARNING, A_PART);
            }
            return Ok(response);
        }
    }
    let decided = shares(desk, asked, passing.access)?;
    match decided.as_slice() {
        [one] if asked.is_relayed || one.target.is_relayed => relayed(passing, one, body).await,
        [one] => redirect(passing, one),
        _ => merged(passing, &decided).await,
    }
}

/// Says why the answer comes from there, and of a question about everything whether it is of all.
fn dress(passing: &Passing<'_>, share: &Share<'_>, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(PLACE, HeaderValue::from_static(share.target.why));
    let widest = passing.desk.tables.read().widest();
    let is_part = widest.is_some_and(|(_, elsewhere)| !elsewhere.is_empty());
    if share.target.why == "whole" && is_part && !headers.contains_key(WARNING) {
        headers.insert(WARNING, A_PART);
    }
}

async fn relayed(
    passing: &Passing<'_>,
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
        passing.desk.figures.false_hit();
    }
    dress(passing, share, &mut response);
    Ok(response)
}

fn redirect(passing: &Passing<'_>, share: &Share<'_>) -> Result<Response<Body>, ErrorAnswer> {
    let (desk, asked, target) = (passing.desk, passing.asked, &share.target);
    let base = match &target.to {
        To::Edge { url, .. } => url.as_str(),
        To::Node(at) => desk
            .node(*at)
            .map(|node| node.public_url.as_str())
            .ok_or_else(|| broken("the node is not known"))?,
    };
    let mut more = Vec::new();
    if target.fetches {
        more.push("fetch=true".to_owned());
    }
    let ticket = ticket(desk, asked, passing.access, (&target.to, &share.about));
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
    desk.figures.redirected(target.why);
    Ok(response)
}
