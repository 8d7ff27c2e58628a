//! Health check of InfluxDB 1's clients. The scaffold has the routes of every server: `/health`,
//! `/ready`, `/metrics`.

use super::Needs;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use headwater_shell::Route;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    vec![Route::get("/ping", Needs::Public, ping)]
}

/// Clients of InfluxDB 1 read the version here and fail without it.
async fn ping() -> impl IntoResponse {
    let version = concat!("headwater-", env!("CARGO_PKG_VERSION"));
    (StatusCode::NO_CONTENT, [("x-influxdb-version", version)])
}
