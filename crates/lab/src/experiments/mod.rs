//! One file per experiment.

pub(crate) mod data;
pub(crate) mod golsm;
