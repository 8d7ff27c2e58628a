//! The integration tests: one binary.

mod access;
mod bytes;
mod following;
mod hub;
mod world;
