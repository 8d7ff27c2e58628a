//! The frame of all experiments: rivals measured in turn, medians and spreads, CPU time, targets,
//! reports.
//!
//! Rivals take turns within seconds, so that whatever else the machine does falls on all of them;
//! each round begins with another one. A result is the median over rounds after warm-up rounds,
//! with its smallest and largest value beside it.
//!
//! ```text
//! Common (arguments) ─► Bench (scratch directory, machine) ─► turns() ─► Rounds ─► Target rows ─► table and JSON
//! ```

mod bench;
mod numbers;
mod random;
mod target;
mod turns;

pub(crate) use bench::{Bench, Common};
pub(crate) use numbers::{real, signed, size, unsigned, whole};
pub(crate) use random::Random;
pub(crate) use target::{Bound, Targets};
pub(crate) use turns::{Contestant, Rounds, Taken, taken, taken_and_drained, turns};

/// Error that ends an experiment.
pub(crate) type Failure = Box<dyn std::error::Error>;
