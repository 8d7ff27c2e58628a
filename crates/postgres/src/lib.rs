//! PostgreSQL's clients at a Headwater database: their messages, their queries about the database
//! itself, and their sessions.
//!
//! From bottom to top: [`messages`] bytes in and out; `catalog` the tables, functions and settings
//! that clients expect of any server of PostgreSQL's; `rewrite` turns their statements into ones
//! that the planner takes; `values` results out and parameters in; `host` the services of the
//! server that the front end is part of; `sessions` the front end.
//!
//! Invariants: it knows neither HTTP nor tokens nor settings of a server: [`Host`] says who may do
//! what, and gives TLS and random bytes; [`FrontEndSettings`] are plain values. Nothing below
//! `sessions` opens a socket.
//! Concurrency: a task for each connection; what sessions share is in [`FrontEnd`].
//! Failure: an error is reported to the client with PostgreSQL's code for it; a message that cannot
//! be read, or a panic, ends its connection and nothing else. Manual: `docs/postgres.md`. Why it is
//! our own code: `docs/decisions/0007-postgres-messages.md`.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

pub mod messages;

#[cfg(feature = "sessions")]
pub mod catalog;
#[cfg(feature = "sessions")]
mod host;
#[cfg(feature = "sessions")]
mod metrics;
#[cfg(feature = "sessions")]
pub mod rewrite;
#[cfg(feature = "sessions")]
mod sessions;
#[cfg(feature = "sessions")]
mod values;

#[cfg(feature = "sessions")]
pub use host::{FrontEndSettings, Grant, Host, Statements};
#[cfg(feature = "sessions")]
pub use metrics::Metrics;
#[cfg(feature = "sessions")]
pub use sessions::FrontEnd;
