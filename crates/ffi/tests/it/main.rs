//! The C interface, as a program in C sees it.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::expect_used, reason = "tests")]
#![allow(clippy::panic, reason = "tests")]

mod arrow;
mod bins;
mod c;
mod calls;
mod common;
mod header;
mod lifetimes;
mod log;
mod operations;
mod past;
mod settings;
mod stats;
