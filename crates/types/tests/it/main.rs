//! Tests of the vocabulary from outside: aggregates in any order, their accuracy, bitmaps.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod aggregate;
mod bitmap;
mod finish;
mod shapes;
