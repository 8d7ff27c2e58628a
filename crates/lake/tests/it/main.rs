//! The lake as its users see it: written, read back, and found whole after whatever happened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod buckets;
mod catalog;
mod crashes;
mod engines;
mod gateway;
mod memory;
mod random;
mod rollup;
mod rules;
mod support;
