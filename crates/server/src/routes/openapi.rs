//! OpenAPI description of the routes. The text is `docs/http/openapi.json`; a test compares it with
//! the routes.

use super::Needs;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use headwater_shell::Route;

const TEXT: &str = include_str!("../../../../docs/http/openapi.json");

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    vec![Route::get("/api/openapi.json", Needs::Public, openapi)]
}

async fn openapi() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, TEXT)
}
