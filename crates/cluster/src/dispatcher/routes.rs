//! Routes of a dispatcher: the reading routes of a node, the page, and its status.
//!
//! Invariant: a route of a node requires the same rights here as there. A route that writes is
//! refused with a hint where to send the request.

use super::answer::answer;
use super::partial::list;
use super::state::DispatcherState;
use crate::notices::VALUES_PATH;
use crate::rights::{RIGHTS_PATH, RightsStatus};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::access::Access;
use headwater_shell::access::rules::Action;
use headwater_shell::access::token::hex;
use headwater_shell::{Endpoint, ErrorAnswer, Needs, Route};
use serde_json::{Value, json};
use std::sync::Arc;

/// Paths that the dispatcher answers itself.
const OWN: [&str; 5] = [
    "/api/v1/sync",
    "/api/v1/sync/connect",
    "/api/v1/held",
    RIGHTS_PATH,
    VALUES_PATH,
];

type DispatcherRoute = Route<Arc<DispatcherState>>;

/// Routes for these endpoints of nodes, and for the dispatcher's status.
pub(crate) fn all(forwarded: &[Endpoint]) -> Vec<DispatcherRoute> {
    let forwarded = forwarded.iter().cloned();
    let forwarded = forwarded.filter(|endpoint| endpoint.needs != Needs::Public);
    let forwarded = forwarded.filter(|endpoint| !OWN.contains(&endpoint.path));
    forwarded
        .map(route)
        .chain([
            Route::get("/api/v1/sync", Needs::Manage, status),
            Route::get(VALUES_PATH, Needs::Read, values),
        ])
        .collect()
}

fn route(endpoint: Endpoint) -> DispatcherRoute {
    let Endpoint {
        method,
        path,
        needs,
        token_in_address,
        ..
    } = endpoint;
    let ask = move |State(state): State<Arc<DispatcherState>>, access: Access, request: Request| {
        answer(state, path, access, request)
    };
    let route = match (needs, method) {
        (Needs::Write | Needs::Manage, _) => Route::post(path, needs, stores_nothing),
        (_, Method::POST) => Route::post(path, needs, ask),
        _ => Route::get(path, needs, ask),
    };
    match token_in_address {
        true => route.with_token_in_address(),
        false => route,
    }
}

async fn stores_nothing() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::CONFLICT,
        "E_ROLE",
        "a dispatcher is read-only: send this request to an edge or a cloud",
    )
}

/// Live values that the dispatcher has heard over the bus.
async fn values(
    State(state): State<Arc<DispatcherState>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ErrorAnswer> {
    state.notices.values.answer(&access, &uri)
}

/// Status of the list of rights that was received.
fn rights(state: &DispatcherState) -> RightsStatus {
    let receiver = state.rights.as_ref().map(|(_, receiver)| receiver);
    RightsStatus {
        error: receiver.and_then(|receiver| receiver.error()),
        ..RightsStatus::of(state.shell.guard())
    }
}

/// Status of each node.
async fn status(
    State(state): State<Arc<DispatcherState>>,
    access: Access,
) -> Result<Json<Value>, ErrorAnswer> {
    if !access.all(Action::Manage) {
        return Err(ErrorAnswer::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a token that manages everything (`manage *`) is needed for information about other nodes",
        ));
    }
    let tables = state.tables.read();
    let (bus, has_link) = state.notices.state();
    let nodes = state.nodes.iter().enumerate().map(|(at, node)| {
        let figures = tables.stats(NodeIndex(at));
        json!({
            "url": node.peer.url(),
            "public_url": node.public_url,
            "is_live": figures.is_some_and(|f| f.is_live),
            "error": node.error.lock().clone(),
            "version": figures.map(|f| f.position.version),
            "edges": figures.map(|f| f.edges),
            "connected": figures.map(|f| f.connected),
            "streams": figures.map(|f| f.streams),
            "tiles": figures.map(|f| f.tiles),
            "tile_bytes": figures.map(|f| f.tile_bytes),
        })
    });
    Ok(Json(json!({
        "role": "dispatcher",
        "cloud": null,
        "edges": null,
        "ticket_key": hex(&state.key.public()),
        "rights": rights(&state),
        "notices": { "bus": bus, "has_link": has_link },
        "nodes": nodes.collect::<Vec<_>>(),
        "missing": list(&state, &access, &tables.coverage().missing),
    })))
}
