//! The frame of all experiments: candidates measured in turn, medians and spreads, CPU time,
//! targets, reports.
//!
//! Candidates alternate within seconds, so that other work of the machine affects all of them; each
//! round starts with another one. A result is the median over rounds after warm-up rounds, with the
//! smallest and largest value.
//!
//! ```text
//! Common (arguments) ─► Bench (scratch directory, machine) ─► turns() ─► Rounds ─► Target rows ─► table and JSON
//! ```

mod bench;
mod interleaved;
mod numbers;
mod random;
mod target;

pub(crate) use bench::{Bench, Common};
pub(crate) use interleaved::{
    Candidate, RoundResult, Rounds, time_round, time_round_with_drain, turns,
};
pub(crate) use numbers::{real, signed, size, unsigned, whole};
pub(crate) use random::Random;
pub(crate) use target::{Bound, Targets};

/// Error that ends an experiment.
pub(crate) type Failure = Box<dyn std::error::Error>;
