//! State machines of a fleet: replication between a database and its copies (`replication`), the
//! choice of the node that answers a query (`dispatch`), small notices of change (`notice`), the
//! bus that carries notices (`xmpp`), newest values over it (`live`), and the signed list of rights
//! (`rights`).
//!
//! Invariants: no sockets, no clocks, no threads; time and messages are arguments, so a seeded
//! simulation drives the same code as the processes. Concurrency: values, each owned by one task.
//! Failure: an invalid message is an error of its module and changes nothing.

pub mod dispatch;
pub mod live;
pub mod notice;
pub mod replication;
pub mod rights;
pub mod signature;
pub mod xmpp;
