//! Named snapshots: what is written down of them, and which files they keep.
//!
//! A named snapshot is a state that lasts: what [`crate::replication::state`] says of one
//! instant, with the files of the segments that it names. It holds neither the log nor memory.
//!
//! Invariants: the file of a segment that a snapshot names is there until the snapshot has gone
//! from the metadata, and the last who reads it has let go.
//! Concurrency: one lock, held for no other and never over I/O.
//! Failure: a record that cannot be read is damage of the metadata.
//! Format: docs/format/snapshot.md.

mod list;
mod record;

pub(crate) use list::{NamedSnapshot, NamedSnapshots};
pub use record::SnapshotEnd;
pub(crate) use record::SnapshotRecord;
#[cfg(fuzzing)]
pub(crate) use record::fuzz;

/// Snapshots of a database, at the most.
pub(crate) const SNAPSHOTS_MAX: usize = 64;
/// Snapshots that ended by themselves and are remembered for who asks for them.
pub(crate) const ENDED_MAX: usize = 16;
