//! The protocol of network block devices: fixed newstyle negotiation, simple and structured
//! replies, and block status in the context `base:allocation`.
//!
//! Invariants: numbers are big-endian; no input of a client makes the server allocate more memory
//! than [`message::REQUEST_BYTES_MAX`] and a small constant for it. Concurrency: see [`transmit`];
//! the rest is plain functions. Failure: a recoverable mistake of a client is answered as the
//! protocol defines; an unreadable message ends only its connection.

pub(crate) mod flow;
pub(crate) mod message;
pub(crate) mod negotiate;
pub(crate) mod transmit;
