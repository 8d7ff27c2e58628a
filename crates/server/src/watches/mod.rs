//! Following the watches: who looks, when, and what hooks and topics get.
//!
//! [`runner`] looks again whenever something was stored, and writes down what has to be told;
//! [`hook`] sends events to an address.
//!
//! Invariants: a watch looks with the rights that its owner has now, and stops when these are not
//! those that it was made with. A hook that does not answer keeps a place of [`hook::SENDING_MAX`]
//! for a few seconds, and nobody else waiting.
//! Concurrency: one task looks, one watch after the other; hooks are sent on threads that may wait.
//! Failure: a watch that cannot look, or whose file cannot be written, says why, tells nothing, and
//! tries again; what it did not tell then it finds again.

mod hook;
mod runner;

pub(crate) use runner::{retry, run};
