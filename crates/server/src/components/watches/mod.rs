//! Evaluates the watches, and delivers their events to hooks and topics.
//!
//! [`runner`] evaluates again whenever something was stored, and persists events; [`hook`] sends
//! them to an address.
//!
//! Invariants: a watch is evaluated with the current rights of its owner, and stops when these are
//! not those that it was made with. A hook that does not answer occupies one slot of
//! [`hook::SENDING_MAX`] for a few seconds, and delays no other watch.
//! Concurrency: one task evaluates, one watch after the other; hooks are sent on threads that may
//! block.
//! Failure: a watch that cannot be evaluated, or whose file cannot be written, reports why, emits
//! nothing, and retries; its matches are found again then.

mod component;
mod hook;
pub(crate) mod registry;
mod runner;

pub(crate) use component::WatchRunner;
pub(crate) use runner::{retry, run};
