//! Tests of the protocols of a fleet, one module for each.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod dispatch;
mod live;
mod notice;
mod replication;
mod rights;
mod xmpp;
