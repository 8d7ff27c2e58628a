//! What tests share is tested itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod environments;
mod skips;
