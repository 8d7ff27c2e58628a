//! Inventory of this node, for dispatchers: the whole inventory, or the changes since their last
//! request.
//!
//! Invariant: only a client that may read everything receives the inventory, since it lists
//! streams. After a change the answer is sent at once; otherwise at the next change, when the load
//! of this node has changed much, or when the time is up.

use crate::access::Access;
use crate::access::token::{from_hex, hex};
use crate::app::App;
use crate::error::ApiError;
use crate::request::{answer, query};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater_cluster::inventory::{NOTICE_KEY, REVOKED, Sources, TICKET_KEY};
use headwater_protocol::dispatch::encode;
use headwater_wire::query::QueryError;
use std::sync::Arc;
use std::time::Duration;

const INVENTORY: HeaderValue = HeaderValue::from_static("application/vnd.headwater.held");
/// Longest time to wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at the load of this node while a dispatcher waits.
const LOOK_AT_LOAD: Duration = Duration::from_secs(1);
/// Difference of the load that a dispatcher is told at once, where it is a half of it, too.
const LOAD_STEP: u32 = 8;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/held", Needs::Read, inventory)]
}

/// Trusts the key of the dispatcher, and applies the revoked tokens that it reports.
fn trust(app: &App, access: &Access, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(key) = headers.get(TICKET_KEY) else {
        return Ok(());
    };
    let key = key.to_str().ok().and_then(from_hex).ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "E_TICKET",
            format!("{TICKET_KEY}: expected a public key, as 64 hexadecimal digits"),
        )
    })?;
    app.take_tickets()?;
    if app.shell.guard().trust(access, key) {
        tracing::debug!("tickets of a dispatcher are accepted");
    }
    let revoked = headers.get(REVOKED).and_then(|told| told.to_str().ok());
    if let Some(told) = revoked
        && !app.shell.guard().take_revoked(access, told)
    {
        tracing::warn!("a dispatcher's list of revoked tokens is not accepted");
    }
    Ok(())
}

/// Adds the key of this node's notices to an answer.
fn with_key(app: &App, mut answer: Response) -> Response {
    let key = app.notices.public_key().map(|key| hex(&key));
    if let Some(key) = key.and_then(|key| HeaderValue::from_str(&key).ok()) {
        answer.headers_mut().insert(NOTICE_KEY, key);
    }
    answer
}

/// Waits until the load of this node differs much from what it was.
async fn load_moved(app: &App, before: u32) {
    loop {
        tokio::time::sleep(LOOK_AT_LOAD).await;
        let now = app.shell.requests_running();
        if now.abs_diff(before) > LOAD_STEP.max(now.max(before) / 2) {
            return;
        }
    }
}

async fn inventory(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if !access.reads_all() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a token that reads everything (`read *`) is needed for the inventory of this node",
        ));
    }
    let query = query(&uri, &["epoch", "since", "wait"])?;
    let epoch: u64 = query.number("epoch")?.unwrap_or(0);
    let version: u64 = query.number("since")?.unwrap_or(0);
    let wait: u64 = query.number("wait")?.unwrap_or(0);
    let wait = Duration::from_secs(wait);
    if wait > WAIT_MAX {
        return Err(QueryError::value("wait", "expected 0 to 60 seconds", "").into());
    }
    // The head of the answer must be sent within the time of a request.
    let wait = wait.min(app.settings.request_timeout.mul_f64(0.8));
    let ends = tokio::time::Instant::now() + wait;
    app.blocking(move |app| trust(app, &access, &headers))
        .await?;
    let mut stopping = app.shell.stopping();
    let mut waiting = app.notices.wait();
    let load = app.shell.requests_running();
    let mut has_moved = false;
    loop {
        let mut held = app
            .blocking(move |app| {
                let sources = Sources {
                    db: &app.db(),
                    fleet: app.fleet.as_deref(),
                    env: app.shell.env(),
                };
                Ok(app.inventory.since(sources, epoch, version)?)
            })
            .await?;
        let is_same = held.epoch == epoch && held.since == version && held.version == version;
        let is_over = tokio::time::Instant::now() >= ends || *stopping.borrow();
        if !is_same || is_over || has_moved {
            held.load = app.shell.requests_running();
            return Ok(with_key(&app, answer(INVENTORY, encode(&held))));
        }
        tokio::select! {
            () = waiting.next() => {}
            () = load_moved(&app, load) => has_moved = true,
            () = tokio::time::sleep_until(ends) => {}
            // An error means that the server has stopped.
            _ = stopping.changed() => {}
        }
    }
}
