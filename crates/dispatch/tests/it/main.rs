//! The integration tests: one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod decision;
mod golden;
mod messages;
mod simulation;
mod world;
