//! The integration tests: one binary.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod forged;
mod freeing;
mod full_disk;
mod hostile_cloud;
mod hostile_edge;
mod looks;
mod naming;
mod nodes;
mod parts;
mod peers;
mod relays;
mod sockets;
mod steady;
mod unreadable;
