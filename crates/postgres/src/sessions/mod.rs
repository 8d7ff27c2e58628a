//! The front end for PostgreSQL's clients: `psql`, drivers, Grafana and other tools speak to the
//! database in SQL.
//!
//! Purpose: sessions of PostgreSQL's protocol, version 3, over TCP, with or without TLS. The
//! meaning of a statement is the query crate's; the form of messages is in [`crate::messages`]. The
//! page is `docs/postgres.md`.
//!
//! Invariants: a session begins with a token once tokens are in use, and every statement is under
//! that token's rules; a token is asked for only where others cannot listen. There are never more
//! sessions than the setting allows. No connection occupies a slot for long without authentication.
//!
//! Concurrency: a task for each connection; they share the numbers by which one cancels the
//! statement of another one.
//! Failure: an error is reported to the client with PostgreSQL's code for it; a message that cannot
//! be read, or a panic, ends its connection and nothing else.

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
mod simple_query;
mod startup;
mod statement;
mod tokens;

pub use front_end::FrontEnd;
