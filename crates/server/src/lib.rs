//! Headwater's server: one database behind one HTTP port.
//!
//! Purpose: routes for writing and asking, who may do what, and the running of it all. What a route means is written in
//! `docs/http`; what the engine does stays in the engine.
//!
//! Invariants: a write is answered with success only when the engine calls it as durable as the database is set to be. No
//! blocking call of the engine runs on a thread of the runtime. An error tells nothing about what the asker may not see.
//!
//! Concurrency: [`Server`] owns the runtime's listeners; `App` is shared by all requests and holds no lock over a call of
//! the engine.
//!
//! Failure: a route answers with an `ApiError`, whose code is stable. Starting fails with a [`StartError`] that says which
//! setting is wrong.

mod access;
mod app;
mod edge;
mod error;
mod ingest;
mod listen;
mod live;
mod logging;
mod metrics;
#[cfg(feature = "mqtt")]
mod mqtt;
mod notify;
mod patient;
#[cfg(feature = "sql")]
mod postgres;
mod request;
mod routes;
mod serve;
pub mod settings;
mod tile_cache;
mod tile_costs;
mod tls;

pub use access::{rules, tokens};
pub use logging::begin as begin_logging;
pub use routes::{Endpoint, Needs, endpoints};
pub use serve::{Server, StartError, serve};
pub use settings::Settings;
