//! The protocol of network block devices: fixed newstyle negotiation, simple and structured
//! replies, and block status in the context `base:allocation`.
//!
//! Invariants: numbers are big-endian; nothing that a client sends makes the server take more
//! memory than [`message::REQUEST_BYTES_MAX`] and a small constant for it.
//! Concurrency: see [`transmit`]; the rest is plain functions.
//! Failure: what a client may have wrong is answered as the protocol says; what cannot be read on
//! ends its connection, and nothing else.

pub(crate) mod flow;
pub(crate) mod message;
pub(crate) mod negotiate;
pub(crate) mod transmit;
