//! Named snapshots: their records, and the files that they retain.
//!
//! A named snapshot is a state that lasts: the [`crate::replication::state`] of one instant, with
//! the files of the segments that it names. Neither the log nor memory is part of it.
//!
//! Invariants: the file of a segment that a snapshot names exists until the snapshot is removed
//! from the metadata, and its last reader has released it.
//! Concurrency: one lock, held for no other and never over I/O.
//! Failure: a record that cannot be read is damage of the metadata. Format:
//! docs/format/snapshot.md.

mod list;
mod record;

pub(crate) use list::{NamedSnapshot, NamedSnapshots};
pub use record::SnapshotEnd;
pub(crate) use record::SnapshotRecord;
#[cfg(fuzzing)]
pub(crate) use record::fuzz;

/// Snapshots of a database, at the most.
pub(crate) const SNAPSHOTS_MAX: usize = 64;
/// Snapshots that ended without being dropped, remembered for error messages and listings.
pub(crate) const ENDED_MAX: usize = 16;
