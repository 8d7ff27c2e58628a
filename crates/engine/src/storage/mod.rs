//! Storage beside the log: segments with their pyramid, secondary indexes, the fast index,
//! partitions, tombstones, and the files that named snapshots retain.
//!
//! Invariant: a segment is immutable once its footer is written, except for the checkpoint after
//! it.

pub(crate) mod fast_index;
pub(crate) mod index;
pub(crate) mod named_snapshots;
pub(crate) mod partitions;
pub(crate) mod queues;
pub(crate) mod read_stats;
pub(crate) mod segment;
pub(crate) mod tombstone;
