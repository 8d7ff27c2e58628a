//! Is it alive, is it ready: answered without authentication and without the engine's locks.

use crate::app::App;
use crate::error::ApiError;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/ping", get(ping))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/-/healthy", get(health))
        .route("/-/ready", get(ready))
}

async fn ping() -> StatusCode {
    StatusCode::NO_CONTENT
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Ready means that the database takes a snapshot, which it does not once it is closed.
async fn ready(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    app.blocking(|app| Ok(app.db.snapshot().map(drop)?)).await?;
    Ok(Json(json!({ "status": "ready" })))
}
