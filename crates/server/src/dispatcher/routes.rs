//! Routes of a dispatcher: the reading routes of a node, the page, and its status.
//!
//! Invariant: a route of a node requires the same rights here as there. A route that writes is
//! refused with a hint where to send the request.

use super::answer::answer;
use super::state::DispatcherState;
use crate::access::Access;
use crate::access::rules::Action;
use crate::access::token::hex;
use crate::routes::{self, Needs, health, openapi, page};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::{Endpoint, ErrorAnswer, Route};
use serde_json::{Value, json};
use std::sync::Arc;

/// Paths that the dispatcher answers itself.
const OWN: [&str; 3] = ["/api/v1/sync", "/api/v1/sync/connect", "/api/v1/held"];

type DispatcherRoute = Route<Arc<DispatcherState>>;

/// All routes.
pub(crate) fn all() -> Vec<DispatcherRoute> {
    let open = [page::routes(), health::routes(), openapi::routes()];
    let asked = routes::all().into_iter().map(|route| route.endpoint);
    let asked = asked.filter(|endpoint| endpoint.needs != Needs::Nothing);
    let asked = asked.filter(|endpoint| !OWN.contains(&endpoint.path));
    open.into_iter()
        .flatten()
        .chain(asked.map(route))
        .chain([Route::get("/api/v1/sync", Needs::Manage, status)])
        .collect()
}

fn route(endpoint: Endpoint) -> DispatcherRoute {
    let Endpoint {
        method,
        path,
        needs,
        token_in_address,
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
        "a dispatcher stores and changes nothing: ask an edge, or a cloud node",
    )
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
            "only a token that manages everything (`manage *`) is told about other nodes",
        ));
    }
    let tables = state.tables.read();
    let (bus, has_link) = state.notices.state();
    let nodes = state.nodes.iter().enumerate().map(|(at, node)| {
        let figures = tables.figures(NodeIndex(at));
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
        "notices": { "bus": bus, "has_link": has_link },
        "nodes": nodes.collect::<Vec<_>>(),
    })))
}
