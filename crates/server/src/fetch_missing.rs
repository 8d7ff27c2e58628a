//! `fetch=true`: missing ranges of a copy that an answer needs are fetched from its edge, and
//! stored, before the request is answered.
//!
//! Invariants: a request is repeated only where it was answered "elsewhere" and depends only on the
//! address; only ranges that readers missed are fetched, bounded by the copy, within the time of
//! the request, and by the budget of its token: what a token's requests missed is counted for it,
//! also where it comes through a dispatcher, with a ticket. Failure: if no data arrives, the answer
//! stays "elsewhere".

use crate::access::Access;
use crate::app::App;
use crate::read_scope::ReadScope;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headwater_cluster::{EdgeCopies, FetchReader, Fetched, OverBudget};
use headwater_shell::{AnsweredCode, ErrorAnswer};
use headwater_wire::instant::Rfc3339;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Maximum rounds of an answer that repeatedly finds missing ranges: footers lead to blocks, and
/// blocks to rows.
const ROUNDS_MAX: usize = 32;
const PARAMETER: &str = "fetch=true";
const ELSEWHERE: &str = "E_ELSEWHERE";
/// Header that says why nothing more was fetched, and its value.
const FETCH: HeaderName = HeaderName::from_static("x-headwater-fetch");
const OVER_BUDGET: HeaderValue = HeaderValue::from_static("over-budget");
/// Largest body of a refusal that is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The address without the parameter; `None` when the parameter is absent.
fn without(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    if !query.split('&').any(|part| part == PARAMETER) {
        return None;
    }
    let rest: Vec<&str> = query.split('&').filter(|part| *part != PARAMETER).collect();
    let mut text = uri.path().to_owned();
    if !rest.is_empty() {
        text.push('?');
        text.push_str(&rest.join("&"));
    }
    text.parse().ok()
}

/// Reader on behalf of the token of a request.
fn reader_of(fleet: &EdgeCopies, access: Option<&Access>) -> FetchReader {
    match access {
        Some(Access::Token { grant, .. } | Access::Ticket { grant, .. }) => {
            fleet.fetch_reader(&grant.id, grant.fetch_per_day)
        }
        Some(Access::Open { .. }) | None => fleet.fetch_reader("", None),
    }
}

/// The refusal of an answer for which a budget does not suffice.
async fn over_budget(refused: Response, over: &OverBudget) -> Response {
    let body = axum::body::to_bytes(refused.into_body(), ERROR_BYTES_MAX).await;
    let body: Option<Value> = body.ok().and_then(|b| serde_json::from_slice(&b).ok());
    let before = body.as_ref().and_then(|body| body.get("message")?.as_str());
    let until = format!("{:.0}", Rfc3339(over.until));
    let OverBudget {
        per_day,
        spent,
        needed,
        seconds,
        ..
    } = *over;
    let message = format!(
        "{}; nothing more is fetched for this token until {until}: it needs {needed} bytes next, and has spent {spent} of {per_day} today",
        before.unwrap_or("the data is elsewhere")
    );
    let mut answer = ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, ELSEWHERE, message);
    let details = json!({
        "per_day": per_day, "spent": spent, "needed": needed, "until": until,
    });
    answer.details.insert("fetch_budget".to_owned(), details);
    let mut response = answer.retry_after(seconds.max(1)).into_response();
    response.headers_mut().insert(FETCH, OVER_BUDGET);
    response
}

/// Middleware that repeats a request after each fetch of its missing ranges.
pub(crate) async fn fetch_missing(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (true, Some(uri)) = (request.method() == Method::GET, without(request.uri())) else {
        return next.run(request).await;
    };
    *request.uri_mut() = uri;
    let Some(fleet) = app.fleet.as_ref().map(Arc::clone) else {
        return next.run(request).await;
    };
    // The answer itself needs a part of the time.
    let until = Instant::now() + app.settings.request_timeout.mul_f64(0.8);
    let (parts, _) = request.into_parts();
    let reader = reader_of(&fleet, parts.extensions.get::<Access>());
    let scope = ReadScope {
        reader: reader.number,
        ..ReadScope::of_task()
    };
    let mut rounds = 0;
    loop {
        let again = Request::from_parts(parts.clone(), Body::empty());
        let response = scope.clone().answer(next.clone().run(again)).await;
        let code = response.extensions().get::<AnsweredCode>();
        rounds += 1;
        if code != Some(&AnsweredCode(ELSEWHERE)) || rounds > ROUNDS_MAX {
            return response;
        }
        let left = until.saturating_duration_since(Instant::now());
        match fleet.fetch_missed(&reader, left).await {
            Ok(Fetched::Arrived) => {}
            Ok(Fetched::Nothing) => return response,
            Ok(Fetched::OverBudget(over)) => return over_budget(response, &over).await,
            Err(error) => {
                tracing::warn!(%error, "missing ranges of a request could not be fetched");
                return response;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_parameter_is_taken_out_of_the_address() {
        let taken = |text: &str| without(&text.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(taken("/a?fetch=true").unwrap(), "/a");
        assert_eq!(taken("/a?x=1&fetch=true&y=%3D").unwrap(), "/a?x=1&y=%3D");
        assert_eq!(taken("/a?fetch=false"), None);
        assert_eq!(taken("/a"), None);
    }
}
