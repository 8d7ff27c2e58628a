//! A bucket as nodes use it: formats, the simulation, races.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod formats;
#[cfg(feature = "s3")]
mod gateway;
mod groups;
mod race;
mod simulation;
mod stores;
mod world;
