//! Makes runs of indexes, merges them, and lets go of those that nothing needs any more.
//!
//! Work is done in *pieces*, each of which ends with a commit: so it can be ended after any of
//! them, and goes on there later. What is still missing is told by the leaves that a segment has
//! and no run holds; nothing else is remembered.
//!
//! Tables that say so make and drop indexes by themselves, and bound the room of all of theirs.
//!
//! Invariants: leaves are taken in from a segment's committed bytes; a segment gets no more than
//! [`plan::RUNS_MAX`] runs for long. Once nothing is missing, nothing is written.
//! Concurrency: one piece at a time ([`crate::storage::index::Indexes::begin_change`]); no step,
//! writer or reader waits for it.
//! Failure: a piece that fails leaves what there was. A segment that cannot be read gets no runs.
//! After a failed transaction of the metadata the database latches.

mod adapt;
mod change;
mod merge;
mod piece;
mod plan;
mod room;
mod sort;
mod take_in;

pub(crate) use adapt::put;
pub(crate) use change::{create, drop_indexes};
pub(crate) use piece::{Piece, next_piece};
pub(crate) use plan::{Missing, missing};
pub(crate) use room::{is_alive, is_made, partitions, room};
