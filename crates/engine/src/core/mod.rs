//! Shared state of an open database: components, each of which owns its fields.
//!
//! Invariants: [`Core`] itself has no state except its components; only the methods of a component
//! maintain the invariants of its fields. [`crate::open::recover`] assembles it once. Concurrency:
//! locks are taken only in this order:
//! 0. a change of the layout ([`Placing::begin_change`]), then the entrance
//!    ([`Placing::hold_back`]);
//! 1. `compaction` ([`Compaction::begin`]);
//! 2. a shard's `stepping`;
//! 3. `commits` ([`Commits::begin`]), or `pin_files`; before `commits` the lock of changes of
//!    indexes ([`Indexes::begin_change`]);
//! 4. the turn to define tables and fields ([`Defining::begin`]), then the `write_barrier`;
//! 5. the catalog;
//! 6. a shard's `state`;
//! 7. `producers`;
//! 8. the log's state.
//!
//! The first four are held over I/O, but only jobs, builders of indexes, changes of the layout, and
//! batches that wait in the entrance take them. The turn is held over reads of stored rows; no
//! other lock is held over I/O. Under any other lock of a component no further lock is taken.

mod commits;
mod compaction;
mod defining;
mod ends;
mod freed;
mod memory_use;
mod newest_deletes;
mod placing;
pub(crate) mod policy_choice;
mod replays;
mod rest;
mod segment_ids;
pub(crate) mod shard;
mod shards;
mod signals;
mod table_changes;
mod unreadable;
mod write_barrier;

pub(crate) use commits::Commits;
pub(crate) use compaction::{Compaction, WrittenOnDay};
pub(crate) use defining::{Defining, Turn};
pub(crate) use ends::Ends;
pub(crate) use freed::Freed;
pub use freed::FreedRows;
pub(crate) use memory_use::MemoryUse;
pub(crate) use newest_deletes::NewestDeletes;
pub(crate) use placing::{Placed, Placing};
pub(crate) use replays::{ReplayMemory, ReplayShare};
pub(crate) use rest::IdleDetector;
pub(crate) use segment_ids::SegmentIds;
pub(crate) use shards::{Shards, shard_number};
pub(crate) use signals::Signals;
pub(crate) use table_changes::TableChanges;
pub(crate) use unreadable::UnreadablePartitions;
pub(crate) use write_barrier::WriteBarrier;

use crate::common::counters::Counters;
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::config::mode::EngineMode;
use crate::device::guard::Guard;
use crate::device::stall::Watch;
use crate::memory::pins::PinnedChunkFiles;
use crate::metadata::catalog::{Catalog, StreamRecord, TableRecord};
use crate::metadata::clock::{ClockGuard, ClockReading};
use crate::metadata::producers::Producers;
use crate::metadata::removed_rows::Removed;
use crate::metadata::tables::Meta;
use crate::storage::index::Indexes;
use crate::storage::named_snapshots::NamedSnapshots;
use crate::storage::segment::Store;
use crate::wal::{Log, RecordKind};
use crate::{Options, Result};
use headwater_codec::PutBytes;
use headwater_io::{Env, Lock};
use headwater_late::PolicyChoice;
use headwater_types::{Instants, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;

pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) mode: EngineMode,
    pub(crate) catalog: Catalog,
    pub(crate) meta: Arc<Meta>,
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) indexes: Indexes,
    pub(crate) shards: Shards,
    pub(crate) counters: Counters,
    /// Locations of the parts that can be in a fast tier.
    pub(crate) placing: Placing,
    /// Producers of numbered batches.
    pub(crate) producers: Producers,
    pub(crate) newest_deletes: NewestDeletes,
    /// Rows that a retention removed while the log still has them.
    pub(crate) removed: Removed,
    pub(crate) table_changes: TableChanges,
    /// Deletes that copies have not confirmed.
    pub(crate) ends: Ends,
    /// Named snapshots.
    pub(crate) named: NamedSnapshots,
    /// Deletes newer than the oldest named snapshot.
    pub(crate) named_ends: Ends,
    pub(crate) memory: MemoryUse,
    /// Memory of replays.
    pub(crate) replays: Arc<ReplayMemory>,
    pub(crate) signals: Signals,
    pub(crate) rest: IdleDetector,
    pub(crate) commits: Commits,
    pub(crate) segment_ids: SegmentIds,
    pub(crate) new_streams: NewStreams,
    /// Origin of the policy for late data.
    pub(crate) late_choice: LateChoice,
    pub(crate) clock_guard: ClockGuard,
    /// Clock that provides instants for rows without one.
    pub(crate) instants: Arc<Instants>,
    pub(crate) compaction: Compaction,
    /// Readers of rows that were freed.
    pub(crate) freed: Freed,
    pub(crate) write_barrier: WriteBarrier,
    /// Lock of changes of definitions.
    pub(crate) defining: Defining,
    /// Files for pinned memory when there is much; locked while they are written, with no other
    /// lock taken except a shard's `state`.
    pub(crate) pin_files: Mutex<PinnedChunkFiles>,
    /// Conditions for changes of files.
    pub(crate) guard: Arc<Guard>,
    pub(crate) unreadable: UnreadablePartitions,
    /// Monitor of stalls of bulk; active where the log is in a fast tier.
    pub(crate) bulk: Option<Arc<Watch>>,
    /// Lock of the directory; dropped with the database.
    pub(crate) _lock: Option<Box<dyn Lock>>,
}

/// Streams defined since opening without earlier stored data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewStreams {
    first: u32,
}

impl NewStreams {
    /// All streams from this number on.
    pub(crate) fn from(first: u32) -> NewStreams {
        NewStreams { first }
    }

    pub(crate) fn contain(self, stream: StreamId) -> bool {
        stream.0 >= self.first
    }
}

/// Origin of the policy for late data.
#[derive(Debug)]
pub(crate) struct LateChoice(Mutex<PolicyChoice>);

impl LateChoice {
    pub(crate) fn new(choice: PolicyChoice) -> LateChoice {
        LateChoice(Mutex::new(choice))
    }

    pub(crate) fn get(&self) -> PolicyChoice {
        *self.0.lock()
    }

    pub(crate) fn set(&self, choice: PolicyChoice) {
        *self.0.lock() = choice;
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("dir", &self.options.dir)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Fails with `full` while a disk is full and its reserve released, or smaller than the content
    /// of the log.
    pub(crate) fn check_space(&self) -> Result<()> {
        let placed = self.placing.now();
        if let Some(tier) = &placed.tier
            && placed
                .reserves
                .iter()
                .any(|r| r.is_given_up_in(&tier.tier.folder))
        {
            // The copies there are redundant, and writes go on.
            self.store
                .repeats()
                .all()
                .for_each(|kept| kept.free_space());
        }
        let log_bytes = self.log.live_bytes();
        placed.reserves.iter().try_for_each(|r| r.check(log_bytes))
    }

    /// Shrinks the reserves to the needed size.
    pub(crate) fn shrink_reserves(&self) -> Result<()> {
        let log_bytes = self.log.live_bytes();
        let segment_bytes = self.shards.segment_bytes();
        let placed = self.placing.now();
        let mut reserves = placed.reserves.iter();
        reserves.try_for_each(|r| r.shrink(log_bytes, segment_bytes))
    }

    /// True for a reader beside an owner that does not keep files open by itself.
    pub(crate) fn is_reader(&self) -> bool {
        self._lock.is_none()
    }

    /// Adds to the bytes of memory in use; wakes writers when they become fewer.
    pub(crate) fn memory_changed(&self, change: isize) {
        self.memory.change(change);
        if change < 0 {
            self.signals.memory_freed();
        }
    }

    /// The believed instant, for each table.
    pub(crate) fn moment(&self) -> ClockReading {
        self.clock_guard.look(&*self.env.clock)
    }

    /// The instant by which a table's data ends.
    pub(crate) fn now_for(&self, table: TableId) -> Timestamp {
        self.moment().of(table)
    }

    /// The oldest sequence that replay would still need, given the present content of memory.
    pub(crate) fn first_needed(&self) -> Sequence {
        let published = self.log.published();
        let unstored = self.shards.first_unstored();
        let defined = self.catalog.first_pending();
        let numbered = self.producers.first_unsaved();
        let needed = [unstored, defined, numbered].into_iter().flatten().min();
        needed.map_or(Sequence(published.0 + 1), |first| {
            first.min(Sequence(published.0 + 1))
        })
    }

    /// Puts the definition of a table into the log.
    pub(crate) fn log_table(&self, record: &TableRecord) -> Result<Sequence> {
        let mut payload = Vec::new();
        record.encode(&mut payload);
        let sequence = self.log.enqueue(record.kind(), payload, false)?;
        self.table_changes.note([record.table()], sequence);
        // It uses memory until the commit that stores it in the metadata.
        self.memory_changed(record.heap_bytes().cast_signed());
        Ok(sequence)
    }

    /// Puts the definitions of streams into the log.
    pub(crate) fn log_streams(&self, records: &[StreamRecord]) -> Result<Sequence> {
        let mut payload = Vec::new();
        payload.put_varint(records.len() as u64);
        for record in records {
            record.encode(&mut payload);
        }
        let sequence = self.log.enqueue(RecordKind::Streams, payload, false)?;
        // They use memory until the commit that stores them in the metadata.
        let bytes: usize = records.iter().map(StreamRecord::pending_bytes).sum();
        self.memory_changed(bytes.cast_signed());
        Ok(sequence)
    }
}
