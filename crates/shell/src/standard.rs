//! `/metrics`: figures for Prometheus and what reads its formats.

use super::{Needs, Route};
use crate::app::App;
use crate::error::ApiError;
use crate::metrics::plain;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::IntoResponse;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the engine's figures before older ones are told.
const WAIT: Duration = Duration::from_millis(200);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/metrics", Needs::Token, metrics)]
}

async fn metrics(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    if app.metrics.engine.wants_fetching() {
        let fetching = {
            let app = Arc::clone(&app);
            tokio::task::spawn_blocking(move || {
                let stats = app.db.stats();
                if let Err(error) = &stats {
                    tracing::warn!(%error, "no figures of the engine");
                }
                app.metrics.engine.fetched(stats.ok());
            })
        };
        // Whether it came in time or not, what is there is told; it goes on by itself.
        let _ = tokio::time::timeout(WAIT, fetching).await;
    }
    let text = app.metrics.text().map_err(|_| ApiError::internal())?;
    // Whoever does not name the newer format may not know it: some readers fail at its first line.
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
