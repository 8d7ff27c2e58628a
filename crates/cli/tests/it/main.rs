//! Tests of the program itself, as its users run it.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed test should stop where it fails"
)]

mod analyze;
#[cfg(feature = "sql")]
mod behind;
mod block;
mod bucket;
mod care;
mod certificates;
mod clones;
#[cfg(feature = "sql")]
mod columns;
#[cfg(feature = "sql")]
mod demo_cluster;
mod dispatch;
#[cfg(feature = "sql")]
mod doors;
#[cfg(feature = "sql")]
mod duckdb;
mod fleet;
mod full_disks;
mod gateways;
mod grafana_fleet;
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
mod many_edges;
mod notices;
mod packaging;
#[cfg(feature = "sql")]
mod query;
mod reads;
mod real_data;
mod remote;
mod replay;
mod rights;
mod round_trip;
mod serve;
mod snapshots;
mod support;
mod tables;
mod usage;
#[cfg(feature = "sql")]
mod watch;
mod whole_fleet;
