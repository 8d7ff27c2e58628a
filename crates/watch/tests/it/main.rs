//! The state machine by itself: golden bytes, crashes and full disks, deliveries.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking"
)]

mod delivering;
mod golden;
mod random;
mod storing;
mod support;
