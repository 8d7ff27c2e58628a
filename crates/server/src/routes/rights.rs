//! The signed list of rights of a cloud, for dispatchers and other clouds.
//!
//! Invariant: only a client that may read everything receives the list, which has the names and
//! rules of all tokens, and hashes of their texts.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{answer, query};
use crate::routes::{Needs, Route};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater_cluster::RIGHTS_PATH;
use headwater_wire::query::QueryError;
use std::sync::Arc;
use std::time::Duration;

const RIGHTS: HeaderValue = HeaderValue::from_static("application/vnd.headwater.rights");
/// Longest time to wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(RIGHTS_PATH, Needs::Read, rights)]
}

async fn rights(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    if !access.reads_all() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a token that reads everything (`read *`) is needed for the list of rights",
        ));
    }
    let query = query(&uri, &["known", "wait"])?;
    let known = query.one("known")?.unwrap_or_default().to_owned();
    let wait = Duration::from_secs(query.number("wait")?.unwrap_or(0));
    if wait > WAIT_MAX {
        return Err(QueryError::value("wait", "expected 0 to 60 seconds", "").into());
    }
    let Some(fleet) = &app.fleet else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "E_ROLE",
            "this node has no list of rights for others: send the request to a cloud",
        ));
    };
    // The head of the answer must be sent within the time of a request.
    let wait = wait.min(app.settings.request_timeout.mul_f64(0.8));
    let ends = tokio::time::Instant::now() + wait;
    let mut changes = fleet.follow_rights();
    let mut stopping = app.shell.stopping();
    loop {
        let list = changes.borrow_and_update().clone();
        if let Some(list) = list.filter(|list| list.digest != known) {
            return Ok(answer(RIGHTS, list.bytes.clone()));
        }
        if tokio::time::Instant::now() >= ends || *stopping.borrow() {
            let mut none = Response::new(Body::empty());
            *none.status_mut() = StatusCode::NO_CONTENT;
            return Ok(none);
        }
        tokio::select! {
            // An error means that the server has stopped.
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(ends) => {}
            _ = stopping.changed() => {}
        }
    }
}
