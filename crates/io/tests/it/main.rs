//! The tests of headwater-io, in one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod conformance;
mod crash;
mod faults;
mod later;
mod model;
mod persistent;
mod pmem_model;
mod queue;
mod system;
mod time;
