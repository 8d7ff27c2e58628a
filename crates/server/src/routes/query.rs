//! `/query`: questions in InfluxQL, as clients of InfluxDB 1 ask them.
//!
//! The text is read and carried out away from the runtime's threads; when the client goes away, so
//! does the work on its answer. Answers: docs/http/influxql.md.

use super::{Needs, Route};
use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::granted::Granted;
use crate::request::{self, answer, now};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use headwater_ask::influxql::{
    Asker, Epoch, Form, TEXT_BYTES_MAX, csv, json, pretty, text_too_long,
};
use headwater_ask::{Budget, CancelGuard, Deadline};
use headwater_wire::influxql::{Parameters, ShowWhat, Statement, parse};
use headwater_wire::query::{Query, QueryError};
use serde_json::json as value;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Rows of a part of an answer, when nothing else is said.
const CHUNK_ROWS: usize = 10_000;
/// Questions that are worked on at once; others wait for their turn within their time.
const AT_ONCE: usize = 8;
/// What the database is taken for, as `/ping` says.
const VERSION: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-influxdb-version"),
    HeaderValue::from_static(concat!("headwater-", env!("CARGO_PKG_VERSION"))),
);

static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/query", Needs::Token, query),
        Route::post("/query", Needs::Token, query),
    ]
}

/// A refusal with its text under `error`, where clients look for it.
fn told(mut error: ApiError) -> ApiError {
    let message = value!(error.message);
    error.details.insert("error".to_owned(), message);
    error
}

#[derive(Debug)]
struct Asked {
    statements: Vec<Statement>,
    database: Option<String>,
    form: Form,
    pretty: bool,
    csv: bool,
}

/// The statements stand in the address or, as a form, in the body.
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
        told(error)
    })?;
    let by_get = method == Method::GET;
    let asked = Asked::of(&headers, address.as_deref().unwrap_or_default(), &body).map_err(told)?;
    // Questions count among the requests that are worked on; what clients ask before they write
    // does not.
    let reads = asked.statements.iter().any(reads);
    let _permit = match reads {
        true => Some(app.shell.permit().map_err(|error| told(error.into()))?),
        false => None,
    };
    let _turn = match reads {
        true => TURNS.acquire().await.ok(),
        false => None,
    };
    let waiting = CancelGuard::default();
    let cancel = waiting.token();
    let is_csv = asked.csv;
    let body = app
        .blocking(move |app| {
            let budget = Budget::new(Deadline::after(app.settings.request_timeout), cancel);
            let snapshot = app.db.snapshot()?;
            let access = Granted(access);
            let asker = Asker::new(&snapshot, &access, &budget, now())
                .with_database(app.settings.write_database.as_deref())
                .with_read_only(by_get);
            asked.carry_out(&asker)
        })
        .await
        .map_err(told)?;
    drop(waiting);
    let content_type = if is_csv { request::CSV } else { request::JSON };
    let mut response = answer(content_type, body);
    response.headers_mut().insert(VERSION.0, VERSION.1);
    Ok(response)
}

fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Select(_) => true,
        Statement::Show(show) => show.what != ShowWhat::Databases,
        Statement::CreateDatabase(_) | Statement::DropDatabase(_) => false,
    }
}

impl Asked {
    fn of(headers: &HeaderMap, address: &str, body: &[u8]) -> Result<Asked, ApiError> {
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
        Ok(Asked {
            statements,
            database: one("db")?,
            form: Form { epoch, chunk_rows },
            pretty: is("pretty")?,
            csv,
        })
    }

    fn carry_out(&self, asker: &Asker<'_>) -> Result<Vec<u8>, ApiError> {
        let answers = asker.answers(&self.statements, self.database.as_deref())?;
        if self.csv {
            return Ok(csv(&answers, self.form));
        }
        let out = json(&answers, self.form);
        Ok(match (self.pretty, self.form.chunk_rows) {
            (true, None) => pretty(&out),
            _ => out,
        })
    }
}
