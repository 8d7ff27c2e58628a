//! HTTP server scaffold, independent of the served role: access, TLS, limits, metrics, handling
//! common to every request and answer, and an orderly start and stop.
//!
//! The served part is a [`Role`]: its routes, its listeners in addition to HTTP, its background
//! work, its readiness, and its end. The server of one database is a role; other roles are built
//! from the same parts.
//!
//! From bottom to top: `error` the form in which a request is refused; `private` files that only
//! their owner may read; `patient` connections that are closed when clients stop reading;
//! `compress` compression of answers; `cors` pages of other origins; `route` the needs of a route;
//! `tls` certificates; [`access`] tokens, lists of rights, rules and names; `settings` of these
//! parts; [`logging`];
//! `metrics`; `shell` the state that all requests share; `leftover` request bodies that
//! were not read; `listen` connections; `middleware` the
//! steps before and after a route; `role` the served part; `standard` routes of every server; `run`
//! start and stop, which `notify` reports to systemd.
//!
//! Invariants: no handler runs for a request that its [`Needs`] refuse. An address that others
//! reach is served only with tokens and TLS, unless a setting turns either off. The scaffold does
//! not depend on the role. Concurrency: [`Shell`] is shared by all requests; no lock is held during
//! a wait. Failure: starting fails with a [`StartError`] that names the wrong setting; a handler
//! that panics is answered 500; a worker or a listener that panics is logged, and the others
//! continue.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

pub mod access;
mod compress;
mod cors;
mod error;
mod http_metrics;
mod leftover;
mod listen;
pub mod logging;
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
mod validity;

pub use cors::parse_origin;
pub use error::{AnsweredCode, ErrorAnswer, JSON, NO_CACHE};
pub use http_metrics::encode_alone;
pub use private::replace_private;
pub use role::{FrontEnd, Role, Work, Worker};
pub use route::{Endpoint, Needs, Prepare, Route};
pub use run::{Bound, Listener, StartError, run_until_signal};
pub use settings::{LogFormat, LogRequests, ShellSettings};
pub use shell::Shell;
pub use standard::standard_endpoints;
pub use tls::{Certificate, TlsError};
pub use validity::{Validity, date_of_header, fingerprint, instant_text};
