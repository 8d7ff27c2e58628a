//! The engine's integration tests: one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod across;
mod awaiting;
mod backup;
mod checkpoints;
mod compat;
mod crash;
mod cuts;
mod damage;
mod decay;
mod definitions;
mod directories;
mod disks;
mod ends;
mod faults;
mod freed;
mod handles;
mod indexes;
mod io_paths;
mod late;
mod laws;
mod leaf_cache;
mod life;
mod limits;
mod log_files;
mod media;
mod model;
mod notes;
mod one_state;
mod overwritten;
mod owners;
mod papers;
mod pins;
mod producers;
mod pump;
mod random;
mod reader;
mod remote;
mod repair;
mod repair_meaning;
mod settled;
mod small;
mod snapshots;
mod support;
mod syncs;
mod table_queries;
mod tiers;
mod tiers_index;
mod tiers_lost;
mod tiers_media;
mod tiers_moving;
mod tiers_newest;
mod tiers_paths;
mod tiers_stall;
mod tiers_synced;
mod totals;
mod traces;
mod unreadable;
mod versions;
