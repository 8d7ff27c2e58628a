//! Headwater's storage engine: a commit log, memory, segments with a pyramid of aggregates, snapshots.
//!
//! Invariants: the laws of the design, each a named test (`tests/it/laws.rs`).
//! Concurrency: a [`Database`] is shared freely between threads; see `core.rs` for the order of locks.
//! Failure: see [`Error`]; after a failed write or sync the database latches, reads go on.

mod care;
mod catalog;
mod check;
mod core;
mod counters;
mod db;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod golden;
mod ids;
pub mod late;
mod life;
mod log;
mod maintain;
mod memory;
mod meta;
mod options;
mod owner;
mod partitions;
mod pins;
mod policy;
mod read;
mod recover;
mod segment;
mod shard;
mod stats;
mod step;
mod unreadable;
mod workers;
mod write;

pub use care::{
    BackupOptions, BackupReport, Reader, RepairFinding, RepairMode, RepairReport, backup,
    backup_with, repair, restore, verify_backup,
};
pub use catalog::{Duplicates, Field, FieldSpec, TableInfo, TableSpec};
pub use check::{CheckReport, check};
pub use db::{Database, TableChange, Ticket, Written};
pub use error::{Damage, Error, ErrorKind, Result};
pub use late::{FlushRule, Knobs, LatePolicy, MergeScope, PolicyChoice, Split};
pub use life::DeleteSpec;
pub use options::{Durability, Options};
pub use policy::{LateReport, ShardLateReport};
pub use read::{
    AggregateSpec, Bin, Bins, ColumnSlice, Comparison, DataVersion, Filter, LastValue,
    PartitionInfo, RowBlock, Scan, ScanChunk, ScanSpec, Snapshot, StreamHandle, StreamInfo,
    StreamPage, SummaryBin, SummarySpec, Touched,
};
pub use recover::Recovery;
pub use stats::Stats;
pub use write::{
    REFUSED_ENDED, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TABLES, REFUSED_TYPE, REFUSED_UNREADABLE, Refused,
};
