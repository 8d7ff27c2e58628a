//! Encodings of Headwater's values as bytes: leaves of rows, blocks of buckets, columns of the log,
//! and their checksums. Pure functions on bytes and slices: no I/O, no clocks, no threads.
//!
//! Invariant: every codec restores every bit of its input, NaN payloads and -0.0 too; no input
//! makes a decoder panic or allocate beyond a bound. Failure: invalid bytes are a [`DecodeError`],
//! which states the expected content.

pub mod block;
pub mod bytes;
pub mod checksum;
mod decimal;
pub mod entries;
pub mod leaf;
pub mod light;
mod pack;
mod presence;
mod text;

pub use bytes::{Cursor, DecodeError, PutBytes};
