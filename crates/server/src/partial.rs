//! `partial=allow`: an answer without the copies of this node that cannot be read, which says so.
//!
//! Invariants: without the permission of the client, an answer that such a copy could change is
//! refused. With it, what is not found is not answered as absent while a copy was left out.
//! Failure: a form that cannot say that it is partial is refused.

use crate::access::Access;
use crate::access::rules::Action;
use crate::read_scope::{LeftOut, ReadScope};
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headwater_cluster::{LeftOutCopy, PARTIAL_PARAMETER, PartialUse, mark_answer};
use headwater_shell::ErrorAnswer;
use headwater_wire::query::Query;

fn is_it(part: &str) -> bool {
    part.split_once('=').map_or(part, |(name, _)| name) == PARTIAL_PARAMETER
}

/// The address without the parameter, and the parameter; `None` where it has none.
fn without(uri: &Uri) -> Option<(Uri, String)> {
    let query = uri.query()?;
    let (own, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|part| is_it(part));
    if own.is_empty() {
        return None;
    }
    let mut text = uri.path().to_owned();
    if !rest.is_empty() {
        text.push('?');
        text.push_str(&rest.join("&"));
    }
    Some((text.parse().ok()?, own.join("&")))
}

/// Permission of the client, whose parameter is taken out of the address.
fn permission(request: &mut Request) -> Result<PartialUse, ErrorAnswer> {
    let mut own = String::new();
    if let Some((uri, parameter)) = without(request.uri()) {
        *request.uri_mut() = uri;
        own = parameter;
    }
    Ok(PartialUse::of(&Query::parse(&own)?, request.headers())?)
}

/// Checks the permission of a request at a node without copies, where every answer is whole.
pub(crate) fn take_permission(request: &mut Request) -> Result<(), ErrorAnswer> {
    permission(request).map(drop)
}

/// Refusal for what was not found while copies were left out.
fn perhaps_there(left_out: &[LeftOutCopy], is_told: bool) -> ErrorAnswer {
    let named = left_out.iter().filter(|_| is_told).take(3);
    let named: Vec<String> = named.map(|copy| format!("`{}`", copy.edge)).collect();
    let which = match named.is_empty() {
        true => format!("{} copies", left_out.len()),
        false => format!("the copies of {}", named.join(", ")),
    };
    ErrorAnswer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "E_ELSEWHERE",
        format!(
            "it is in no copy that this node can read, and may be in {which}, which cannot be read"
        ),
    )
}

/// Middleware that answers without unreadable copies where the client permits it.
pub(crate) async fn allow_partial(mut request: Request, next: Next) -> Response {
    let way = match permission(&mut request) {
        Ok(way) => way,
        Err(error) => return error.into_response(),
    };
    if way == PartialUse::Refuse {
        return next.run(request).await;
    }
    let access = request.extensions().get::<Access>();
    let is_told = access.is_some_and(|access| access.all(Action::Read));
    let left_out = LeftOut::default();
    let scope = ReadScope {
        left_out: Some(left_out.clone()),
        ..ReadScope::of_task()
    };
    let response = scope.answer(next.run(request)).await;
    let copies = left_out.copies();
    if response.status() == StatusCode::NOT_FOUND && !copies.is_empty() {
        return perhaps_there(&copies, is_told).into_response();
    }
    match mark_answer(response, way, &copies, is_told).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_parameter_is_taken_out_of_the_address() {
        let taken = |text: &str| {
            let found = without(&text.parse().unwrap());
            found.map(|(uri, own)| (uri.to_string(), own))
        };
        let pair = |uri: &str, own: &str| Some((uri.to_owned(), own.to_owned()));
        assert_eq!(taken("/a?partial=allow"), pair("/a", "partial=allow"));
        assert_eq!(
            taken("/a?x=1&partial=allow&y=%3D&partial"),
            pair("/a?x=1&y=%3D", "partial=allow&partial")
        );
        assert_eq!(taken("/a?partially=allow"), None);
        assert_eq!(taken("/a"), None);
    }
}
