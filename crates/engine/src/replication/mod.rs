//! The terms of replication: the state of a database as bytes, subscriptions, the byte ranges that
//! a subscription needs, and the newest events of the log.
//!
//! Invariant: this module does not decide when data is sent; see `crates/protocol/src/replication`.

pub(crate) mod needed;
pub(crate) mod state;
pub(crate) mod subscriptions;
pub(crate) mod tail;
