//! Basic types of Headwater: instants, levels, values, columns, rows, names of streams, batches,
//! aggregates and ranges of bytes. Every other crate uses them; this crate depends on none of ours.
//!
//! Invariants: values are preserved bit for bit, NaN payloads and -0.0 too; merging aggregates in
//! any order results in the same count, extremes and integer sums. Concurrency: plain values, no
//! locks, no threads, no I/O, no clocks; [`Instants`] is shared by threads. Failure: a constructor
//! with invalid parts returns `None` or an error type of its module.

pub mod aggregate;
pub mod batch;
pub mod byte_range;
pub mod column;
pub mod instants;
pub mod invariant;
pub mod level;
pub mod now;
pub mod rows;
pub mod time;
pub mod value;

pub use aggregate::{Aggregate, Extremes, Ieee, Sum};
pub use batch::{
    Batch, MixedTypes, Producer, StreamName, StreamRows, push_stream_text, push_tag_text,
};
pub use byte_range::ByteRange;
pub use column::{Bitmap, Column, Values, VarBytes};
pub use instants::Instants;
pub use level::{Level, TILE_BUCKETS};
pub use now::Now;
pub use rows::Rows;
pub use time::{ClosedRange, Timestamp};
pub use value::{FieldId, FieldType, Value, ValueRef};
