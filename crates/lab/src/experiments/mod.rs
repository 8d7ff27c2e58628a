//! One file per experiment.

pub(crate) mod data;
