//! Reading: snapshots, scans, newest values, aggregates, tiles.
//!
//! Invariants: a snapshot sees exactly the records up to its sequence (law 1); a tile or aggregate
//! equals the aggregate of the same snapshot's scan (law 3).
//! Concurrency: no lock is held over I/O; a reader never waits for a flush, a merge or a
//! compaction.
//! Failure: damage is an error of kind `corrupt` for reads of the damaged part, and for nothing
//! else; a damaged block is replaced by reading rows.

mod across;
mod added_tags;
mod aggregate;
mod bins;
mod coverage;
mod databases;
mod demand;
pub(crate) mod describe;
mod diff;
mod ends;
mod filter;
mod filter_text;
mod first_last;
mod gather;
mod handle;
mod indexed;
mod last;
mod listing;
pub(crate) mod merge;
mod missing;
mod replay;
mod scan;
mod single;
mod snapshot;
pub(crate) mod stat_table;
pub(crate) mod stats;
mod stretches;
mod summary;
mod table_queries;
pub(crate) mod unreadable;
pub(crate) mod version;
mod view;
mod visit;
mod walk;

pub use across::{Conflict, ConflictBounds, Conflicts, Owned, Owners};
pub use added_tags::AddedTags;
pub use aggregate::{AggregateSpec, Bin};
pub use bins::Bins;
pub use coverage::Coverage;
pub use databases::{Across, SnapshotPart};
pub use describe::{PartitionInfo, StreamInfo, StreamPage};
pub use diff::{DiffSpec, DiffStretch, Differences, StreamDiff};
pub use filter::{Comparison, Filter};
pub use handle::StreamHandle;
pub use last::LastValue;
pub use listing::{HandlePage, PageStart};
pub use replay::{Replay, ReplayChunk, ReplayCursor, ReplayRow, ReplaySpec, ReplaySteps};
pub use scan::{ScanChunk, ScanSpec};
pub use snapshot::{Scan, Snapshot};
pub use stretches::{Stretch, Stretches};
pub use summary::{SummaryBin, SummarySpec};
pub use table_queries::OutermostSpec;
pub use version::DataVersion;
pub use visit::{ColumnSlice, RowBlock};
