//! `fetch=true`: missing ranges of a copy that an answer needs are fetched from its edge, and
//! stored, before the request is answered.
//!
//! Invariants: a request is repeated only where it was answered "elsewhere" and depends only on the
//! address; only ranges that readers missed are fetched, bounded by the copy, within the time of
//! the request. Failure: if no data arrives, the answer stays "elsewhere".

use crate::app::App;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use headwater_shell::AnsweredCode;
use std::sync::Arc;
use std::time::Instant;

/// Maximum rounds of an answer that repeatedly finds missing ranges: footers lead to blocks, and
/// blocks to rows.
const ROUNDS_MAX: usize = 32;
const PARAMETER: &str = "fetch=true";

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
    let mut rounds = 0;
    loop {
        let again = Request::from_parts(parts.clone(), Body::empty());
        let response = next.clone().run(again).await;
        let code = response.extensions().get::<AnsweredCode>();
        rounds += 1;
        if code != Some(&AnsweredCode("E_ELSEWHERE")) || rounds > ROUNDS_MAX {
            return response;
        }
        let left = until.saturating_duration_since(Instant::now());
        match fleet.fetch_wanted(left).await {
            Ok(true) => {}
            Ok(false) => return response,
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
