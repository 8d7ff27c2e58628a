//! Basic types for every module of the engine: identifiers, errors, ranges, counters, refused rows.
//!
//! Invariant: plain values without files, locks or threads.

pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod ranges;
pub(crate) mod refused;
