//! Tests of the codecs from outside: round trips, ranges, damage, golden bytes.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod block;
mod damage;
mod golden;
mod leaf;
mod light;
mod shapes;
