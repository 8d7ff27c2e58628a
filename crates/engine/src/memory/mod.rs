//! Events not yet in segments: per stream, chunks in a flank and a late buffer.
//!
//! Invariants: an event is in memory from its insertion until the job that stored it is published,
//! and afterwards for readers with an older snapshot; readers filter by sequence and version, so
//! they see each event exactly once. Concurrency: guarded by the shard's lock; chunks are shared by
//! reference count, and one that only its stream references may still grow. Failure: none; there is
//! no I/O here.

pub(crate) mod chunk;
pub(crate) mod expiry;
mod front;
mod in_order;
pub(crate) mod pins;
mod sort;
mod stream;

pub(crate) use in_order::{lie_in_order, rows_in};
pub(crate) use sort::{in_table_type, merge_equal_times, rows_between, search, sorted_rows};
pub(crate) use stream::StreamMemory;
