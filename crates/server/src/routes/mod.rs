//! Routes, one file for each kind, and the list of all routes.
//!
//! Invariant: every route is an entry of [`all`], except for the routes of every server. The needs
//! of an entry are checked before its handler runs, so a handler checks only streams.

pub(crate) mod aggregate;
pub(crate) mod bus;
pub(crate) mod count;
pub(crate) mod coverage;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod health;
pub(crate) mod inventory;
pub(crate) mod last;
pub(crate) mod live;
pub(crate) mod manage;
pub(crate) mod openapi;
pub(crate) mod opentsdb;
pub(crate) mod presence;
pub(crate) mod prometheus;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod rights;
pub(crate) mod scan;
pub(crate) mod storage;
pub(crate) mod streams;
pub(crate) mod sync;
pub(crate) mod tiles;
pub(crate) mod write;

pub(crate) use headwater_shell::Needs;

use crate::app::App;
use crate::components::{optional_routes, page};
use std::sync::Arc;

/// Entry of the list.
pub(crate) type Route = headwater_shell::Route<Arc<App>>;

/// Every route.
pub(crate) fn all() -> Vec<Route> {
    [
        aggregate::routes(),
        bus::routes(),
        count::routes(),
        coverage::routes(),
        diff::routes(),
        export::routes(),
        health::routes(),
        inventory::routes(),
        last::routes(),
        live::routes(),
        manage::routes(),
        openapi::routes(),
        opentsdb::routes(),
        page::routes(),
        optional_routes(),
        presence::routes(),
        prometheus::routes(),
        query::routes(),
        replay::routes(),
        rights::routes(),
        scan::routes(),
        storage::routes(),
        streams::routes(),
        sync::routes(),
        tiles::routes(),
        write::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
