//! Replicas: copies of other databases with missing ranges, and states pinned for copies of this
//! one.
//!
//! Invariant: a copy answers from verified bytes only, and reports missing ranges.

pub(crate) mod copy;
pub(crate) mod freeing;
mod losing;
pub(crate) mod pinned;
