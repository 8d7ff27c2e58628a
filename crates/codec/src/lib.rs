//! Types, aggregates and codecs of Headwater: time, levels, values, columns, batches, leaves, bucket blocks, log columns
//! and checksums. Pure functions on bytes and slices: no I/O, no clocks, no threads.
//!
//! Invariant: every codec gives back every bit it was given, NaN payloads and -0.0 too; no decoder panics or allocates
//! beyond a bound on any bytes.

pub mod aggregate;
pub mod batch;
pub mod block;
pub mod bytes;
pub mod checksum;
pub mod column;
mod decimal;
pub mod leaf;
pub mod level;
pub mod light;
mod pack;
mod presence;
pub mod rows;
mod text;
pub mod time;
pub mod value;

pub use aggregate::{Aggregate, Extremes};
pub use batch::{
    Batch, MixedTypes, Producer, StreamName, StreamRows, push_stream_text, push_tag_text,
};
pub use bytes::{Cursor, DecodeError, PutBytes};
pub use column::{Bitmap, Column, Values, VarBytes};
pub use level::{Level, TILE_BUCKETS};
pub use rows::Rows;
pub use time::{ClosedRange, Timestamp};
pub use value::{FieldId, FieldType, Value, ValueRef};
