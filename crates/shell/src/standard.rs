//! Routes of every server: liveness, readiness, and metrics.

use crate::access::Access;
use crate::access::rules::Action;
use crate::error::ErrorAnswer;
use crate::http_metrics::{nameless, plain};
use crate::role::Role;
use crate::route::{Endpoint, Needs, Route};
use crate::shell::Shell;
use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a role's metrics before older ones are reported.
const WAIT: Duration = Duration::from_millis(200);

/// State that the handlers share.
struct Served<R> {
    shell: Arc<Shell>,
    role: Arc<R>,
}

impl<R> Clone for Served<R> {
    fn clone(&self) -> Served<R> {
        Served {
            shell: Arc::clone(&self.shell),
            role: Arc::clone(&self.role),
        }
    }
}

/// Locations and needs of the routes of every server.
#[must_use]
pub fn standard_endpoints<R: Role>() -> Vec<Endpoint> {
    all::<R>().into_iter().map(|route| route.endpoint).collect()
}

pub(crate) fn routes<R: Role>(shell: &Arc<Shell>, role: &Arc<R>) -> Vec<Route> {
    let served = Served {
        shell: Arc::clone(shell),
        role: Arc::clone(role),
    };
    let routes = all::<R>().into_iter();
    routes
        .map(|route| route.with_state(served.clone()))
        .collect()
}

fn all<R: Role>() -> Vec<Route<Served<R>>> {
    vec![
        Route::get("/health", Needs::Public, health::<R>),
        Route::get("/ready", Needs::Public, ready::<R>),
        Route::get("/-/healthy", Needs::Public, health::<R>),
        Route::get("/-/ready", Needs::Public, ready::<R>),
        Route::get("/metrics", Needs::Token, metrics::<R>),
    ]
}

/// Health of the process. Also has the members that clients of InfluxDB 2 read.
async fn health<R: Role>() -> Json<Value> {
    Json(json!({
        "name": "headwater",
        "status": "pass",
        "message": R::HEALTHY,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Ready means that the role is ready and the server is not stopping.
async fn ready<R: Role>(State(served): State<Served<R>>) -> Result<Json<Value>, ErrorAnswer> {
    if *served.shell.stopping().borrow() {
        return Err(ErrorAnswer::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_STOPPING",
            "the server is shutting down",
        )
        .retry_after(10));
    }
    let mut answer = served.role.ready()?;
    answer.insert("status".to_owned(), json!("ready"));
    Ok(Json(Value::Object(answer)))
}

/// Metrics for Prometheus and other readers of its formats. Names of other nodes are for tokens
/// that may read or manage everything.
async fn metrics<R: Role>(
    State(served): State<Served<R>>,
    access: Access,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ErrorAnswer> {
    let fetching = tokio::spawn(Arc::clone(&served.role).refresh_stats());
    match tokio::time::timeout(WAIT, fetching).await {
        // On time or not, the present metrics are reported; the fetch continues in the background.
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::error!(%error, "reading metrics panicked"),
    }
    let text = served.shell.metrics.text();
    let mut text = text.map_err(|_| ErrorAnswer::internal())?;
    if !access.reads_all() && !access.all(Action::Manage) {
        text = nameless(&text);
    }
    // A client that does not name the newer format may not know it: some readers fail at its first
    // line.
    let mut accepted = headers.get_all(ACCEPT).iter();
    let (kind, text) = if accepted.any(|a| a.to_str().is_ok_and(names_openmetrics)) {
        (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text,
        )
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", plain(&text))
    };
    Ok(([(CONTENT_TYPE, kind), (VARY, "Accept")], text))
}

fn names_openmetrics(accept: &str) -> bool {
    let mut kinds = accept.split(',').map(str::trim);
    kinds.any(|kind| {
        let name = kind.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("application/openmetrics-text")
    })
}
