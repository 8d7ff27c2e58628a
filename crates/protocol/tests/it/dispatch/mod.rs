//! The integration tests: one binary.

mod coverage;
mod decision;
mod golden;
mod messages;
mod simulation;
mod world;
