//! Makes runs of indexes, merges them, and drops runs that are not needed any more.
//!
//! Work is done in *increments*, each of which ends with a commit: indexing can be stopped after
//! any increment and resumed later. The remaining work follows from the leaves of a segment that no
//! run covers; no other state is stored.
//!
//! Tables with such a setting make and drop indexes by themselves, and limit the space of all their
//! indexes.
//!
//! Invariants: leaves are indexed from a segment's committed bytes; a segment has more than
//! [`plan::RUNS_MAX`] runs only for a moment. Nothing is written once all leaves are indexed.
//! Concurrency: one increment at a time ([`crate::storage::index::Indexes::begin_change`]); no job,
//! writer or reader waits for it. Failure: an increment that fails changes nothing. A segment that
//! cannot be read gets no runs. After a failed transaction of the metadata the database latches.

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
pub(crate) use space::{index_space, is_alive, is_automatic, partitions};
