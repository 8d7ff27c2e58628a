//! Is it alive, as clients of InfluxDB 1 ask. What every server answers is the shell's: `/health`,
//! `/ready`, `/metrics`.

use super::{Needs, Route};
use axum::http::StatusCode;
use axum::response::IntoResponse;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/ping", Needs::Nothing, ping)]
}

/// Clients of InfluxDB 1 read the version here and fail without it.
async fn ping() -> impl IntoResponse {
    let version = concat!("headwater-", env!("CARGO_PKG_VERSION"));
    (StatusCode::NO_CONTENT, [("x-influxdb-version", version)])
}
