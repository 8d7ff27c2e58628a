//! `/metrics`: figures for Prometheus and what reads its formats.

use super::{Needs, Route};
use crate::app::App;
use crate::error::ApiError;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the engine's figures before older ones are told.
const WAIT: Duration = Duration::from_millis(200);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/metrics", Needs::Token, metrics)]
}

async fn metrics(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
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
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text))
}
