//! Ground that every module of the engine stands on: identifiers, errors, options, settings,
//! ranges, counters.
//!
//! Invariant: plain values without files, locks or threads.

pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod mode;
pub(crate) mod options;
pub(crate) mod ranges;
pub(crate) mod refused;
pub mod settings;
