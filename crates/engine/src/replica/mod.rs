//! Replicas: copies of other databases with missing ranges, and states pinned for copies of this
//! one.
//!
//! Invariant: a copy answers from verified bytes only, and names the ranges that are missing.

pub(crate) mod copy;
pub(crate) mod freeing;
pub(crate) mod pinned;
