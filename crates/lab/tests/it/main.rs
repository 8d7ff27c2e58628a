//! The experiments, small.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod experiments;
mod fleet;
mod full_disk;
mod wa;
