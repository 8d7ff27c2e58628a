//! Live values that this node has heard over the bus.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use headwater_cluster::notices::VALUES_PATH;
use std::sync::Arc;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(VALUES_PATH, Needs::Read, values)]
}

async fn values(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    Ok(app.notices.values.answer(&access, &uri)?)
}
