//! Headwater inside your program: an embedded database for events with timestamps.
//!
//! ```
//! use headwater::{Batch, Database, Options, StreamName};
//! let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(Options::new(dir.path().join("db")))?;
//! let mut batch = Batch::new();
//! let pump = StreamName::new("pumps", [("id", "p1")]);
//! batch.stream(&pump).row(1_700_000_000_000_000_000, [("pressure", 4.2.into())]).unwrap();
//! db.commit(batch)?; // on the medium when this returns
//! let snapshot = db.snapshot()?;
//! assert_eq!(snapshot.last(&pump)?[0].value, 4.2.into());
//! # Ok::<(), headwater::Error>(())
//! ```
//!
//! This crate is the promise to embedders: it re-exports what they need and nothing else. It pulls in no async runtime, no SQL
//! engine and no HTTP.

pub use headwater_codec::{
    Aggregate, Batch, Bitmap, ClosedRange, Column, Extremes, FieldType, Level, MixedTypes,
    StreamName, StreamRows, TILE_BUCKETS, Timestamp, Value, ValueRef, Values, VarBytes,
};
pub use headwater_engine::{
    AggregateSpec, Bin, Bins, CheckReport, Comparison, Damage, Database, Duplicates, Durability,
    Error, ErrorKind, Field, FieldSpec, Filter, FlushRule, LastValue, LatePolicy, MergeScope,
    Options, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TYPE, Reader, Recovery, Refused, Result, Scan, ScanChunk, ScanSpec, Snapshot, Split,
    Stats, TableChange, TableInfo, TableSpec, Ticket, Written,
};

/// Checks the database in `options.dir`: every byte of every committed leaf, block and footer, and the log. Changes nothing, and
/// works beside a process that has it open.
///
/// # Errors
/// When it cannot be looked at: not there, an I/O error, `busy` when its owner changes it too fast. Damage is not an error but part of the report.
pub fn check(options: Options) -> Result<CheckReport> {
    headwater_engine::check(headwater_io::Env::system(), options)
}
