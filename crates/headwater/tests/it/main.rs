//! What embedders can do with the facade alone, in one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod media;
