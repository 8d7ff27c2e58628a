//! PostgreSQL's clients at a Headwater database: their messages, their queries about the database
//! itself, and their sessions.
//!
//! From bottom to top: [`messages`] the encoding of messages; `catalog` the tables, functions and
//! settings that clients expect of a PostgreSQL server; `rewrite` the conversion of their
//! statements into statements that the planner accepts; `values` the encoding of results and
//! parameters; `host` the services of the server that the front end is part of; `sessions` the
//! front end.
//!
//! Invariants: the crate does not depend on HTTP, tokens or settings of a server: [`Host`] decides
//! about rights, and supplies TLS and random bytes; [`FrontEndSettings`] are plain values. Modules
//! below `sessions` do not open sockets. Concurrency: a task for each connection; shared state of
//! sessions is in [`FrontEnd`]. Failure: an error is reported to the client with PostgreSQL's code
//! for it; a malformed message, or a panic, ends only its own connection. Manual:
//! `docs/postgres.md`. Why the protocol is implemented here:
//! `docs/decisions/0007-postgres-messages.md`.
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
