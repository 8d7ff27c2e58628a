//! Administration: checks, repair, backup and restore, moves of the fast tier, named snapshots,
//! indexes, proofs.
//!
//! Invariant: all functions here are called by the embedder, never by a job.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod indexes;
pub(crate) mod move_tier;
pub(crate) mod notes;
pub(crate) mod prove;
pub(crate) mod repair;
pub(crate) mod snapshots;
pub(crate) mod table_changes;
