//! A shard: streams that share memory and one flush worker.
//!
//! Invariants: a stream stays in its shard; `version` rises with every published step; `partitions` is the set as of
//! `version`; snapshots are registered under the same lock that publishes, so a step knows which older versions are read.
//! Concurrency: one lock, held for short work in memory only; one step at a time ([`Shard::stepping`]).

use crate::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::memory::StreamMemory;
use crate::partitions::PartitionSet;
use headwater_codec::leaf::EncodeHints;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) state: Mutex<ShardState>,
    /// Held while a step of this shard runs.
    pub(crate) stepping: Mutex<StepScratch>,
}

/// What steps of a shard remember from one to the next.
#[derive(Debug, Default)]
pub(crate) struct StepScratch {
    pub(crate) hints: HashMap<TableId, EncodeHints>,
}

#[derive(Debug, Default)]
pub(crate) struct ShardState {
    pub(crate) streams: HashMap<StreamId, ShardStream>,
    /// Streams with events in memory.
    pub(crate) active: HashSet<StreamId>,
    pub(crate) bytes: usize,
    pub(crate) flank_events: usize,
    pub(crate) late_events: usize,
    pub(crate) version: u64,
    pub(crate) partitions: Arc<PartitionSet>,
    /// Sequence of the newest published step.
    pub(crate) step_sequence: Sequence,
    /// Open snapshots by the version they see.
    snapshots: BTreeMap<u64, usize>,
    retired: Vec<StreamId>,
    /// Partitions a compaction is rewriting: they take no groups.
    pub(crate) busy: HashSet<SegmentId>,
}

/// A stream touched since opening.
#[derive(Debug)]
pub(crate) struct ShardStream {
    pub(crate) table: TableId,
    pub(crate) memory: StreamMemory,
}

impl Shard {
    pub(crate) fn new(partitions: PartitionSet) -> Shard {
        let state = ShardState {
            partitions: Arc::new(partitions),
            version: 1,
            ..ShardState::default()
        };
        Shard {
            state: Mutex::new(state),
            stepping: Mutex::new(StepScratch::default()),
        }
    }
}

impl ShardState {
    /// Changes one stream's memory and keeps the shard's sums right. Returns the change in bytes.
    pub(crate) fn with_stream<T>(
        &mut self,
        stream: StreamId,
        table: TableId,
        change: impl FnOnce(&mut StreamMemory) -> T,
    ) -> (T, isize) {
        let slot = self.streams.entry(stream).or_insert_with(|| ShardStream {
            table,
            memory: StreamMemory::default(),
        });
        let memory = &mut slot.memory;
        let (bytes, flank, late) = (memory.bytes, memory.flank_rows, memory.late_rows);
        let result = change(memory);
        self.bytes = self.bytes + memory.bytes - bytes;
        self.flank_events = self.flank_events + memory.flank_rows - flank;
        self.late_events = self.late_events + memory.late_rows - late;
        let change = memory.bytes as isize - bytes as isize;
        if memory.rows() > 0 {
            self.active.insert(stream);
        } else {
            self.active.remove(&stream);
        }
        (result, change)
    }

    /// The smallest sequence of an event in memory.
    pub(crate) fn first_sequence(&self) -> Option<Sequence> {
        self.active
            .iter()
            .filter_map(|s| self.streams.get(s)?.memory.first_sequence())
            .min()
    }

    /// Registers a snapshot of the present version.
    pub(crate) fn open_snapshot(&mut self) -> (u64, Arc<PartitionSet>) {
        *self.snapshots.entry(self.version).or_default() += 1;
        (self.version, Arc::clone(&self.partitions))
    }

    /// Forgets a snapshot. Returns the bytes of memory that nobody can see any more.
    pub(crate) fn close_snapshot(&mut self, version: u64) -> usize {
        if let Some(count) = self.snapshots.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.snapshots.remove(&version);
            }
        }
        if self.retired.is_empty() {
            return 0;
        }
        let oldest = self
            .snapshots
            .first_key_value()
            .map_or(u64::MAX, |(v, _)| *v);
        let before = self.bytes;
        let mut retired = std::mem::take(&mut self.retired);
        retired.retain(|stream| {
            let Some(slot) = self.streams.get_mut(stream) else {
                return false;
            };
            let bytes = slot.memory.bytes;
            slot.memory.purge_retired(oldest);
            self.bytes = self.bytes + slot.memory.bytes - bytes;
            slot.memory.has_retired()
        });
        self.retired = retired;
        before - self.bytes
    }

    pub(crate) fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    pub(crate) fn note_retired(&mut self, stream: StreamId) {
        self.retired.push(stream);
    }
}
