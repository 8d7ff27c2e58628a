//! The front end for PostgreSQL's clients: `psql`, drivers, Grafana and other tools speak to the
//! database in SQL.
//!
//! Purpose: sessions of PostgreSQL's protocol, version 3, over TCP, with or without TLS. The
//! meaning of a statement is the query crate's; the form of messages is in [`crate::messages`]. The
//! page is `docs/postgres.md`.
//!
//! Invariants: when tokens are in use, a session begins with a token, and every statement is
//! subject to that token's rules; a token is requested only where others cannot listen. The number
//! of sessions never exceeds the setting. No connection occupies a slot for long without
//! authentication.
//!
//! Concurrency: a task for each connection; connections share the numbers by which one connection
//! cancels the statement of another. Failure: an error is reported to the client with PostgreSQL's
//! code for it; a malformed message, or a panic, ends only its own connection.

mod accept;
mod answer;
mod cancel;
mod commands;
mod connection;
mod copy;
mod copying;
mod cursors;
mod errors;
mod extended_query;
mod front_end;
mod link;
mod names;
mod quota;
mod session_commands;
mod simple_query;
mod startup;
mod statement;
mod tokens;
mod transactions;

pub use front_end::FrontEnd;
