//! The integration tests: one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod chain;
mod compare;
mod disks;
mod freeing;
mod relayed;
mod rows;
mod simulation;
mod world;
