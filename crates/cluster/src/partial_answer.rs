//! Partial answers of nodes and dispatchers: how a client allows them, and how their bodies say
//! that they are partial.
//!
//! Invariants: a partial answer has the member `partial` in its body, which lists what is missing;
//! a form that cannot have it is refused. Concurrency: an answer is passed on as it is made; a few
//! bytes are withheld. Failure: a truncated answer stays truncated, without the member.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use futures_util::stream;
use headwater_shell::{ErrorAnswer, NO_CACHE};
use headwater_wire::query::{Query, QueryError};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

/// Parameter by which a client allows partial answers.
pub const PARTIAL_PARAMETER: &str = "partial";
/// Header by which a client allows partial answers.
const PARTIAL_HEADER: &str = "x-headwater-partial";
/// Header with the reason why an answer comes from a node, and its value for a partial answer.
pub(crate) const PLACE: HeaderName = HeaderName::from_static("x-headwater-place");
/// Reason of an answer about a part of the data.
pub(crate) const PARTIAL: &str = "partial";
/// Header by which a node tells a dispatcher what its answer lacks, not by its body.
pub(crate) const MISSING: HeaderName = HeaderName::from_static("x-headwater-missing");
/// Value of the header by which a dispatcher allows a partial answer, and marks it itself.
pub(crate) const UNMARKED: HeaderValue = HeaderValue::from_static("unmarked");
/// The largest number of names that the header lists.
const NAMED_MAX: usize = 32;
/// Bytes at the end of a body that are withheld until the next ones arrive.
const TAIL: usize = 64;

/// Permission of a client for partial answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialUse {
    /// An answer that would be partial is refused.
    Refuse,
    /// Its body says what is missing.
    Allow,
    /// A dispatcher asks: a header says what is missing.
    Unmarked,
}

impl PartialUse {
    /// Reads the permission of a request from its parameter and its header.
    ///
    /// # Errors
    /// For a value of the parameter that is not allowed.
    pub fn of(query: &Query, headers: &HeaderMap) -> Result<PartialUse, QueryError> {
        let expected = "expected allow or refuse";
        let by_query = match query.one(PARTIAL_PARAMETER)? {
            None | Some("refuse") => PartialUse::Refuse,
            Some("allow") => PartialUse::Allow,
            Some(other) => return Err(QueryError::value(PARTIAL_PARAMETER, expected, other)),
        };
        Ok(match headers.get(PARTIAL_HEADER) {
            Some(value) if value == UNMARKED => PartialUse::Unmarked,
            Some(value) if value == "allow" => PartialUse::Allow,
            _ => by_query,
        })
    }
}

/// A copy that is left out of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOutCopy {
    /// Name of its edge or closed part.
    pub edge: String,
    /// Reason why it cannot be read.
    pub reason: String,
}

/// Marks a successful answer of a node without these copies, of which names are told only where
/// `is_told`.
///
/// # Errors
/// When the answer's format is not a JSON object.
pub async fn mark_answer(
    mut response: Response<Body>,
    way: PartialUse,
    left_out: &[LeftOutCopy],
    is_told: bool,
) -> Result<Response<Body>, ErrorAnswer> {
    if left_out.is_empty() || !response.status().is_success() {
        return Ok(response);
    }
    let place = HeaderValue::from_static(PARTIAL);
    if way == PartialUse::Unmarked {
        let named = left_out.iter().filter(|_| is_told).take(NAMED_MAX);
        let named: Vec<&str> = named.map(|copy| copy.edge.as_str()).collect();
        let value = HeaderValue::try_from(json!(named).to_string());
        let value = value.unwrap_or(HeaderValue::from_static("[]"));
        response.headers_mut().insert(MISSING, value);
        response.headers_mut().insert(PLACE, place);
        return Ok(response);
    }
    let named = left_out.iter().filter(|_| is_told).map(|copy| {
        json!({
            "edge": copy.edge, "nodes": [], "unreachable_since": null, "reason": copy.reason,
        })
    });
    let mut marked = mark(response, named.collect()).await?;
    marked.headers_mut().insert(PLACE, place);
    Ok(marked)
}

/// Names of the copies that the answer of a node lacks, as its header says; `None` where it lacks
/// none.
pub(crate) fn told_missing(headers: &HeaderMap) -> Option<Vec<String>> {
    let text = headers.get(MISSING)?.to_str().ok()?;
    let names: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    Some(names.into_iter().take(NAMED_MAX).collect())
}

/// Refusal of a form that cannot say that it is partial.
fn no_form() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::NOT_ACCEPTABLE,
        "E_PARTIAL",
        "the answer is partial, and its format cannot say so: request a JSON object",
    )
}

/// Error for an answer that ended before its first bytes.
fn cut(error: &axum::Error) -> ErrorAnswer {
    let message = format!("cannot relay the answer of another node: {error}; retry");
    ErrorAnswer::new(StatusCode::BAD_GATEWAY, "E_RELAY", message).retry_after(1)
}

/// A body whose last bytes are withheld.
struct Marked {
    body: Body,
    tail: Vec<u8>,
    /// Member to add; `None` after the end.
    member: Option<String>,
}

impl Marked {
    /// The next bytes; `None` after the end.
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            self.member.as_ref()?;
            match self.body.frame().await {
                Some(Err(error)) => {
                    self.member = None;
                    return Some(Err(error));
                }
                Some(Ok(frame)) => {
                    self.tail.extend_from_slice(frame.data_ref()?);
                    let sent = self.tail.len().saturating_sub(TAIL);
                    if sent > 0 {
                        let rest = self.tail.split_off(sent);
                        return Some(Ok(std::mem::replace(&mut self.tail, rest).into()));
                    }
                }
                None => {
                    let member = self.member.take()?;
                    return Some(closed(&self.tail, &member).map(Bytes::from));
                }
            }
        }
    }
}

/// The end of an object with one member more.
fn closed(tail: &[u8], member: &str) -> Result<Vec<u8>, axum::Error> {
    let object = tail.trim_ascii_end().strip_suffix(b"}");
    let object = object.ok_or_else(|| axum::Error::new("the answer is not a JSON object"))?;
    let is_empty = object.trim_ascii_end().ends_with(b"{");
    let mut out = object.to_vec();
    out.extend_from_slice(if is_empty { b"" } else { b"," });
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"}\n");
    Ok(out)
}

/// Adds the member `partial` to a successful answer.
///
/// # Errors
/// When the answer's format is not a JSON object.
pub(crate) async fn mark(
    response: Response<Body>,
    missing: Value,
) -> Result<Response<Body>, ErrorAnswer> {
    let (mut head, mut body) = response.into_parts();
    if !head.status.is_success() {
        return Ok(Response::from_parts(head, body));
    }
    let kind = head.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        return Err(no_form());
    }
    let mut first = Vec::new();
    while first.trim_ascii_start().is_empty() && !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| cut(&error))?;
        first.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    if !first.trim_ascii_start().starts_with(b"{") {
        return Err(no_form());
    }
    let mut value = Map::new();
    value.insert("missing".to_owned(), missing);
    let marked = Marked {
        body,
        tail: first,
        member: Some(format!("\"partial\":{}", Value::Object(value))),
    };
    let frames = stream::unfold(marked, async |mut marked| {
        let bytes = marked.next().await?;
        Some((bytes, marked))
    });
    head.headers.remove(ETAG);
    head.headers.insert(CACHE_CONTROL, NO_CACHE);
    Ok(Response::from_parts(head, Body::from_stream(frames)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    async fn marked(kind: &str, pieces: &[&str]) -> Result<String, u16> {
        let pieces: Vec<Result<Bytes, axum::Error>> = pieces
            .iter()
            .map(|piece| Ok(Bytes::copy_from_slice(piece.as_bytes())))
            .collect();
        let response = Response::builder()
            .header(CONTENT_TYPE, kind)
            .body(Body::from_stream(stream::iter(pieces)))
            .unwrap();
        let marked = mark(response, json!([{"edge": "a"}])).await;
        let marked = marked.map_err(|error| error.status.as_u16())?;
        let bytes = axum::body::to_bytes(marked.into_body(), 1 << 20).await;
        bytes
            .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
            .map_err(|_| 0)
    }

    #[tokio::test]
    async fn an_object_gets_the_member_wherever_its_bytes_are_divided() {
        let long = format!("{{\"rows\":[\"{}\"]}}\n", "x}".repeat(100));
        for text in ["{}", " {\"a\":1} \n", "{\"a\":{\"b\":[]}}", &long] {
            for at in 0..=text.len() {
                let (before, after) = text.split_at(at);
                let found = marked("application/json", &[before, after]).await.unwrap();
                let mut expected: Value = serde_json::from_str(text).unwrap();
                expected["partial"] = json!({"missing": [{"edge": "a"}]});
                let found: Value = serde_json::from_str(&found).unwrap();
                assert_eq!(found, expected, "{text} at {at}");
            }
        }
    }

    #[tokio::test]
    async fn a_form_without_a_place_for_it_is_refused_and_a_cut_answer_stays_cut() {
        assert_eq!(marked("text/csv", &["a,b\n"]).await, Err(406));
        assert_eq!(marked("application/json", &["[1]"]).await, Err(406));
        assert_eq!(marked("application/json", &[]).await, Err(406));
        assert_eq!(marked("application/json", &["{\"a\":[1,"]).await, Err(0));
    }
}
