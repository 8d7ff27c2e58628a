//! Named snapshots: their records, and the files that they retain.
//!
//! A named snapshot is a state that lasts: the [`crate::replication::state`] of one instant, with
//! the files of its segments. Neither the log nor memory is part of it.
//!
//! Invariants: the file of a segment of a snapshot exists until the snapshot is removed from the
//! metadata, and its last reader has released it. Concurrency: one lock, not held over I/O or while
//! another lock is taken. Failure: a record that cannot be read is damage of the metadata. Format:
//! docs/format/snapshot.md.

mod list;
mod record;

pub(crate) use list::{NamedSnapshot, NamedSnapshots};
pub use record::SnapshotEnd;
pub(crate) use record::SnapshotRecord;
#[cfg(fuzzing)]
pub(crate) use record::fuzz;

/// Maximum number of snapshots of a database.
pub(crate) const SNAPSHOTS_MAX: usize = 64;
/// Maximum number of snapshots that ended without being dropped and are remembered, for error
/// messages and listings.
pub(crate) const ENDED_MAX: usize = 16;
