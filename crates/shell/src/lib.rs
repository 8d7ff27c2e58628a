//! The shell of a server, whatever it serves: who may come in and do what, TLS, limits, metrics,
//! what every request and answer has in common, and a start and a stop in order.
//!
//! What is served is a [`Role`]: its routes, its doors besides HTTP, its work in the background,
//! whether it is ready, and how it ends. The server of one database is one; others are built beside
//! it from the same parts.
//!
//! From bottom to top: `error` the form in which a request is refused; `private` files that only
//! their owner may read; `patient` connections that are given up; `compress` answers in fewer
//! bytes; `cors` pages of other origins; `route` what a route needs; `settings` of these parts;
//! `tls` certificates; [`access`] tokens, rules and names; [`logging`]; `metrics`; `shell` what all
//! requests share; `listen` connections; `middleware` what happens before and after a route; `role`
//! what is served; `standard` routes of every server; `run` start and stop, which `notify` tells
//! systemd of.
//!
//! Invariants: no handler runs for a request that its [`Needs`] keep out. An address that others
//! reach is served only with tokens and TLS, or where a setting says that neither is wanted. It
//! knows nothing of what a role serves.
//! Concurrency: [`Shell`] is shared by all requests; no lock is held while something is waited for.
//! Failure: starting fails with a [`StartError`] that says which setting is wrong; a handler that
//! panics is answered 500; a worker or a door that panics is logged, and the rest goes on.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

pub mod access;
mod compress;
mod cors;
mod error;
mod listen;
pub mod logging;
mod metrics;
mod middleware;
mod notify;
mod patient;
mod private;
mod role;
mod route;
mod run;
mod settings;
mod shell;
mod standard;
mod tls;

pub use cors::parse_origin;
pub use error::{AnsweredCode, ErrorAnswer};
pub use private::replace_private;
pub use role::{Door, Role, Work, Worker};
pub use route::{Endpoint, Needs, Route};
pub use run::{Bound, Listener, StartError, run_until_signal};
pub use settings::{LogFormat, LogRequests, ShellSettings};
pub use shell::Shell;
pub use standard::standard_endpoints;
pub use tls::{Certificate, TlsError};
