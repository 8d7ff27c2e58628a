//! Makes runs of indexes, merges them, and drops runs that are not needed any more.
//!
//! Work is done in *increments*, each of which ends with a commit: so it can be stopped after any
//! of them, and continues there later. The remaining work follows from the leaves that a segment
//! has and no run covers; nothing else is remembered.
//!
//! Tables with such a setting make and drop indexes by themselves, and bound the space of all of
//! theirs.
//!
//! Invariants: leaves are taken in from a segment's committed bytes; a segment gets no more than
//! [`plan::RUNS_MAX`] runs for long. Once nothing is missing, nothing is written.
//! Concurrency: one increment at a time ([`crate::storage::index::Indexes::begin_change`]); no job,
//! writer or reader waits for it.
//! Failure: an increment that fails leaves everything as it was. A segment that cannot be read gets
//! no runs. After a failed transaction of the metadata the database latches.

mod adapt;
mod change;
mod increment;
mod merge;
mod plan;
mod sort;
mod space;
mod take_in;

pub(crate) use adapt::put;
pub(crate) use change::{create, drop_indexes};
pub(crate) use increment::{Outcome, next_increment};
pub(crate) use plan::{Missing, missing};
pub(crate) use space::{index_space, is_alive, is_made, partitions};
