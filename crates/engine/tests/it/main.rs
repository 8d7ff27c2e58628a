//! The engine's integration tests: one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod laws;
mod model;
