//! The experiments, small; and what no lint checks: how the crates depend on each other, licences, links between pages, the shape of the sources.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod experiments;
mod full_disk;
mod tidy;
mod wa;
