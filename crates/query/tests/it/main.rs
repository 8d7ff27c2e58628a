//! SQL against real databases in temporary folders.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

/// As the server has it.
#[global_allocator]
static ALLOCATOR: headwater_query::Counting<std::alloc::System> =
    headwater_query::Counting(std::alloc::System);

mod access;
mod adaptive;
mod answers;
mod complexity;
mod epoch;
mod errors;
mod functions;
mod gaps;
mod guards;
mod indexes;
mod lengths;
mod lookups;
mod manual;
mod many;
mod meanings;
mod nearest;
mod numbers;
mod patterns;
mod plans;
mod pyramid;
mod reading;
mod series;
mod skipping;
mod snapshots;
mod support;
mod tables;
mod views;
mod watches;
mod zones;
