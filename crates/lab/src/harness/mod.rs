//! The frame of all experiments: rivals measured in turn, medians and spreads, CPU time, targets,
//! reports.
//!
//! Rivals alternate within seconds, so that other work of the machine affects all of them; each
//! round starts with another one. A result is the median over rounds after warm-up rounds, with the
//! smallest and largest value.
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
