//! Evaluates the watches, and delivers their events to hooks and topics.
//!
//! [`runner`] evaluates again after every write, and persists events; [`hook`] sends them to an
//! address.
//!
//! Invariants: a watch is evaluated with the current rights of its owner, and stops when they
//! differ from the rights at its creation. A hook that does not answer occupies one slot of
//! [`hook::SENDING_MAX`] for a few seconds, and does not delay other watches. Concurrency: one task
//! evaluates, one watch after the other; hooks are sent on threads that may block. Failure: a watch
//! that cannot be evaluated, or whose file cannot be written, reports why, emits no events, and
//! retries; the retry detects its matches again.

mod component;
mod hook;
pub(crate) mod registry;
pub(super) mod route;
mod runner;

pub(crate) use component::WatchRunner;
pub(crate) use runner::{retry, run};
