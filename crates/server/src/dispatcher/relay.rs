//! Passing on: a request to who answers it, and the answer to who asked.
//!
//! Invariants: who answers is shown a ticket of who asks, never the dispatcher's own token; what is
//! passed on of heads stands in two lists. Answers that are passed on are counted, and never more
//! at once, nor faster, than settings allow.
//! Concurrency: an answer is passed on as it comes; nobody holds a lock meanwhile.
//! Failure: a node that does not answer is held for lost, and is not asked until it answers again.

use super::asked::{About, Asked};
use super::desk::{Desk, Pace};
use super::peer::Peer;
use super::plan::{Target, To};
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

/// Of requests.
const ASKED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("x-request-id"),
];
/// Of answers.
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

/// The address and the audience of who answers; `None` when the node is not known yet.
fn place(desk: &Desk, to: &To) -> Option<(Arc<Peer>, Audience)> {
    match to {
        To::Edge { url, audience } => Some((desk.edge(url), *audience)),
        To::Node(at) => {
            let database = desk.tables.read().database(*at)?;
            let audience = Audience {
                identity: database.identity,
                incarnation: database.incarnation,
            };
            Some((Arc::clone(&desk.node(*at)?.peer), audience))
        }
    }
}

/// A ticket for who asks, where tokens are in use.
pub(crate) fn ticket(
    desk: &Desk,
    asked: &Asked,
    access: &Access,
    (to, about): (&To, &[&About]),
) -> Option<String> {
    let (_, audience) = place(desk, to)?;
    let named: Vec<StreamName> = about.iter().map(|about| about.stream.clone()).collect();
    // A ticket with more would not fit into an address.
    let named = if named.len() > TICKET_STREAMS_MAX {
        Vec::new()
    } else {
        named
    };
    let guard = desk.shell.guard();
    guard.ticket(&desk.key, access, (audience, asked.route), &named)
}

/// What of an answer was passed on, or is to be.
pub(crate) struct Passed {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Passed {
    /// The whole of the answer.
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

/// An answer that cannot be passed on.
pub(crate) fn broken(why: &str) -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::BAD_GATEWAY,
        "E_RELAY",
        format!("an answer could not be passed on: {why}; ask again"),
    )
    .retry_after(1)
}

/// What is asked, once more.
pub(crate) struct Passing<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) asked: &'a Asked,
    pub(crate) access: &'a Access,
    pub(crate) parts: &'a Parts,
}

impl Passing<'_> {
    /// Asks who answers, and passes the answer on as it comes.
    ///
    /// # Errors
    /// `E_RELAY` when there is none, `E_BUSY` when too many are on their way.
    pub(crate) async fn pass(
        &self,
        target: &Target,
        (about, more): (&[&About], &[String]),
        body: Body,
    ) -> Result<Passed, ErrorAnswer> {
        let desk = self.desk;
        let permit = Arc::clone(&desk.relays).try_acquire_owned().map_err(|_| {
            let message = "as many answers are passed on as may be (setting dispatch.relays_max)";
            ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", message).retry_after(1)
        })?;
        let (peer, _) = place(desk, &target.to).ok_or_else(|| broken("the node is not known"))?;
        let request = self.request(target, about, more, body)?;
        let response = peer.send(request).await.map_err(|error| {
            if let To::Node(at) = target.to {
                desk.lost(at, &error.to_string());
            }
            broken(&error.to_string())
        })?;
        desk.figures.relayed(target.why);
        let (head, body) = response.into_parts();
        let passing = Passed {
            status: head.status,
            headers: some(&head.headers, &ANSWERED),
            body: Body::from_stream(paced(body, desk, permit)),
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
        let ticket = ticket(self.desk, self.asked, self.access, (&target.to, about));
        let bearer = ticket.map(|ticket| HeaderValue::try_from(format!("Bearer {ticket}")));
        if let Some(Ok(bearer)) = bearer {
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

/// What is passed on as it comes, no faster than it may.
struct Paced {
    body: hyper::body::Incoming,
    pace: Arc<Pace>,
    env: Env,
    figures: prometheus_client::metrics::counter::Counter,
    _permit: OwnedSemaphorePermit,
}

fn paced(
    body: hyper::body::Incoming,
    desk: &Desk,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Send + 'static {
    let paced = Paced {
        body,
        pace: Arc::clone(&desk.pace),
        env: desk.shell.env().clone(),
        figures: desk.figures.passed_bytes(),
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
            paced.figures.inc_by(count);
        }
        Some((bytes, paced))
    });
    // What is no data, as trailers are, is not passed on.
    frames.filter(|bytes| std::future::ready(!matches!(bytes, Ok(bytes) if bytes.is_empty())))
}
