//! `POST /api/v1/sql`: runs statements and streams the rows of the last one. Requests and answers:
//! docs/http/sql.md.
//!
//! Invariants: a statement sees and changes only streams that its token allows, which the crate
//! `query` checks stream by stream; one batch of rows is buffered for a client; when the client
//! disconnects, the statement ends. A cut-off answer is visibly incomplete: its transfer does not
//! have the end marker. Concurrency: each statement acquires a permit, and runs on a separate
//! thread; other requests do not wait for statements. Failure: an error before the first row is
//! answered with code, hint, line and column; a later error cuts the answer off, with the reason in
//! the log.

use super::request::SqlRequest;
use super::rows::Rows;
use crate::access::Access;
use crate::app::App;
use crate::components::sql::owner;
use crate::error::ApiError;
use crate::query_access::QueryAccess;
use crate::request::answer;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use headwater_query::{Answer, Error, Parameters, Session, is_obvious, statements};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time that a statement waits for a slot.
const SLOT_WAIT: Duration = Duration::from_secs(1);
/// Time that the statement itself has to report that its time is over.
const GRACE: Duration = Duration::from_secs(1);

pub(in crate::components) async fn sql(
    State(app): State<Arc<App>>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = SqlRequest::of(&app, request).await?;
    let owner = owner(&access, "http");
    let session = app.sql_of_task().session(Arc::new(QueryAccess(access)));
    if !asked.sql.is_empty() {
        session.may_run(&asked.sql)?;
    }
    let taken = app.sql().slots.acquire(&owner, SLOT_WAIT).await;
    let place = taken.map_err(|why| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "E_BUSY", why.to_string()).retry_after(1)
    })?;
    let until = Until::now(&app);
    let text = asked.sql;
    let mut statements = if is_obvious(&text) {
        statements(&text)?
    } else {
        let split = move || statements(&text);
        // Splitting a long text may take some time.
        let split = tokio::task::spawn_blocking(split).await;
        split.map_err(|_| ApiError::internal())??
    };
    let Some(last) = statements.pop() else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            "there is no statement: send it as the body, or as `sql` of a JSON object",
        ));
    };
    if !statements.is_empty() && !asked.parameters.is_empty() {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_INVALID",
            "parameters are allowed for a single statement only; send statements with parameters separately",
        ));
    }
    for statement in statements {
        session.may_run(&statement.text)?;
        let ran = run(&app, &session, &statement.text, Parameters::none(), &until).await;
        let answer = ran.map_err(|error| statement.locate(error))?;
        until.wait(answer.collect()).await??;
    }
    let parameters = Parameters::positional(asked.parameters);
    let ran = run(&app, &session, &last.text, parameters, &until).await;
    let ran = ran.map_err(|error| last.locate(error))?;
    let begun = Rows::begin(ran, asked.format, asked.time, asked.rows_max, place);
    let rows = until.wait(begun).await??.send(until.rows);
    let mut response = answer(
        HeaderValue::from_static(asked.format.content_type()),
        Bytes::new(),
    );
    *response.body_mut() = Body::from_stream(stream::unfold(rows, async |mut rows| {
        rows.next().await.map(|piece| (piece, rows))
    }));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn run(
    app: &App,
    session: &Session,
    sql: &str,
    parameters: Parameters,
    until: &Until,
) -> Result<Answer, Error> {
    let (session, sql) = (session.clone(), sql.to_owned());
    let ran = async move { session.run(&sql, parameters).await };
    until.wait(app.sql().threads.answer(ran)).await?
}

/// Time limits of a request for statements.
///
/// Statements check the clock between two batches, and one batch of a join may take long: the
/// waiting request checks the clock too.
struct Until {
    /// Limit for the first rows.
    head: Instant,
    /// Limit for all rows.
    rows: Instant,
    limit: Duration,
    setting: &'static str,
}

impl Until {
    fn now(app: &App) -> Until {
        let (all, head) = (app.settings.sql_timeout, app.settings.request_timeout);
        let (limit, setting) = match head < all {
            true => (head, "request.timeout"),
            false => (all, "sql.timeout"),
        };
        let now = Instant::now();
        Until {
            head: now + limit + GRACE,
            rows: now + all + GRACE,
            limit,
            setting,
        }
    }

    /// Waits for a step before the first rows.
    async fn wait<T>(&self, step: impl Future<Output = T>) -> Result<T, Error> {
        let Until { limit, setting, .. } = self;
        tokio::time::timeout_at(self.head, step).await.map_err(|_| {
            Error::new(
                "time_limit",
                "57014",
                format!("the statement was cancelled: it took longer than {limit:?}"),
            )
            .with_hint(format!(
                "read a shorter range, or raise the setting {setting}"
            ))
        })
    }
}
