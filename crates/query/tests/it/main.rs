//! SQL against real databases in temporary folders.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod access;
mod epoch;
mod errors;
mod functions;
mod gate;
mod lengths;
mod plans;
mod pyramid;
mod reading;
mod support;
mod tables;
mod zones;
