//! Remote write of Prometheus: `POST /api/v1/prom/write`.
//!
//! Mapping of a request, and the answers after which Prometheus retries: docs/http/prometheus.md.
//! Prometheus retries only after 5xx; so an error that a retry may resolve is 5xx here, also where
//! other routes answer 429.

use super::write::{acknowledged_all, answer, read_body};
use super::{Needs, Route};
use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::ingest::{Outcome, Terms, hand_in};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use headwater::ErrorKind;
use headwater_wire::prometheus::{MessageError, names, read, unpack};
use std::sync::Arc;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::post("/api/v1/prom/write", Needs::Write, write)]
}

async fn write(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    check_headers(&head.headers)?;
    let (body, room) = read_body(&app, &head.headers, body)
        .await
        .map_err(as_retryable)?;
    let max = app.ingest.limits().body_max;
    let called = app.ingest.call(move |context| {
        // Held until the body is written.
        let _room = room;
        let message = unpack(&body, max).map_err(message_error)?;
        let parsed = read(&message).map_err(message_error)?;
        let terms = Terms {
            access: Some(&access),
            accept_partial: true,
            producer: None,
        };
        let mut outcome = Outcome::default();
        hand_in(context, terms, parsed, &mut outcome).map_err(write_error)?;
        if !outcome.refusals.is_empty() {
            // Refusals of the database carry only the number of the series.
            let names = names(&message).map_err(message_error)?;
            outcome.refusals.finish_points(&names);
        }
        Ok::<Outcome, ApiError>(outcome)
    });
    let mut outcome = called.await.map_err(|why| app.ingest.refusal(why))??;
    acknowledged_all(&app, &mut outcome).await?;
    Ok(answer(outcome, false))
}

/// Accepts only version 1 of the protocol, which is always compressed. A sender of version 2 falls
/// back to version 1 after a 415.
fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| {
        let value = headers.get(name).map(axum::http::HeaderValue::as_bytes);
        String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase()
    };
    let encoding = text(header::CONTENT_ENCODING);
    if encoding.trim() != "snappy" {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "E_ENCODING",
            "remote write must be compressed: send a snappy block with Content-Encoding: snappy",
        ));
    }
    let kind = text(header::CONTENT_TYPE);
    let mut parts = kind.split(';').map(str::trim);
    let is_protobuf = matches!(parts.next(), Some("application/x-protobuf" | ""));
    let is_version_1 = parts.all(|part| {
        part.strip_prefix("proto=")
            .is_none_or(|proto| proto == "prometheus.writerequest")
    });
    if is_protobuf && is_version_1 {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "E_ENCODING",
        "this route accepts remote write 1.0: Content-Type: application/x-protobuf, or with proto=prometheus.WriteRequest",
    ))
}

/// Turns an overload into a 5xx, which Prometheus treats as a server error and retries.
fn as_retryable(mut error: ApiError) -> ApiError {
    if error.status == StatusCode::TOO_MANY_REQUESTS {
        error.status = StatusCode::SERVICE_UNAVAILABLE;
    }
    error
}

fn message_error(error: MessageError) -> ApiError {
    let (status, code) = match error {
        MessageError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "E_LIMIT_BODY"),
        MessageError::Snappy(_) => (StatusCode::BAD_REQUEST, "E_ENCODING"),
        _ => (StatusCode::BAD_REQUEST, "E_PARSE"),
    };
    ApiError::new(status, code, error.to_string())
}

fn write_error(error: headwater::Error) -> ApiError {
    match error.kind() {
        ErrorKind::Invalid => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "E_LIMIT_BATCH",
            format!("{error}: lower queue_config.max_samples_per_send"),
        ),
        _ => error.into(),
    }
}
