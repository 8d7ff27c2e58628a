//! What no lint checks: the layers inside the crates and between them, licences, links between
//! pages, the shape of the sources, and counts that may only fall.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod commands;
mod crates;
mod layers;
mod pages;
mod ratchets;
mod sources;
mod sweeps;
mod words;
