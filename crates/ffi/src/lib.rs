//! The C interface of Headwater: the engine inside programs in C and in every language that can
//! call C.
//!
//! The header `include/headwater.h` is made of this crate by cbindgen; a test says when it is not
//! current. The contract that all functions share stands at its head, which is
//! `include/preamble.h`.
//!
//! Invariants: nothing that Rust owns is reached by a pointer from outside, only by a handle, which
//! is checked (`handles`); what a result points to lives until its handle is released; no panic
//! leaves this crate (`status`); no state belongs to a thread, since callers such as Go move
//! between threads.
//! Concurrency: every handle may be used from several threads at once. Batches and scans serve one
//! call at a time, the others wait.
//! Failure: every function returns a code of `status` and fills in the caller's `hw_error`, if
//! there is one.
// The metrics of a database are one object of JSON with many members.
#![recursion_limit = "256"]
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]
#![allow(non_camel_case_types, reason = "these are names in C")]

// In the order of the header.
mod status;

mod text;

mod handles;

mod options;

mod database;

mod tables;

mod stream;

mod snapshot;

mod named;

mod column;

mod batch;

mod write;

mod query;

mod rows;

mod scan;

mod replay;

mod into;

mod last;

mod aggregate;

mod arrow;

mod log;

mod json;

pub use aggregate::*;
pub use arrow::*;
pub use batch::*;
pub use column::*;
pub use database::*;
pub use handles::{hw_handle_count, hw_release};
pub use into::*;
pub use last::*;
pub use log::*;
pub use named::*;
pub use options::*;
pub use query::*;
pub use replay::*;
pub use rows::hw_rows;
pub use scan::*;
pub use snapshot::*;
pub use status::*;
pub use stream::*;
pub use tables::*;
pub use text::*;
pub use write::*;
