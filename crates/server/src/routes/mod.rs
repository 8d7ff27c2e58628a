//! The routes, one file for each kind, and the one list of all of them.
//!
//! Invariant: every route is an entry of [`all`]. What the entry says it needs is checked before its handler runs, so a
//! handler only asks about streams.

pub(crate) mod aggregate;
pub(crate) mod count;
pub(crate) mod export;
pub(crate) mod health;
pub(crate) mod last;
pub(crate) mod live;
#[path = "../../../shell/src/standard.rs"]
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod opentsdb;
pub(crate) mod page;
pub(crate) mod prometheus;
pub(crate) mod query;
pub(crate) mod scan;
pub(crate) mod sql;
pub(crate) mod storage;
pub(crate) mod streams;
pub(crate) mod tiles;
pub(crate) mod write;

use crate::app::App;
use crate::edge;
use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::Arc;

/// What a request must be allowed before a route looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: also answered without a token.
    Nothing,
    /// A valid token, whatever it allows.
    Token,
    /// A token that may read something. What may not be read is answered like what is not there.
    Read,
    /// A token that may write something.
    Write,
    /// A token that may manage something.
    Manage,
}

/// Where a route is, and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// GET (which answers HEAD too) or POST.
    pub method: Method,
    /// The path, with `{name}` for one part of it and `{*name}` for the rest.
    pub path: &'static str,
    /// Who may use it.
    pub needs: Needs,
}

/// An entry of the list.
pub(crate) struct Route {
    endpoint: Endpoint,
    handler: MethodRouter<Arc<App>>,
}

impl Route {
    pub(crate) fn get<H, T>(path: &'static str, needs: Needs, handler: H) -> Route
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Route {
            endpoint: Endpoint {
                method: Method::GET,
                path,
                needs,
            },
            handler: on(MethodFilter::GET, handler),
        }
    }

    pub(crate) fn post<H, T>(path: &'static str, needs: Needs, handler: H) -> Route
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Route {
            endpoint: Endpoint {
                method: Method::POST,
                path,
                needs,
            },
            handler: on(MethodFilter::POST, handler),
        }
    }
}

/// Every route.
pub(crate) fn all() -> Vec<Route> {
    [
        aggregate::routes(),
        count::routes(),
        export::routes(),
        health::routes(),
        last::routes(),
        live::routes(),
        metrics::routes(),
        openapi::routes(),
        opentsdb::routes(),
        page::routes(),
        prometheus::routes(),
        query::routes(),
        scan::routes(),
        sql::routes(),
        storage::routes(),
        streams::routes(),
        tiles::routes(),
        write::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where the routes are and what they need.
#[must_use]
pub fn endpoints() -> Vec<Endpoint> {
    all().into_iter().map(|route| route.endpoint).collect()
}

/// The service made of all routes, each behind the edge.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for Route { endpoint, handler } in all() {
        let path = endpoint.path;
        router = router.route(path, edge::around(&app, endpoint, handler));
    }
    edge::around_the_rest(&app, router).with_state(app)
}
