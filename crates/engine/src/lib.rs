//! Headwater's storage engine: a commit log, memory, segments with a pyramid of aggregates,
//! snapshots.
//!
//! Invariants: the laws of the design, each a named test (`tests/it/laws.rs`). Concurrency: a
//! [`Database`] is shared freely between threads; see `core` for the order of locks. Failure: see
//! [`Error`]; after a failed write or sync the database latches, reads go on.

mod admin;
mod common;
mod config;
mod core;
mod database;
mod device;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod golden;
mod maintenance;
mod memory;
mod metadata;
mod open;
mod read;
mod replica;
mod replication;
mod storage;
mod wal;
mod write;

pub use crate::core::FreedRows;
pub use crate::metadata::LostRows;
pub use admin::backup::{BackupOptions, BackupReport, backup, backup_with, restore, verify_backup};
pub use admin::check::{CheckReport, check};
pub use admin::indexes::{IndexInfo, IndexProgress, IndexSpec};
pub use admin::repair::{
    RepairFinding, RepairMode, RepairReport, repair, repair_without_fast_tier,
};
pub use admin::snapshots::{EndedSnapshot, SnapshotInfo};
pub use common::error::{Damage, Error, ErrorKind, Result};
pub use common::refused::{
    REFUSED_ENDED, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TABLES, REFUSED_TYPE, REFUSED_UNREADABLE, Refused,
};
pub use config::backend::{IoBackend, QueuePlacement};
pub use config::options::{Durability, Options};
pub use config::settings;
pub use config::tier_shares::TierShares;
pub use core::policy_choice::{LateReport, ShardLateReport};
pub use database::{Database, Ticket, Written};
pub use device::tiers::{FastTier, TierParts, fast_tier};
pub use headwater_late::{FlushRule, Knobs, LatePolicy, MergeScope, PolicyChoice, Split};
pub use maintenance::deletes::DeleteSpec;
pub use maintenance::relocate::{adopt_fast_tier, use_fast_tier};
pub use metadata::catalog::{Duplicates, Field, FieldSpec, TableInfo, TableSpec};
pub use metadata::ledger::{Proof, SegmentLedger};
pub use open::reader::Reader;
pub use open::recover::Recovery;
pub use read::stat_table::{MetricName, STATS, Stat, StatKind, StatUnit, StatValue};
pub use read::stats::Stats;
pub use read::{
    Across, AddedTags, AggregateSpec, Bin, Bins, ColumnSlice, Comparison, Conflict, ConflictBounds,
    Conflicts, Coverage, DataVersion, DiffSpec, DiffStretch, Differences, Filter, HandlePage,
    LastValue, OutermostSpec, Owned, Owners, PageStart, PartitionInfo, Replay, ReplayChunk,
    ReplayCursor, ReplayRow, ReplaySpec, ReplaySteps, RowBlock, Scan, ScanChunk, ScanSpec,
    Snapshot, SnapshotPart, StreamDiff, StreamHandle, StreamInfo, StreamPage, Stretch, Stretches,
    SummaryBin, SummarySpec,
};
pub use replica::copy::{
    CarriedCopy, CopyProgress, CopyRestoration, LeafFacts, Missing, RangeExplanation, RemoteCopy,
    TailProgress, Tally, description_decodes, reading_for,
};
pub use replica::pinned::{PinnedState, PinnedStates};
pub use replication::needed::{NeededFor, NeededRange, RangeReason, Reason};
pub use replication::state::{State, StateName, StateSegment};
pub use replication::subscriptions::{Pin, ReplicationRule, ReplicationRules, StreamShare};
pub use replication::tail::{LogLocation, Tail, TailMark, TailPoint, TailRequest};
pub use storage::index::{IndexBudget, IndexPolicy, IndexUse};
pub use storage::named_snapshots::SnapshotEnd;
pub use storage::read_stats::ReadStats;
pub use storage::segment::{MissedRange, ReadCache};
pub use write::table_change::TableChange;
