//! State machines of a fleet: what travels between a database and its copies (`replication`), where
//! a query is answered (`dispatch`), small notices of change (`notice`), and the bus they may use
//! (`xmpp`).
//!
//! Invariants: no sockets, no clocks, no threads; time and messages come in as arguments, so that a
//! seeded simulation drives the same code as the processes do.
//! Concurrency: values, each owned by one task.
//! Failure: an invalid message is an error of its module and changes nothing.

pub mod dispatch;
pub mod notice;
pub mod replication;
pub mod signature;
pub mod xmpp;
