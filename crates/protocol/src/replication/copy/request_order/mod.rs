//! The order in which missing ranges are requested: shares of the traffic in turn by weight
//! ([`shares`]), which of them take part by policy ([`policy`]), rows within a share by score
//! ([`score`]); a request is filled from them ([`fill`]).
//!
//! Concurrency: plain data. Failure: a failure of the copy's device is an error of the call.

pub(super) mod fill;
pub(super) mod policy;
pub(super) mod score;
pub(super) mod shares;
pub(super) mod stats;
