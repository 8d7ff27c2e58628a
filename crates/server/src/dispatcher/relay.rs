//! Relays a request to the node that answers it, and the answer to the client.
//!
//! Invariants: the node is shown a ticket of the client, never the dispatcher's own token; two
//! lists name the headers that are forwarded. Relayed answers are counted, and limited in number
//! and rate by settings. Concurrency: an answer is streamed; no lock is held meanwhile. Failure: a
//! node that does not answer counts as lost, and gets no requests until it answers again.

use super::peer::Peer;
use super::plan::{Destination, Target};
use super::request::{About, DispatchRequest};
use super::state::{DispatcherState, Pace};
use crate::access::Access;
use crate::access::ticket::{Audience, TICKET_STREAMS_MAX};
use axum::body::{Body, Bytes};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use futures_util::{Stream, StreamExt};
use headwater::StreamName;
use headwater_io::Env;
use headwater_shell::ErrorAnswer;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Forwarded headers of requests.
const ASKED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("x-request-id"),
];
/// Forwarded headers of answers.
const ANSWERED: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::CACHE_CONTROL,
    header::ETAG,
    header::RETRY_AFTER,
    HeaderName::from_static("x-accel-buffering"),
    HeaderName::from_static("x-headwater-warning"),
];

fn some(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Address and audience of a target; `None` when the node is not known yet.
fn place(state: &DispatcherState, to: &Destination) -> Option<(Arc<Peer>, Audience)> {
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
    asked: &DispatchRequest,
    access: &Access,
    (to, about): (&Destination, &[&About]),
) -> Option<String> {
    let (_, audience) = place(state, to)?;
    let named: Vec<StreamName> = about.iter().map(|about| about.stream.clone()).collect();
    // A ticket with more would not fit into an address.
    let named = if named.len() > TICKET_STREAMS_MAX {
        Vec::new()
    } else {
        named
    };
    let guard = state.shell.guard();
    guard.ticket(&state.key, access, (audience, asked.route), &named)
}

/// Answer that is relayed.
pub(crate) struct RelayedAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl RelayedAnswer {
    /// Reads the complete answer.
    pub(crate) async fn whole(self, most: usize) -> Result<Bytes, ErrorAnswer> {
        axum::body::to_bytes(self.body, most)
            .await
            .map_err(|_| broken("it ended before its end, or is too large"))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
    }
}

/// Error for an answer that cannot be relayed.
pub(crate) fn broken(why: &str) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::BAD_GATEWAY,
        "E_RELAY",
        format!("an answer could not be passed on: {why}; ask again"),
    )
    .retry_after(1)
}

/// Request that is relayed, with its context.
pub(crate) struct Relaying<'a> {
    pub(crate) state: &'a DispatcherState,
    pub(crate) asked: &'a DispatchRequest,
    pub(crate) access: &'a Access,
    pub(crate) parts: &'a Parts,
}

impl Relaying<'_> {
    /// Sends the request to the target, and streams the answer back.
    ///
    /// # Errors
    /// `E_RELAY` without a reachable target, `E_BUSY` when too many requests are in flight.
    pub(crate) async fn pass(
        &self,
        target: &Target,
        (about, more): (&[&About], &[String]),
        body: Body,
    ) -> Result<RelayedAnswer, ErrorAnswer> {
        let state = self.state;
        let permit = Arc::clone(&state.relays).try_acquire_owned().map_err(|_| {
            let message = "as many answers are passed on as may be (setting dispatch.relays_max)";
            ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", message).retry_after(1)
        })?;
        let (peer, _) = place(state, &target.to).ok_or_else(|| broken("the node is not known"))?;
        let request = self.request(target, about, more, body)?;
        let response = peer.send(request).await.map_err(|error| {
            if let Destination::Node(at) = target.to {
                state.lost(at, &error.to_string());
            }
            broken(&error.to_string())
        })?;
        state.metrics.relayed(target.why);
        let (head, body) = response.into_parts();
        let passing = RelayedAnswer {
            status: head.status,
            headers: some(&head.headers, &ANSWERED),
            body: Body::from_stream(paced(body, state, permit)),
        };
        Ok(passing)
    }

    fn request(
        &self,
        target: &Target,
        about: &[&About],
        more: &[String],
        body: Body,
    ) -> Result<Request<Body>, ErrorAnswer> {
        let fetching = target.fetches.then(|| "fetch=true".to_owned());
        let more: Vec<String> = more.iter().cloned().chain(fetching).collect();
        let query = self.asked.query(about, &more);
        let path = match query.is_empty() {
            true => self.asked.path.clone(),
            false => format!("{}?{query}", self.asked.path),
        };
        let built = Request::builder()
            .method(self.parts.method.clone())
            .uri(path)
            .body(body);
        let mut request = built.map_err(|_| broken("its address is none"))?;
        *request.headers_mut() = some(&self.parts.headers, &ASKED);
        let ticket = ticket(self.state, self.asked, self.access, (&target.to, about));
        let bearer = ticket.map(|ticket| HeaderValue::try_from(format!("Bearer {ticket}")));
        if let Some(Ok(bearer)) = bearer {
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

/// Body that is relayed as it arrives, within the rate limit.
struct Paced {
    body: hyper::body::Incoming,
    pace: Arc<Pace>,
    env: Env,
    metrics: prometheus_client::metrics::counter::Counter,
    _permit: OwnedSemaphorePermit,
}

fn paced(
    body: hyper::body::Incoming,
    state: &DispatcherState,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Send + 'static {
    let paced = Paced {
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
