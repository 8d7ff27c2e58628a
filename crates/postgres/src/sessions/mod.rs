//! The door for PostgreSQL's clients: `psql`, drivers, Grafana and other tools speak to the
//! database in SQL.
//!
//! Purpose: sessions of PostgreSQL's protocol, version 3, over TCP, with or without TLS. What a
//! statement means is the query crate's; what messages look like is in [`crate::messages`]. The
//! page is `docs/postgres.md`.
//!
//! Invariants: a session begins with a token once tokens are in use, and every statement is under
//! that token's rules; a token is asked for only where others cannot listen. There are never more
//! sessions than the setting allows. Nobody holds a place for long without having said who it is.
//!
//! Concurrency: a task for each connection; what they share are the numbers by which one cancels
//! what another one does.
//! Failure: an error is told to the client with PostgreSQL's code for it; a message that cannot be
//! read, or a panic, ends its connection and nothing else.

mod accept;
mod answer;
mod cancel;
mod commands;
mod connection;
mod copy;
mod copying;
mod cursors;
mod door;
mod errors;
mod extended_query;
mod kept;
mod link;
mod names;
mod simple_query;
mod startup;
mod statement;
mod tokens;

pub use door::Door;
