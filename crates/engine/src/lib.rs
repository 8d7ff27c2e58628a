//! Headwater's storage engine: a commit log, memory, segments with a pyramid of aggregates,
//! snapshots.
//!
//! Invariants: the laws of the design, each a named test (`tests/it/laws.rs`).
//! Concurrency: a [`Database`] is shared freely between threads; see `core` for the order of locks.
//! Failure: see [`Error`]; after a failed write or sync the database latches, reads go on.

mod backup;
mod catalog;
mod changes;
mod check;
mod chunk;
mod clock;
mod copy;
mod core;
mod counters;
mod db;
mod deletes;
mod error;
mod expiry;
mod fast_index;
mod flush;
mod freeing;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod golden;
mod guard;
mod held;
mod ids;
mod index;
mod indexes;
mod indexing;
mod io_choice;
mod late_policy;
mod layout;
mod ledger;
mod log;
mod maintain;
mod memory;
mod meta;
mod mirror;
mod moving;
mod named;
mod needed;
mod notes;
mod options;
mod owner;
mod partitions;
mod past;
mod pins;
mod producers;
mod prove;
mod queues;
mod ranges;
mod read;
mod reader;
mod recover;
mod refused;
mod regime;
mod relocate;
mod removed;
mod repair;
mod repairing;
mod reserve;
mod retention;
mod segment;
pub mod settings;
mod shard;
mod snapshots;
mod stall;
mod state;
mod stats;
mod step;
mod table_change;
mod tail;
mod tiers;
mod tombstone;
mod touched;
mod unreadable;
mod wanted;
mod widening;
mod workers;
mod write;

pub use crate::core::FreedRows;
pub use backup::{BackupOptions, BackupReport, backup, backup_with, restore, verify_backup};
pub use catalog::{Duplicates, Field, FieldSpec, TableInfo, TableSpec};
pub use check::{CheckReport, check};
pub use copy::{
    CarriedCopy, CopyProgress, CopyRestoration, Explained, LeafFacts, Missing, RemoteCopy,
    TailProgress, Tally, description_decodes,
};
pub use db::{Database, Ticket, Written};
pub use deletes::DeleteSpec;
pub use error::{Damage, Error, ErrorKind, Result};
pub use headwater_late::{FlushRule, Knobs, LatePolicy, MergeScope, PolicyChoice, Split};
pub use held::{HeldState, Holds};
pub use index::{IndexBudget, IndexPolicy, IndexUse};
pub use indexes::{IndexInfo, IndexProgress, IndexSpec};
pub use io_choice::{IoBackend, QueuePlacement};
pub use late_policy::{LateReport, ShardLateReport};
pub use ledger::{Proof, SegmentLedger};
pub use named::SnapshotEnd;
pub use needed::{NeededFor, NeededRange, Reason, Why};
pub use options::{Durability, Options};
pub use read::{
    Across, AggregateSpec, Bin, Bins, ColumnSlice, Comparison, Conflict, Coverage, DataVersion,
    DiffSpec, DiffStretch, Differences, Filter, HandlePage, LastValue, OutermostSpec, Owned,
    Owners, PageStart, PartitionInfo, Replay, ReplayChunk, ReplayCursor, ReplayRow, ReplaySpec,
    ReplaySteps, RowBlock, Scan, ScanChunk, ScanSpec, Snapshot, SnapshotPart, StreamDiff,
    StreamHandle, StreamInfo, StreamPage, Stretch, Stretches, SummaryBin, SummarySpec,
};
pub use reader::Reader;
pub use recover::Recovery;
pub use refused::{
    REFUSED_ENDED, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TABLES, REFUSED_TYPE, REFUSED_UNREADABLE, Refused,
};
pub use relocate::{adopt_fast_tier, use_fast_tier};
pub use repair::{RepairFinding, RepairMode, RepairReport, repair, repair_without_fast_tier};
pub use segment::MissedRange;
pub use snapshots::{EndedSnapshot, SnapshotInfo};
pub use state::{State, StateName, StateSegment};
pub use stats::Stats;
pub use table_change::TableChange;
pub use tail::{Tail, TailAsk, TailMark, TailPlace, TailPoint};
pub use tiers::{FastTier, TierParts, fast_tier};
pub use touched::Touched;
pub use wanted::{Pin, Rule, Rules, Want};
