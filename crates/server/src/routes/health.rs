//! Is it alive, is it ready: answered without authentication and without the engine's locks.

use super::{Needs, Route};
use crate::app::App;
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/ping", Needs::Nothing, ping),
        Route::get("/health", Needs::Nothing, health),
        Route::get("/ready", Needs::Nothing, ready),
        Route::get("/-/healthy", Needs::Nothing, health),
        Route::get("/-/ready", Needs::Nothing, ready),
    ]
}

/// Clients of InfluxDB 1 read the version here and fail without it.
async fn ping() -> impl IntoResponse {
    let version = concat!("headwater-", env!("CARGO_PKG_VERSION"));
    (StatusCode::NO_CONTENT, [("x-influxdb-version", version)])
}

/// The process answers. Also says what clients of InfluxDB 2 look for.
async fn health() -> Json<Value> {
    Json(json!({
        "name": "headwater",
        "status": "pass",
        "message": "ready for queries and writes",
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Ready means that the database takes a snapshot, which it does not once it is closed, and that
/// the server is not stopping. Says how many partitions are damaged so that nothing of them can be
/// read, if any are.
async fn ready(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    if *app.stopping.borrow() {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_STOPPING",
            "the server is stopping",
        )
        .retry_after(10));
    }
    app.db.snapshot().map(drop)?;
    let mut answer = json!({ "status": "ready" });
    let unreadable = app.db.partitions_unreadable();
    if unreadable > 0 {
        answer["partitions_unreadable"] = unreadable.into();
    }
    Ok(Json(answer))
}
