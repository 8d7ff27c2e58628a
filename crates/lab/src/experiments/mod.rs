//! One file per experiment.

pub(crate) mod bulk;
pub(crate) mod data;
pub(crate) mod events;
pub(crate) mod golsm;
pub(crate) mod indexes;
pub(crate) mod memory;
pub(crate) mod migration;
pub(crate) mod mqtt;
pub(crate) mod nodes;
pub(crate) mod overwrite;
pub(crate) mod parse;
#[cfg(feature = "sql")]
pub(crate) mod patterns;
#[cfg(feature = "sql")]
pub(crate) mod query;
pub(crate) mod queues;
pub(crate) mod respawn;
pub(crate) mod server;
pub(crate) mod tiers;
pub(crate) mod tiles;
pub(crate) mod wa;
pub(crate) mod ways;
