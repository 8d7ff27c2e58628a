//! Tests of the program itself, as its users run it.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test should stop where it fails"
)]

mod analyze;
mod block;
mod bucket;
mod care;
#[cfg(feature = "sql")]
mod columns;
mod dispatch;
#[cfg(feature = "sql")]
mod doors;
#[cfg(feature = "sql")]
mod duckdb;
mod fleet;
mod import;
mod influxql;
mod kill;
mod kill_http;
#[cfg(feature = "mqtt")]
mod kill_mqtt;
#[cfg(feature = "sql")]
mod lake;
#[cfg(all(feature = "sql", feature = "bucket"))]
mod lake_bucket;
#[cfg(feature = "mqtt")]
mod notices;
mod packaging;
#[cfg(feature = "sql")]
mod query;
mod reads;
mod real_data;
mod remote;
mod replay;
mod round_trip;
mod serve;
mod snapshots;
mod support;
mod tables;
mod usage;
#[cfg(feature = "sql")]
mod watch;
