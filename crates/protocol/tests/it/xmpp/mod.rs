//! The client of XMPP by what it is given and gives: bytes, without a socket.

mod lists;
mod login;
mod proof;
mod seeds;
mod stream;
