//! Tests of queue sets: the laws of their schedule in simulation, balance, and owners with threads.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test should stop where it fails"
)]

mod balance;
mod files;
mod simulation;
mod threads;
mod transfers;
