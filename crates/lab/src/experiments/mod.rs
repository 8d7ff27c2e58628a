//! One file per experiment.

pub(crate) mod bulk;
pub(crate) mod data;
pub(crate) mod events;
pub(crate) mod fleet;
pub(crate) mod golsm;
pub(crate) mod indexes;
pub(crate) mod memory;
pub(crate) mod mqtt;
pub(crate) mod nodes;
pub(crate) mod overwrite;
pub(crate) mod parse;
#[cfg(feature = "sql")]
pub(crate) mod patterns;
pub(crate) mod prefetch;
#[cfg(feature = "sql")]
pub(crate) mod query;
pub(crate) mod queues;
pub(crate) mod read_paths;
pub(crate) mod respawn;
pub(crate) mod server;
pub(crate) mod tiers;
pub(crate) mod tiles;
pub(crate) mod wa;
