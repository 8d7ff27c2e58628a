//! Tests of the server over loopback, through its HTTP surface only.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod access;
#[cfg(feature = "mqtt")]
mod clients;
mod conflicts;
mod dispatch;
mod dispatch_away;
mod dispatch_clients;
mod dispatch_lists;
mod dispatch_tickets;
mod doors;
#[cfg(feature = "sql")]
mod duckdb;
mod fetch_budget;
mod forgotten;
mod grafana;
mod health;
#[cfg(feature = "sql")]
mod iceberg;
mod influxql;
mod limits;
mod live_copies;
mod manage;
mod matrix;
mod metrics_page;
mod middleware;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "sql")]
mod naming;
mod newest;
mod notice_desk;
#[cfg(feature = "mqtt")]
mod notices;
mod notices_values;
mod notices_xmpp;
mod openapi;
mod opentsdb;
mod page;
mod partial;
mod peers;
#[cfg(feature = "sql")]
mod postgres;
mod presence;
mod prometheus;
mod prosody;
mod read_routes;
mod reading;
mod relays;
mod replay;
mod rights;
mod settings_page;
#[cfg(feature = "sql")]
mod sql;
mod subscriptions;
mod support;
mod sync;
mod tls;
#[cfg(feature = "sql")]
mod watches;
mod write;
