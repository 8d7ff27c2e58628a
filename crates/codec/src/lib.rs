//! Encodings of Headwater's values as bytes: leaves of rows, blocks of buckets, columns of the log,
//! and the checksums behind them. Pure functions on bytes and slices: no I/O, no clocks, no
//! threads.
//!
//! Invariant: every codec gives back every bit it was given, NaN payloads and -0.0 too; no decoder
//! panics or allocates beyond a bound on any bytes.
//! Failure: bytes that are no such thing are a [`DecodeError`], which says what was expected.

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
