//! A shell that serves something else than a database: what every server has, a second role has
//! too.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod role;
mod serving;
mod stopping;
mod support;
