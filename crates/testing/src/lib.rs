//! Helpers for the tests of several crates: chance, waiting, programs of others, and servers to
//! test against.
//!
//! Invariants: a test that cannot be run says so by [`or_skip`] and in no other way, so that `make
//! test` can report what was skipped, and fails instead where `TEST_CLIENTS=required`, which CI
//! sets. Environments of packages are made once for all programs, by `tools/environment`.
//! Concurrency: everything may be called by several threads and processes at once.
//! Failure: panics, since only tests use the crate.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "only tests use this, and a test fails by a panic"
)]

mod dice;
#[cfg(feature = "doors")]
pub mod doors;
mod mosquitto;
mod programs;
mod s3;
mod skip;
mod wait;

pub use dice::Dice;
pub use mosquitto::{Broker, has_broker};
pub use programs::{LAKE_READERS, installed, node_packages, python, run};
pub use s3::S3Server;
pub use skip::{or_skip, recording_is_missing};
pub use wait::{free_port, until};
