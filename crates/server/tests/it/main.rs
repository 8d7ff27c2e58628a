//! Tests of the server over loopback, through its HTTP surface only.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod access;
mod asking;
mod clients;
mod edge;
mod health;
mod influxql;
mod limits;
mod openapi;
mod page;
mod settings_page;
mod support;
mod tls;
mod write;
