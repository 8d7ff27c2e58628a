//! Writing line protocol: `POST /write` (as InfluxDB 1), `/api/v2/write` (2), `/api/v3/write_lp`
//! (3).
//!
//! The three routes accept the same bodies and send the same answers; only the names of their
//! parameters differ. Meaning of the answers: docs/http/writing.md.

use super::{Needs, Route};
use crate::access::{Access, PRODUCER_BYTES_MAX};
use crate::app::App;
use crate::databases::FirstWrite;
use crate::error::ApiError;
use crate::ingest::{Encoding, Outcome, Pending, WriteRequest};
use crate::request::drain;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use headwater_ask::Space;
use headwater_wire::lineprotocol::Precision;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Header that names the producer of a numbered batch.
const PRODUCER: HeaderName = HeaderName::from_static("x-headwater-producer");
/// Header with the number of stored lines that replaced values of other lines of the same request.
const REPLACED: HeaderName = HeaderName::from_static("x-headwater-replaced");
/// Header with the number of a batch of its producer.
const BATCH: HeaderName = HeaderName::from_static("x-headwater-batch");
/// Header about an effect that is probably not intended.
const WARNING: HeaderName = HeaderName::from_static("x-headwater-warning");
/// Header of an answer to a numbered batch that had been stored before.
const REPEATED: HeaderName = HeaderName::from_static("x-headwater-repeated");

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/write", Needs::Write, write).with_token_in_address(),
        Route::post("/api/v2/write", Needs::Write, write),
        Route::post("/api/v3/write_lp", Needs::Write, write),
    ]
}

/// Parameters of InfluxDB's clients. Other parameters are ignored, as InfluxDB ignores ours.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    db: Option<String>,
    bucket: Option<String>,
    precision: Option<String>,
    accept_partial: Option<String>,
}

async fn write(
    State(app): State<Arc<App>>,
    parameters: Result<Query<Parameters>, QueryRejection>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let Query(parameters) = parameters
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", error.body_text()))?;
    let (head, body) = request.into_parts();
    let precision = precision(parameters.precision.as_deref())?;
    let accept_partial = accept_partial(parameters.accept_partial.as_deref())?;
    let producer = producer(&head.headers)?;
    let encoding = head.headers.get(header::CONTENT_ENCODING);
    let encoding = Encoding::from_header(encoding.map(HeaderValue::as_bytes))?;
    let (body, room) = read_body(&app, &head.headers, body).await?;
    let (space, first_write) = space(&app, &parameters, &access).await?;
    let database = match &space {
        Space::Main => None,
        Space::Other(name) => Some(name.as_str()),
    };
    let producer = producer.map(|(name, number)| (access.producer(name, database), number));
    let request = WriteRequest {
        body,
        encoding,
        precision,
        accept_partial,
        producer,
        access,
        space,
        first_write,
    };
    let mut outcome = app.ingest.submit(request, room).await?;
    let repeated = acknowledged_all(&app, &mut outcome).await?;
    Ok(answer(outcome, repeated))
}

/// Waits until all parts are durable, then publishes and counts them. True when a numbered batch
/// had been stored before.
pub(super) async fn acknowledged_all(
    app: &Arc<App>,
    outcome: &mut Outcome,
) -> Result<bool, ApiError> {
    let parts = std::mem::take(&mut outcome.parts);
    let repeated = if parts.iter().any(|part| part.news.is_some()) {
        // Listeners are notified even if the client disconnects before the answer.
        let acknowledged = tokio::spawn(acknowledged(Arc::clone(app), parts));
        acknowledged.await.map_err(|_| ApiError::internal())??
    } else {
        acknowledged(Arc::clone(app), parts).await?
    };
    app.metrics.points_accepted(outcome.values);
    for (code, lines) in outcome.refusals.by_code() {
        app.metrics.lines_refused(code, *lines);
    }
    Ok(repeated)
}

/// Waits until every part is durable, and then publishes it. True when a numbered batch had been
/// stored before.
async fn acknowledged(app: Arc<App>, parts: Vec<Pending>) -> Result<bool, ApiError> {
    let mut repeated = false;
    for part in parts {
        let written = part.ticket.await?;
        repeated |= written.repeated;
        app.live.publish(part.news, &written.refused);
    }
    Ok(repeated)
}

/// The database that a write names. Clients of version 2 that talk to version 1 send
/// `database/retention policy`.
async fn space(
    app: &Arc<App>,
    parameters: &Parameters,
    access: &Access,
) -> Result<(Space, Option<FirstWrite>), ApiError> {
    let asked = parameters.db.as_deref().or(parameters.bucket.as_deref());
    let asked = asked.and_then(|name| name.split('/').next());
    match asked.filter(|name| app.databases.may_wait(name, access)) {
        None => app.databases.to_write(asked, access),
        Some(new) => {
            let (new, access) = (new.to_owned(), access.clone());
            app.blocking(move |app| app.databases.to_write(Some(&new), &access))
                .await
        }
    }
}

fn precision(name: Option<&str>) -> Result<Precision, ApiError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(Precision::Auto);
    };
    Precision::from_name(name).ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            format!("precision {name:?}: expected auto, ns, us, ms, s, m or h"),
        )
    })
}

fn accept_partial(value: Option<&str>) -> Result<bool, ApiError> {
    match value {
        None | Some("" | "true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            format!("accept_partial {other:?}: expected true or false"),
        )),
    }
}

/// The producer's name and the batch's number, which are valid only together.
fn producer(headers: &HeaderMap) -> Result<Option<(String, u64)>, ApiError> {
    let invalid =
        |message: String| Err(ApiError::new(StatusCode::BAD_REQUEST, "E_INVALID", message));
    let (name, number) = (headers.get(PRODUCER), headers.get(BATCH));
    let (name, number) = match (name, number) {
        (None, None) => return Ok(None),
        (Some(name), Some(number)) => (name.as_bytes(), number.as_bytes()),
        _ => {
            return invalid(format!(
                "{PRODUCER} and {BATCH} belong together: send both, or neither"
            ));
        }
    };
    let Some(name) = std::str::from_utf8(name)
        .ok()
        .filter(|name| (1..=PRODUCER_BYTES_MAX).contains(&name.len()))
    else {
        return invalid(format!(
            "{PRODUCER}: expected 1 to {PRODUCER_BYTES_MAX} bytes of UTF-8"
        ));
    };
    match std::str::from_utf8(number)
        .ok()
        .and_then(|n| n.parse().ok())
    {
        Some(number) => Ok(Some((name.to_owned(), number))),
        None => invalid(format!(
            "{BATCH}: expected a whole number from 0 to 18446744073709551615"
        )),
    }
}

/// The body, and its reservation among all bodies. A body that is too large is not read to its end.
pub(super) async fn read_body(
    app: &App,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError> {
    let max = app.ingest.limits().body_max;
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > max) {
        drain(body).await;
        return Err(crate::ingest::too_large(max));
    }
    let mut room = match declared {
        Some(0) => None,
        Some(length) => Some(app.ingest.reserve(length)?),
        None => None,
    };
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                "E_BODY",
                format!("the body is incomplete: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        taken += data.len();
        if taken > max {
            drop((first, all));
            drain(body).await;
            return Err(crate::ingest::too_large(max));
        }
        if declared.is_none() {
            let more = app.ingest.reserve(data.len())?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
        }
        // A body that arrives at once is not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.reserve(declared.unwrap_or(first.len() + data.len()));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    let body = if all.is_empty() { first } else { all.freeze() };
    Ok((body, room))
}

/// Adds the number of stored rows that replaced values of other rows of the request, if any did.
pub(super) fn report_replaced(headers: &mut HeaderMap, replaced: u64) {
    if replaced > 0 {
        headers.insert(REPLACED, HeaderValue::from(replaced));
    }
}

/// 204 when all is stored; 400, 403 or 422 with the list of refused lines when not.
pub(super) fn answer(outcome: Outcome, repeated: bool) -> Response {
    let mut response = if outcome.refusals.is_empty() {
        StatusCode::NO_CONTENT.into_response()
    } else {
        refusal(&outcome).into_response()
    };
    let headers = response.headers_mut();
    report_replaced(headers, outcome.replaced);
    if repeated {
        headers.insert(REPEATED, HeaderValue::from_static("true"));
    }
    if let Some(warning) = outcome.warning
        && let Ok(text) = HeaderValue::from_str(&warning)
    {
        headers.insert(WARNING, text);
    }
    response
}

/// Status and code of an answer to a body that was refused in part or as a whole.
pub(super) fn refused_as(outcome: &Outcome) -> (StatusCode, &'static str) {
    let refusals = &outcome.refusals;
    // 422: the form is valid, and no row was stored. Clients do not resend after a 422 or a 400.
    match stored(outcome) {
        0 if refusals.all_forbidden() => (StatusCode::FORBIDDEN, "E_ACCESS"),
        0 if refusals.all_well_formed() => (StatusCode::UNPROCESSABLE_ENTITY, "E_REFUSED"),
        0 => (StatusCode::BAD_REQUEST, "E_REFUSED"),
        _ => (StatusCode::BAD_REQUEST, "E_PARTIAL"),
    }
}

fn stored(outcome: &Outcome) -> u64 {
    if outcome.is_abandoned {
        0
    } else {
        outcome.stored
    }
}

fn refusal(outcome: &Outcome) -> ApiError {
    let refusals = &outcome.refusals;
    let (stored, refused) = (stored(outcome), refusals.total());
    let (status, code) = refused_as(outcome);
    let why = if outcome.is_abandoned {
        "; nothing is stored because of accept_partial=false"
    } else {
        ""
    };
    // Clients of InfluxDB look for these words, and for the text under `error`.
    let message = format!(
        "partial write: {refused} lines refused, {stored} stored{why}; first: {}",
        refusals.first()
    );
    let mut error = ApiError::new(status, code, message.clone());
    let details = [
        ("error", json!(message)),
        ("written", json!(stored)),
        ("rejected", json!(refused)),
        ("rejected_by_code", json!(refusals.by_code())),
        ("lines", refusals.to_json()),
    ];
    error
        .details
        .extend(details.map(|(key, value)| (key.to_owned(), value)));
    error
}
