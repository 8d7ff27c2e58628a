//! The integration tests: one binary.

mod decision;
mod golden;
mod messages;
mod simulation;
mod world;
