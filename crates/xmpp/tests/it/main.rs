//! The client of XMPP by what it is given and gives: bytes, without a socket.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod lists;
mod login;
mod proof;
mod seeds;
mod stream;
