//! Opening: recovery by the owner, readers beside an owner, and states that named snapshots keep.
//!
//! Invariant: recovery does not depend on any setting.

pub(crate) mod reader;
pub(crate) mod recover;
pub(crate) mod snapshot_states;
