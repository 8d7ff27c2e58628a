//! What the routes that read have in common: reading what is asked, and the forms of answers.
//!
//! Invariant: what may not be read is answered exactly as what is not there; no text of the engine
//! that lists names goes out.

use crate::access::Access;
use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater::{ErrorKind, FieldType, Filter, Snapshot, StreamName, Timestamp};
pub(crate) use headwater_ask::Deadline;
use headwater_io::{Clock as _, SystemClock};
use headwater_wire::channel::Channel;
use headwater_wire::query::{Query, QueryError};
use serde_json::json;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");
/// Conditions of a request.
const FILTERS_MAX: usize = 32;
/// Answers belong to who asked, and change with the data.
pub(crate) const ASK_AGAIN: HeaderValue = HeaderValue::from_static("private, no-cache");

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        let mut answer = ApiError::new(StatusCode::BAD_REQUEST, "E_PARAMETER", error.to_string());
        if let QueryError::Unknown { name, .. }
        | QueryError::Missing { name, .. }
        | QueryError::Value { name, .. }
        | QueryError::Twice(name) = error
        {
            answer.details.insert("parameter".to_owned(), json!(name));
        }
        answer
    }
}

/// The query string of a request, which may have these parameters only.
pub(crate) fn query(uri: &Uri, known: &[&str]) -> Result<Query, ApiError> {
    let query = Query::parse(uri.query().unwrap_or_default())?;
    // What a cloud does with it was done before (`fetching`); elsewhere nothing need be fetched.
    let known: Vec<&str> = known.iter().copied().chain(["fetch"]).collect();
    query.only(&known)?;
    if let Some(fetch) = query.one("fetch")?
        && !matches!(fetch, "true" | "false")
    {
        return Err(QueryError::value("fetch", "expected true or false", fetch).into());
    }
    Ok(query)
}

/// Conditions on fields, as they were written.
pub(crate) fn filter_texts(query: &Query) -> Result<Vec<String>, ApiError> {
    let texts: Vec<String> = query.all("filter").map(str::to_owned).collect();
    at_most(texts.len(), FILTERS_MAX, "filters")?;
    Ok(texts)
}

/// The conditions, on fields that the asker is told of.
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

/// An answer for what is not there, or may not be seen.
pub(crate) fn not_found(what: &str, name: &impl std::fmt::Display) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "E_NOT_FOUND",
        format!("there is no {what} `{name}`; GET /api/v1/streams lists what there is"),
    )
}

/// An answer for a snapshot that is not there.
pub(crate) fn no_snapshot(name: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "E_NO_SNAPSHOT",
        format!("there is no snapshot `{name}`"),
    )
}

/// The snapshot that is to be read; `None` = the present.
pub(crate) fn past(query: &Query) -> Result<Option<String>, ApiError> {
    match query.one("snapshot")? {
        Some("") => {
            Err(QueryError::value("snapshot", "expected the name of a snapshot", "").into())
        }
        name => Ok(name.map(str::to_owned)),
    }
}

/// More was asked for than one answer may hold.
pub(crate) fn too_much(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "E_LIMIT", message)
}

/// Checks a number of things asked for.
pub(crate) fn at_most(count: usize, max: usize, what: &str) -> Result<(), ApiError> {
    if count <= max {
        return Ok(());
    }
    Err(too_much(format!(
        "{count} {what} asked for, at most {max} are answered at once"
    )))
}

/// `Some` for what is there and may be seen; what is not found is `None`, other errors stay.
pub(crate) fn found<T>(result: headwater::Result<T>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The type of a channel's field; `None` when stream or field are not there, or the asker is not
/// told of them.
pub(crate) fn channel_type(
    snapshot: &Snapshot,
    access: &Access,
    channel: &Channel,
) -> Result<Option<FieldType>, ApiError> {
    Ok(access.field_type(snapshot, &channel.stream, &channel.field)?)
}

/// An answer with a body.
pub(crate) fn answer(content_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, ASK_AGAIN);
    response
}

/// Up to when an answer shows the newest that is known here, in ns since 1970: behind it a newer
/// version is on its way to this node.
const UNTIL: HeaderName = HeaderName::from_static("x-headwater-until");

/// The answer, with up to when it is the newest that is known.
pub(crate) fn told(mut response: Response, until: Option<Timestamp>) -> Response {
    if let Some(until) = until {
        let value = HeaderValue::from(until.as_nanos());
        response.headers_mut().insert(UNTIL, value);
    }
    response
}

/// How an answer is written.
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
