//! Headwater's server: one database behind one HTTP port.
//!
//! Purpose: routes for writes and queries, and further components. The server is a role of the
//! shell (`headwater-shell`), which listens, and provides TLS, access, limits, metrics and an
//! orderly stop. Routes are documented in `docs/http`; storage stays in the engine.
//!
//! Invariants: a write is answered with success only when the engine reports the durability that is
//! configured for the database. No blocking call of the engine runs on a thread of the runtime,
//! except for one kind of tile (`tile_costs`). An error does not reveal data that the client may
//! not read.
//!
//! Concurrency: `App` is shared by all requests and does not hold a lock during a call of the
//! engine.
//!
//! Failure: a route answers with an `ApiError`, whose code is stable. Starting fails with a
//! [`StartError`] that names the wrong setting.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

mod app;
mod built;
mod bus_lists;
mod bus_rights;
mod bus_values;
mod change_notifier;
mod columnar;
mod component;
mod components;
mod conflict_report;
mod database_metrics;
mod database_server;
mod databases;
mod dispatching;
mod error;
mod fetch_missing;
mod ingest;
mod live;
mod live_copies;
mod page_placeholder;
mod partial;
mod propagation;
mod query_access;
mod read_scope;
mod refresh;
mod request;
mod rights_state;
mod room;
mod routes;
mod select_into;
mod serve;
pub mod settings;
mod start_error;
mod tile_cache;
mod tile_costs;

// Rights are checked by the shell, and used in every module.
use headwater_shell::access;

pub use database_server::endpoints;
pub use headwater_cluster::notices::{
    ListsApplied, apply_broker_lists, broker_lists, broker_rules,
};
pub use headwater_protocol::notice::whitelist_text as broker_list_text;
pub use headwater_shell::access::{rights, rules, tokens};
pub use headwater_shell::{Endpoint, Needs};
pub use routes::manage::shown_snapshots;
pub use serve::{Server, serve};
pub use settings::{Settings, begin_logging};
pub use start_error::StartError;
