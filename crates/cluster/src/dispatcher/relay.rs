//! Relays a request to the node that answers it, and the answer to the client.
//!
//! Invariants: the node is shown a ticket of the client, never the dispatcher's own token; two
//! lists name the headers that are forwarded. Relayed answers are counted, and limited in number
//! and rate by settings. Concurrency: an answer is streamed; no lock is held meanwhile. Failure: a
//! node that does not answer counts as lost, and gets no requests until it answers again; a client
//! whose request ends too early gets `E_BODY`, which says nothing about the node.

use super::plan::{Destination, RequestTarget};
use super::request::{About, DispatchRequest};
use super::state::{DispatcherState, Pace};
use crate::node_client::{NodeClient, NodeClientError};
use crate::partial_answer::{MISSING, PARTIAL, UNMARKED};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use futures_util::{Stream, StreamExt};
use headwater_io::Env;
use headwater_shell::ErrorAnswer;
use headwater_shell::access::Access;
use headwater_shell::access::ticket::{Audience, TICKET_STREAMS_MAX};
use headwater_types::StreamName;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

/// Forwarded headers of requests.
const REQUEST_HEADERS: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("x-request-id"),
];
/// Forwarded headers of answers.
const ANSWER_HEADERS: [HeaderName; 12] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::CACHE_CONTROL,
    header::ETAG,
    header::RETRY_AFTER,
    HeaderName::from_static("x-accel-buffering"),
    WARNING,
    UNTIL,
    LIVE_LAG,
    MISSING,
    FETCH,
];
/// Why nothing more was fetched for an answer.
const FETCH: HeaderName = HeaderName::from_static("x-headwater-fetch");
/// Instant, in ns since 1970, up to which an answer is current.
const UNTIL: HeaderName = HeaderName::from_static("x-headwater-until");
const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
/// Longest age of newest events of an answer, in milliseconds.
const LIVE_LAG: HeaderName = HeaderName::from_static("x-headwater-live-lag");

/// Number in a header.
fn number(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Headers of an answer that is made of others: it is current up to the earliest instant, and has
/// the longest lag and the warnings of all.
pub(crate) fn merged_headers<'a>(parts: impl IntoIterator<Item = &'a HeaderMap>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let (mut until, mut lag) = (None, None);
    for part in parts {
        until = until.into_iter().chain(number(part, &UNTIL)).min();
        lag = lag.max(number(part, &LIVE_LAG));
        for warning in part.get_all(WARNING) {
            let is_known = headers
                .get_all(WARNING)
                .iter()
                .any(|known| known == warning);
            if !is_known {
                headers.append(WARNING, warning.clone());
            }
        }
    }
    headers.extend(until.map(|at| (UNTIL, HeaderValue::from(at))));
    headers.extend(lag.map(|lag| (LIVE_LAG, HeaderValue::from(lag))));
    headers
}

fn select_headers(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Address and audience of a target; `None` when the node is not known yet.
fn client_of(state: &DispatcherState, to: &Destination) -> Option<(Arc<NodeClient>, Audience)> {
    match to {
        Destination::Edge { url, audience } => Some((state.edge(url), *audience)),
        Destination::Node(at) => {
            let database = state.tables.read().database(*at)?;
            let audience = Audience {
                identity: database.identity,
                incarnation: database.incarnation,
            };
            Some((Arc::clone(&state.node(*at)?.peer), audience))
        }
    }
}

/// Creates a ticket for the client, where tokens are in use.
pub(crate) fn ticket(
    state: &DispatcherState,
    request: &DispatchRequest,
    access: &Access,
    (to, about): (&Destination, &[&About]),
) -> Option<String> {
    let (_, audience) = client_of(state, to)?;
    let named: Vec<StreamName> = about.iter().map(|about| about.stream.clone()).collect();
    // A ticket with more would not fit into an address.
    let named = if named.len() > TICKET_STREAMS_MAX {
        Vec::new()
    } else {
        named
    };
    let guard = state.shell.guard();
    guard.ticket(&state.key, access, (audience, request.route), &named)
}

/// Answer that is relayed.
pub(crate) struct RelayedAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl RelayedAnswer {
    /// Reads the complete answer.
    pub(crate) async fn read_body(self, bytes_max: usize) -> Result<Bytes, ErrorAnswer> {
        axum::body::to_bytes(self.body, bytes_max)
            .await
            .map_err(|_| relay_failed("the answer is truncated or too large"))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
    }
}

/// Error for an answer that cannot be relayed.
pub(crate) fn relay_failed(why: &str) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::BAD_GATEWAY,
        "E_RELAY",
        format!("cannot relay the answer of another node: {why}; retry"),
    )
    .retry_after(1)
}

/// Error for a request whose body ended too early.
fn body_ended_early() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::BAD_REQUEST,
        "E_BODY",
        "the body of the request ended before its announced end",
    )
}

/// Error for an edge that does not answer at its own address.
fn unreachable_edge(error: &NodeClientError) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "E_UNREACHABLE",
        format!("the edge cannot be reached at its own address: {error}; its data is not lost"),
    )
    .retry_after(5)
}

/// Body of a client's request, which remembers whether it failed.
struct ClientBody {
    body: Body,
    has_failed: Arc<AtomicBool>,
}

impl HttpBody for ClientBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.has_failed.store(true, Ordering::Release);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Request that is relayed, with its context.
pub(crate) struct Relaying<'a> {
    pub(crate) state: &'a DispatcherState,
    pub(crate) request: &'a DispatchRequest,
    pub(crate) access: &'a Access,
    pub(crate) parts: &'a Parts,
}

impl Relaying<'_> {
    /// Sends the request to the target, and streams the answer back.
    ///
    /// # Errors
    /// `E_RELAY` without a reachable node, `E_UNREACHABLE` without a reachable edge, `E_BODY` when
    /// the client's request ends too early, `E_BUSY` when too many requests are in flight.
    pub(crate) async fn forward(
        &self,
        target: &RequestTarget,
        (about, more): (&[&About], &[String]),
        body: Body,
    ) -> Result<RelayedAnswer, ErrorAnswer> {
        let state = self.state;
        let permit = Arc::clone(&state.relays).try_acquire_owned().map_err(|_| {
            let message = "too many answers are being relayed (setting dispatch.relays_max)";
            ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", message).retry_after(1)
        })?;
        let (peer, _) = client_of(state, &target.to)
            .ok_or_else(|| relay_failed("this dispatcher has no address of the node yet"))?;
        let has_failed = Arc::new(AtomicBool::new(false));
        let body = Body::new(ClientBody {
            body,
            has_failed: Arc::clone(&has_failed),
        });
        let request = self.request(target, about, more, body)?;
        let response = peer.send(request).await.map_err(|error| match target.to {
            // The connection to the target ended because of this.
            _ if has_failed.load(Ordering::Acquire) => body_ended_early(),
            Destination::Edge { .. } => unreachable_edge(&error),
            Destination::Node(at) => {
                state.lost(at, &error.to_string());
                relay_failed(&error.to_string())
            }
        })?;
        state.metrics.relayed(target.why);
        let (head, body) = response.into_parts();
        let passing = RelayedAnswer {
            status: head.status,
            headers: select_headers(&head.headers, &ANSWER_HEADERS),
            body: Body::from_stream(rate_limited(body, state, permit)),
        };
        Ok(passing)
    }

    fn request(
        &self,
        target: &RequestTarget,
        about: &[&About],
        more: &[String],
        body: Body,
    ) -> Result<Request<Body>, ErrorAnswer> {
        let fetching = target.fetches.then(|| "fetch=true".to_owned());
        let more: Vec<String> = more.iter().cloned().chain(fetching).collect();
        let query = self.request.query(about, &more);
        let path = match query.is_empty() {
            true => self.request.path.clone(),
            false => format!("{}?{query}", self.request.path),
        };
        let built = Request::builder()
            .method(self.parts.method.clone())
            .uri(path)
            .body(body);
        let mut request =
            built.map_err(|_| relay_failed("the address of the request is not valid there"))?;
        *request.headers_mut() = select_headers(&self.parts.headers, &REQUEST_HEADERS);
        if self.request.allows_partial && matches!(target.why, "whole" | PARTIAL) {
            let name = HeaderName::from_static("x-headwater-partial");
            request.headers_mut().insert(name, UNMARKED);
        }
        let ticket = ticket(self.state, self.request, self.access, (&target.to, about));
        let bearer = ticket.map(|ticket| HeaderValue::try_from(format!("Bearer {ticket}")));
        if let Some(Ok(bearer)) = bearer {
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

/// Body that is relayed as it arrives, within the rate limit.
struct RateLimited {
    body: hyper::body::Incoming,
    pace: Arc<Pace>,
    env: Env,
    metrics: prometheus_client::metrics::counter::Counter,
    _permit: OwnedSemaphorePermit,
}

fn rate_limited(
    body: hyper::body::Incoming,
    state: &DispatcherState,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Send + 'static {
    let paced = RateLimited {
        body,
        pace: Arc::clone(&state.pace),
        env: state.shell.env().clone(),
        metrics: state.metrics.passed_bytes(),
        _permit: permit,
    };
    let frames = futures_util::stream::unfold(paced, |mut paced| async {
        let frame = paced.body.frame().await?;
        let bytes = frame.map(|frame| frame.into_data().unwrap_or_default());
        if let Ok(bytes) = &bytes {
            let now = paced.env.clock.monotonic();
            let wait = paced.pace.take(now, bytes.len());
            tokio::time::sleep(wait).await;
            let count = u64::try_from(bytes.len()).unwrap_or(0);
            paced.metrics.inc_by(count);
        }
        Some((bytes, paced))
    });
    // Frames without data, such as trailers, are not relayed.
    frames.filter(|bytes| std::future::ready(!matches!(bytes, Ok(bytes) if bytes.is_empty())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_merged_answer_is_current_up_to_the_earliest_of_its_parts() {
        let part = |until: Option<&'static str>, warning: &'static str| {
            let until = until.map(|at| (UNTIL, HeaderValue::from_static(at)));
            let warning = (WARNING, HeaderValue::from_static(warning));
            until.into_iter().chain([warning]).collect::<HeaderMap>()
        };
        let parts = [
            part(Some("300"), "a"),
            part(Some("-7"), "b"),
            part(None, "a"),
        ];
        let headers = merged_headers(&parts);
        assert_eq!(headers.get(UNTIL).unwrap(), "-7");
        assert_eq!(headers.get(LIVE_LAG), None);
        let late = |lag| HeaderMap::from_iter([(LIVE_LAG, HeaderValue::from_static(lag))]);
        let all = merged_headers(&[late("90"), late("1500"), part(None, "a")]);
        assert_eq!(all.get(LIVE_LAG).unwrap(), "1500");
        assert!(select_headers(&all, &ANSWER_HEADERS).contains_key(LIVE_LAG));
        let warnings: Vec<_> = headers.get_all(WARNING).iter().collect();
        assert_eq!(warnings, ["a", "b"]);
        assert!(merged_headers(&[part(None, "a")]).get(UNTIL).is_none());
        // Relayed answers keep it, too.
        assert!(select_headers(&headers, &ANSWER_HEADERS).contains_key(UNTIL));
    }

    #[tokio::test]
    async fn a_body_that_breaks_is_known_to_be_the_clients() {
        let has_failed = Arc::new(AtomicBool::new(false));
        let error = std::io::Error::other("the client is gone");
        let frames = [Ok(Bytes::from_static(b"SELECT")), Err(error)];
        let mut body = ClientBody {
            body: Body::from_stream(futures_util::stream::iter(frames)),
            has_failed: Arc::clone(&has_failed),
        };
        assert!(body.frame().await.unwrap().is_ok() && !has_failed.load(Ordering::Acquire));
        assert!(body.frame().await.unwrap().is_err() && has_failed.load(Ordering::Acquire));
        let whole = ClientBody {
            body: Body::from("text"),
            has_failed,
        };
        assert_eq!(
            whole.size_hint().exact(),
            Some(4),
            "the length is announced"
        );
    }
}
