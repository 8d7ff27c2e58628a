//! Maintenance jobs and their threads: flushes, merges, compactions, retention, deletes,
//! indexing.
//!
//! Invariant: a job publishes its result at one point, and leaves no trace when it fails before.

pub(crate) mod deletes;
pub(crate) mod flush;
pub(crate) mod indexing;
pub(crate) mod jobs;
pub(crate) mod relocate;
pub(crate) mod retention;
pub(crate) mod schedule;
pub(crate) mod workers;
