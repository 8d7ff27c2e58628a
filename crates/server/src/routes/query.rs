//! `/query`: queries in InfluxQL, as clients of InfluxDB 1 send them.
//!
//! The text is parsed and evaluated away from the runtime's threads; when the client disconnects,
//! evaluation ends. A chunked answer is sent while it is evaluated: a bounded number of chunks is
//! queued for the client. Answers: docs/http/influxql.md.

use super::{Needs, Route};
use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::query_access::QueryAccess;
use crate::request::{self, answer, now};
use crate::select_into::SelectIntoWriter;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use headwater_ask::influxql::{
    Epoch, Evaluator, Form, PIECE_BYTES, Pretty, TEXT_BYTES_MAX, text_too_long,
};
use headwater_ask::{Budget, CancelGuard, CancelToken, Deadline, QueryErrorKind};
use headwater_wire::influxql::{Parameters, ShowKind, Statement, parse};
use headwater_wire::query::{Query, QueryError};
use serde_json::json as value;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Rows of a chunk of an answer by default.
const CHUNK_ROWS: usize = 10_000;
/// Queries that run at once; others wait for a permit within their time.
const AT_ONCE: usize = 8;
/// Chunks that wait for the client.
const PARTS_WAITING: usize = 4;
/// Header by which browsers state the origin of a request.
const FROM: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Version of InfluxDB that the database reports, as `/ping` does.
const VERSION: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-influxdb-version"),
    HeaderValue::from_static(concat!("headwater-", env!("CARGO_PKG_VERSION"))),
);

static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);
/// Turns of chunked answers, which last as long as their clients read chunks.
static IN_PARTS: Semaphore = Semaphore::const_new(AT_ONCE);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/query", Needs::Token, query)
            .with_token_in_address()
            .with_rows(),
        Route::post("/query", Needs::Token, query)
            .with_token_in_address()
            .with_rows(),
    ]
}

/// A refusal with its text under `error`, where clients look for it.
fn fail(mut error: ApiError) -> ApiError {
    let message = value!(error.message);
    error.details.insert("error".to_owned(), message);
    error
}

#[derive(Debug)]
struct QueryRequest {
    statements: Vec<Statement>,
    database: Option<String>,
    form: Form,
    pretty: bool,
    csv: bool,
}

/// Statements are in the address or, as a form, in the body.
async fn query(
    State(app): State<Arc<App>>,
    access: Access,
    method: Method,
    headers: HeaderMap,
    RawQuery(address): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(|rejected| {
        let error = ApiError::new(rejected.status(), "E_BODY", rejected.body_text());
        fail(error)
    })?;
    let by_get = method == Method::GET;
    let request =
        QueryRequest::of(&headers, address.as_deref().unwrap_or_default(), &body).map_err(fail)?;
    // Queries count as running requests; the queries that clients send before a write do not.
    if by_get && request.statements.iter().any(changes) && is_of_another_page(&headers) {
        return Err(fail(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a page of another origin may not change anything by GET: use POST",
        )));
    }
    let reads = request.statements.iter().any(reads);
    let _permit = match reads {
        true => Some(app.shell.permit().map_err(|error| fail(error.into()))?),
        false => None,
    };
    let in_parts = request.form.chunk_rows.is_some();
    let turns = if in_parts { &IN_PARTS } else { &TURNS };
    let turn = match reads {
        true => turns.acquire().await.ok(),
        false => None,
    };
    let content_type = match request.csv {
        true => request::CSV,
        false => request::JSON,
    };
    let waiting = CancelGuard::default();
    let asking = ClientQuery {
        cancel: waiting.token(),
        access: QueryAccess(access),
        by_get,
        request,
    };
    let mut response = answer(content_type, Bytes::new());
    *response.body_mut() = asking.answered(&app, turn, waiting).await.map_err(fail)?;
    response.headers_mut().insert(VERSION.0, VERSION.1);
    Ok(response)
}

/// True when a browser reports that a page of another site makes the request.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let from = headers.get(FROM);
    from.is_some_and(|from| from != "same-origin" && from != "none")
}

fn changes(statement: &Statement) -> bool {
    match statement {
        Statement::Select(select) => select.into.is_some(),
        Statement::Delete(_)
        | Statement::DropSeries(_)
        | Statement::DropMeasurement(_)
        | Statement::DropDatabase(_) => true,
        _ => false,
    }
}

fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Select(_) | Statement::Explain { .. } => true,
        Statement::Show(show) => show.kind != ShowKind::Databases,
        Statement::Delete(_)
        | Statement::DropSeries(_)
        | Statement::DropMeasurement(_)
        | Statement::DropDatabase(_) => true,
        Statement::CreateDatabase(_)
        | Statement::CreatePolicy(_)
        | Statement::AlterPolicy(_)
        | Statement::DropPolicy { .. } => false,
    }
}

impl QueryRequest {
    fn of(headers: &HeaderMap, address: &str, body: &[u8]) -> Result<QueryRequest, ApiError> {
        let address = Query::parse(address)?;
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let text = || std::str::from_utf8(body).map_err(|_| QueryError::Encoding("body".into()));
        let is_text = kind.starts_with("application/vnd.influxql");
        let form = match is_text {
            true => Query::default(),
            false => Query::parse(text()?)?,
        };
        let one = |name: &str| -> Result<Option<String>, QueryError> {
            let value = match address.one(name)? {
                None => form.one(name)?.map(str::to_owned),
                Some(value) => Some(value.to_owned()),
            };
            Ok(value.filter(|v| !v.is_empty()))
        };
        let is = |name| one(name).map(|v| v.is_some_and(|v| v == "true" || v == "1" || v == "t"));
        let statements = match one("q")? {
            Some(text) => text,
            None if is_text => text()?.to_owned(),
            None => String::new(),
        };
        if statements.trim().is_empty() {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "E_PARAMETER",
                "missing required parameter \"q\"",
            ));
        }
        if statements.len() > TEXT_BYTES_MAX {
            return Err(text_too_long().into());
        }
        let wrong = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "E_PARSE", message);
        let parameters = match one("params")? {
            Some(text) => Parameters::parse(&text).map_err(|e| wrong(e.to_string()))?,
            None => Parameters::default(),
        };
        let statements = parse(&statements, &parameters).map_err(|error| {
            let mut answer = wrong(error.to_string());
            let place = [
                ("line", error.line),
                ("column", error.column),
                ("offset", error.offset),
            ];
            let place = place.map(|(key, at)| (key.to_owned(), value!(at)));
            answer.details.extend(place);
            answer
        })?;
        let accepts = |kind: &str| {
            let accept = headers.get(ACCEPT).and_then(|a| a.to_str().ok());
            accept.is_some_and(|a| a.split(',').any(|a| a.trim().starts_with(kind)))
        };
        let csv = accepts("application/csv") || accepts("text/csv");
        let epoch = match one("epoch")? {
            None if csv => Epoch::Unit(1),
            None => Epoch::Rfc3339,
            Some(name) => Epoch::named(&name).ok_or_else(|| {
                QueryError::value("epoch", "expected ns, u, ms, s, m, h or rfc3339", &name)
            })?,
        };
        let chunk_rows = match (is("chunked")?, one("chunk_size")?) {
            (false, _) => None,
            (true, None) => Some(CHUNK_ROWS),
            (true, Some(size)) => Some(size.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                QueryError::value("chunk_size", "expected a number of rows above 0", &size)
            })?),
        };
        Ok(QueryRequest {
            statements,
            database: one("db")?,
            form: Form { epoch, chunk_rows },
            pretty: is("pretty")?,
            csv,
        })
    }
}

/// Request with its client.
struct ClientQuery {
    request: QueryRequest,
    access: QueryAccess,
    cancel: CancelToken,
    by_get: bool,
}

impl ClientQuery {
    fn evaluate<T>(
        &self,
        app: &App,
        ask: impl FnOnce(&Evaluator<'_>, &Budget) -> Result<T, headwater_ask::Error>,
    ) -> Result<T, ApiError> {
        let deadline = Deadline::after(app.settings.request_timeout);
        let budget = Budget::new(deadline, self.cancel.clone()).within(&app.memory);
        let snapshot = app.snapshot()?;
        let db = app.db();
        let points = SelectIntoWriter(app);
        let asker = Evaluator::new(&snapshot, &self.access, &budget, now())
            .with_writer(&points)
            .with_databases(&*app.databases)
            .with_changes(&db)
            .with_read_only(self.by_get);
        Ok(ask(&asker, &budget)?)
    }

    /// Streams the answer from its first chunk on. Until the first chunk, the query may still be
    /// refused.
    async fn answered(
        self,
        app: &Arc<App>,
        turn: Option<SemaphorePermit<'static>>,
        waiting: CancelGuard,
    ) -> Result<Body, ApiError> {
        let (sender, mut receiver) = mpsc::channel::<Result<Vec<u8>, io::Error>>(PARTS_WAITING);
        let runtime = tokio::runtime::Handle::current();
        let has_parts = self.request.form.chunk_rows.is_some();
        let mut work = Box::pin(app.blocking(move |app| {
            let _turn = turn;
            let asked = &self.request;
            let allowed = app.settings.request_timeout;
            let mut has_begun = false;
            let mut pretty = (asked.pretty && !asked.csv && !has_parts).then(Pretty::default);
            let worked = self.evaluate(app, |asker, budget| {
                let mut out = |bytes: Vec<u8>| {
                    has_begun = true;
                    let bytes = match &mut pretty {
                        Some(pretty) => pretty.piece(&bytes),
                        None => bytes,
                    };
                    let sent = tokio::time::timeout(allowed, sender.send(Ok(bytes)));
                    let sent = runtime.block_on(sent);
                    if has_parts {
                        // A chunked answer may last as long as its client reads chunks.
                        budget.renew(Deadline::after(allowed));
                    }
                    match sent {
                        Ok(Ok(())) => Ok(()),
                        // The client has disconnected.
                        Ok(Err(_)) | Err(_) => Err(headwater_ask::Error::new(
                            QueryErrorKind::Cancelled,
                            "the client disconnected",
                        )),
                    }
                };
                let database = asked.database.as_deref();
                asker.in_parts(&asked.statements, database, asked.form, asked.csv, &mut out)
            });
            match worked {
                Err(error) if has_begun => {
                    tracing::warn!(error = error.message, "an answer was interrupted");
                    // A connected client notices that the answer is incomplete.
                    let _ = sender.try_send(Err(io::Error::other("the answer was interrupted")));
                    Ok(())
                }
                worked => worked,
            }
        }));
        // After the first chunk, the work continues in its own task.
        let first = tokio::select! {
            // Nothing was sent where the work has ended, perhaps with a refusal.
            Some(first) = receiver.recv() => Some(first),
            worked = &mut work => {
                worked?;
                receiver.recv().await
            }
        };
        if let (false, Some(Ok(only))) = (has_parts, &first)
            && only.len() < PIECE_BYTES
        {
            // An answer smaller than a chunk is complete.
            return Ok(Body::from(only.clone()));
        }
        let first = futures_util::stream::iter(first);
        let parts = first.chain(ReceiverStream::new(receiver)).map(move |part| {
            // Dropped with the answer, which ends the work.
            let _ = &waiting;
            part
        });
        Ok(Body::from_stream(parts))
    }
}
