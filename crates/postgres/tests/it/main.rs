//! What clients of PostgreSQL find, over real databases in temporary folders.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

/// As the server has it.
#[global_allocator]
static ALLOCATOR: headwater_query::Counting<std::alloc::System> =
    headwater_query::Counting(std::alloc::System);

mod functions;

// The databases, and the processes under limits, are those of the tests of SQL.
#[path = "../../../query/tests/it/guards/child.rs"]
#[allow(dead_code, reason = "not every test needs all of it")]
mod child;
#[path = "../../../query/tests/it/support.rs"]
#[allow(dead_code, reason = "not every test needs all of it")]
mod support;
