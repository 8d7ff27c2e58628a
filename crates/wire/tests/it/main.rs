//! Tests of the public face of `headwater-wire`.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test should stop where it fails"
)]

mod clocks;
mod csv;
mod csv_records;
mod lineprotocol;
mod message;
mod prometheus;
mod round_trip;
mod support;
