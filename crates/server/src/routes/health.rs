//! Is it alive, as clients of InfluxDB 1 ask. What every server answers is the shell's: `/health`,
//! `/ready`, `/metrics`.

use super::Needs;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use headwater_shell::Route;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    vec![Route::get("/ping", Needs::Nothing, ping)]
}

/// Clients of InfluxDB 1 read the version here and fail without it.
async fn ping() -> impl IntoResponse {
    let version = concat!("headwater-", env!("CARGO_PKG_VERSION"));
    (StatusCode::NO_CONTENT, [("x-influxdb-version", version)])
}
