//! Tests of the block device: its files under power cuts and faults, its server with clients of all
//! manners.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test should stop where it fails"
)]

mod client;
mod commands;
mod crash;
mod golden;
mod hostile;
mod model;
mod noise;
mod opening;
mod serving;
mod support;
