//! The integration tests: one binary.

mod chain;
mod compare;
mod disks;
mod freeing;
mod relayed;
mod rows;
mod simulation;
mod world;
