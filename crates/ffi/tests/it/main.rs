//! The C interface, as a program in C sees it.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, reason = "tests")]

mod calls;
mod common;
mod header;
