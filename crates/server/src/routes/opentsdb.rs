//! `/api/put`, `/api/query` and other routes for clients of OpenTSDB.
//!
//! Errors have OpenTSDB's object under `error` in addition to this server's code and message.
//! Answers: docs/http/opentsdb.md.

use super::write::{acknowledged_all, read_body, refused_as, report_replaced};
use super::{Needs, Route};
use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::ingest::{
    Encoding, IngestContext, Outcome, PART_BYTES, Terms, hand_in, unpacked, write_error,
};
use crate::query_access::QueryAccess;
use crate::request::{self, answer, now};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use headwater_ask::opentsdb::{Evaluator, Names};
use headwater_ask::{Budget, CancelGuard, Deadline, QueryErrorKind};
use headwater_wire::opentsdb::{
    Aggregator, Question, QuestionError, parse_metric, parse_points, parse_question, points,
};
use headwater_wire::query::{Query, QueryError};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Queries that are evaluated at once; others wait for a permit within their time.
const AT_ONCE: usize = 8;
/// Default and largest number of names of a list.
const NAMES: usize = 25;
const NAMES_MAX: usize = 10_000;

static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/put", Needs::Write, put),
        Route::get("/api/query", Needs::Read, query_by_address),
        Route::post("/api/query", Needs::Read, query_by_body),
        Route::get("/api/suggest", Needs::Read, suggest),
        Route::get("/api/search/lookup", Needs::Read, lookup),
        Route::get("/api/aggregators", Needs::Token, aggregators),
        Route::get("/api/config/filters", Needs::Token, filters),
        Route::get("/api/version", Needs::Token, version),
    ]
}

/// Adds OpenTSDB's object under `error` to a refusal.
fn fail(mut error: ApiError) -> ApiError {
    if !error.details.contains_key("error") {
        let object = json!({ "code": error.status.as_u16(), "message": error.message });
        error.details.insert("error".to_owned(), object);
    }
    error
}

impl From<QuestionError> for ApiError {
    fn from(error: QuestionError) -> ApiError {
        fail(headwater_ask::Error::new(QueryErrorKind::Query, error.to_string()).into())
    }
}

/// Level of detail of the answer to points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    StatusOnly,
    Summary,
    Details,
}

async fn put(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    let detail = if query.all("details").next().is_some() {
        Detail::Details
    } else if query.all("summary").next().is_some() {
        Detail::Summary
    } else {
        Detail::StatusOnly
    };
    let encoding = head.headers.get(header::CONTENT_ENCODING);
    let encoding = Encoding::from_header(encoding.map(HeaderValue::as_bytes))?;
    let (body, room) = read_body(&app, &head.headers, body).await?;
    let max = app.ingest.limits().body_max;
    let called = app.ingest.call(move |context| {
        // Held until the body is written.
        let _room = room;
        take_points(context, &access, &unpacked(&body, encoding, max)?)
    });
    let called = called.await.map_err(|why| fail(app.ingest.refusal(why)))?;
    let mut outcome = called.map_err(fail)?;
    acknowledged_all(&app, &mut outcome).await?;
    let refused = outcome.refusals.total();
    let counts = |errors: Option<Value>| {
        let mut body = json!({ "success": outcome.stored, "failed": refused });
        if let (Some(errors), Some(body)) = (errors, body.as_object_mut()) {
            body.insert("errors".to_owned(), errors);
        }
        body
    };
    let errors = (detail == Detail::Details).then(|| errors(&outcome.refusals.to_json()));
    let mut response = if refused > 0 {
        let counts = (detail != Detail::StatusOnly).then(|| counts(errors));
        refusal(&outcome, counts).into_response()
    } else if detail == Detail::StatusOnly {
        StatusCode::NO_CONTENT.into_response()
    } else {
        axum::Json(counts(errors)).into_response()
    };
    report_replaced(response.headers_mut(), outcome.replaced);
    Ok(response)
}

/// Error for points that were refused in part, with the requested counts.
fn refusal(outcome: &Outcome, counts: Option<Value>) -> ApiError {
    let refused = outcome.refusals.total();
    let (status, code) = refused_as(outcome);
    let message = format!(
        "partial write: {refused} points refused, {} stored; first: {}",
        outcome.stored,
        outcome.refusals.first_of("point")
    );
    let mut error = fail(ApiError::new(status, code, message));
    if let Some(Value::Object(counts)) = counts {
        error.details.extend(counts);
    }
    error
}

/// Writes the points of a body.
fn take_points(context: &IngestContext, access: &Access, text: &[u8]) -> Result<Outcome, ApiError> {
    let points = points(text)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "E_PARSE", error.to_string()))?;
    let terms = Terms {
        access: Some(access),
        accept_partial: true,
        producer: None,
    };
    let mut outcome = Outcome::default();
    let mut handed_in = Ok(());
    // Parts as large as those of line protocol, so that no batch is too large for the log.
    let (mut first, mut bytes) = (0, 0);
    for (at, point) in points.iter().enumerate() {
        bytes += point.len();
        let is_last = at + 1 == points.len();
        if bytes < PART_BYTES && !is_last {
            continue;
        }
        let mut parsed = parse_points(points.get(first..=at).unwrap_or_default());
        // Lines were counted from the beginning of the part.
        let before = first as u64;
        let lines = parsed.lines.iter_mut().flatten();
        lines.for_each(|line| *line += before);
        parsed.refused.iter_mut().for_each(|r| r.line += before);
        handed_in = hand_in(context, terms, parsed, &mut outcome).map_err(write_error);
        if handed_in.is_err() {
            break;
        }
        (first, bytes) = (at + 1, 0);
    }
    outcome.refusals.finish_points(&points);
    handed_in.map(|()| outcome)
}

/// Refused points as OpenTSDB lists them.
fn errors(lines: &Value) -> Value {
    let one = |line: &Value| {
        let original = line["original"].as_str().unwrap_or_default();
        // A truncated point is not valid JSON, and is reported as text.
        let point = serde_json::from_str(original).unwrap_or_else(|_| json!(original));
        let (code, message) = (&line["code"], &line["message"]);
        let text = [code, message].map(|v| v.as_str().unwrap_or_default());
        json!({ "datapoint": point, "error": text.join(": ") })
    };
    lines.as_array().into_iter().flatten().map(one).collect()
}

async fn query_by_address(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = Query::parse(uri.query().unwrap_or_default()).map_err(|e| fail(e.into()))?;
    evaluate(app, access, Question::of_address(&query, now())?).await
}

async fn query_by_body(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(|rejected| {
        fail(ApiError::new(
            rejected.status(),
            "E_BODY",
            rejected.body_text(),
        ))
    })?;
    let encoding = headers.get(header::CONTENT_ENCODING);
    let encoding = Encoding::from_header(encoding.map(HeaderValue::as_bytes))?;
    let body = unpacked(&body, encoding, app.settings.body_max)?;
    let mut question = parse_question(&body, now())?;
    let query = Query::parse(uri.query().unwrap_or_default()).map_err(|e| fail(e.into()))?;
    question.arrays |= query.all("arrays").any(|v| v != "false");
    evaluate(app, access, question).await
}

async fn evaluate(app: Arc<App>, access: Access, question: Question) -> Result<Response, ApiError> {
    work(app, access, move |asker| asker.answer(&question)).await
}

/// Computes an answer away from the runtime's threads, until the client disconnects.
async fn work(
    app: Arc<App>,
    access: Access,
    call: impl FnOnce(&Evaluator<'_>) -> headwater_ask::Result<Vec<u8>> + Send + 'static,
) -> Result<Response, ApiError> {
    let _turn = TURNS.acquire().await.ok();
    let waiting = CancelGuard::default();
    let cancel = waiting.token();
    let body = app
        .blocking(move |app| {
            let budget = Budget::new(Deadline::after(app.settings.request_timeout), cancel)
                .within(&app.memory);
            let snapshot = app.snapshot()?;
            let answer = call(&Evaluator {
                snapshot: &snapshot,
                access: &QueryAccess(access),
                budget: &budget,
            });
            Ok(answer?)
        })
        .await
        .map_err(fail)?;
    drop(waiting);
    Ok(answer(request::JSON, body))
}

/// Number of names, bounded.
fn at_most(query: &Query, name: &str, default: usize) -> Result<usize, ApiError> {
    let count: Option<usize> = query.number(name).map_err(|e| fail(e.into()))?;
    Ok(count.unwrap_or(default).min(NAMES_MAX))
}

async fn suggest(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let bad = |error: QueryError| fail(error.into());
    let query = Query::parse(uri.query().unwrap_or_default()).map_err(bad)?;
    let expected = "metrics, tagk or tagv";
    let names = match query.required("type", expected).map_err(bad)? {
        "metrics" => Names::Metrics,
        "tagk" => Names::TagKeys,
        "tagv" => Names::TagValues,
        other => {
            let reason = format!("expected {expected}");
            return Err(bad(QueryError::value("type", reason, other)));
        }
    };
    let begin = query.one("q").map_err(bad)?.unwrap_or_default().to_owned();
    let max = at_most(&query, "max", NAMES)?;
    work(app, access, move |asker| {
        let names = asker.suggest(names, &begin, max)?;
        Ok(json!(names).to_string().into_bytes())
    })
    .await
}

/// The series of a metric: `m=METRIC{tag=value}`.
async fn lookup(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let bad = |error: QueryError| fail(error.into());
    let query = Query::parse(uri.query().unwrap_or_default()).map_err(bad)?;
    let text = query
        .required("m", "METRIC{tag=*}")
        .map_err(bad)?
        .to_owned();
    let asked = parse_metric(&format!("none:{text}"))?;
    let limit = at_most(&query, "limit", NAMES)?;
    work(app, access, move |asker| {
        let (streams, total) = asker.lookup(&asked, limit)?;
        let results: Vec<Value> = streams
            .iter()
            .map(|stream| {
                let tags: serde_json::Map<String, Value> = stream
                    .tags()
                    .iter()
                    .map(|(key, value)| (key.clone(), json!(value)))
                    .collect();
                json!({ "metric": stream.table(), "tags": tags })
            })
            .collect();
        let body = json!({
            "type": "LOOKUP",
            "metric": asked.metric,
            "limit": limit,
            "startIndex": 0,
            "totalResults": total,
            "results": results,
        });
        Ok(body.to_string().into_bytes())
    })
    .await
}

async fn aggregators() -> axum::Json<Value> {
    let names: Vec<&str> = Aggregator::ALL.iter().map(|(_, name)| *name).collect();
    axum::Json(json!(names))
}

async fn filters() -> axum::Json<Value> {
    let one = |name: &str, description: &str, example: &str| {
        let example = format!("host={name}({example})");
        (
            name.to_owned(),
            json!({ "description": description, "examples": example }),
        )
    };
    let all = [
        one(
            "literal_or",
            "One of the values, with | between them.",
            "web01|web02",
        ),
        one("iliteral_or", "One of the values, ignoring case.", "WEB01"),
        one("not_literal_or", "None of the values.", "web01|web02"),
        one(
            "not_iliteral_or",
            "None of the values, ignoring case.",
            "WEB01",
        ),
        one("wildcard", "* stands for any text.", "web*"),
        one("iwildcard", "* stands for any text; ignores case.", "WEB*"),
        one(
            "regexp",
            "Values that match a regular expression.",
            "web[0-9]+",
        ),
        one("not_key", "Series without the tag.", ""),
    ];
    let all: serde_json::Map<String, Value> = all.into_iter().collect();
    axum::Json(Value::Object(all))
}

/// Version of the supported query syntax: clients choose their form by it.
async fn version() -> axum::Json<Value> {
    axum::Json(json!({
        "version": "2.3.0",
        "short_revision": concat!("headwater-", env!("CARGO_PKG_VERSION")),
        "full_revision": concat!("headwater-", env!("CARGO_PKG_VERSION")),
        "repo": "headwater",
        "repo_status": "MINT",
        "host": "",
        "user": "",
        "timestamp": "0",
    }))
}
