//! The integration tests: one binary.

mod catch_up;
mod chain;
mod challenge;
mod compare;
mod disks;
mod freeing;
mod liar;
mod relayed;
mod rows;
mod rules;
mod simulation;
mod world;
