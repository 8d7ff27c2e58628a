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
mod asking;
#[cfg(feature = "mqtt")]
mod clients;
mod dispatch;
mod dispatch_tickets;
mod doors;
#[cfg(feature = "sql")]
mod duckdb;
mod grafana;
mod health;
#[cfg(feature = "sql")]
mod iceberg;
mod influxql;
mod limits;
mod manage;
mod matrix;
mod metrics_page;
mod middleware;
#[cfg(feature = "mqtt")]
mod mqtt;
mod newest;
mod notice_desk;
#[cfg(feature = "mqtt")]
mod notices;
mod notices_xmpp;
mod openapi;
mod opentsdb;
mod page;
#[cfg(feature = "sql")]
mod postgres;
mod presence;
mod prometheus;
mod prosody;
mod reading;
mod relays;
mod replay;
mod settings_page;
#[cfg(feature = "sql")]
mod sql;
mod support;
mod sync;
mod tls;
mod wants;
#[cfg(feature = "sql")]
mod watches;
mod write;
