//! Common parts of the reading routes: parsing requests, and forms of answers.
//!
//! Invariant: an object that may not be read is answered exactly as an absent one; texts of the
//! engine that list names are not sent.

use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::stream;
use headwater::{ErrorKind, FieldType, Filter, StreamName, Timestamp};
pub(crate) use headwater_ask::Deadline;
use headwater_io::{Clock as _, SystemClock};
use headwater_shell::ErrorAnswer;
use headwater_wire::channel::Channel;
use headwater_wire::query::{Query, QueryError};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

pub(crate) use headwater_shell::{JSON, NO_CACHE};
pub(crate) const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");
/// Maximum conditions of a request.
const FILTERS_MAX: usize = 32;

/// Maximum bytes of a too large body that are still read.
const DRAIN_BYTES: usize = 16 << 20;
/// Time limit of that.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Reads on for a while and discards it: a client that is still sending when the connection is
/// closed may never see the answer.
pub(crate) async fn drain(mut body: Body) {
    let mut left = DRAIN_BYTES;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // A client that sends slower or more does without the answer.
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        ErrorAnswer::from(error).into()
    }
}

/// Parses the query string of a request; only these parameters are allowed.
pub(crate) fn query(uri: &Uri, known: &[&str]) -> Result<Query, ApiError> {
    let query = Query::parse(uri.query().unwrap_or_default())?;
    // On a cloud `fetch_missing` has consumed the parameter; elsewhere no fetch is needed.
    let known: Vec<&str> = known.iter().copied().chain(["fetch"]).collect();
    query.only(&known)?;
    if let Some(fetch) = query.one("fetch")?
        && !matches!(fetch, "true" | "false")
    {
        return Err(QueryError::value("fetch", "expected true or false", fetch).into());
    }
    Ok(query)
}

/// Conditions on fields, as written.
pub(crate) fn filter_texts(query: &Query) -> Result<Vec<String>, ApiError> {
    let texts: Vec<String> = query.all("filter").map(str::to_owned).collect();
    at_most(texts.len(), FILTERS_MAX, "filters")?;
    Ok(texts)
}

/// Conditions, on fields that the client may see.
pub(crate) fn filters(
    texts: &[String],
    told: &[(String, FieldType)],
) -> Result<Vec<Filter>, ApiError> {
    let all = texts.iter().map(|text| {
        let filter = Filter::parse(text, told);
        filter.map_err(|e| QueryError::value("filter", e.to_string(), text).into())
    });
    all.collect()
}

/// The clock of this machine.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

pub(crate) fn parse_stream(text: &str) -> Result<StreamName, ApiError> {
    StreamName::parse(text).ok_or_else(|| {
        let expected = "expected table,tag=value with \\ before a comma, `=` or blank in a name";
        QueryError::value("stream", expected, text).into()
    })
}

pub(crate) fn parse_channel(text: &str) -> Result<Channel, ApiError> {
    Channel::parse(text).ok_or_else(|| {
        let expected = "expected table,tag=value.field with \\ before a dot in the field";
        QueryError::value("channel", expected, text).into()
    })
}

/// Answer for an object that is absent or not visible.
pub(crate) fn not_found(what: &str, name: &impl std::fmt::Display) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "E_NOT_FOUND",
        format!("there is no {what} `{name}`; GET /api/v1/streams lists tables and streams"),
    )
}

/// Answer for a snapshot that is absent.
pub(crate) fn no_snapshot(name: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "E_NO_SNAPSHOT",
        format!("there is no snapshot `{name}`"),
    )
}

/// The named snapshot to read; `None` = the present.
pub(crate) fn past(query: &Query) -> Result<Option<String>, ApiError> {
    match query.one("snapshot")? {
        Some("") => {
            Err(QueryError::value("snapshot", "expected the name of a snapshot", "").into())
        }
        name => Ok(name.map(str::to_owned)),
    }
}

/// Error for a request that exceeds the limit of one answer.
pub(crate) fn too_much(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "E_LIMIT", message)
}

/// Maximum channels of a request.
const CHANNELS_MAX: usize = 64;

/// The requested channels, at least one, each with its text.
pub(crate) fn channels(query: &Query) -> Result<Vec<(String, Channel)>, ApiError> {
    at_most(query.all("channel").count(), CHANNELS_MAX, "channels")?;
    let channels = query
        .all("channel")
        .map(|text| Ok((text.to_owned(), parse_channel(text)?)))
        .collect::<Result<Vec<_>, ApiError>>()?;
    if channels.is_empty() {
        query.required("channel", "table,tag=value.field, at least once")?;
    }
    Ok(channels)
}

/// Checks the number of requested items.
pub(crate) fn at_most(count: usize, max: usize, what: &str) -> Result<(), ApiError> {
    if count <= max {
        return Ok(());
    }
    Err(too_much(format!(
        "{count} {what} requested; at most {max} are allowed per request"
    )))
}

/// `Some` for a visible object; `None` for an absent one; other errors are returned.
pub(crate) fn ok_if_found<T>(result: headwater::Result<T>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Answer with a body.
pub(crate) fn answer(content_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// Interval of keep-alive comments of an answer of events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Asks proxies not to buffer events, with the value `no`.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Times of keep-alive comments: the first at once, which shows the client that it is subscribed.
pub(crate) fn keep_alive() -> Interval {
    let mut ticks = interval(KEEP_ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Answer of server-sent events, until `next` returns `None`.
pub(crate) fn event_stream<
    T: Send + 'static,
    F: Future<Output = Option<(Bytes, T)>> + Send + 'static,
>(
    tail: T,
    mut next: impl FnMut(T) -> F + Send + 'static,
) -> Response {
    let events = stream::unfold(tail, move |tail| {
        let next = next(tail);
        async move {
            next.await
                .map(|(bytes, tail)| (Ok::<_, Infallible>(bytes), tail))
        }
    });
    let mut response = answer(HeaderValue::from_static("text/event-stream"), Bytes::new());
    *response.body_mut() = Body::from_stream(events);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Header with the instant, in ns since 1970, up to which an answer is current; after it a newer
/// version is in transit to this node.
const UNTIL: HeaderName = HeaderName::from_static("x-headwater-until");

/// Adds the instant up to which an answer is current.
pub(crate) fn with_until(mut response: Response, until: Option<Timestamp>) -> Response {
    if let Some(until) = until {
        let value = HeaderValue::from(until.as_nanos());
        response.headers_mut().insert(UNTIL, value);
    }
    response
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Csv,
}

impl Form {
    pub(crate) fn of(query: &Query) -> Result<Form, ApiError> {
        match query.one("format")? {
            None | Some("json") => Ok(Form::Json),
            Some("csv") => Ok(Form::Csv),
            Some(other) => Err(QueryError::value("format", "expected json or csv", other).into()),
        }
    }
}
