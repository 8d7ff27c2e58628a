//! Pages of other origins that may send requests to this server: only the origins of a list.
//!
//! Invariant: an origin that is not on the list does not receive a header by which its pages could
//! read an answer. A page has the rights of its token.

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;

/// Methods that pages may use; the next constants are the headers.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, content-encoding, accept, if-none-match, x-request-id, \
     x-headwater-producer, x-headwater-batch",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "etag, retry-after, x-request-id, x-headwater-version, x-headwater-warning, \
     x-headwater-repeated, x-headwater-until, x-headwater-live-lag",
);
/// Time for which a browser may cache the permission: an hour.
const MAX_AGE: HeaderValue = HeaderValue::from_static("3600");

/// Parses an origin as browsers send it: a scheme, a name, optionally a port, without a trailing
/// path.
///
/// # Errors
/// The expected form.
pub fn parse_origin(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        !name.is_empty() && !name.contains(['/', '@', ' ', '?', '#', '*']) && name.is_ascii()
    };
    match text.split_once("://") {
        Some(("http" | "https", name)) if is_name(name) => Ok(text.to_ascii_lowercase()),
        _ => Err(format!(
            "`{text}` is not an origin: expected http://NAME or https://NAME, with a port if there is one and no path"
        )),
    }
}

/// Origin of a request, if it is in the list.
pub(crate) fn welcome(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    origins
        .iter()
        .any(|known| known.eq_ignore_ascii_case(text))
        .then(|| origin.clone())
}

/// True for a browser's preflight request.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that.
pub(crate) fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    response
}

/// Lets the pages of an origin read an answer.
pub(crate) fn open_to(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    // Without this header a browser with isolated pages would withhold the answer from them.
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("cross-origin"),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn origins_are_a_scheme_a_name_and_perhaps_a_port() {
        assert_eq!(
            parse_origin("https://Board.example:3000").unwrap(),
            "https://board.example:3000"
        );
        for wrong in [
            "*",
            "board.example",
            "https://a/",
            "ftp://a",
            "https://",
            "https://*.a",
            "null",
        ] {
            assert!(parse_origin(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn only_origins_of_the_list_are_welcome() {
        let origins = ["https://board.example".to_owned()];
        let of = |origin: &'static str| {
            let value = HeaderValue::from_static(origin);
            welcome(&origins, &HeaderMap::from_iter([(header::ORIGIN, value)]))
        };
        assert_eq!(
            of("https://board.example").unwrap(),
            "https://board.example"
        );
        for other in ["https://board.example:444", "http://board.example", "null"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(welcome(&origins, &HeaderMap::new()), None);
    }
}
